//! The command line of `top`.

use clap::Args;
use sidewinder_config::ProbeSpec;

use super::debuginfod::DebuginfodArgs;
use super::table::TableArgs;
use super::values::{NamesArg, probe, process, wait_fraction};
use crate::event_arg::EventArg;

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("processes").args(["pid", "comm"])))]
pub(crate) struct TopArgs {
    /// Process ID; repeatable or comma-separated; by default every process
    #[arg(short, long, value_name = "PID", value_parser = process, value_delimiter = ',', conflicts_with = "comm")]
    pub(crate) pid: Vec<u32>,
    /// Processes of this name, including future ones; `*` and `?` are wildcards; repeatable
    #[arg(long, value_name = "NAME")]
    pub(crate) comm: Vec<String>,
    /// Thread ID; repeatable or comma-separated
    #[arg(short, long, value_name = "TID", value_parser = process, value_delimiter = ',', conflicts_with_all = ["pid", "comm"])]
    pub(crate) tid: Vec<u32>,
    /// Include all descendants of these processes, both running and future ones (the default)
    #[arg(long, overrides_with = "no_children", hide_short_help = true)]
    pub(crate) children: bool,
    /// Exclude the children of these processes
    #[arg(long, overrides_with = "children", requires = "processes")]
    pub(crate) no_children: bool,
    /// Samples per second and CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 97, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) frequency: u32,
    /// Show a counter instead of CPU time, by its name in `perf list` and a period in counts or a frequency per CPU
    #[arg(short, long, value_name = "NAME[:PERIOD|@HZ]", value_parser = EventArg::parse, group = "shown")]
    pub(crate) event: Option<EventArg>,
    /// Show a probe's hits instead of CPU time: uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION,
    /// usdt:PATH:PROVIDER:NAME (PATH as the program sees it) or tracepoint:CATEGORY:NAME
    #[arg(long, value_name = "SPEC", value_parser = probe, group = "shown")]
    pub(crate) probe: Option<ProbeSpec>,
    /// Show off-CPU time instead of CPU time; sample at least 1% of waits, or FRACTION
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, group = "shown")]
    pub(crate) off_cpu: Option<f64>,
    /// Show the time spent waiting for locks instead of CPU time; sample at least 1% of futex waits, or FRACTION
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, group = "shown")]
    pub(crate) locks: Option<f64>,
    /// With --locks, show the threads that release the locks instead of those that wait
    #[arg(long, requires = "locks")]
    pub(crate) lock_wakers: bool,
    /// Show wall time (running, runnable and off-CPU time) instead of CPU time; sample at least 1% of context switches, or FRACTION
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, group = "shown")]
    pub(crate) wall: Option<f64>,
    /// The time range to show, in seconds
    #[arg(short, long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub(crate) seconds: u32,
    /// Exclude kernel frames
    #[arg(long)]
    pub(crate) no_kernel: bool,
    /// Map JavaScript functions to their original sources, using source maps on disk
    #[arg(long)]
    pub(crate) source_maps: bool,
    /// How to show function names
    #[arg(long, value_name = "STYLE", default_value = "short")]
    pub(crate) names: NamesArg,
    #[command(flatten)]
    pub(crate) table: TableArgs,
    #[command(flatten)]
    pub(crate) debuginfod: DebuginfodArgs,
}
