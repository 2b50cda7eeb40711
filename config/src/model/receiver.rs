//! The receiver `profiling`.
//!
//! Keys of OpenTelemetry's profiler have the same names, meanings and defaults here; exceptions are in the reference table
//! (`KEYS`) as deviations. `events`, `scope`, `unwind`, `symbolize`, `trace_context` and `memory_limit_mib` exist only in
//! Sidewinder.

use std::path::PathBuf;
use std::time::Duration;

use sidewinder_kind::CpuIds;

use super::{
    BinaryMatch, CounterEvent, Fraction, MaxFrames, MemoryLimitMib, Percent, ProbeSpec, SamplesPerSecond,
    SavedTablesMib, SelectedPid, VerifierLogLevel,
};

/// One profiler: its samples, its stack walks, its reports.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfilingReceiver {
    /// Interrupts per second and CPU.
    pub samples_per_second: SamplesPerSecond,
    /// Counters that are sampled besides the clock, each at most once.
    pub events: Vec<CounterEvent>,
    /// Probes in programs.
    pub probes: Vec<ProbeSpec>,
    /// Further ones, in the notation of OpenTelemetry's profiler.
    pub probe_links: Vec<ProbeSpec>,
    /// Whether the program of probes is loaded for others to attach it.
    pub load_probe: bool,
    /// The interval between reports; more than zero.
    pub reporter_interval: Duration,
    /// The fraction of an interval by which each report is randomized, in both directions.
    pub reporter_jitter: Fraction,
    /// The interval between reads of the profiler's own counters; more than zero.
    pub monitor_interval: Duration,
    /// Samples of processes younger than this are omitted; zero omits none.
    pub filter_min_process_age: Duration,
    /// The fraction of context switches that are recorded as off-CPU events; zero records none.
    pub off_cpu_threshold: Fraction,
    /// The least fraction of waits in futexes that are recorded as waits for locks; zero records none.
    pub lock_threshold: Fraction,
    /// Whether the threads that end these waits are sampled, too.
    pub lock_wakers: bool,
    /// The fraction of context switches that are recorded for wall time; zero records none.
    pub wall_threshold: Fraction,
    /// The duration of one probabilistic decision; 1 to 5 minutes.
    pub probabilistic_interval: Duration,
    /// The percentage of intervals in which this machine is profiled.
    pub probabilistic_threshold: Percent,
    /// Names of environment variables of targets that are sent with their values.
    pub include_env_vars: Vec<String>,
    /// The log level of the kernel's verifier when programs are loaded.
    pub bpf_verifier_log_level: VerifierLogLevel,
    /// The CPUs that are profiled, as far as they are online.
    pub pin_cpu_ids: CpuIds,
    /// The reaction if profiling can't start.
    pub error_mode: ErrorMode,
    /// The processes that are sampled.
    pub scope: Scope,
    /// How stacks are walked.
    pub unwind: Unwind,
    /// How addresses are symbolized.
    pub symbolize: Symbolize,
    /// The interpreters whose frames are read.
    pub interpreters: Interpreters,
    /// The data that processes publish about themselves.
    pub trace_context: TraceContext,
    /// The memory limit for maps, tables, names, aggregation and queues; `None`: three quarters of the cgroup's limit.
    pub memory_limit_mib: Option<MemoryLimitMib>,
}

impl ProfilingReceiver {
    /// The range of `probabilistic_interval`, inclusive.
    pub const PROBABILISTIC_INTERVALS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(300)];
}

impl Default for ProfilingReceiver {
    fn default() -> Self {
        Self {
            samples_per_second: SamplesPerSecond::default(),
            events: Vec::new(),
            probes: Vec::new(),
            probe_links: Vec::new(),
            load_probe: false,
            reporter_interval: Duration::from_secs(5),
            reporter_jitter: Fraction::new(0.2).unwrap_or_default(),
            monitor_interval: Duration::from_secs(5),
            filter_min_process_age: Duration::ZERO,
            off_cpu_threshold: Fraction::default(),
            lock_threshold: Fraction::default(),
            lock_wakers: false,
            wall_threshold: Fraction::default(),
            probabilistic_interval: Duration::from_secs(60),
            probabilistic_threshold: Percent::default(),
            include_env_vars: Vec::new(),
            bpf_verifier_log_level: VerifierLogLevel::default(),
            pin_cpu_ids: CpuIds::default(),
            error_mode: ErrorMode::default(),
            scope: Scope::default(),
            unwind: Unwind::default(),
            symbolize: Symbolize::default(),
            interpreters: Interpreters::default(),
            trace_context: TraceContext::default(),
            memory_limit_mib: None,
        }
    }
}

/// The reaction if profiling can't start because a privilege, a kernel feature or a Collector is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorMode {
    /// Keep running, report it, and try again.
    #[default]
    Ignore,
    /// Exit with the exit code of the cause.
    Propagate,
}

/// The processes to sample; other processes' memory is never read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// The bounds.
    pub mode: ScopeMode,
    /// The processes within the bounds, with their descendants: given for `Container` and `Processes`, empty for the other
    /// modes, which include all.
    pub include: Selector,
    /// Processes to exclude nevertheless, with their descendants.
    pub exclude: Selector,
}

/// The bounds of the sampled processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScopeMode {
    /// Every process in Sidewinder's PID namespace: the whole node, if it is the node's.
    #[default]
    Node,
    /// All containers of Sidewinder's pod.
    Pod,
    /// The containers of certain processes, in this pod.
    Container,
    /// Certain processes.
    Processes,
}

