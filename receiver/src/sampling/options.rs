//! What to sample, and how.

use std::sync::Arc;
use std::time::Duration;

use sidewinder_bpf::{Packing, Walk};
use sidewinder_config::{BinaryMatch, MaxFrames, TraceContext, UnwindMode, UnwindOverride};
use sidewinder_unwind::validate::Trust;

use super::control::scope::Scope;
use super::control::tables::debug_file::DebugRoots;
use crate::memory::SamplingBudget;
use crate::supervise::Threads;

/// Between two looks at what has happened a CPU takes at most this many samples: what waits in the rings stays small,
/// that of young processes in particular, of which each sample comes with a snapshot.
const SAMPLES_PER_POLL: u32 = 16;
/// A storm of execs costs as little as the time between two looks is long; one that would fill a side band is looked at
/// more often.
const POLL_INTERVAL_BOUNDS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(40));

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct SamplingOptions {
    pub(crate) scope: Scope,
    pub(crate) samples_per_second: u32,
    /// Where not given, the best way that the kernel has.
    pub(crate) walk: Option<Walk>,
    #[cfg(test)]
    pub(crate) test_programs: bool,
    pub(crate) frame_limit: u32,
    pub(crate) kernel_frames: bool,
    pub(crate) unwind_mode: UnwindMode,
    pub(crate) unwind_overrides: Vec<UnwindOverride>,
    pub(crate) unwind_trust: Trust,
    pub(crate) trace_context: TraceContext,
    pub(crate) budget: SamplingBudget,
    /// Where debug files may be.
    pub(crate) debug_roots: Arc<DebugRoots>,
    /// Who watches the threads that build tables.
    pub(crate) threads: Threads,
}

/// For stacks that wait for tables, where people look: that is most often how a program starts.
const SNAPSHOTS_BYTES: usize = 64 << 20;

impl SamplingOptions {
    /// What suits commands that people wait for.
    pub(crate) fn for_people(
        scope: Scope,
        samples_per_second: u32,
        tables_bytes: u64,
        debug_roots: &Arc<DebugRoots>,
    ) -> Self {
        Self {
            scope,
            samples_per_second,
            walk: None,
            #[cfg(test)]
            test_programs: false,
            frame_limit: MaxFrames::default().get(),
            kernel_frames: true,
            unwind_mode: UnwindMode::Auto,
            unwind_overrides: Vec::new(),
            unwind_trust: Trust::Rows,
            trace_context: TraceContext::default(),
            debug_roots: Arc::clone(debug_roots),
            threads: Threads::default(),
            budget: SamplingBudget {
                snapshots_bytes: SNAPSHOTS_BYTES,
                ..SamplingBudget::of_tables(tables_bytes)
            },
        }
    }

    /// The same for processes that already run, and nothing else than what these start.
    pub(crate) fn for_running_processes(mut self) -> Self {
        self.budget.rings = self.budget.rings.for_running_processes();
        self
    }

    /// How long to wait on average between two polls of the kernel's events.
    pub(super) fn poll_interval(&self) -> Duration {
        let (shortest, longest) = POLL_INTERVAL_BOUNDS;
        let samples = Duration::from_secs(1) * SAMPLES_PER_POLL / self.samples_per_second.max(1);
        samples.clamp(shortest, longest)
    }

    /// How a binary is to be walked: as the first override says that names it, else as all.
    pub(super) fn packing(&self, path: &[u8], build_id: Option<&[u8]>) -> Packing {
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        let named = self.unwind_overrides.iter().find(|rule| match &rule.binary {
            BinaryMatch::Name(wanted) => wanted.as_bytes() == name,
            BinaryMatch::Path(wanted) => wanted.as_os_str().as_encoded_bytes() == path,
            BinaryMatch::BuildId(wanted) => Some(wanted.as_bytes()) == build_id,
        });
        packing_of(named.map_or(self.unwind_mode, |rule| rule.mode))
    }
}

/// The form of tables for a way of walking.
pub(crate) fn packing_of(mode: UnwindMode) -> Packing {
    match mode {
        UnwindMode::Auto => Packing::Auto,
        UnwindMode::FramePointers => Packing::FramePointers,
        UnwindMode::Tables => Packing::Tables,
    }
}
