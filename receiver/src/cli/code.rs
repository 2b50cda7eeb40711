//! What the command line says of the code of profiled functions.

use std::path::PathBuf;

use clap::Args;

use super::{DebuginfodArgs, NamesArg};
use crate::annotate::SourcePath;

#[derive(Debug, Args)]
pub(crate) struct CodeArgs {
    /// Show source files below this directory in the page; FROM=TO: those that were below FROM when they were compiled
    ///
    /// Of each source file that debug information names, the file is read whose path has the longest end in common, as far as
    /// it is a regular file below the directory of at most 2 MiB. A page in a file has the lines with samples and their
    /// neighbours. May be given several times.
    #[arg(long, value_name = "DIR|FROM=TO", help_heading = "Code")]
    pub(crate) source_path: Vec<SourcePath>,
    /// Write the instructions of the hottest functions into the page, of 10 or this many
    ///
    /// Of functions whose binaries are still there, with the build ID that was profiled. A page that is served lists any
    /// function without this.
    #[arg(long, value_name = "FUNCTIONS", num_args = 0..=1, require_equals = true, default_missing_value = "10", value_parser = clap::value_parser!(u16).range(1..=1000), help_heading = "Code")]
    pub(crate) assembly: Option<u16>,
}

#[derive(Debug, Args)]
pub(crate) struct AnnotateArgs {
    /// A profile: .otlp, pprof, or folded stacks
    pub(crate) file: PathBuf,
    /// A function, by its full or short name, or a part that no other name has
    pub(crate) function: String,
    /// List its instructions instead of its lines, if its binary is still there, with the build ID that was profiled
    #[arg(long)]
    pub(crate) assembly: bool,
    /// Show source files below this directory; FROM=TO: those that were below FROM when they were compiled; repeatable
    #[arg(long, value_name = "DIR|FROM=TO")]
    pub(crate) source_path: Vec<SourcePath>,
    #[command(flatten)]
    pub(crate) debuginfod: DebuginfodArgs,
    /// Which profiles of an .otlp file to show, by their sample type, as with view
    #[arg(long, value_name = "NAME")]
    pub(crate) sample_type: Option<String>,
    /// How functions are named
    #[arg(long, value_name = "STYLE", default_value = "short")]
    pub(crate) names: NamesArg,
}
