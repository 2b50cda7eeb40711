//! The command line of `record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidewinder_config::{ListenAddress, ProbeSpec};
use sidewinder_kind::CpuIds;

use super::code::CodeArgs;
use super::debuginfod::DebuginfodArgs;
use super::table::{TableArgs, layout_of_table};
use super::values::{
    FormatArg, NamesArg, UnwindArg, cpus, duration, identifier, probe, process, wait_fraction,
};
use crate::event_arg::EventArg;

/// What `-h` ends with.
pub(super) const EXAMPLES: &str = "Examples:\n  \
        sidewinder record -p 1234 -d 10 -o profile.html\n  \
        sidewinder record -a -d 5 --table\n  \
        sidewinder record -o out.pb.gz -- make -j8\n\n\
        --help has more examples, the formats and the exit codes.";

/// What `--help` ends with.
pub(super) const LONG_HELP: &str = "Examples:\n  \
        sidewinder record -p 1234 -d 10s -o profile.html\n  \
        sidewinder record -F 997 -a -d 5s -o out.folded\n  \
        sidewinder record -e page-faults -p 1234 -d 10s          which stacks grow the memory\n  \
        sidewinder record --probe uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc,value=arg0,unit=bytes -p 1234 -d 10s\n  \
        sidewinder record -e cpu-clock,page-faults:1 -o out.otlp -- ./server\n  \
        sidewinder record -p 1234 --no-children -d 10s      a process without its workers\n  \
        sidewinder record --comm 'nginx*' -d 10s -o out.speedscope.json\n  \
        sidewinder record -p 1234 --span 00f067aa0ba902b7 -o span.svg\n  \
        sidewinder record -o out.pb.gz -- make -j8\n  \
        sidewinder record -D 5 -d 10 -- ./server            from its sixth second\n  \
        sidewinder record -a -C 0-3 -d 5 --table            only some CPUs\n  \
        sidewinder record -p 1234 --per-thread -d 10 -o threads.svg\n  \
        sidewinder record -a -d 5s -o /dev/stdout --format folded | grep -c malloc\n  \
        sidewinder record --source-path src --assembly -- ./server     with the cost of each line and instruction\n  \
        sidewinder record --ui -- ./server             with a live page on http://localhost:7878/\n\n\
        The suffix of the file sets its format:\n  \
        .otlp    OpenTelemetry ProfilesData, protobuf\n  \
        .pb.gz   pprof\n  \
        .folded  one line per stack, for flame graph tools\n  \
        .svg     a flame graph as an image\n  \
        .html    an interactive page that needs no network\n  \
        .firefox.json     for https://profiler.firefox.com\n  \
        .speedscope.json  for https://www.speedscope.app\n\n\
        An existing file is replaced only once the whole profile is written. Ctrl-C, SIGTERM, SIGHUP or closing the \
        terminal ends the recording and writes it.\n\n\
        The exit code of a command is passed on; it is 0 if sidewinder ended the command, after -d or on a signal. \
        125: sidewinder itself failed; 126: the command can't be executed; 127: there is no such command. After 126 and \
        127 nothing is written.";

