//! Counters as `perf_event_open(2)` selects them, those of `sidewinder_kind` among them.

use perf_event_open_sys::bindings as perf;
use sidewinder_kind::{Counter, CounterRate, Hook, Kind, SampledCounter};

use crate::sample_kind::SampleKind;

/// The fields of `perf_event_attr` that select what an event counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PerfSelector {
    pub(crate) type_: perf::perf_type_id,
    pub(crate) config: u64,
}

impl PerfSelector {
    const fn software(id: perf::perf_sw_ids) -> Self {
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

    const fn of(counter: Counter) -> Self {
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

/// A counter that interrupts each time it has advanced by a period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PerfCounter {
    /// Its name in messages.
    pub(crate) name: &'static str,
    /// What it counts.
    pub(crate) selector: PerfSelector,
    /// The period, in the counter's unit, which is nanoseconds for clocks; or the frequency instead.
    pub(crate) rate: CounterRate,
    /// Which one of those that not every machine has.
    pub(crate) counter: Option<Counter>,
    /// Its index among the counters of the run, for the program.
    pub(crate) index: u8,
}

impl PerfCounter {
    /// The clock of a CPU.
    pub(crate) const fn cpu_clock(period_ns: u64) -> Self {
        Self {
            name: "CPU clock",
            selector: PerfSelector::software(perf::PERF_COUNT_SW_CPU_CLOCK),
            rate: CounterRate::Period(period_ns),
            counter: None,
            index: 0,
        }
    }

    /// A counter that users choose by name.
    pub(crate) const fn named(SampledCounter { counter, rate }: SampledCounter) -> Self {
        let (name, selector) = (counter.name(), PerfSelector::of(counter));
        Self { name, selector, rate, counter: Some(counter), index: 0 }
    }

    /// The same for these samples.
    pub(crate) const fn of_samples(self, kind: SampleKind) -> Self {
        match kind {
            SampleKind::Counter(index) => Self { index, ..self },
            _ => self,
        }
    }

    /// Each context switch.
    pub(crate) const CONTEXT_SWITCHES: Self = Self {
        name: "context switch",
        selector: PerfSelector::software(perf::PERF_COUNT_SW_CONTEXT_SWITCHES),
        rate: CounterRate::Period(1),
        counter: None,
        index: 0,
    };

    /// The counter that triggers samples of a kind of profile; `None` if no counter does.
    pub(crate) fn of(kind: Kind) -> Option<Self> {
        let row = kind.descriptor();
        match row.hook? {
            Hook::CpuClock => Some(Self::cpu_clock(row.period?.amount)),
            Hook::ContextSwitches => Some(Self::CONTEXT_SWITCHES),
            Hook::Counter(counter) => Some(Self::named(counter)),
            Hook::Wakeups | Hook::Probe(_) => None,
        }
    }

    /// How far it advances between two interrupts; `None` if the kernel adapts that.
    pub(crate) const fn period(self) -> Option<u64> {
        match self.rate {
            CounterRate::Period(period) => Some(period),
            CounterRate::Frequency(_) => None,
        }
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
