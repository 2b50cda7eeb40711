//! The kinds of profile: one row each, which says all that encoders, readers and renderers need to know of it.
//!
//! A new kind is a [`Kind`] with its row, the eBPF program that takes its samples, and their tests.
#![forbid(unsafe_code)]

/// What the events of a profile are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Time on a CPU, sampled at a steady rate. An event has a time and the value 1.
    Cpu {
        /// The rate of sampling on each CPU, in Hz.
        samples_per_second: u32,
    },
    /// Time that a thread spent off the CPUs. The value of an event is that time in nanoseconds.
    OffCpu,
    /// Samples that were only counted: nobody knows when each of them was taken. The value of an event is how many there
    /// were, and no two events of a report have the same identity.
    Aggregated {
        /// The rate of sampling on each CPU, in Hz; 0 where it isn't known either.
        samples_per_second: u32,
    },
}

/// What numbers are of, and their unit: a `ValueType` of OTLP and of pprof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueType {
    /// What is measured, as pprof's users know it.
    pub name: &'static str,
    /// One of [`unit`].
    pub unit: &'static str,
    /// What is measured, in texts for people; of times, without the word "time".
    pub display: &'static str,
}

/// Units of values, as `profiles.proto` spells them.
pub mod unit {
    /// Numbers of things.
    pub const COUNT: &str = "count";
    /// Times.
    pub const NANOSECONDS: &str = "nanoseconds";
}

/// Numbers of samples.
pub const SAMPLES: ValueType = ValueType { name: "samples", unit: unit::COUNT, display: "samples" };
/// Time on CPUs.
pub const CPU_TIME: ValueType = ValueType { name: "cpu", unit: unit::NANOSECONDS, display: "CPU" };
/// Time off them.
pub const OFF_CPU_TIME: ValueType =
    ValueType { name: "off_cpu", unit: unit::NANOSECONDS, display: "off-CPU" };

/// The [`display`](ValueType::display) of the value type of this name; of a name that no kind has, the name itself.
#[must_use]
pub fn display_of(name: &str) -> &str {
    [SAMPLES, CPU_TIME, OFF_CPU_TIME].iter().find(|of| of.name == name).map_or(name, |of| of.display)
}

/// What has the kernel take the samples of a kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hook {
    /// The clock of each CPU, which interrupts once in each [`Period`].
    CpuClock,
}

/// What a sample of a profile holds for each of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SampleShape {
    /// When it was.
    Timestamps,
    /// When it was, and its value.
    TimestampsAndValues,
    /// Its value.
    Values,
}

/// What one event stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Period {
    /// Of what.
    pub value_type: ValueType,
    /// How much, in its unit; more than 0.
    pub amount: u64,
}

/// A kind of profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KindDescriptor {
    /// What the values of events are.
    pub value_type: ValueType,
    /// What has the kernel take its samples; `None` where no program takes any.
    pub hook: Option<Hook>,
    /// What an event of value 1 stands for beside that; `None` where values say it all.
    pub period: Option<Period>,
    /// What is sent of each event.
    pub shape: SampleShape,
    /// Tools show the first profile by default: the lowest rank goes first.
    pub display_rank: u8,
}

impl Kind {
    /// All that is to be known of this kind.
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
                hook: None,
                period: None,
                shape: SampleShape::TimestampsAndValues,
                display_rank: 1,
            },
        }
    }

    /// How many samples a second and CPU were asked for; 0 where nobody asked for a rate.
    #[must_use]
    pub const fn samples_per_second(self) -> u32 {
        match self {
            Self::Cpu { samples_per_second } | Self::Aggregated { samples_per_second } => samples_per_second,
            Self::OffCpu => 0,
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
    fn the_name_of_a_value_type_is_displayed_as_its_row_says_and_any_other_name_as_it_is() {
        assert_eq!(["cpu", "off_cpu", "wall"].map(display_of), ["CPU", "off-CPU", "wall"]);
        for kind in
            [Kind::Cpu { samples_per_second: 19 }, Kind::OffCpu, Kind::Aggregated { samples_per_second: 19 }]
        {
            let KindDescriptor { value_type: values, period, .. } = kind.descriptor();
            for of in [values, period.map_or(values, |period| period.value_type)] {
                assert_eq!(display_of(of.name), of.display);
            }
        }
    }
}