#[derive(Debug, Args)]
#[command(group(layout_of_table()))]
#[command(group(clap::ArgGroup::new("target").required(true).args(["pid", "tid", "comm", "all", "command"])))]
pub(crate) struct RecordArgs {
    /// Process ID; repeatable or comma-separated
    #[arg(short, long, value_name = "PID", value_parser = process, value_delimiter = ',', help_heading = "Processes")]
    pub(crate) pid: Vec<u32>,
    /// Thread ID; repeatable or comma-separated
    #[arg(short, long, value_name = "TID", value_parser = process, value_delimiter = ',', help_heading = "Processes")]
    pub(crate) tid: Vec<u32>,
    /// Processes of this name, including future ones
    ///
    /// `*` and `?` are wildcards; repeatable.
    #[arg(long, value_name = "NAME", help_heading = "Processes")]
    pub(crate) comm: Vec<String>,
    /// Every process
    #[arg(short, long, help_heading = "Processes")]
    pub(crate) all: bool,
    /// Include all descendants of these processes (the default)
    ///
    /// Both running and future ones. A process orphaned and reparented before the recording no longer counts as a child.
    #[arg(long, overrides_with = "no_children", hide_short_help = true, help_heading = "Processes")]
    pub(crate) children: bool,
    /// Exclude the children of these processes
    #[arg(long, overrides_with = "children", conflicts_with_all = ["all", "tid"], help_heading = "Processes")]
    pub(crate) no_children: bool,
    /// Only these CPUs, for example 0-3,8
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = cpus, default_value = "", hide_default_value = true, help_heading = "Processes")]
    pub(crate) cpus: CpuIds,
    /// Show threads separately
    ///
    /// Tables are split by thread, the page opens grouped by thread, and stacks in .folded and .svg start with the process and
    /// the thread. Other formats always contain the thread of each sample.
    #[arg(long, help_heading = "Processes")]
    pub(crate) per_thread: bool,
    /// A command to run and profile, including its children
    #[arg(last = true, value_name = "COMMAND", help_heading = "Processes")]
    pub(crate) command: Vec<OsString>,

    /// How long to record, for example 10, 2.5, 10s or 1m30s; by default until interrupted
    ///
    /// Without it, a recording also ends when all profiled processes have exited.
    #[arg(short, long, value_name = "TIME", value_parser = duration, help_heading = "Time")]
    pub(crate) duration: Option<Duration>,
    /// Start sampling after this time (2, 500ms), for example to skip the command's startup
    ///
    /// Processes are tracked from the start; --duration counts from the start of sampling.
    #[arg(short = 'D', long, value_name = "TIME", value_parser = duration, help_heading = "Time")]
    pub(crate) delay: Option<Duration>,
    /// Samples per second and CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 97, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Time")]
    pub(crate) frequency: u32,

    /// Counters to sample instead of CPU time, for example page-faults:64 or cpu-cycles@97
    ///
    /// Names are those of `perf list`, with a period in counts or a frequency per CPU; cpu-clock is CPU time. Comma-separated;
    /// each becomes a profile. `sidewinder check` lists the counters available here.
    #[arg(short, long = "event", value_name = "NAME[:PERIOD|@HZ]", value_parser = EventArg::parse, value_delimiter = ',', help_heading = "What to sample")]
    pub(crate) events: Vec<EventArg>,
    /// A probe in a program or the kernel to sample instead of CPU time, for example uprobe:PATH:FUNCTION
    ///
    /// uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION, usdt:PATH:PROVIDER:NAME (PATH as the program sees it) or
    /// tracepoint:CATEGORY:NAME. Append ,value=arg0 to sum an argument instead of counting hits. Repeatable; each becomes a
    /// profile.
    #[arg(long, value_name = "SPEC", value_parser = probe, help_heading = "What to sample")]
    pub(crate) probe: Vec<ProbeSpec>,
    /// Also record off-CPU time: where threads wait
    ///
    /// Samples at least 1% of waits, or FRACTION. Formats other than .otlp get a second file.
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, help_heading = "What to sample")]
    pub(crate) off_cpu: Option<f64>,
    /// Also record lock contention: the number of waits and their time
    ///
    /// Samples at least 1% of futex waits, or FRACTION. Formats other than .otlp get separate files.
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, help_heading = "What to sample")]
    pub(crate) locks: Option<f64>,
    /// With --locks, also record which threads end these waits
    ///
    /// The time of each wait, by the stack of the thread that releases the lock. Every wake-up on the machine takes about
    /// 0.1 us longer.
    #[arg(long, requires = "locks", help_heading = "What to sample")]
    pub(crate) lock_wakers: bool,
    /// Record wall time instead of CPU time: running, runnable and off-CPU time
    ///
    /// In one profile. Samples at least 1% of context switches, or FRACTION.
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, conflicts_with = "off_cpu", help_heading = "What to sample")]
    pub(crate) wall: Option<f64>,

    /// The file to write; its suffix sets the format
    ///
    /// A pipe or a device is written to directly.
    #[arg(short, long, value_name = "FILE", default_value = "profile.html", help_heading = "Output")]
    pub(crate) output: PathBuf,
    /// The format, regardless of the file's suffix; needed for -o /dev/stdout
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, help_heading = "Output")]
    pub(crate) format: Option<FormatArg>,
    /// How to show function names: short or full
    ///
    /// The default is full in folded stacks, and short in pages, images and tables. Other tools' formats always have full
    /// names.
    #[arg(long, value_name = "STYLE", hide_possible_values = true, help_heading = "Output")]
    pub(crate) names: Option<NamesArg>,
    /// Also print a table of the busiest functions
    #[arg(long, help_heading = "Output")]
    pub(crate) table: bool,
    #[command(flatten, next_help_heading = "Output")]
    pub(crate) table_layout: TableArgs,
    /// Also write a JSON summary that accounts for every interrupt
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(crate) summary_json: Option<PathBuf>,
    /// Serve a live page during the recording, on this machine or at another address
    #[arg(long, value_name = "ADDRESS", num_args = 0..=1, require_equals = true, default_missing_value = "localhost:7878", help_heading = "Output")]
    pub(crate) ui: Option<ListenAddress>,
    /// Print errors only
    #[arg(short, long, help_heading = "Output")]
    pub(crate) quiet: bool,

    #[command(flatten)]
    pub(crate) code: CodeArgs,
    #[command(flatten)]
    pub(crate) debuginfod: DebuginfodArgs,

    /// Only events within this span: 16 hexadecimal digits
    #[arg(long, value_name = "ID", value_parser = identifier::<8>, help_heading = "Spans")]
    pub(crate) span: Option<[u8; 8]>,
    /// Only events within spans of this trace: 32 hexadecimal digits
    #[arg(long, value_name = "ID", value_parser = identifier::<16>, help_heading = "Spans")]
    pub(crate) trace: Option<[u8; 16]>,
    /// Also read labels of the custom-labels library
    ///
    /// They give the span of threads that publish no thread context.
    #[arg(long, hide_short_help = true, help_heading = "Spans")]
    pub(crate) custom_labels: bool,
    /// Another key that threads publish with their span, to add to samples in .otlp
    ///
    /// It becomes an attribute; repeatable.
    #[arg(long, value_name = "KEY", help_heading = "Spans")]
    pub(crate) attribute: Vec<String>,

    /// How to unwind stacks: auto, frame-pointers or tables
    #[arg(
        long,
        value_name = "MODE",
        default_value = "auto",
        hide_possible_values = true,
        help_heading = "Stacks"
    )]
    pub(crate) unwind: UnwindArg,
    /// The number of frames after which a stack is truncated, and marked as such
    #[arg(long, value_name = "FRAMES", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=8192), hide_short_help = true, help_heading = "Stacks")]
    pub(crate) max_frames: u32,
    /// Include kernel frames (the default)
    #[arg(long, overrides_with = "no_kernel", hide_short_help = true, help_heading = "Stacks")]
    pub(crate) kernel: bool,
    /// Exclude kernel frames
    #[arg(long, overrides_with = "kernel", help_heading = "Stacks")]
    pub(crate) no_kernel: bool,
    /// Show only native code: no functions of language runtimes
    #[arg(long, help_heading = "Stacks")]
    pub(crate) no_interpreters: bool,
    /// Also show interpreter loops, which are otherwise replaced by the Python functions that they run
    #[arg(long, hide_short_help = true, help_heading = "Stacks")]
    pub(crate) vm_internals: bool,
    /// Map JavaScript functions to their original sources, such as TypeScript, using source maps on disk
    #[arg(long, help_heading = "Stacks")]
    pub(crate) source_maps: bool,
    /// Memory for unwind tables, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=512), hide_short_help = true, help_heading = "Stacks")]
    pub(crate) table_budget_mib: u32,
}
