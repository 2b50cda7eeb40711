//! The command line of `top`.

use clap::Args;
use sidewinder_config::ProbeSpec;

use super::{DebuginfodArgs, NamesArg, TableArgs, probe, process, wait_fraction};
use crate::event_arg::EventArg;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("processes").args(["pid", "comm"])))]
pub(crate) struct TopArgs {
    /// Process ID; repeatable or comma-separated; without this and --comm, every process
    #[arg(short, long, value_name = "PID", value_parser = process, value_delimiter = ',', conflicts_with = "comm")]
    pub(crate) pid: Vec<u32>,
    /// Processes of this name, including future ones; `*` and `?` stand for any characters; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Vec<String>,
    /// Thread ID; repeatable or comma-separated
    #[arg(short, long, value_name = "TID", value_parser = process, value_delimiter = ',', conflicts_with_all = ["pid", "comm"])]
    pub(crate) tid: Vec<u32>,
    /// Include the children of these processes, and theirs, those that run already and those to come, which is the default
    #[arg(long, overrides_with = "no_children", hide_short_help = true)]
    pub(crate) children: bool,
    /// Leave the children of these processes out
    #[arg(long, overrides_with = "children", requires = "processes")]
    pub(crate) no_children: bool,
    /// Samples per second and CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 97, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) frequency: u32,
    /// Show a counter instead of CPU time, by its name in `perf list`, with a period in counts or a frequency per CPU
    #[arg(short, long, value_name = "NAME[:PERIOD|@HZ]", value_parser = EventArg::parse, group = "shown")]
    pub(crate) event: Option<EventArg>,
    /// Show the hits of a probe instead of CPU time: uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION,
    /// usdt:PATH:PROVIDER:NAME, where PATH is as the program sees it, or tracepoint:CATEGORY:NAME
    #[arg(long, value_name = "SPEC", value_parser = probe, group = "shown")]
    pub(crate) probe: Option<ProbeSpec>,
    /// Show off-CPU time instead of CPU time; sample 1% or more of waits
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, group = "shown")]
    pub(crate) off_cpu: Option<f64>,
    /// Show the time of waits for locks instead of CPU time; sample 1% or more of waits in futexes
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, group = "shown")]
    pub(crate) locks: Option<f64>,
    /// With --locks, show who ends these waits instead of who waits: the threads that release the locks
    #[arg(long, requires = "locks")]
    pub(crate) lock_wakers: bool,
    /// Show wall time instead of CPU time: running, runnable and off-CPU time; sample 1% or more of context switches
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, group = "shown")]
    pub(crate) wall: Option<f64>,
    /// The time range that is shown, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
    /// Leave kernel frames out
    #[arg(long)]
    pub(crate) no_kernel: bool,
    /// Name functions of JavaScript as in the sources that scripts were made of, where a source map is on disk
    #[arg(long)]
    pub(crate) source_maps: bool,
    /// How functions are named
    #[arg(long, value_name = "STYLE", default_value = "short")]
    pub(crate) names: NamesArg,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    #[command(flatten)]
    pub(crate) debuginfod: DebuginfodArgs,
}
