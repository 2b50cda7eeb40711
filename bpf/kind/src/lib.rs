//! The kinds of profile: one row each, with everything that encoders, readers and renderers need; and the CPUs that are sampled.
//!
//! To add a kind: a [`Kind`] with its row, the eBPF program that takes its samples, and their tests.
#![forbid(unsafe_code)]

mod counter;
mod cpu_ids;
mod probe;
mod value_type;

pub use counter::{Counter, CounterDescriptor, CounterRate, CounterSource, SampledCounter};
pub use cpu_ids::{CpuIds, InvalidCpuIds};
pub use probe::SampledProbe;
pub use value_type::{
    CPU_TIME, LOCK_CONTENTIONS, LOCK_DELAY, OFF_CPU_TIME, SAMPLES, ValueType, WAKER_DELAY, WALL_TIME, unit,
};

/// The events of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Time on a CPU, sampled at a steady rate. An event has a time and the value 1.
    Cpu {
        /// The sampling rate on each CPU, in Hz.
        samples_per_second: u32,
    },
    /// Time that a thread spent off the CPUs. The value of an event is that time in nanoseconds.
    OffCpu,
    /// Waits for locks. The value of an event is the number of waits that it stands for.
    LockContentions,
    /// Time that threads waited for locks. The value of an event is that time in nanoseconds.
    LockDelay,
    /// Ends of waits for locks, at the stack of the thread that ended each: the one that released the lock. The value of an event is
    /// the time of the wait in nanoseconds.
    LockWakers,
    /// Time that a thread existed: running, runnable and off the CPUs. It consists of the samples of CPU time and of off-CPU
    /// time. The value of an event is that time in nanoseconds.
    Wall {
        /// The rate at which the time on CPUs is sampled on each CPU, in Hz.
        samples_per_second: u32,
    },
    /// Counts of a counter. The value of an event is the number of counts that led to it, its period.
    Counter(SampledCounter),
    /// Hits of a probe that the user placed in programs. The value of an event is the number of hits that it stands for, or
    /// that number times a value of the hit.
    Probe(SampledProbe),
    /// Samples that were only counted, without the time of each. The value of an event is the number of samples.
    Aggregated {
        /// The sampling rate on each CPU, in Hz; 0 if it is unknown too.
        samples_per_second: u32,
    },
}

/// The [`display`](ValueType::display) of the value type with this name; for a name that no kind has, the name itself.
#[must_use]
pub fn display_of(name: &str) -> &str {
    let counted = Counter::ALL.iter().map(|counter| &counter.descriptor().value_type);
    let all = [&SAMPLES, &CPU_TIME, &OFF_CPU_TIME, &WALL_TIME, &LOCK_CONTENTIONS, &LOCK_DELAY, &WAKER_DELAY];
    let all = all.into_iter().chain(counted);
    all.into_iter().find(|of| of.name == name).map_or(name, |of| of.display)
}

/// What makes the kernel take the samples of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// The clock of each CPU, which interrupts once per [`Period`].
    CpuClock,
    /// A counter, which interrupts at its rate.
    Counter(SampledCounter),
    /// Each context switch, in the task that leaves its CPU.
    ContextSwitches,
    /// Each wake-up of a thread, in the task that wakes it.
    Wakeups,
    /// The places of a probe in programs, whenever they are executed.
    Probe(SampledProbe),
}

/// The per-event data in a sample of a profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleShape {
    /// The time of the event.
    Timestamps,
    /// The time of the event, and its value.
    TimestampsAndValues,
    /// The sum of the values of the events that have the same identity, without times. Pyroscope refuses a profile with a period
    /// whose samples have several values each.
    Values,
}

/// The distance between two events. If it is not in the quantity of the values, an event of value 1 stands for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// The quantity.
    pub value_type: ValueType,
    /// The amount, in the unit of the quantity; more than 0.
    pub amount: u64,
}

/// A kind of profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindDescriptor {
    /// The type of the values of events.
    pub value_type: ValueType,
    /// What makes the kernel take its samples; `None` if no program takes any.
    pub hook: Option<Hook>,
    /// The distance between two events; `None` if there is none.
    pub period: Option<Period>,
    /// The data sent for each event.
    pub shape: SampleShape,
    /// Tools show the first profile by default: profiles are sent in ascending rank.
    pub display_rank: u8,
}

/// The kinds of profile that one run samples, each at most once, in the order in which tools show them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KindSet(Vec<Kind>);

impl KindSet {
    /// The set of one kind.
    #[must_use]
    pub fn new(kind: Kind) -> Self {
        Self(vec![kind])
    }

