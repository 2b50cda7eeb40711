//! The section on counters, for people and as JSON.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sidewinder_base::causes::error_chain;
use sidewinder_bpf::probe_counter;
use sidewinder_kind::{Counter, CounterSource};

use super::probe_status::ProbeStatus;

/// A counter, and why it can't be sampled here; `None` if it can.
pub(super) struct CounterReport {
    counter: Counter,
    obstacle: Option<String>,
}

/// Tries every counter.
pub(super) fn reports() -> Vec<CounterReport> {
    let obstacle = |counter| probe_counter(counter).err().map(|error| error_chain(&error));
    Counter::ALL.iter().map(|&counter| CounterReport { counter, obstacle: obstacle(counter) }).collect()
}

impl CounterReport {
    fn status(&self) -> ProbeStatus {
        // Nothing else depends on it.
        if self.obstacle.is_none() { ProbeStatus::Ok } else { ProbeStatus::Limited }
    }
}

/// The counters of the kernel, then those of the CPU: which ones can be sampled, and, if it is verbose, why the others can't.
pub(super) fn table(
    reports: &[CounterReport],
    is_verbose: bool,
    paint: &impl Fn(ProbeStatus, &str) -> String,
) -> String {
    let mut text = String::from("\nCounters, for record -e and the key events\n");
    for (source, title, next) in [
        (CounterSource::Kernel, "kernel", "run as root or with CAP_PERFMON"),
        (
            CounterSource::Cpu,
            "CPU",
            "a virtual machine has them only if its host exposes them; page-faults and context-switches work anywhere",
        ),
    ] {
        let of_source = || reports.iter().filter(|report| report.counter.descriptor().source == source);
        let (found, missing): (Vec<_>, Vec<_>) = of_source().partition(|report| report.obstacle.is_none());
        let status = if missing.is_empty() { ProbeStatus::Ok } else { ProbeStatus::Limited };
        let names = |reports: &[&CounterReport]| {
            let names: Vec<_> = reports.iter().map(|report| report.counter.name()).collect();
            if names.is_empty() { "none".to_owned() } else { names.join(", ") }
        };
        let label = paint(status, &format!("{:<7}", status.label()));
        // Writing to a string does not fail.
        _ = writeln!(text, "{label}  {title}: {}", names(&found));
        if let ([first, ..], true) = (&missing[..], is_verbose) {
            _ = writeln!(text, "         missing {}", names(&missing));
            _ = writeln!(text, "         why     {}", first.obstacle.as_deref().unwrap_or_default());
            _ = writeln!(text, "         next    {next}");
        }
    }
    text
}

pub(super) fn table_json(reports: &[CounterReport]) -> Value {
    let row = |report: &CounterReport| {
        let row = report.counter.descriptor();
        json!({
            "name": row.name,
            "aliases": row.aliases,
            "counts": row.meaning,
            "default_period": row.default_period,
            "state": report.status().label(),
            "why": report.obstacle,
        })
    };
    reports.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(counter: Counter, obstacle: Option<&str>) -> CounterReport {
        CounterReport { counter, obstacle: obstacle.map(str::to_owned) }
    }

    #[test]
    fn what_is_missing_is_named_with_its_reason() {
        let reports = [report(Counter::PageFaults, None), report(Counter::Cycles, Some("no PMU"))];
        let text = |is_verbose| table(&reports, is_verbose, &|_, text| text.to_owned());
        let found = "ok       kernel: page-faults\nlimited  CPU: none\n";
        assert!(text(false).ends_with(found), "{}", text(false));
        let why = format!("{found}         missing cpu-cycles\n         why     no PMU\n");
        assert!(text(true).contains(&why), "{}", text(true));
        let states = table_json(&reports);
        assert_eq!((&states[0]["state"], &states[1]["state"]), (&json!("ok"), &json!("limited")));
        assert_eq!((&states[0]["why"], &states[1]["why"]), (&Value::Null, &json!("no PMU")));
    }
}
