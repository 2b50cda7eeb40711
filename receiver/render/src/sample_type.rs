//! What the samples of a profile count, and in which unit.

use sidewinder_kind::{Kind, LOCK_CONTENTIONS, LOCK_DELAY, OFF_CPU_TIME, WAKER_DELAY, WALL_TIME, unit};

/// The quantity that is counted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SampleType {
    /// The name of its value type: `cpu`.
    pub name: String,
    /// The unit of the values of samples, as in [`unit`]: [`unit::COUNT`] of samples that each stand for a time.
    pub unit: String,
    /// Interrupts per second and CPU, as configured; 0 if a sample does not stand for the time between two of them.
    pub rate_hz: u64,
    /// The time that one event represents, in nanoseconds of `name`; 0 if it is not a time.
    pub period_ns: u64,
    /// How far apart events are, if they are not samples at a rate.
    pub period: Option<EventPeriod>,
}

/// The distance between two events of a counter, or of waits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EventPeriod {
    /// The name of the value type.
    pub name: String,
    /// Its unit, as in [`unit`].
    pub unit: String,
    /// The amount; more than 0.
    pub amount: u64,
}

impl SampleType {
    /// The measure of Sidewinder's own profiles. An event that stands for the time between two is measured by that time.
    #[must_use]
    pub fn from_kind(kind: Kind) -> Self {
        let row = kind.descriptor();
        let unit = row.value_type.unit.to_owned();
        let (counted, period_ns, rate_hz) = match row.period {
            Some(period)
                if period.value_type.unit == unit::NANOSECONDS && row.value_type.unit == unit::COUNT =>
            {
                (period.value_type, period.amount, kind.samples_per_second())
            }
            _ => (row.value_type, u64::from(row.value_type.unit == unit::NANOSECONDS), 0),
        };
        let period = row.period.filter(|_| rate_hz == 0).map(|period| EventPeriod {
            name: period.value_type.name.to_owned(),
            unit: period.value_type.unit.to_owned(),
            amount: period.amount,
        });
        Self { name: counted.name.to_owned(), unit, rate_hz: rate_hz.into(), period_ns, period }
    }

    /// That of samples which each stand for this time of `name`: more than 0.
    pub(crate) fn at_rate(name: String, period_ns: u64) -> Self {
        let rate_hz = 1_000_000_000_u64.checked_div(period_ns).unwrap_or(0);
        Self { name, unit: unit::COUNT.to_owned(), rate_hz, period_ns, period: None }
    }

    /// That of samples whose values are in this unit.
    #[must_use]
    pub fn of_values(name: String, unit: String, period: Option<EventPeriod>) -> Self {
        let period_ns = u64::from(unit == unit::NANOSECONDS);
        Self { name, unit, rate_hz: 0, period_ns, period }
    }

    /// What the profile is of, in words: `CPU time`, `page faults`.
    #[must_use]
    pub fn subject(&self) -> String {
        let display = sidewinder_kind::display_of(&self.name);
        if self.period_ns > 0 || self.is_duration() { format!("{display} time") } else { display.to_owned() }
    }

    /// Whether the values of samples are nanoseconds, and not numbers of samples.
    #[must_use]
    pub fn is_duration(&self) -> bool {
        self.unit == unit::NANOSECONDS
    }

    /// Whether samples are waits of threads, among others or alone: their stacks end in the kernel, in what waits.
    #[must_use]
    pub fn is_of_waits(&self) -> bool {
        let of_waits = [OFF_CPU_TIME, WALL_TIME, LOCK_CONTENTIONS, LOCK_DELAY, WAKER_DELAY];
        of_waits.iter().any(|value_type| value_type.name == self.name)
    }

    /// What [`name`](Self::name) is measured in, in words; `None` for durations and numbers.
    pub(crate) fn shown_unit(&self) -> Option<&str> {
        (!self.is_duration() && self.unit != unit::COUNT).then_some(&self.unit)
    }
}
