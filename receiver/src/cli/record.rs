//! The command line of `record`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use sidewinder_config::{ListenAddress, ProbeSpec};
use sidewinder_kind::CpuIds;

use super::{
    CodeArgs, DebuginfodArgs, FormatArg, NamesArg, TableArgs, UnwindArg, cpus, duration, identifier,
    layout_of_table, probe, process, wait_fraction,
};
use crate::event_arg::EventArg;

/// What `-h` ends with.
pub(super) const EXAMPLES: &str = "Examples:\n  \
        sidewinder record -p 1234 -d 10 -o profile.html\n  \
        sidewinder record -a -d 5 --table\n  \
        sidewinder record -o out.pb.gz -- make -j8\n\n\
        --help has more of them, the formats and the exit codes.";

/// What `--help` ends with.
pub(super) const LONG_HELP: &str = "Examples:\n  \
        sidewinder record -p 1234 -d 10s -o profile.html\n  \
        sidewinder record -F 997 -a -d 5s -o out.folded\n  \
        sidewinder record -e page-faults -p 1234 -d 10s          who grows the memory, by stack\n  \
        sidewinder record --probe uprobe:/usr/lib/x86_64-linux-gnu/libc.so.6:malloc,value=arg0,unit=bytes -p 1234 -d 10s\n  \
        sidewinder record -e cpu-clock,page-faults:1 -o out.otlp -- ./server\n  \
        sidewinder record -p 1234 --no-children -d 10s      a process without its workers\n  \
        sidewinder record --comm 'nginx*' -d 10s -o out.speedscope.json\n  \
        sidewinder record -p 1234 --span 00f067aa0ba902b7 -o span.svg\n  \
        sidewinder record -o out.pb.gz -- make -j8\n  \
        sidewinder record -D 5 -d 10 -- ./server            from its sixth second on\n  \
        sidewinder record -a -C 0-3 -d 5 --table            what some CPUs do\n  \
        sidewinder record -p 1234 --per-thread -d 10 -o threads.svg\n  \
        sidewinder record -a -d 5s -o /dev/stdout --format folded | grep -c malloc\n  \
        sidewinder record --source-path src --assembly -- ./server     with costs of lines and of instructions\n  \
        sidewinder record --ui -- ./server             and look at http://localhost:7878/ meanwhile\n\n\
        The suffix of the file sets its format:\n  \
        .otlp    OpenTelemetry ProfilesData, protobuf\n  \
        .pb.gz   pprof\n  \
        .folded  a line for each stack, for flame graph tools\n  \
        .svg     a flame graph as a picture\n  \
        .html    an interactive page that needs no network\n  \
        .firefox.json     for https://profiler.firefox.com\n  \
        .speedscope.json  for https://www.speedscope.app\n\n\
        An existing file is replaced once the whole profile is written. Ctrl-C, SIGTERM, SIGHUP and a closed \
        terminal end a recording, which is then written.\n\n\
        With a command, its exit code is passed on, or 0 if sidewinder ended the command, after -d or a signal. \
        125: sidewinder itself failed, 126: the command can't be executed, 127: there is no such command; nothing is \
        written then.";

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
    /// `*` and `?` stand for any characters; repeatable.
    #[arg(long, value_name = "NAME", help_heading = "Processes")]
    pub(crate) comm: Vec<String>,
    /// Every process
    #[arg(short, long, help_heading = "Processes")]
    pub(crate) all: bool,
    /// Include the children of these processes, and theirs, which is the default
    ///
    /// Those that run already and those to come. An orphan that was adopted by another process before the recording is no child
    /// any more.
    #[arg(long, overrides_with = "no_children", hide_short_help = true, help_heading = "Processes")]
    pub(crate) children: bool,
    /// Leave the children of these processes out
    #[arg(long, overrides_with = "children", conflicts_with_all = ["all", "tid"], help_heading = "Processes")]
    pub(crate) no_children: bool,
    /// Only what these processes do on some CPUs, for example 0-3,8
    #[arg(short = 'C', long, value_name = "CPUS", value_parser = cpus, default_value = "", hide_default_value = true, help_heading = "Processes")]
    pub(crate) cpus: CpuIds,
    /// Keep the threads apart
    ///
    /// Tables are by thread, the page begins with its boxes grouped by thread, and stacks in .folded and .svg begin with the
    /// process and the thread. Other formats have the thread of each sample in any case.
    #[arg(long, help_heading = "Processes")]
    pub(crate) per_thread: bool,
    /// A command to run and profile, with its children
    #[arg(last = true, value_name = "COMMAND", help_heading = "Processes")]
    pub(crate) command: Vec<OsString>,

    /// For how long, for example 10, 2.5, 10s or 1m30s; by default until interrupted
    ///
    /// Without it a recording also ends when all profiled processes have ended.
    #[arg(short, long, value_name = "TIME", value_parser = duration, help_heading = "Time")]
    pub(crate) duration: Option<Duration>,
    /// Begin to sample after this time (2, 500ms), for example when the command has started up
    ///
    /// Processes are followed from the start on. --duration counts from then on.
    #[arg(short = 'D', long, value_name = "TIME", value_parser = duration, help_heading = "Time")]
    pub(crate) delay: Option<Duration>,
    /// Samples per second and CPU
    #[arg(short = 'F', long, value_name = "HZ", default_value_t = 97, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = "Time")]
    pub(crate) frequency: u32,

    /// A counter to sample instead of CPU time, as page-faults:64 or cpu-cycles@97
    ///
    /// By its name in `perf list`, with a period in counts or a frequency per CPU; cpu-clock is CPU time. Of several,
    /// separated by commas, each becomes a profile. `sidewinder check` lists the counters of this machine.
    #[arg(short, long = "event", value_name = "NAME[:PERIOD|@HZ]", value_parser = EventArg::parse, value_delimiter = ',', help_heading = "What to sample")]
    pub(crate) events: Vec<EventArg>,
    /// A place in a program or in the kernel to sample instead of CPU time, as uprobe:PATH:FUNCTION
    ///
    /// uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION or usdt:PATH:PROVIDER:NAME, where PATH is as the program sees
    /// it, or tracepoint:CATEGORY:NAME; with ,value=arg0 behind it for the sum of an argument instead of the number of hits. May be given several times,
    /// and each becomes a profile.
    #[arg(long, value_name = "SPEC", value_parser = probe, help_heading = "What to sample")]
    pub(crate) probe: Vec<ProbeSpec>,
    /// Also record off-CPU time: where threads wait
    ///
    /// Samples 1% or more of waits; FRACTION sets another minimum. Formats other than .otlp get a file of its own.
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, help_heading = "What to sample")]
    pub(crate) off_cpu: Option<f64>,
    /// Also record waits for locks, their number and their time
    ///
    /// Samples 1% or more of waits in futexes; FRACTION sets another minimum. Formats other than .otlp get files of their own.
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, help_heading = "What to sample")]
    pub(crate) locks: Option<f64>,
    /// With --locks, also record who ends these waits
    ///
    /// The time of each, by the stack of the thread that releases the lock. Each wake-up of the machine takes some 0.1 us more.
    #[arg(long, requires = "locks", help_heading = "What to sample")]
    pub(crate) lock_wakers: bool,
    /// Record wall time instead of CPU time: running, runnable and off-CPU time
    ///
    /// In one profile; samples 1% or more of context switches, and FRACTION sets another minimum.
    #[arg(long, value_name = "FRACTION", num_args = 0..=1, require_equals = true, default_missing_value = "0.01", value_parser = wait_fraction, conflicts_with = "off_cpu", help_heading = "What to sample")]
    pub(crate) wall: Option<f64>,

    /// The file to write; its suffix sets the format
    ///
    /// A pipe or a device is written to directly.
    #[arg(short, long, value_name = "FILE", default_value = "profile.html", help_heading = "Output")]
    pub(crate) output: PathBuf,
    /// The format, whatever the file's suffix; needed for -o /dev/stdout
    #[arg(long, value_name = "FORMAT", hide_possible_values = true, help_heading = "Output")]
    pub(crate) format: Option<FormatArg>,
    /// How functions are named: short or full
    ///
    /// By default in full in folded stacks, and short in pages, pictures and tables. Formats of other tools always have full
    /// names.
    #[arg(long, value_name = "STYLE", hide_possible_values = true, help_heading = "Output")]
    pub(crate) names: Option<NamesArg>,
    /// Also print a table of the busiest functions
    #[arg(long, help_heading = "Output")]
    pub(crate) table: bool,
    #[command(flatten, next_help_heading = "Output")]
    pub(crate) table_layout: TableArgs,
    /// Also write a summary as JSON, with the outcome of every interrupt
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

    /// Only events inside of this span: 16 hexadecimal digits
    #[arg(long, value_name = "ID", value_parser = identifier::<8>, help_heading = "Spans")]
    pub(crate) span: Option<[u8; 8]>,
    /// Only events inside of spans of this trace: 32 hexadecimal digits
    #[arg(long, value_name = "ID", value_parser = identifier::<16>, help_heading = "Spans")]
    pub(crate) trace: Option<[u8; 16]>,
    /// Also read the labels of the library custom-labels
    ///
    /// For the span of threads that publish no record.
    #[arg(long, hide_short_help = true, help_heading = "Spans")]
    pub(crate) custom_labels: bool,
    /// A key that threads publish besides their span, to add to samples in .otlp
    ///
    /// As an attribute; repeatable.
    #[arg(long, value_name = "KEY", help_heading = "Spans")]
    pub(crate) attribute: Vec<String>,

    /// How stacks are unwound: auto, frame-pointers or tables
    #[arg(
        long,
        value_name = "MODE",
        default_value = "auto",
        hide_possible_values = true,
        help_heading = "Stacks"
    )]
    pub(crate) unwind: UnwindArg,
    /// Frames after which a stack is truncated, and marked as such
    #[arg(long, value_name = "FRAMES", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..=8192), hide_short_help = true, help_heading = "Stacks")]
    pub(crate) max_frames: u32,
    /// Include kernel frames, which is the default
    #[arg(long, overrides_with = "no_kernel", hide_short_help = true, help_heading = "Stacks")]
    pub(crate) kernel: bool,
    /// Leave kernel frames out
    #[arg(long, overrides_with = "kernel", help_heading = "Stacks")]
    pub(crate) no_kernel: bool,
    /// Leave out the functions of Python and Java programs: show native code alone
    #[arg(long, help_heading = "Stacks")]
    pub(crate) no_interpreters: bool,
    /// Also show the loops of interpreters, which the functions of Python programs stand for
    #[arg(long, hide_short_help = true, help_heading = "Stacks")]
    pub(crate) vm_internals: bool,
    /// Show functions of JavaScript as in the sources that scripts were made of, as TypeScript, where a source map is on disk
    #[arg(long, help_heading = "Stacks")]
    pub(crate) source_maps: bool,
    /// Memory for unwind tables, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 32, value_parser = clap::value_parser!(u32).range(2..=512), hide_short_help = true, help_heading = "Stacks")]
    pub(crate) table_budget_mib: u32,
}
