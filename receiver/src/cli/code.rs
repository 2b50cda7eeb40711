//! What the command line says of the code of profiled functions.

use std::path::PathBuf;

use clap::Args;
use sidewinder_server::annotate::SourcePath;

use super::debuginfod::DebuginfodArgs;
use super::values::NamesArg;

#[derive(Debug, Args)]
pub(crate) struct CodeArgs {
    /// Show source files below this directory in the page; FROM=TO: those below FROM at compile time
    ///
    /// For each source file named by debug information, the file below the directory whose path has the longest suffix in
    /// common is read, if it is a regular file of at most 2 MiB. A page in a file contains the lines with samples and the lines
    /// around them. Repeatable.
    #[arg(long, value_name = "DIR|FROM=TO", help_heading = "Code")]
    pub(crate) source_path: Vec<SourcePath>,
    /// Write the instructions of the hottest functions into the page: 10 or this many
    ///
    /// Needs the functions' binaries, with the profiled build IDs. A served page lists any function without this.
    #[arg(long, value_name = "FUNCTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Code")]
    pub(crate) assembly: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct AnnotateArgs {
    /// A profile: .otlp, pprof, or folded stacks
    pub(crate) file: PathBuf,
    /// A function's full or short name, or any unique part of it
    pub(crate) function: String,
    /// List its instructions instead of its lines; needs its binary, with the profiled build ID
    #[arg(long)]
    pub(crate) assembly: bool,
    /// Show source files below this directory; FROM=TO: those below FROM at compile time; repeatable
    #[arg(long, value_name = "DIR|FROM=TO")]
    pub(crate) source_path: Vec<SourcePath>,
    #[command(flatten)]
    pub(crate) debuginfod: DebuginfodArgs,
    /// Which profiles of an .otlp file to show, by sample type, as with `view`
    #[arg(long, value_name = "NAME")]
    pub(crate) sample_type: Option<String>,
    /// How to show function names
    #[arg(long, value_name = "STYLE", default_value = "short")]
    pub(crate) names: NamesArg,
}
