//! The counters that a profiler samples besides the clock.

use std::str::FromStr;

use sidewinder_kind::{Counter, CounterRate, SampledCounter};
use thiserror::Error;

use super::SamplesPerSecond;
use crate::diagnostics::nearest;

/// A counter that is sampled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CounterEvent {
    /// The counter.
    pub counter: Counter,
    /// How often it interrupts; `None`: its default.
    pub rate: Option<CounterRate>,
}

impl CounterEvent {
    /// The counter with its rate, if the CPU clock interrupts this often per second.
    #[must_use]
    pub fn sampled(self, samples_per_second: u32) -> SampledCounter {
        match self.rate {
            Some(rate) => SampledCounter { counter: self.counter, rate },
            None => SampledCounter::by_default(self.counter, samples_per_second),
        }
    }
}

/// Why a text is not an event.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InvalidEvent {
    /// No counter has this name.
    #[error("no counter has this name{}", suggestion(.nearest.as_deref()))]
    Name {
        /// The most similar name, if any is similar.
        nearest: Option<String>,
    },
    /// What follows the colon is not a period.
    #[error("a period is a whole number of counts, at least 1; there are no modifiers such as :u")]
    Period,
    /// What follows the at sign is not a frequency.
    #[error("a frequency is a whole number from {} to {} Hz", SamplesPerSecond::MIN, SamplesPerSecond::MAX)]
    Frequency,
}

impl InvalidEvent {
    /// The name does not exist.
    pub(crate) fn name(given: &str) -> Self {
        Self::Name { nearest: nearest(given, Counter::ALL.iter().flat_map(|counter| counter.names())) }
    }
}

fn suggestion(nearest: Option<&str>) -> String {
    match nearest {
        Some(name) => format!(", did you mean {name}?"),
        None => "; `sidewinder check` lists them".to_owned(),
    }
}

/// `NAME`, `NAME:PERIOD` or `NAME@FREQUENCY`.
impl FromStr for CounterEvent {
    type Err = InvalidEvent;

    fn from_str(text: &str) -> Result<Self, InvalidEvent> {
        let (name, rate) = match text.split_once([':', '@']) {
            Some((name, number)) if text[name.len()..].starts_with(':') => {
                let period = number.parse().ok().filter(|period| *period > 0);
                (name, Some(CounterRate::Period(period.ok_or(InvalidEvent::Period)?)))
            }
            Some((name, number)) => {
                let frequency = number.parse().ok().and_then(|hz| SamplesPerSecond::new(hz).ok());
                (name, Some(CounterRate::Frequency(frequency.ok_or(InvalidEvent::Frequency)?.get())))
            }
            None => (text, None),
        };
        let counter = Counter::from_name(name).ok_or_else(|| InvalidEvent::name(name))?;
        Ok(Self { counter, rate })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_has_a_period_a_frequency_or_its_default() {
        let event = |text: &str| text.parse::<CounterEvent>();
        let counter = |counter, rate| Ok(CounterEvent { counter, rate });
        assert_eq!(event("page-faults"), counter(Counter::PageFaults, None));
        assert_eq!(event("faults:1"), counter(Counter::PageFaults, Some(CounterRate::Period(1))));
        assert_eq!(event("Cycles@97"), counter(Counter::Cycles, Some(CounterRate::Frequency(97))));
        for text in
            ["cycles:u", "cycles:0", "cycles:", "cycles:1:2", "cycles:-1", "cycles:99999999999999999999"]
        {
            assert_eq!(event(text), Err(InvalidEvent::Period), "{text}");
        }
        for text in ["cycles@", "cycles@0", "cycles@20000", "cycles@1.5"] {
            assert_eq!(event(text), Err(InvalidEvent::Frequency), "{text}");
        }
    }

    #[test]
    fn a_misspelt_name_leads_to_the_nearest_one() {
        let message = |text: &str| text.parse::<CounterEvent>().map_err(|error| error.to_string());
        assert_eq!(
            message("page_fault:1"),
            Err("no counter has this name, did you mean page-faults?".to_owned())
        );
        assert_eq!(message("cycle"), Err("no counter has this name, did you mean cycles?".to_owned()));
        assert_eq!(message(""), Err("no counter has this name; `sidewinder check` lists them".to_owned()));
    }
}