    /// The same with one more kind.
    #[must_use]
    pub fn with(mut self, kind: Kind) -> Self {
        if !self.0.contains(&kind) {
            self.0.push(kind);
            self.0.sort_by_key(|kind| kind.descriptor().display_rank);
        }
        self
    }

    /// The kinds; there is at least one.
    pub fn iter(&self) -> impl Iterator<Item = Kind> + '_ {
        self.0.iter().copied()
    }

    /// Whether waits for locks are among them.
    #[must_use]
    pub fn has_locks(&self) -> bool {
        self.iter().any(Kind::is_of_locks)
    }

    /// The same with the two kinds of waits for locks.
    #[must_use]
    pub fn with_locks(self) -> Self {
        self.with(Kind::LockContentions).with(Kind::LockDelay)
    }

    /// The same with the stacks of the threads that end these waits.
    #[must_use]
    pub fn with_lock_wakers(self) -> Self {
        self.with_locks().with(Kind::LockWakers)
    }

    /// The kinds whose samples are taken for these: a wall profile consists of two other kinds' samples.
    #[must_use]
    pub fn sampled(&self) -> Self {
        let sources = |kind| match kind {
            Kind::Wall { samples_per_second } => vec![Kind::Cpu { samples_per_second }, Kind::OffCpu],
            other => vec![other],
        };
        self.iter().flat_map(sources).fold(Self(Vec::new()), Self::with)
    }

    /// The wall profile among them.
    #[must_use]
    pub fn wall(&self) -> Option<Kind> {
        self.iter().find(|kind| matches!(kind, Kind::Wall { .. }))
    }

    /// Whether a kind is among them.
    #[must_use]
    pub fn contains(&self, kind: Kind) -> bool {
        self.0.contains(&kind)
    }

    /// The counters among them.
    pub fn counters(&self) -> impl Iterator<Item = SampledCounter> + '_ {
        self.iter().filter_map(|kind| if let Kind::Counter(sampled) = kind { Some(sampled) } else { None })
    }

    /// The probes among them.
    pub fn probes(&self) -> impl Iterator<Item = SampledProbe> + '_ {
        self.iter().filter_map(|kind| if let Kind::Probe(probe) = kind { Some(probe) } else { None })
    }

    /// The highest sampling rate of a kind on each CPU, in Hz; 0 if none has a rate.
    #[must_use]
    pub fn samples_per_second(&self) -> u32 {
        self.iter().map(Kind::samples_per_second).max().unwrap_or(0)
    }
}

impl Kind {
    /// The properties of this kind.
    #[must_use]
    pub fn descriptor(self) -> KindDescriptor {
        match self {
            Self::Cpu { samples_per_second } => KindDescriptor {
                value_type: SAMPLES,
                hook: Some(Hook::CpuClock),
                period: cpu_period(samples_per_second.max(1)),
                shape: SampleShape::Timestamps,
                display_rank: 0,
            },
            Self::Aggregated { samples_per_second } => KindDescriptor {
                value_type: SAMPLES,
                hook: None,
                period: cpu_period(samples_per_second),
                shape: SampleShape::Values,
                display_rank: 0,
            },
            Self::OffCpu => KindDescriptor {
                value_type: OFF_CPU_TIME,
                hook: Some(Hook::ContextSwitches),
                period: None,
                shape: SampleShape::TimestampsAndValues,
                display_rank: 2,
            },
            Self::Wall { .. } => KindDescriptor {
                value_type: WALL_TIME,
                hook: None,
                period: Some(Period { value_type: WALL_TIME, amount: 1 }),
                shape: SampleShape::TimestampsAndValues,
                display_rank: 1,
            },
            Self::LockContentions => KindDescriptor {
                value_type: LOCK_CONTENTIONS,
                hook: Some(Hook::ContextSwitches),
                period: Some(Period { value_type: LOCK_CONTENTIONS, amount: 1 }),
                shape: SampleShape::Values,
                display_rank: 3,
            },
            Self::LockDelay => KindDescriptor {
                value_type: LOCK_DELAY,
                hook: Some(Hook::ContextSwitches),
                period: Some(Period { value_type: LOCK_CONTENTIONS, amount: 1 }),
                shape: SampleShape::Values,
                display_rank: 4,
            },
            Self::LockWakers => KindDescriptor {
                value_type: WAKER_DELAY,
                hook: Some(Hook::Wakeups),
                period: Some(Period { value_type: LOCK_CONTENTIONS, amount: 1 }),
                shape: SampleShape::Values,
                display_rank: 5,
            },
            Self::Probe(probe) => KindDescriptor {
                value_type: probe.value_type(),
                hook: Some(Hook::Probe(probe)),
                period: None,
                shape: SampleShape::TimestampsAndValues,
                display_rank: 7,
            },
            Self::Counter(sampled) => {
                let value_type = sampled.counter.descriptor().value_type;
                let amount = match sampled.rate {
                    CounterRate::Period(period) => period.max(1),
                    // It varies, and each event has its own as its value.
                    CounterRate::Frequency(_) => 1,
                };
                KindDescriptor {
                    value_type,
                    hook: Some(Hook::Counter(sampled)),
                    period: Some(Period { value_type, amount }),
                    shape: SampleShape::Values,
                    display_rank: 6,
                }
            }
        }
    }

