//! The command lines of `view` and `diff`.

use std::path::PathBuf;

use clap::Args;
use sidewinder_config::ListenAddress;

use super::code::CodeArgs;
use super::debuginfod::DebuginfodArgs;
use super::table::{TableArgs, layout_of_table};
use super::values::{FormatArg, NamesArg};

#[derive(Debug, Args)]
#[command(group(layout_of_table()))]
pub(crate) struct ViewArgs {
    /// A profile: .otlp, pprof, folded stacks, perf.data, or the text of `perf script`
    #[arg(required_unless_present = "listen")]
    pub(crate) file: Option<PathBuf>,
    /// Show what profilers and Collectors send to this address over OTLP, as it arrives
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "127.0.0.1:4317", conflicts_with_all = ["file", "output", "sample_type", "names", "table"])]
    pub(crate) listen: Option<ListenAddress>,
    /// Which profiles to show if a file holds several: by sample type in .otlp (off_cpu, faults), by event in perf's files
    /// (cycles:P); by default CPU time, or the first
    #[arg(long, value_name = "NAME")]
    pub(crate) sample_type: Option<String>,
    /// Write to this file instead; its suffix sets the format, as with `record`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The format, regardless of the file's suffix, for example for -o /dev/stdout
    #[arg(long, value_name = "FORMAT", requires = "output")]
    pub(crate) format: Option<FormatArg>,
    /// How to show function names; by default full in folded stacks, and short in pages, images and tables. Other tools' formats
    /// always have full names
    #[arg(long, value_name = "STYLE")]
    pub(crate) names: Option<NamesArg>,
    /// Print a table of the busiest functions for each type of profile instead of showing the page; with --output, in addition to
    /// writing the file
    #[arg(long)]
    pub(crate) table: bool,
    #[command(flatten)]
    pub(crate) table_layout: TableArgs,
    #[command(flatten)]
    pub(crate) code: CodeArgs,
    #[command(flatten)]
    pub(crate) debuginfod: DebuginfodArgs,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// The earlier profile
    pub(crate) before: PathBuf,
    /// The later profile
    pub(crate) after: PathBuf,
    /// Which profiles of the two files to compare, as with `view`
    #[arg(long, value_name = "NAME")]
    pub(crate) sample_type: Option<String>,
    /// Write the page to this .html file instead of serving it, which happens only in a terminal
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    /// Compare values per second of recording instead of shares of all samples
    #[arg(long, conflicts_with = "requests")]
    pub(crate) per_second: bool,
    /// Compare values per request, given the number of requests (or other units of work) completed during each recording
    #[arg(long, value_name = "BEFORE,AFTER", value_parser = request_counts)]
    pub(crate) requests: Option<[u64; 2]>,
    /// How to show function names
    #[arg(long, value_name = "STYLE", default_value = "short")]
    pub(crate) names: NamesArg,
}

fn request_counts(text: &str) -> Result<[u64; 2], String> {
    let counts =
        text.split_once(',').and_then(|(before, after)| Some([before.parse().ok()?, after.parse().ok()?]));
    counts
        .filter(|counts| !counts.contains(&0))
        .ok_or_else(|| "not two numbers above 0; example: 1200,1500".to_owned())
}
