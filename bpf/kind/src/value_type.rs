/// The meaning and unit of values: a `ValueType` of OTLP and of pprof.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueType {
    /// The name of the measured quantity, as used by pprof.
    pub name: &'static str,
    /// One of [`unit`].
    pub unit: &'static str,
    /// The name of the measured quantity in texts for people; for times, without the word "time".
    pub display: &'static str,
}

/// Units of values, as `profiles.proto` spells them.
pub mod unit {
    /// Counts.
    pub const COUNT: &str = "count";
    /// Durations.
    pub const NANOSECONDS: &str = "nanoseconds";
    /// Amounts of memory or of data.
    pub const BYTES: &str = "bytes";
}

/// Counts of samples.
pub const SAMPLES: ValueType = ValueType { name: "samples", unit: unit::COUNT, display: "samples" };
/// Time on CPUs.
pub const CPU_TIME: ValueType = ValueType { name: "cpu", unit: unit::NANOSECONDS, display: "CPU" };
/// Time off CPUs.
pub const OFF_CPU_TIME: ValueType =
    ValueType { name: "off_cpu", unit: unit::NANOSECONDS, display: "off-CPU" };
/// Waits for locks; this and the next have the names of pprof's profile of mutexes.
pub const LOCK_CONTENTIONS: ValueType =
    ValueType { name: "contentions", unit: unit::COUNT, display: "lock contentions" };
/// Time of waits for locks.
pub const LOCK_DELAY: ValueType = ValueType { name: "delay", unit: unit::NANOSECONDS, display: "lock wait" };

/// Time of waits for locks that a thread ended.
pub const WAKER_DELAY: ValueType =
    ValueType { name: "waker_delay", unit: unit::NANOSECONDS, display: "ended lock wait" };

/// Time on CPUs, waiting for one, and off them.
pub const WALL_TIME: ValueType = ValueType { name: "wall", unit: unit::NANOSECONDS, display: "wall" };
