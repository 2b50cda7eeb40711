//! What the samples of a profile count, and in which unit.

use std::sync::Arc;

use sidewinder_kind::{
    Kind, LOCK_CONTENTIONS, LOCK_DELAY, OFF_CPU_TIME, SAMPLES, WAKER_DELAY, WALL_TIME, unit,
};

/// A quantity and its unit: a `ValueType` of OTLP.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ValueType {
    /// The name of the quantity: `cpu`.
    pub name: Arc<str>,
    /// Its unit, as in [`unit`].
    pub unit: Arc<str>,
}

/// The distance between two events.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Period {
    /// The quantity.
    pub value_type: ValueType,
    /// The amount; more than 0.
    pub amount: u64,
}

/// What samples count: the sample type and the period of an OTLP profile.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SampleType {
    /// The type of the values of samples.
    pub value_type: ValueType,
    /// How far apart events are, if that is known.
    pub period: Option<Period>,
}

impl From<sidewinder_kind::ValueType> for ValueType {
    fn from(value_type: sidewinder_kind::ValueType) -> Self {
        Self::new(value_type.name, value_type.unit)
    }
}

impl ValueType {
    /// A quantity in this unit.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, unit: impl Into<Arc<str>>) -> Self {
        Self { name: name.into(), unit: unit.into() }
    }
}

impl SampleType {
    /// That of Sidewinder's own profiles.
    #[must_use]
    pub fn from_kind(kind: Kind) -> Self {
        let row = kind.descriptor();
        let period =
            row.period.map(|period| Period { value_type: period.value_type.into(), amount: period.amount });
        Self { value_type: row.value_type.into(), period }
    }

    /// That of samples which each stand for this time of a quantity: more than 0.
    #[must_use]
    pub fn at_rate(name: impl Into<Arc<str>>, period_ns: u64) -> Self {
        let period = Period { value_type: ValueType::new(name, unit::NANOSECONDS), amount: period_ns };
        Self { value_type: SAMPLES.into(), period: Some(period) }
    }

    /// The time that each sample stands for, if samples are counted that are taken at a rate.
    fn time_per_sample(&self) -> Option<&Period> {
        let is_counted = *self.value_type.name == *SAMPLES.name && *self.value_type.unit == *unit::COUNT;
        self.period.as_ref().filter(|period| is_counted && *period.value_type.unit == *unit::NANOSECONDS)
    }

    /// The name of the measured quantity: for samples that each stand for a time, that of the time.
    #[must_use]
    pub fn name(&self) -> &str {
        self.time_per_sample().map_or(&self.value_type.name, |period| &period.value_type.name)
    }

    /// The unit of the values of samples: [`unit::COUNT`] of samples that each stand for a time.
    #[must_use]
    pub fn unit(&self) -> &str {
        &self.value_type.unit
    }

    /// Samples per second and CPU; 0 if a sample does not stand for the time between two of them.
    #[must_use]
    pub fn rate_hz(&self) -> u64 {
        let period = self.time_per_sample();
        period.and_then(|period| 1_000_000_000_u64.checked_div(period.amount)).unwrap_or(0)
    }

    /// The time that an event of value 1 represents, in nanoseconds of [`name`](Self::name); 0 if it is not a time.
    #[must_use]
    pub fn period_ns(&self) -> u64 {
        self.time_per_sample().map_or_else(|| self.is_duration().into(), |period| period.amount)
    }

    /// How far apart events are that are not samples at a rate.
    #[must_use]
    pub fn event_period(&self) -> Option<&Period> {
        self.period.as_ref().filter(|_| self.time_per_sample().is_none())
    }

    /// What the profile is of, in words: `CPU time`, `page faults`.
    #[must_use]
    pub fn subject(&self) -> String {
        let display = sidewinder_kind::display_of(self.name());
        if self.period_ns() > 0 || self.is_duration() {
            format!("{display} time")
        } else {
            display.to_owned()
        }
    }

    /// Whether the values of samples are nanoseconds, and not numbers of samples.
    #[must_use]
    pub fn is_duration(&self) -> bool {
        *self.value_type.unit == *unit::NANOSECONDS
    }

    /// Whether samples are waits of threads, among others or alone: their stacks end in the kernel, in what waits.
    #[must_use]
    pub fn is_of_waits(&self) -> bool {
        let of_waits = [OFF_CPU_TIME, WALL_TIME, LOCK_CONTENTIONS, LOCK_DELAY, WAKER_DELAY];
        of_waits.iter().any(|value_type| value_type.name == self.name())
    }

    /// What [`name`](Self::name) is measured in, in words; `None` for durations and numbers.
    #[must_use]
    pub fn shown_unit(&self) -> Option<&str> {
        (!self.is_duration() && self.unit() != unit::COUNT).then(|| self.unit())
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::CPU_TIME;

    use super::*;

    #[test]
    fn samples_at_a_rate_measure_the_time_between_two() {
        let cpu = SampleType::from_kind(Kind::Cpu { samples_per_second: 97 });
        assert_eq!((cpu.name(), cpu.unit(), cpu.rate_hz()), (CPU_TIME.name, unit::COUNT, 97));
        assert_eq!((cpu.period_ns(), cpu.event_period()), (1_000_000_000 / 97, None));
        let counted = SampleType::from_kind(Kind::Aggregated { samples_per_second: 0 });
        assert_eq!((counted.name(), counted.rate_hz(), counted.period_ns()), (SAMPLES.name, 0, 0));
        let wall = SampleType::from_kind(Kind::Wall { samples_per_second: 97 });
        assert_eq!((wall.name(), wall.rate_hz(), wall.period_ns()), (WALL_TIME.name, 0, 1));
        assert!(wall.event_period().is_some());
    }
}
