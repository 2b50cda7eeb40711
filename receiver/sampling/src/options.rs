//! The options of sampling: what to sample, and how.

use std::sync::Arc;
use std::time::Duration;

use sidewinder_base::memory::{RingsBudget, SamplingBudget};
use sidewinder_base::supervise::ThreadSupervisor;
use sidewinder_bpf::{Options, PodCgroup, VerifierLog, WalkMode};
use sidewinder_config::{MaxFrames, TraceContext, UnwindMode, UnwindOverride};
use sidewinder_debug_files::DebugRoots;
use sidewinder_kind::{CpuIds, KindSet};
use sidewinder_tables::SavedTables;
use sidewinder_unwind::validate::TrustedSide;
use sidewinder_vm::RuntimeSet;
use tracing::warn;

use super::control::scope::SamplingScope;
use super::{RandomPauses, SamplingError};
use crate::user_probe::UserProbe;

/// The maximum number of samples that a CPU takes between two polls. It bounds the data in the rings: each sample of a new
/// process comes with a snapshot of its stack; and how many samples of one are taken before its mappings are known, which
/// have no frames of a runtime.
const SAMPLES_PER_POLL: u32 = 8;
/// The shortest and the longest average interval between polls. A longer interval makes frequent execs cheaper. A side band
/// that fills up is polled more often.
const POLL_INTERVAL_BOUNDS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(40));

/// What to sample, and how.
#[derive(Clone, Debug)]
pub struct SamplingOptions {
    /// The processes that are sampled.
    pub scope: SamplingScope,
    /// The kinds of profile.
    pub kinds: KindSet,
    /// The probes among the kinds.
    pub probes: Vec<UserProbe>,
    /// Whether it is an error if a probe can't be attached to any file of the processes in scope at the start.
    pub requires_probes: bool,
    /// The least fraction of waits that are sampled, if the kinds include off-CPU time.
    pub off_cpu_threshold: f64,
    /// Whether threads in scope may have begun to wait before the start: those of processes that are running then.
    pub lists_first_waits: bool,
    /// How often threads that wait on are charged.
    pub report_interval: Duration,
    /// The least fraction of waits in futexes that are sampled, if the kinds include waits for locks.
    pub lock_threshold: f64,
    /// `None`: the best mode that the kernel supports.
    pub walk: Option<WalkMode>,
    #[cfg(test)]
    pub(crate) test_programs: bool,
    /// The most frames of a stack.
    pub frame_limit: u32,
    /// Whether stacks have the kernel's frames.
    pub kernel_frames: bool,
    /// The runtimes whose frames stacks have.
    pub runtimes: RuntimeSet,
    /// How binaries are unwound that no override names.
    pub unwind_mode: UnwindMode,
    /// How particular binaries are unwound. The first that names a binary wins.
    pub unwind_overrides: Vec<UnwindOverride>,
    /// What is right where a file's rows and its machine code disagree.
    pub unwind_trust: TrustedSide,
    /// Where tables are saved, if they are.
    pub saved_tables: Option<Arc<SavedTables>>,
    /// Which of the attributes that threads publish are kept.
    pub trace_context: TraceContext,
    /// The CPUs that are sampled, as far as they are online.
    pub sampled_cpus: CpuIds,
    /// When sampling pauses, if it does.
    pub pauses: Option<RandomPauses>,
    /// What is logged of the kernel's verifier.
    pub verifier_log: VerifierLog,
    /// Processes younger than this are not sampled.
    pub min_process_age: Duration,
    /// The names of the environment variables that are sent with a process.
    pub include_env_vars: Arc<[Box<str>]>,
    /// The memory that sampling may use.
    pub budget: SamplingBudget,
    /// Where to look for debug files.
    pub debug_roots: Arc<DebugRoots>,
    /// Supervises the threads that build tables.
    pub threads: ThreadSupervisor,
}

/// How often interactive commands show new events.
const INTERACTIVE_REPORT_INTERVAL: Duration = Duration::from_secs(1);
/// The memory for snapshots in interactive commands, most of which record a program from its start.
const SNAPSHOTS_BYTES: usize = 64 << 20;

