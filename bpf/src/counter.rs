//! The counters of `sidewinder_kind` as `perf_event_open(2)` selects them, and which of them this machine has.

use perf_event_open_sys::bindings as perf;
use sidewinder_kind::{Counter, CounterRate, SampledCounter};

use crate::events::{EventError, EventKind, EventTarget, PerfCounter, online_cpus};
use crate::opener::Opener;

/// The fields of `perf_event_attr` that select what an event counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PerfSelector {
    pub(crate) type_: perf::perf_type_id,
    pub(crate) config: u64,
}

impl PerfSelector {
    pub(crate) const fn software(id: perf::perf_sw_ids) -> Self {
        Self { type_: perf::PERF_TYPE_SOFTWARE, config: id as u64 }
    }

    const fn hardware(id: perf::perf_hw_id) -> Self {
        Self { type_: perf::PERF_TYPE_HARDWARE, config: id as u64 }
    }

    /// Misses of reads in a cache.
    const fn read_misses(cache: perf::perf_hw_cache_id) -> Self {
        let (read, miss) = (perf::PERF_COUNT_HW_CACHE_OP_READ, perf::PERF_COUNT_HW_CACHE_RESULT_MISS);
        Self {
            type_: perf::PERF_TYPE_HW_CACHE,
            config: cache as u64 | (read as u64) << 8 | (miss as u64) << 16,
        }
    }

    pub(crate) const fn of(counter: Counter) -> Self {
        match counter {
            Counter::PageFaults => Self::software(perf::PERF_COUNT_SW_PAGE_FAULTS),
            Counter::MinorFaults => Self::software(perf::PERF_COUNT_SW_PAGE_FAULTS_MIN),
            Counter::MajorFaults => Self::software(perf::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
            Counter::ContextSwitches => Self::software(perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
            Counter::CpuMigrations => Self::software(perf::PERF_COUNT_SW_CPU_MIGRATIONS),
            Counter::AlignmentFaults => Self::software(perf::PERF_COUNT_SW_ALIGNMENT_FAULTS),
            Counter::EmulationFaults => Self::software(perf::PERF_COUNT_SW_EMULATION_FAULTS),
            Counter::TaskClock => Self::software(perf::PERF_COUNT_SW_TASK_CLOCK),
            Counter::Cycles => Self::hardware(perf::PERF_COUNT_HW_CPU_CYCLES),
            Counter::Instructions => Self::hardware(perf::PERF_COUNT_HW_INSTRUCTIONS),
            Counter::CacheReferences => Self::hardware(perf::PERF_COUNT_HW_CACHE_REFERENCES),
            Counter::CacheMisses => Self::hardware(perf::PERF_COUNT_HW_CACHE_MISSES),
            Counter::Branches => Self::hardware(perf::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
            Counter::BranchMisses => Self::hardware(perf::PERF_COUNT_HW_BRANCH_MISSES),
            Counter::BusCycles => Self::hardware(perf::PERF_COUNT_HW_BUS_CYCLES),
            Counter::StalledFrontend => Self::hardware(perf::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND),
            Counter::StalledBackend => Self::hardware(perf::PERF_COUNT_HW_STALLED_CYCLES_BACKEND),
            Counter::ReferenceCycles => Self::hardware(perf::PERF_COUNT_HW_REF_CPU_CYCLES),
            Counter::L1DataMisses => Self::read_misses(perf::PERF_COUNT_HW_CACHE_L1D),
            Counter::LastLevelMisses => Self::read_misses(perf::PERF_COUNT_HW_CACHE_LL),
            Counter::DataTlbMisses => Self::read_misses(perf::PERF_COUNT_HW_CACHE_DTLB),
            Counter::InstructionTlbMisses => Self::read_misses(perf::PERF_COUNT_HW_CACHE_ITLB),
        }
    }
}

/// A counter at a rate at which it does not interrupt while it is probed.
fn probed(counter: Counter) -> EventKind {
    let rate = CounterRate::Period(u64::from(u32::MAX));
    EventKind::Overflow(PerfCounter::named(SampledCounter { counter, rate }))
}

/// Tries whether this machine has a counter.
///
/// # Errors
/// [`EventError::NoCounter`] if it does not, others if that can't be tried.
pub fn probe_counter(counter: Counter) -> Result<(), EventError> {
    probed(counter).open(&online_cpus()?, &EventTarget::EveryTask).map(drop)
}

impl Opener {
    /// The same with the privileges of this thread.
    ///
    /// # Errors
    /// As [`probe_counter`].
    pub fn probe_counter(&self, counter: Counter) -> Result<(), EventError> {
        self.events(probed(counter), &online_cpus()?, None).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_counters_select_the_same_event() {
        for (index, &counter) in Counter::ALL.iter().enumerate() {
            let selector = PerfSelector::of(counter);
            let before = &Counter::ALL[..index];
            assert!(before.iter().all(|&other| PerfSelector::of(other) != selector), "{counter}");
        }
    }

    /// The values that `perf list -v` shows for these.
    #[test]
    fn selectors_are_those_of_perf() {
        let of = |counter| {
            let PerfSelector { type_, config } = PerfSelector::of(counter);
            (type_, config)
        };
        assert_eq!(of(Counter::PageFaults), (1, 2));
        assert_eq!(of(Counter::Cycles), (0, 0));
        assert_eq!(of(Counter::DataTlbMisses), (3, 0x1_0003));
    }
}
