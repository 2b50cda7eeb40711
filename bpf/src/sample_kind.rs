//! The kinds of sample: their ids in `c/intf/records.h`, and the kind of profile that each belongs to.
//!
//! An id without a kind doesn't compile, nor does a kind without a profile.

use sidewinder_kind::{Counter, Kind, KindSet, SampledProbe};
use zerocopy::{IntoBytes, TryFromBytes};

use crate::intf::{self, sw_sample_kind};

/// Why a sample was taken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SampleKind {
    /// The CPU clock interrupted.
    Cpu,
    /// The counter with this index among those of the run interrupted.
    Counter(u8),
    /// A thread began to wait.
    OffCpu,
    /// A thread ended the sampled wait of another one in a futex.
    Waker,
    /// A thread was found waiting, and not by an interrupt.
    FoundWait,
    /// The probe with this index among those of the run was hit.
    UserProbe(u8),
    /// A test program ran.
    #[cfg(feature = "test-programs")]
    Probe,
}

/// What the same programs take samples of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SampleSource {
    /// The CPU clock.
    Cpu,
    /// Threads that begin to wait.
    OffCpu,
    /// Threads that end waits of others.
    Waker,
    /// All counters.
    Counter,
    /// All probes of users.
    UserProbe,
    /// A test.
    #[cfg(feature = "test-programs")]
    Probe,
}

const _: () = assert!(Counter::SAMPLED_MAX == intf::SW_COUNTERS_MAX as usize);
const _: () = assert!(SampledProbe::TRACEPOINTS_MAX == intf::SW_TRACEPOINTS_MAX as usize);
const _: () = assert!(SampledProbe::SAMPLED_MAX == intf::SW_USER_PROBES_MAX as usize);

impl From<sw_sample_kind> for SampleKind {
    fn from(kind: sw_sample_kind) -> Self {
        match kind {
            sw_sample_kind::SW_SAMPLE_CPU => Self::Cpu,
            sw_sample_kind::SW_SAMPLE_COUNTER => Self::Counter(0),
            sw_sample_kind::SW_SAMPLE_OFF_CPU => Self::OffCpu,
            sw_sample_kind::SW_SAMPLE_WAKER => Self::Waker,
            sw_sample_kind::SW_SAMPLE_USER_PROBE => Self::UserProbe(0),
            #[cfg(feature = "test-programs")]
            sw_sample_kind::SW_SAMPLE_PROBE => Self::Probe,
        }
    }
}

impl SampleKind {
    /// The kind with this id in records; `None` if it is unknown, from newer programs.
    pub(crate) fn from_number(number: u8) -> Option<Self> {
        let index_after = |first: sw_sample_kind, count: usize| {
            number.checked_sub(first as u8).filter(|index| usize::from(*index) < count)
        };
        let counter = index_after(sw_sample_kind::SW_SAMPLE_COUNTER, Counter::SAMPLED_MAX);
        let probe = index_after(sw_sample_kind::SW_SAMPLE_USER_PROBE, SampledProbe::SAMPLED_MAX);
        match (counter, probe) {
            (Some(index), _) => Some(Self::Counter(index)),
            (_, Some(index)) => Some(Self::UserProbe(index)),
            _ => sw_sample_kind::try_read_from_bytes(u32::from(number).as_bytes()).ok().map(Self::from),
        }
    }

    /// The samples that profiles of this kind consist of in a run of `kinds`; `None` if the programs take none.
    #[must_use]
    pub fn of(kind: Kind, kinds: &KindSet) -> Option<Self> {
        match kind {
            Kind::Cpu { .. } => Some(Self::Cpu),
            // A test program runs when a test triggers it; it has no rate.
            #[cfg(feature = "test-programs")]
            Kind::Aggregated { .. } => Some(Self::Probe),
            #[cfg(not(feature = "test-programs"))]
            Kind::Aggregated { .. } => None,
            Kind::Counter(counter) => {
                let index = kinds.counters().take(Counter::SAMPLED_MAX).position(|other| other == counter)?;
                u8::try_from(index).ok().map(Self::Counter)
            }
            Kind::OffCpu | Kind::LockContentions | Kind::LockDelay => Some(Self::OffCpu),
            Kind::LockWakers => Some(Self::Waker),
            // Its samples are those of other kinds.
            Kind::Wall { .. } => None,
            Kind::Probe(probe) => {
                let index =
                    kinds.probes().take(SampledProbe::SAMPLED_MAX).position(|other| other == probe)?;
                u8::try_from(index).ok().map(Self::UserProbe)
            }
        }
    }

    /// The first kind of profile that these samples belong to; `None` if the run has no such kind.
    #[must_use]
    pub fn profile_kind(self, kinds: &KindSet) -> Option<Kind> {
        let interrupted = if self == Self::FoundWait { Self::OffCpu } else { self };
        kinds.iter().find(|kind| Self::of(*kind, kinds) == Some(interrupted))
    }

    /// The index of its counters in arrays by kind; `None` if its outcomes aren't counted.
    pub(crate) fn index(self) -> Option<usize> {
        let index = match self {
            Self::Cpu => sw_sample_kind::SW_SAMPLE_CPU as usize,
            Self::Counter(index) => sw_sample_kind::SW_SAMPLE_COUNTER as usize + usize::from(index),
            Self::OffCpu => sw_sample_kind::SW_SAMPLE_OFF_CPU as usize,
            Self::Waker => sw_sample_kind::SW_SAMPLE_WAKER as usize,
            Self::FoundWait => return None,
            Self::UserProbe(index) => sw_sample_kind::SW_SAMPLE_USER_PROBE as usize + usize::from(index),
            #[cfg(feature = "test-programs")]
            Self::Probe => return None,
        };
        Some(index)
    }

    /// The programs that take these samples.
    pub(crate) const fn source(self) -> SampleSource {
        match self {
            Self::Cpu => SampleSource::Cpu,
            Self::OffCpu | Self::FoundWait => SampleSource::OffCpu,
            Self::Waker => SampleSource::Waker,
            Self::Counter(_) => SampleSource::Counter,
            Self::UserProbe(_) => SampleSource::UserProbe,
            #[cfg(feature = "test-programs")]
            Self::Probe => SampleSource::Probe,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counter::PerfCounter;

    #[test]
    fn a_number_of_the_header_has_its_kind_and_any_other_has_none() {
        assert_eq!(SampleKind::from_number(sw_sample_kind::SW_SAMPLE_CPU as u8), Some(SampleKind::Cpu));
        assert_eq!([0, 254].map(SampleKind::from_number), [None; 2]);
    }

    #[test]
    fn a_sample_belongs_to_the_kind_of_the_run_that_it_is_for() {
        let (cpu, kinds) = (Kind::Cpu { samples_per_second: 19 }, KindSet::new(Kind::OffCpu));
        assert_eq!(SampleKind::Cpu.profile_kind(&kinds), None);
        assert_eq!(SampleKind::Cpu.profile_kind(&kinds.with(cpu)), Some(cpu));
    }

    #[test]
    fn the_clock_interrupts_at_the_rate_that_is_asked_for() {
        let period_ns = |samples_per_second| {
            PerfCounter::of(Kind::Cpu { samples_per_second }).and_then(PerfCounter::period)
        };
        assert_eq!(period_ns(100), Some(10_000_000));
        assert_eq!(period_ns(0), Some(1_000_000_000));
    }
}