impl SamplingOptions {
    /// The options for interactive commands.
    pub fn interactive(
        scope: SamplingScope,
        kinds: KindSet,
        tables_bytes: u64,
        debug_roots: &Arc<DebugRoots>,
    ) -> Self {
        let rings = RingsBudget::interactive(&kinds);
        Self {
            scope,
            kinds,
            probes: Vec::new(),
            requires_probes: false,
            off_cpu_threshold: 0.0,
            lists_first_waits: true,
            report_interval: INTERACTIVE_REPORT_INTERVAL,
            lock_threshold: 0.0,
            walk: None,
            #[cfg(test)]
            test_programs: false,
            frame_limit: MaxFrames::default().get(),
            kernel_frames: true,
            runtimes: RuntimeSet::ALL,
            unwind_mode: UnwindMode::Auto,
            unwind_overrides: Vec::new(),
            unwind_trust: TrustedSide::Rows,
            saved_tables: None,
            trace_context: TraceContext::default(),
            sampled_cpus: CpuIds::default(),
            pauses: None,
            verifier_log: VerifierLog::Nothing,
            min_process_age: Duration::ZERO,
            include_env_vars: Arc::default(),
            debug_roots: Arc::clone(debug_roots),
            threads: ThreadSupervisor::default(),
            budget: SamplingBudget {
                snapshots_bytes: SNAPSHOTS_BYTES,
                rings,
                ..SamplingBudget::with_tables_bytes(tables_bytes)
            },
        }
    }

    /// Adapts the options to processes that are already running, and their children.
    pub fn for_running_processes(mut self) -> Self {
        self.budget.rings = self.budget.rings.for_running_processes();
        self
    }

    /// Checks the rate against the kernel's limit, because the kernel itself would only report an invalid argument.
    ///
    /// # Errors
    /// [`SamplingError::Rate`] if the rate is too high.
    pub(super) fn check_rate(&self) -> Result<(), SamplingError> {
        let wanted = self.kinds.samples_per_second();
        let limit = std::fs::read_to_string("/proc/sys/kernel/perf_event_max_sample_rate");
        match limit.ok().and_then(|text| text.trim().parse().ok()) {
            Some(allowed) if wanted > allowed => Err(SamplingError::Rate { wanted, allowed }),
            _ => Ok(()),
        }
    }

    /// The options of the eBPF programs.
    pub(super) fn load_options(&self, pod: Option<PodCgroup>) -> Options {
        Options {
            kinds: self.kinds.sampled(),
            tracepoints: self.probes.iter().filter(|probe| probe.is_tracepoint()).count(),
            samples_runnable: self.kinds.wall().is_some(),
            off_cpu_threshold: self.off_cpu_threshold,
            lock_threshold: self.lock_threshold,
            scope: self.scope.mode(),
            lists_programs: self.scope.has_programs(),
            lists_children: self.scope.has_children(),
            pod,
            walk: self.walk,
            frame_limit: self.frame_limit,
            kernel_frames: self.kernel_frames,
            vm_frames: !self.runtimes.is_empty(),
            sampled_cpus: self.sampled_cpus.clone(),
            verifier_log: self.verifier_log,
            min_process_age: self.min_process_age,
            context_attributes: !self.trace_context.attributes.is_empty(),
            #[cfg(test)]
            test_programs: self.test_programs,
            arena_bytes: self.budget.tables_bytes,
            ring_bytes: self.budget.rings.samples_bytes,
            snapshots_bytes: self.budget.rings.snapshots_bytes,
            ..Options::default()
        }
    }

    /// Warns about the limits of stacks on kernels without `bpf_loop`.
    pub(super) fn warn_of_walk(&self, walk: WalkMode) {
        if walk == WalkMode::Loop {
            return;
        }
        let frame_limit = self.frame_limit;
        if frame_limit > walk.frames_max() {
            warn!(
                "degraded: this kernel's eBPF programs can't loop, so stacks are truncated after {} frames instead of {frame_limit}; \
                 Linux 5.17 or later has bpf_loop",
                walk.frames_max(),
            );
        }
        warn!(
            "degraded: pages of stacks that aren't in memory are counted as bad_address, not as page_absent; \
             Linux 5.17 or later has bpf_find_vma"
        );
    }

    /// The average time between two polls.
    pub(super) fn poll_interval(&self) -> Duration {
        let (shortest, longest) = POLL_INTERVAL_BOUNDS;
        let samples = Duration::from_secs(1) * SAMPLES_PER_POLL / self.kinds.samples_per_second().max(1);
        samples.clamp(shortest, longest)
    }
}
