//! The current problems, each with a next step, for `sidewinder status`.
//!
//! Counters are a problem if they grew in the last [`WINDOW`], or since the start if that is shorter; states are a problem
//! as long as they last.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sidewinder_base::exit::FailureReport;
use sidewinder_bpf::{Outcome, StealTime};
use sidewinder_otlp::send::{Counts, State};

use crate::stats::counters::{Alarm, AlarmWindow, COUNTERS};
use crate::stats::{
    Activity, DegradedFeature, ExporterSnapshot, MISSED, ReceiverStats, ServiceStats, StatsSnapshot, WINDOW,
};

/// A queue that is filled above this share (0 to 1) will soon drop events.
const QUEUE_FULL_THRESHOLD: f64 = 0.8;
/// The share of interrupts (0 to 1) that may be lost in the eBPF programs, as in the alert of the chart.
const LOST_THRESHOLD: f64 = 0.05;
/// The outcomes of interrupts that left no sample.
const LOST_OUTCOMES: [Outcome; 2] = [Outcome::Busy, Outcome::RingFull];

/// A problem, and what to do about it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HealthProblem {
    pub(super) message: String,
    pub(super) next_step: String,
}

impl HealthProblem {
    fn new(message: impl Into<String>, next_step: impl Into<String>) -> Self {
        Self { message: message.into(), next_step: next_step.into() }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "what": self.message, "next": self.next_step })
    }
}

/// The current problems, the most important first.
pub(crate) fn problems(stats: &ServiceStats) -> Vec<HealthProblem> {
    let before = stats.snapshot_before_window();
    let during = format!("in the last {}", approximate_duration(window_duration(stats)));
    let mut problems = Vec::new();
    if let Some(FailureReport { what, next_step }) = stats.configuration().refusal {
        problems.push(HealthProblem::new(
            format!("the last configuration reload was refused, so the previous configuration is still in use: {what}"),
            next_step.unwrap_or("correct it; `sidewinder validate` checks it without applying it"),
        ));
    }
    problems.extend(stats.threads().faulty_threads().iter().map(|faulty| {
        HealthProblem::new(
            faulty.to_string(),
            "restart the profiler, and report this: it is a bug in Sidewinder",
        )
    }));
    for (name, receiver) in stats.receivers() {
        problems.extend(activity_problem(&name, &receiver.activity));
        let before = before.as_ref().and_then(|snapshot| snapshot.receivers.get(&name));
        problems.extend(counter_problems(&name, &receiver, before, &during));
    }
    for exporter in stats.exporters() {
        problems.extend(exporter_problems(&exporter, before.as_ref(), &during));
    }
    problems.extend(stats.degraded().iter().map(degraded_problem));
    problems
}

fn activity_problem(name: &str, activity: &Activity) -> Option<HealthProblem> {
    match activity {
        Activity::Profiling | Activity::OutOfScope => None,
        Activity::Starting => Some(HealthProblem::new(
            format!("receiver {name} is starting and takes no samples yet"),
            "check again in a few seconds",
        )),
        Activity::Failed(FailureReport { what, next_step }) => Some(HealthProblem::new(
            format!("receiver {name} takes no samples: {what}"),
            next_step.unwrap_or("see `sidewinder check`"),
        )),
        Activity::Stopped => {
            Some(HealthProblem::new(format!("receiver {name} has stopped"), "restart the profiler"))
        }
    }
}

fn counter_problems(
    name: &str,
    now: &ReceiverStats,
    before: Option<&ReceiverStats>,
    during: &str,
) -> Vec<HealthProblem> {
    let since = |read: &dyn Fn(&ReceiverStats) -> u64| read(now).saturating_sub(before.map_or(0, read));
    let due = since(&|receiver| receiver.counters.interrupts_by_witness);
    let exceeds = |count: u64, share: f64| count > 0 && count as f64 > share * due as f64;
    let steal_before = before.map_or_else(StealTime::default, |receiver| receiver.counters.cpu_steal);
    let mut problems = Vec::new();
    for counter in COUNTERS {
        let Some(Alarm { window, threshold, message, next_step }) = counter.alarm else {
            continue;
        };
        let (count, during) = match window {
            AlarmWindow::Recently => (since(&counter.read), during),
            AlarmWindow::Start => ((counter.read)(now), "since the start"),
        };
        if exceeds(count, threshold) {
            let steal = match counter.key() == MISSED {
                true => steal_text(now.counters.cpu_steal.since(steal_before)),
                false => String::new(),
            };
            problems.push(HealthProblem::new(
                format!("receiver {name}: {count} {message} ({during}{steal})"),
                next_step,
            ));
        }
    }
    let lost = since(&|receiver| {
        LOST_OUTCOMES.iter().filter_map(|outcome| receiver.counters.outcomes.get(outcome.label())).sum()
    });
    if exceeds(lost, LOST_THRESHOLD) {
        problems.push(HealthProblem::new(
            format!(
                "receiver {name}: {lost} of {due} interrupts left no sample, because buffers were full ({during})"
            ),
            "raise the receiver's memory_limit_mib, or lower samples_per_second",
        ));
    }
    problems
}