    /// Whether it is of the waits of threads for locks.
    #[must_use]
    pub const fn is_of_locks(self) -> bool {
        matches!(self, Self::LockContentions | Self::LockDelay)
    }

    /// The requested samples per second and CPU; 0 if no rate was requested.
    #[must_use]
    pub const fn samples_per_second(self) -> u32 {
        match self {
            Self::Cpu { samples_per_second }
            | Self::Wall { samples_per_second }
            | Self::Aggregated { samples_per_second } => samples_per_second,
            Self::Counter(SampledCounter { rate: CounterRate::Frequency(hz), .. }) => hz,
            Self::OffCpu
            | Self::LockContentions
            | Self::LockDelay
            | Self::LockWakers
            | Self::Counter(_)
            | Self::Probe(_) => 0,
        }
    }
}

/// The CPU time between two samples of a CPU; `None` where the rate is 0.
fn cpu_period(samples_per_second: u32) -> Option<Period> {
    let amount = 1_000_000_000_u64.checked_div(samples_per_second.into())?;
    Some(Period { value_type: CPU_TIME, amount: amount.max(1) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_sampled_kind_stands_for_the_time_between_two() {
        let period =
            |kind: Kind| kind.descriptor().period.map(|period| (period.value_type.name, period.amount));
        assert_eq!(period(Kind::Cpu { samples_per_second: 100 }), Some(("cpu", 10_000_000)));
        assert_eq!(period(Kind::Aggregated { samples_per_second: 100 }), Some(("cpu", 10_000_000)));
        assert_eq!(period(Kind::Aggregated { samples_per_second: 0 }), None);
        assert_eq!(period(Kind::OffCpu), None);
    }

    #[test]
    fn the_kinds_of_a_run_are_in_the_order_of_their_rank_and_each_is_there_once() {
        let cpu = Kind::Cpu { samples_per_second: 19 };
        let kinds = KindSet::new(Kind::OffCpu).with(cpu).with(Kind::OffCpu);
        assert_eq!(kinds.iter().collect::<Vec<_>>(), [cpu, Kind::OffCpu]);
        assert_eq!(kinds.samples_per_second(), 19);
        assert_eq!(KindSet::new(Kind::OffCpu).samples_per_second(), 0);
        let locks = kinds.with_locks();
        assert!(locks.has_locks());
        assert_eq!(
            locks.iter().collect::<Vec<_>>(),
            [cpu, Kind::OffCpu, Kind::LockContentions, Kind::LockDelay]
        );
    }

    #[test]
    fn a_wall_profile_consists_of_the_samples_of_two_kinds_which_may_have_their_own_profiles() {
        let samples_per_second = 19;
        let [cpu, wall] = [Kind::Cpu { samples_per_second }, Kind::Wall { samples_per_second }];
        let both = KindSet::new(Kind::OffCpu).with(cpu);
        assert_eq!(KindSet::new(wall).sampled(), both);
        assert_eq!(KindSet::new(cpu).with(wall).sampled(), both);
        assert_eq!(both.sampled(), both);
        assert_eq!((both.wall(), both.clone().with(wall).wall()), (None, Some(wall)));
        assert_eq!(both.with(wall).iter().collect::<Vec<_>>(), [cpu, wall, Kind::OffCpu]);
    }

    #[test]
    fn the_name_of_a_value_type_is_displayed_as_its_row_says_and_any_other_name_as_it_is() {
        assert_eq!(["cpu", "off_cpu", "other"].map(display_of), ["CPU", "off-CPU", "other"]);
        let samples_per_second = 19;
        for kind in [
            Kind::Cpu { samples_per_second },
            Kind::OffCpu,
            Kind::Wall { samples_per_second },
            Kind::LockContentions,
            Kind::LockDelay,
            Kind::LockWakers,
            Kind::Aggregated { samples_per_second },
        ] {
            let KindDescriptor { value_type: values, period, .. } = kind.descriptor();
            for of in [values, period.map_or(values, |period| period.value_type)] {
                assert_eq!(display_of(of.name), of.display);
            }
        }
    }
}
