//! The kinds of profile: one row each, everything else follows from the row.

/// What the events of a profile are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// Time on a CPU, sampled at a steady rate. An event has a time and no value.
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

/// A type and its unit, as a `ValueType` on the wire.
pub(crate) type TypeAndUnit = (&'static str, &'static str);

/// What a sample of a profile holds for each of its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    Timestamps,
    TimestampsAndValues,
    Values,
}

/// The form of a profile on the wire.
pub(crate) struct Row {
    pub(crate) sample_type: TypeAndUnit,
    /// Both empty where events have no period.
    pub(crate) period_type: TypeAndUnit,
    /// In units of the period type.
    pub(crate) period: i64,
    pub(crate) shape: Shape,
    /// Tools show the first profile by default: the lowest rank goes first.
    pub(crate) display_rank: u8,
}

impl Kind {
    pub(crate) fn row(self) -> Row {
        match self {
            Self::Cpu { samples_per_second } => Row {
                sample_type: ("samples", "count"),
                period_type: ("cpu", "nanoseconds"),
                period: 1_000_000_000 / i64::from(samples_per_second.max(1)),
                shape: Shape::Timestamps,
                display_rank: 0,
            },
            Self::Counted { samples_per_second: 0 } => Row {
                sample_type: ("samples", "count"),
                period_type: ("", ""),
                period: 0,
                shape: Shape::Values,
                display_rank: 0,
            },
            Self::Counted { samples_per_second } => {
                Row { shape: Shape::Values, ..Self::Cpu { samples_per_second }.row() }
            }
            Self::OffCpu => Row {
                sample_type: ("off_cpu", "nanoseconds"),
                period_type: ("", ""),
                period: 0,
                shape: Shape::TimestampsAndValues,
                display_rank: 1,
            },
        }
    }
}
