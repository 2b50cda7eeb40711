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
    Counted {
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
}

/// Units of values, as `profiles.proto` spells them.
pub mod unit {
    /// Numbers of things.
    pub const COUNT: &str = "count";
    /// Times.
    pub const NANOSECONDS: &str = "nanoseconds";
}

/// Numbers of samples.
pub const SAMPLES: ValueType = ValueType { name: "samples", unit: unit::COUNT };
/// Time on CPUs.
pub const CPU_TIME: ValueType = ValueType { name: "cpu", unit: unit::NANOSECONDS };
/// Time off them.
pub const OFF_CPU_TIME: ValueType = ValueType { name: "off_cpu", unit: unit::NANOSECONDS };

/// What a sample of a profile holds for each of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
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
    pub of: ValueType,
    /// How much, in its unit; more than 0.
    pub amount: u64,
}

/// A kind of profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// What the values of events are.
    pub values: ValueType,
    /// What an event of value 1 stands for beside that; `None` where values say it all.
    pub period: Option<Period>,
    /// What is sent of each event.
    pub shape: Shape,
    /// Tools show the first profile by default: the lowest rank goes first.
    pub display_rank: u8,
}

impl Kind {
    /// All that is to be known of this kind.
    #[must_use]
    pub fn row(self) -> Row {
        let sampled = |samples_per_second, shape| {
            let amount = 1_000_000_000_u64.checked_div(u64::from(samples_per_second)).map(|ns| ns.max(1));
            let period = amount.map(|amount| Period { of: CPU_TIME, amount });
            Row { values: SAMPLES, period, shape, display_rank: 0 }
        };
        match self {
            Self::Cpu { samples_per_second } => sampled(samples_per_second.max(1), Shape::Timestamps),
            Self::Counted { samples_per_second } => sampled(samples_per_second, Shape::Values),
            Self::OffCpu => {
                Row { values: OFF_CPU_TIME, period: None, shape: Shape::TimestampsAndValues, display_rank: 1 }
            }
        }
    }

    /// How many samples a second and CPU were asked for; 0 where nobody asked for a rate.
    #[must_use]
    pub const fn samples_per_second(self) -> u32 {
        match self {
            Self::Cpu { samples_per_second } | Self::Counted { samples_per_second } => samples_per_second,
            Self::OffCpu => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_a_sampled_kind_stands_for_the_time_between_two() {
        let period = |kind: Kind| kind.row().period.map(|period| (period.of.name, period.amount));
        assert_eq!(period(Kind::Cpu { samples_per_second: 100 }), Some(("cpu", 10_000_000)));
        assert_eq!(period(Kind::Counted { samples_per_second: 100 }), Some(("cpu", 10_000_000)));
        assert_eq!(period(Kind::Counted { samples_per_second: 0 }), None);
        assert_eq!(period(Kind::OffCpu), None);
    }
}
