//! The events of `record -e`: the CPU clock, and counters by name.

use sidewinder_config::{CounterEvent, InvalidEvent, SamplesPerSecond};
use sidewinder_kind::{Counter, Kind, KindSet, SampledProbe};

use sidewinder_sampling::UserProbe;

/// The names of the CPU clock.
const CPU_CLOCK: [&str; 2] = ["cpu-clock", "cpu"];

/// One event: `NAME`, `NAME:PERIOD` or `NAME@HZ`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EventArg {
    /// CPU time; with a rate of its own, in samples per second and CPU.
    CpuClock {
        samples_per_second: Option<u32>,
    },
    Counter(CounterEvent),
}

impl EventArg {
    /// Parses an event.
    ///
    /// # Errors
    /// If no event has such a name, or such a rate.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, rate) = text.split_once('@').map_or((text, None), |(name, rate)| (name, Some(rate)));
        if CPU_CLOCK.contains(&name) {
            let frequency = |text: &str| {
                let hz = text.parse().ok().and_then(|hz| SamplesPerSecond::new(hz).ok());
                hz.map(SamplesPerSecond::get).ok_or_else(|| InvalidEvent::Frequency.to_string())
            };
            return Ok(Self::CpuClock { samples_per_second: rate.map(frequency).transpose()? });
        }
        if CPU_CLOCK.iter().any(|clock| text.strip_prefix(clock).is_some_and(|rest| rest.starts_with(':'))) {
            return Err("the CPU clock has a frequency instead of a period: cpu-clock@HZ".to_owned());
        }
        text.parse().map(Self::Counter).map_err(|error: InvalidEvent| error.to_string())
    }

    /// The kind of profile that it leads to, at this rate if it has none.
    pub(crate) fn kind(self, samples_per_second: u32) -> Kind {
        match self {
            Self::CpuClock { samples_per_second: own } => {
                Kind::Cpu { samples_per_second: own.unwrap_or(samples_per_second) }
            }
            Self::Counter(event) => Kind::Counter(event.sampled(samples_per_second)),
        }
    }
}

/// The kinds of profile that these events and probes lead to, at this rate of those without one; without any, CPU time.
///
/// # Errors
/// If an event is given twice, or there are too many.
pub(crate) fn kinds_of_events(
    events: &[EventArg],
    probes: &[UserProbe],
    samples_per_second: u32,
) -> Result<KindSet, String> {
    if probes.len() > SampledProbe::SAMPLED_MAX {
        let (given, most) = (probes.len(), SampledProbe::SAMPLED_MAX);
        return Err(format!("{given} probes are more than the {most} of one recording"));
    }
    let tracepoints = probes.iter().filter(|probe| probe.is_tracepoint()).count();
    if tracepoints > SampledProbe::TRACEPOINTS_MAX {
        let most = SampledProbe::TRACEPOINTS_MAX;
        return Err(format!("{tracepoints} tracepoints are more than the {most} of one recording"));
    }
    let of_probes = probes.iter().map(|probe| Kind::Probe(probe.sampled));
    let mut kinds = events.iter().map(|event| event.kind(samples_per_second)).chain(of_probes);
    let first = kinds.next().unwrap_or(Kind::Cpu { samples_per_second });
    let kinds = kinds.try_fold(KindSet::new(first), |kinds, kind| {
        let name = kind.descriptor().value_type.name;
        let is_new = kinds.iter().all(|other| other.descriptor().value_type.name != name);
        is_new.then(|| kinds.with(kind)).ok_or_else(|| format!("{name} is given twice"))
    })?;
    match kinds.counters().count() {
        ..=Counter::SAMPLED_MAX => Ok(kinds),
        given => Err(format!("{given} counters are more than the {} of one recording", Counter::SAMPLED_MAX)),
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::{CounterRate, SampledCounter};

    use super::*;

    fn kinds(events: &[&str]) -> Result<Vec<Kind>, String> {
        let events = events.iter().map(|event| EventArg::parse(event)).collect::<Result<Vec<_>, _>>()?;
        Ok(kinds_of_events(&events, &[], 97)?.iter().collect())
    }

    fn counter(counter: Counter, rate: CounterRate) -> Kind {
        Kind::Counter(SampledCounter { counter, rate })
    }

    #[test]
    fn cpu_time_is_recorded_unless_events_say_otherwise() {
        let cpu = |samples_per_second| Kind::Cpu { samples_per_second };
        let faults = counter(Counter::PageFaults, CounterRate::Period(64));
        assert_eq!(kinds(&[]), Ok(vec![cpu(97)]));
        assert_eq!(kinds(&["page-faults"]), Ok(vec![faults]));
        assert_eq!(kinds(&["page-faults", "cpu-clock@19"]), Ok(vec![cpu(19), faults]));
        assert_eq!(kinds(&["cycles"]), Ok(vec![counter(Counter::Cycles, CounterRate::Frequency(97))]));
        assert_eq!(kinds(&["cycles:1000"]), Ok(vec![counter(Counter::Cycles, CounterRate::Period(1000))]));
    }

    #[test]
    fn what_cant_be_recorded_is_refused_with_its_reason() {
        for (events, reason) in [
            (&["cpu-clock:5"][..], "cpu-clock@HZ"),
            (&["cpu-clock@0"], "1 to 10000 Hz"),
            (&["page-fault"], "did you mean page-faults?"),
            (&["cpu", "cpu-clock"], "samples is given twice"),
            (&["faults:1", "page-faults:64"], "faults is given twice"),
            (&["faults", "cs", "migrations", "branches", "cycles"], "5 counters are more than the 4"),
        ] {
            let error = kinds(events).unwrap_err();
            assert!(error.contains(reason), "{events:?}: {error}");
        }
    }
}