/// The share of steal time, after a comma; empty if it is not known.
fn steal_text(steal: StealTime) -> String {
    steal.share().map_or_else(String::new, |share| format!(", steal time {:.1}%", 100.0 * share))
}

fn exporter_problems(
    exporter: &ExporterSnapshot,
    before: Option<&StatsSnapshot>,
    during: &str,
) -> Vec<HealthProblem> {
    let (name, stats) = (&exporter.name, &exporter.stats);
    let mut problems = Vec::new();
    if let Some(outage) = &stats.outage {
        let duration = SystemTime::now().duration_since(outage.since).unwrap_or_default();
        let label = |name| exporter.labels.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        let port = label("server_port").map(|port| format!(":{port}")).unwrap_or_default();
        let target = label("server_address").map(|host| format!(" to {host}{port}")).unwrap_or_default();
        problems.push(HealthProblem::new(
            format!(
                "exporter {name}: nothing could be sent{target} for {}, in {} attempts: {}",
                approximate_duration(duration),
                outage.attempts,
                outage.reason
            ),
            "check that the receiver is running, and the exporter's endpoint, TLS and headers",
        ));
    }
    let counts_before = before.and_then(|snapshot| snapshot.exporters.get(name)).copied().unwrap_or_default();
    for &state in State::ALL {
        let Some((message, next_step)) = state_description(state) else { continue };
        let count = recent_count(stats.counts, counts_before, state);
        if count > 0 {
            let subject = if count == 1 { "1 event was".to_owned() } else { format!("{count} events were") };
            let response = stats.last_partial_success.as_ref().filter(|_| is_refusal(state));
            let response = response.filter(|response| !response.message.is_empty());
            let response = response.map(|response| format!(": {}", response.message)).unwrap_or_default();
            problems.push(HealthProblem::new(
                format!("exporter {name}: {subject} {message} ({during}){response}"),
                next_step,
            ));
        }
    }
    let (bytes, capacity) = (stats.queue_bytes, stats.queue_capacity_bytes);
    if capacity > 0 && bytes as f64 > QUEUE_FULL_THRESHOLD * capacity as f64 {
        problems.push(HealthProblem::new(
            format!(
                "exporter {name}: its queue is {}% full; events that do not fit are dropped",
                100 * bytes / capacity
            ),
            "find out why the receiver is slow, or raise sending_queue.queue_size",
        ));
    }
    problems
}

fn recent_count(now: Counts, before: Counts, state: State) -> u64 {
    now.get(state).events.saturating_sub(before.get(state).events)
}

const fn is_refusal(state: State) -> bool {
    matches!(state, State::Rejected | State::PartiallyRejected)
}

