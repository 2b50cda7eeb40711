//! The receiver `profiling`.
//!
//! Keys that OpenTelemetry's profiler has keep its names, meanings and defaults; the exceptions are
//! in the reference table (`KEYS`) as deviations. `scope`, `unwind`, `symbolize`,
//! `trace_context` and `memory_limit_mib` are Sidewinder's own.

use std::path::PathBuf;
use std::time::Duration;

use super::{
    BinaryMatch, Fraction, MaxFrames, MemoryLimitMib, Percent, Pid, SamplesPerSecond, VerifierLogLevel,
};

/// One profiler: what it samples, how it walks stacks, how often it reports.
#[derive(Clone, PartialEq, Debug)]
pub struct ProfilingReceiver {
    /// Interrupts per second and CPU.
    pub samples_per_second: SamplesPerSecond,
    /// Time between two reports; more than zero.
    pub reporter_interval: Duration,
    /// Share by which each report's time is shifted at random, either way.
    pub reporter_jitter: Fraction,
    /// Time between two readings of the profiler's own counters; more than zero.
    pub monitor_interval: Duration,
    /// Whether the idle task's interrupts are sent.
    pub send_idle_frames: bool,
    /// Whether a walk's error is sent as a frame of its own.
    pub send_error_frames: bool,
    /// Processes younger than this are left out; zero leaves out none.
    pub filter_min_process_age: Duration,
    /// Share of context switches recorded as off-CPU events; zero records none.
    pub off_cpu_threshold: Fraction,
    /// For how long one probabilistic decision holds; 1 to 5 minutes.
    pub probabilistic_interval: Duration,
    /// Share of intervals in which this machine profiles.
    pub probabilistic_threshold: Percent,
    /// Names of environment variables of targets that are sent.
    pub include_env_vars: Vec<String>,
    /// What the kernel's verifier writes while programs load.
    pub bpf_verifier_log_level: VerifierLogLevel,
    /// What happens when profiling can't start.
    pub error_mode: ErrorMode,
    /// Whether process ids are translated from the root PID namespace to Sidewinder's own.
    pub pid_namespace_translation: bool,
    /// Whose interrupts are looked at.
    pub scope: Scope,
    /// How stacks are walked.
    pub unwind: Unwind,
    /// How addresses get names.
    pub symbolize: Symbolize,
    /// What processes publish of themselves.
    pub trace_context: TraceContext,
    /// One budget for maps, tables, names, aggregation and queues; `None`: three quarters of what the cgroup allows.
    pub memory_limit_mib: Option<MemoryLimitMib>,
}

impl ProfilingReceiver {
    /// What `probabilistic_interval` may be, both ends included.
    pub const PROBABILISTIC_INTERVALS: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(300)];
}

impl Default for ProfilingReceiver {
    fn default() -> Self {
        Self {
            samples_per_second: SamplesPerSecond::default(),
            reporter_interval: Duration::from_secs(5),
            reporter_jitter: Fraction::new(0.2).unwrap_or_default(),
            monitor_interval: Duration::from_secs(5),
            send_idle_frames: false,
            send_error_frames: false,
            filter_min_process_age: Duration::ZERO,
            off_cpu_threshold: Fraction::default(),
            probabilistic_interval: Duration::from_secs(60),
            probabilistic_threshold: Percent::default(),
            include_env_vars: Vec::new(),
            bpf_verifier_log_level: VerifierLogLevel::default(),
            error_mode: ErrorMode::default(),
            pid_namespace_translation: false,
            scope: Scope::default(),
            unwind: Unwind::default(),
            symbolize: Symbolize::default(),
            trace_context: TraceContext::default(),
            memory_limit_mib: None,
        }
    }
}

/// What happens when profiling can't start: a privilege, a kernel feature or a Collector is missing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ErrorMode {
    /// Stay up, say so, try again.
    #[default]
    Ignore,
    /// Exit with the code of the cause.
    Propagate,
}

/// Whose interrupts are looked at; the memory of anything else is never read.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Scope {
    /// Within which bounds.
    pub mode: ScopeMode,
    /// Which processes within these, and what they fork: some for `Container` and `Processes`, empty for the others,
    /// which take all.
    pub include: Selector,
    /// Processes that are left out all the same, with what they fork.
    pub exclude: Selector,
}