/// Selects processes by any of these properties. In patterns `*` matches any text, `?` one character.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    /// Patterns of names, which the kernel truncates to 15 bytes.
    pub names: Vec<String>,
    /// Patterns of the program's whole path, as the process sees it.
    pub executables: Vec<String>,
    /// Patterns of the whole command line, with single spaces between arguments.
    pub command_lines: Vec<String>,
    /// Process IDs in Sidewinder's PID namespace.
    pub pids: Vec<SelectedPid>,
    /// Patterns of the whole cgroup path, in Sidewinder's cgroup namespace.
    pub cgroups: Vec<String>,
}

impl Selector {
    /// Selects these process IDs.
    #[must_use]
    pub fn from_pids(pids: impl IntoIterator<Item = SelectedPid>) -> Self {
        Self { pids: pids.into_iter().collect(), ..Self::default() }
    }

    /// Whether it selects no process at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty() && self.patterns().iter().all(|patterns| patterns.is_empty())
    }

    fn patterns(&self) -> [&Vec<String>; 4] {
        [&self.names, &self.executables, &self.command_lines, &self.cgroups]
    }
}

/// How stacks are walked.
#[derive(Clone, PartialEq, Debug)]
pub struct Unwind {
    /// The mode for binaries without an override.
    pub mode: UnwindMode,
    /// Modes for single binaries; the first match applies.
    pub overrides: Vec<UnwindOverride>,
    /// Which one to trust if a binary's unwind information contradicts its code.
    pub trust: UnwindTrust,
    /// The number of frames after which a stack is truncated.
    pub max_frames: MaxFrames,
    /// Whether stacks include kernel frames.
    pub kernel: bool,
    /// An absolute path of a directory where unwind tables are saved; `None`: they are built again by each run.
    pub tables_directory: Option<PathBuf>,
    /// The size limit of that directory.
    pub tables_directory_mib: SavedTablesMib,
}

impl Default for Unwind {
    fn default() -> Self {
        Self {
            mode: UnwindMode::Auto,
            overrides: Vec::new(),
            trust: UnwindTrust::default(),
            max_frames: MaxFrames::default(),
            kernel: true,
            tables_directory: None,
            tables_directory_mib: SavedTablesMib::default(),
        }
    }
}

/// Which one to trust if a binary's unwind information contradicts its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnwindTrust {
    /// The unwind information, like debuggers.
    #[default]
    Rows,
    /// The code, if it is understood. Each binary is checked when it is first seen, which takes a hundred times as long as
    /// reading its table.
    Code,
}

/// How stacks are walked through a binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnwindMode {
    /// By frame pointers where they are proven, by table rows elsewhere.
    #[default]
    Auto,
    /// By frame pointers only.
    FramePointers,
    /// By table rows only.
    Tables,
}

/// The unwind mode of certain binaries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnwindOverride {
    /// The binaries.
    pub binary: BinaryMatch,
    /// The mode.
    pub mode: UnwindMode,
}

/// How addresses are symbolized.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbolize {
    /// The source of symbols of user code.
    pub mode: SymbolMode,
    /// Whether frames have source files and lines.
    pub lines: bool,
    /// Whether inlined calls are separate frames.
    pub inlines: bool,
    /// Additional directories of debug files, with the layout of `/usr/lib/debug`.
    pub debug_directories: Vec<PathBuf>,
    /// Whether kernel frames are symbolized.
    pub kernel: bool,
    /// Whether the native frames of interpreters' loops are shown.
    pub vm_internals: VmInternals,
    /// Whether JavaScript functions are mapped to their scripts' sources by source maps.
    pub source_maps: bool,
}

impl Default for Symbolize {
    fn default() -> Self {
        Self {
            mode: SymbolMode::Local,
            lines: true,
            inlines: true,
            debug_directories: Vec::new(),
            kernel: true,
            vm_internals: VmInternals::Hide,
            source_maps: false,
        }
    }
}

/// The interpreters whose frames are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interpreters {
    /// CPython.
    pub python: Interpreter,
    /// HotSpot, the Java virtual machine of OpenJDK.
    pub hotspot: Interpreter,
    /// V8, the JavaScript engine of Node.js.
    pub v8: Interpreter,
}

impl Interpreters {
    /// The keys of those whose frames are not read.
    pub fn disabled_keys(&self) -> impl Iterator<Item = &'static str> {
        let Self { python, hotspot, v8 } = self;
        let all = [("python", python), ("hotspot", hotspot), ("v8", v8)];
        all.into_iter().filter(|(_, interpreter)| interpreter.disabled).map(|(key, _)| key)
    }
}

/// Whether the frames of an interpreter are read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Interpreter {
    /// They are not.
    pub disabled: bool,
}

/// Whether the native frames of interpreters' loops are shown, in addition to the frames of the interpreted functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum VmInternals {
    /// They are omitted.
    #[default]
    Hide,
    /// They are shown.
    Show,
}

/// The source of symbols of user code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SymbolMode {
    /// The binaries on this machine.
    #[default]
    Local,
    /// None: the backend has the symbols.
    None,
}

/// The data that processes publish about themselves: who they are, and the spans of their threads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// Whether it is read.
    pub enabled: bool,
    /// Keys of thread attributes that are added to samples.
    pub attributes: Vec<String>,
    /// Keys of the pprof labels with the trace ID in Go programs, in hexadecimal digits: the first existing one is used.
    pub trace_id_labels: Vec<String>,
    /// The same for the span ID.
    pub span_id_labels: Vec<String>,
    /// Whether labels of the library custom-labels are read too.
    pub custom_labels: bool,
}

impl Default for TraceContext {
    fn default() -> Self {
        let names = |names: [&str; 3]| names.map(str::to_owned).to_vec();
        Self {
            enabled: true,
            attributes: Vec::new(),
            trace_id_labels: names(["trace_id", "traceID", "trace id"]),
            span_id_labels: names(["span_id", "spanID", "span id"]),
            custom_labels: false,
        }
    }
}