/// The problem with events in a state, after "events were", and the next step; `None` if there is none.
const fn state_description(state: State) -> Option<(&'static str, &'static str)> {
    Some(match state {
        State::Queued | State::Delivered => return None,
        State::Rejected => ("rejected by the receiver", "see the receiver's log, which says why"),
        State::PartiallyRejected => {
            ("in requests that the receiver partly rejected", "see the receiver's log, which says why")
        }
        State::Incompatible => (
            "rejected: the receiver speaks another version of OTLP profiles",
            "use a receiver version that VERSIONING.md lists",
        ),
        State::Unknown => (
            "sent without a valid response: the receiver may have them",
            "see the logs of the receiver, and of proxies on the way to it",
        ),
        State::DroppedQueueFull => (
            "dropped: the queue was full",
            "find out why the receiver is slow, or raise sending_queue.queue_size",
        ),
        State::DroppedTooLarge => {
            ("dropped: each exceeded the request size limit", "raise the receiver's request size limit")
        }
        State::DroppedRetriesExhausted => (
            "dropped: the receiver could not be reached in time",
            "check that the receiver is running, or raise retry_on_failure.max_elapsed_time",
        ),
        State::DroppedShutdown => {
            ("dropped: the exporter stopped before sending them", "check that the receiver is running")
        }
        State::DroppedWriteFailed => (
            "dropped: they could not be written",
            "see the log; the disk needs space, and the directory of the file or queue must exist and be writable",
        ),
        State::DroppedStorageDamaged => (
            "lost: the queue on disk was damaged or removed",
            "check the disk, and that nothing else removes or changes its files",
        ),
    })
}

fn degraded_problem(degraded: &DegradedFeature) -> HealthProblem {
    let DegradedFeature { name, cost, reason, .. } = degraded;
    HealthProblem::new(
        format!("{name} can't be used here ({}): {cost}", reason.label()),
        "run `sidewinder check` where the profiler runs to see how to enable it",
    )
}