/// Within which bounds processes are looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ScopeMode {
    /// Every process that Sidewinder's PID namespace knows: on a node's own, the node.
    #[default]
    Node,
    /// The containers of the pod that Sidewinder runs in.
    Pod,
    /// The containers, of this pod, of certain processes.
    Container,
    /// Certain processes.
    Processes,
}

/// Processes by what they are: each that any of these names. In patterns `*` stands for any text, `?` for one character.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selector {
    /// Patterns of names, which the kernel cuts to 15 bytes.
    pub names: Vec<String>,
    /// Patterns of the program's whole path, as the process sees it.
    pub executables: Vec<String>,
    /// Patterns of the whole command line, its words separated by single spaces.
    pub command_lines: Vec<String>,
    /// Ids, as Sidewinder's PID namespace has them.
    pub pids: Vec<Pid>,
    /// Patterns of the whole path of the cgroup, as Sidewinder's cgroup namespace shows it.
    pub cgroups: Vec<String>,
}

impl Selector {
    /// These processes.
    #[must_use]
    pub fn from_pids(pids: impl IntoIterator<Item = Pid>) -> Self {
        Self { pids: pids.into_iter().collect(), ..Self::default() }
    }

    /// Whether it names no process at all.
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
    /// The way for binaries that no override names.
    pub mode: UnwindMode,
    /// Other ways for single binaries; the first that matches holds.
    pub overrides: Vec<UnwindOverride>,
    /// Which side holds where a binary's unwind information contradicts its code.
    pub trust: UnwindTrust,
    /// Frames after which a stack is cut.
    pub max_frames: MaxFrames,
    /// Whether the kernel's frames are part of stacks.
    pub kernel: bool,
}

impl Default for Unwind {
    fn default() -> Self {
        Self {
            mode: UnwindMode::Auto,
            overrides: Vec::new(),
            trust: UnwindTrust::default(),
            max_frames: MaxFrames::default(),
            kernel: true,
        }
    }
}

/// Which side holds where a binary's unwind information contradicts its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnwindTrust {
    /// The unwind information, as debuggers have it.
    #[default]
    Rows,
    /// The code, where what it does is understood. Each binary is checked when it is first met, which takes a
    /// hundred times as long as reading its table.
    Code,
}

/// How stacks are walked through a binary.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum UnwindMode {
    /// By frame pointers where they are proven, by table rows elsewhere.
    #[default]
    Auto,
    /// By frame pointers alone.
    FramePointers,
    /// By table rows alone.
    Tables,
}

/// One binary's own way of being walked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnwindOverride {
    /// Which binaries.
    pub binary: BinaryMatch,
    /// Which way.
    pub mode: UnwindMode,
}

/// How addresses get names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbolize {
    /// Where names of user code come from.
    pub mode: SymbolMode,
    /// Whether frames get source files and lines.
    pub lines: bool,
    /// Whether inlined calls become frames.
    pub inlines: bool,
    /// Further directories of debug files, laid out as `/usr/lib/debug`.
    pub debug_directories: Vec<PathBuf>,
    /// Whether kernel frames get names.
    pub kernel: bool,
}

impl Default for Symbolize {
    fn default() -> Self {
        Self {
            mode: SymbolMode::Local,
            lines: true,
            inlines: true,
            debug_directories: Vec::new(),
            kernel: true,
        }
    }
}

/// Where names of user code come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SymbolMode {
    /// From the binaries on this machine.
    #[default]
    Local,
    /// From nowhere: the backend has the symbols.
    None,
}

/// What processes publish of themselves: who they are, and which span their threads are in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TraceContext {
    /// Whether it is read from targets.
    pub enabled: bool,
    /// Keys of what threads publish besides their span that become attributes of samples.
    pub attributes: Vec<String>,
    /// Keys of the pprof labels in which Go programs have the trace, in hexadecimal digits: the first that is there counts.
    pub trace_id_labels: Vec<String>,
    /// Likewise of the span.
    pub span_id_labels: Vec<String>,
    /// Whether threads are looked at for the labels of custom-labels too.
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