/// A duration in rounded words: `42 s`, `5 min`, `3 h`.
pub(super) fn approximate_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// The length of the time that counts as current.
pub(super) fn window_duration(stats: &ServiceStats) -> Duration {
    stats.uptime().min(WINDOW)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sidewinder_config::Config;
    use sidewinder_otlp::Tally;
    use sidewinder_otlp::send::{ExporterStats, Outage, PartialSuccess};

    use super::*;
    use crate::stats::{DegradedReason, ReceiverCounters};

    fn exporter(counts: Counts, outage: Option<Outage>) -> ExporterSnapshot {
        ExporterSnapshot {
            name: "otlp_grpc".to_owned(),
            labels: vec![("server_address", "collector".to_owned()), ("server_port", "4317".to_owned())],
            stats: ExporterStats {
                counts,
                queue_bytes: 0,
                queue_capacity_bytes: 100,
                in_flight_requests: 0,
                last_partial_success: Some(PartialSuccess {
                    rejected_profiles: 1,
                    message: "no such tenant".to_owned(),
                }),
                last_failure: None,
                outage,
            },
        }
    }

    fn events(events: u64) -> Tally {
        Tally { events, samples: 1 }
    }

    #[test]
    fn an_unreachable_endpoint_is_a_problem_from_the_first_attempt() {
        let healthy = exporter(Counts { delivered: events(5), queued: events(3), ..Counts::default() }, None);
        assert_eq!(exporter_problems(&healthy, None, "in the last 9 s"), []);
        let outage = Outage {
            since: SystemTime::now() - Duration::from_secs(300),
            attempts: 9,
            reason: "connection refused".to_owned(),
        };
        let [problem] = &exporter_problems(&exporter(Counts::default(), Some(outage)), None, "")[..] else {
            panic!()
        };
        assert_eq!(
            problem.message,
            "exporter otlp_grpc: nothing could be sent to collector:4317 for 5 min, in 9 attempts: connection refused"
        );
    }

    #[test]
    fn drops_before_the_window_are_no_problem() {
        let dropped = |count| Counts { dropped_queue_full: events(count), ..Counts::default() };
        let snapshot = |count| StatsSnapshot {
            at: std::time::Instant::now(),
            receivers: std::collections::BTreeMap::new(),
            exporters: [("otlp_grpc".to_owned(), dropped(count))].into(),
        };
        let now = exporter(dropped(7), None);
        assert_eq!(exporter_problems(&now, Some(&snapshot(7)), "in the last 5 min"), []);
        let [problem] = &exporter_problems(&now, Some(&snapshot(4)), "in the last 5 min")[..] else {
            panic!()
        };
        assert_eq!(
            problem.message,
            "exporter otlp_grpc: 3 events were dropped: the queue was full (in the last 5 min)"
        );
    }

    #[test]
    fn every_state_of_lost_events_is_a_problem_and_a_refusal_quotes_the_receiver() {
        for &state in State::ALL {
            let mut counts = Counts::default();
            for (tally, its_state) in [
                (&mut counts.rejected, State::Rejected),
                (&mut counts.partially_rejected, State::PartiallyRejected),
                (&mut counts.incompatible, State::Incompatible),
                (&mut counts.unknown, State::Unknown),
                (&mut counts.dropped_queue_full, State::DroppedQueueFull),
                (&mut counts.dropped_too_large, State::DroppedTooLarge),
                (&mut counts.dropped_retries_exhausted, State::DroppedRetriesExhausted),
                (&mut counts.dropped_shutdown, State::DroppedShutdown),
                (&mut counts.dropped_write_failed, State::DroppedWriteFailed),
                (&mut counts.dropped_storage_damaged, State::DroppedStorageDamaged),
            ] {
                *tally = events(u64::from(its_state == state));
            }
            let problems = exporter_problems(&exporter(counts, None), None, "");
            let is_lost = !matches!(state, State::Queued | State::Delivered);
            assert_eq!(problems.len(), usize::from(is_lost), "{state:?}");
            let quotes = problems.iter().any(|problem| problem.message.contains("no such tenant"));
            assert_eq!(quotes, is_refusal(state), "{state:?}");
        }
    }

    #[test]
    fn counters_are_problems_within_their_window_and_above_their_threshold() {
        let stats = ServiceStats::new(Arc::new(Config::default()));
        let receiver = |counters| stats.record_counters("profiling", counters);
        let counters = ReceiverCounters {
            interrupts_by_witness: 1_000,
            missed: 40,
            tables_cut: 2,
            events_dropped: 3,
            ..ReceiverCounters::default()
        };
        let before = receiver(counters.clone());
        let messages = |now: &ReceiverStats, before| -> Vec<String> {
            let problems = counter_problems("profiling", now, before, "in the last 5 min");
            problems.into_iter().map(|problem| problem.message).collect()
        };
        let tables = "receiver profiling: 2 files have no complete unwind table, because of the memory limit: \
                      stacks through them may be truncated (since the start)";
        assert_eq!(
            messages(&before, None),
            [
                "receiver profiling: 3 events were dropped: they arrived faster than they could be named (in the last 5 min)",
                tables
            ]
        );
        let cpu_steal = StealTime { stolen_ns: 6, total_ns: 200 };
        let later = receiver(ReceiverCounters {
            interrupts_by_witness: 2_000,
            missed: 40,
            cpu_steal,
            ..counters.clone()
        });
        assert_eq!(messages(&later, Some(&before)), [tables], "drops are over, incomplete tables remain");
        let missed =
            receiver(ReceiverCounters { interrupts_by_witness: 2_000, missed: 91, cpu_steal, ..counters });
        let missed_messages = messages(&missed, Some(&before));
        assert!(
            missed_messages[0].starts_with("receiver profiling: 51 interrupts were missed")
                && missed_messages[0].ends_with("(in the last 5 min, steal time 3.0%)"),
            "{missed_messages:?}"
        );
        let busy = ReceiverCounters {
            interrupts_by_witness: 100,
            outcomes: [("busy", 6)].into(),
            ..ReceiverCounters::default()
        };
        let stats = ServiceStats::new(Arc::new(Config::default()));
        let busy_messages = messages(&stats.record_counters("profiling", busy), None);
        assert!(busy_messages[0].contains("6 of 100 interrupts left no sample"), "{busy_messages:?}");
    }

    #[test]
    fn failed_receivers_refused_reloads_and_degraded_features_are_problems() {
        let stats = ServiceStats::new(Arc::new(Config::default()));
        stats.set_activity("profiling", Activity::Profiling);
        assert_eq!(problems(&stats), []);
        let failure = |what: &str, next_step| FailureReport { what: what.to_owned(), next_step };
        stats.set_activity("profiling", Activity::Failed(failure("no right", Some("run as root"))));
        stats.record_refused_reload(failure("unknown key", None));
        stats.set_degraded(vec![DegradedFeature {
            id: "bpf_loop",
            name: "loops",
            cost: "stacks are cut",
            reason: DegradedReason::Kernel,
        }]);
        let problems = problems(&stats);
        let messages: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
        assert_eq!(
            messages,
            [
                "the last configuration reload was refused, so the previous configuration is still in use: unknown key",
                "receiver profiling takes no samples: no right",
                "loops can't be used here (kernel): stacks are cut",
            ]
        );
        assert_eq!(problems[1].next_step, "run as root");
    }
}
