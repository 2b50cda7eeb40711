//! What is wrong now, in words, each with what to do about it.
//!
//! Now is the last [`WINDOW`], or the time since the start where that is shorter; what is a state counts as long as it holds.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use sidewinder_otlp::send::{Counts, State};

use crate::stats::counters::{Alarm, AlarmWindow, COUNTERS};
use crate::stats::{
    Activity, DegradedFeature, ExporterSnapshot, ReceiverStats, ServiceStats, StatsSnapshot, WINDOW,
};

/// A queue that is fuller than this, of 1, will soon drop.
const QUEUE_FULL_THRESHOLD: f64 = 0.8;
/// The share of interrupts that may be lost in our programs, of 1: as in the alert of the chart.
const LOST_THRESHOLD: f64 = 0.05;
/// Outcomes of interrupts of which nothing is left.
const LOST_OUTCOMES: [&str; 2] = ["busy", "ring_full"];

/// Something that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct HealthProblem {
    pub(super) message: String,
    pub(super) next_step: String,
}

impl HealthProblem {
    fn new(what: impl Into<String>, next: impl Into<String>) -> Self {
        Self { message: what.into(), next_step: next.into() }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "what": self.message, "next": self.next_step })
    }
}

/// What is wrong, what matters most first.
pub(super) fn problems(stats: &ServiceStats) -> Vec<HealthProblem> {
    let before = stats.snapshot_before_window();
    let during = format!("in the last {}", approximate_duration(window_duration(stats)));
    let mut problems = Vec::new();
    if let Some(reason) = stats.configuration().refusal {
        problems.push(HealthProblem::new(
            format!("the configuration that was read last is refused, the one before it is in use: {reason}"),
            "correct it; `sidewinder validate` checks it without using it",
        ));
    }
    problems.extend(stats.threads().faulty_threads().iter().map(|faulty| {
        HealthProblem::new(
            faulty.to_string(),
            "restart the profiler, and report this: it is a fault of Sidewinder",
        )
    }));
    for (name, receiver) in stats.receivers() {
        problems.extend(activity_problem(&name, &receiver.activity));
        let before = before.as_ref().and_then(|note| note.receivers.get(&name));
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
            "ask again in some seconds",
        )),
        Activity::Failed(reason) => {
            // A failure has its own next step.
            let (reason, next) =
                reason.split_once("\n  next: ").unwrap_or((reason, "see `sidewinder check`"));
            Some(HealthProblem::new(format!("receiver {name} takes no samples: {reason}"), next))
        }
        Activity::Stopped => {
            Some(HealthProblem::new(format!("receiver {name} has stopped"), "start the profiler again"))
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
    let due = since(&|receiver| receiver.counters.due);
    let is_beyond = |count: u64, share: f64| count > 0 && count as f64 > share * due as f64;
    let mut problems = Vec::new();
    for counter in COUNTERS {
        let Some(Alarm { window: when, threshold: beyond, message: says, next_step: next }) = counter.alarm
        else {
            continue;
        };
        let (count, during) = match when {
            AlarmWindow::Recently => (since(&counter.read), during),
            AlarmWindow::Start => ((counter.read)(now), "since the start"),
        };
        if is_beyond(count, beyond) {
            problems.push(HealthProblem::new(format!("receiver {name}: {count} {says} ({during})"), next));
        }
    }
    let lost = since(&|receiver| {
        LOST_OUTCOMES.iter().filter_map(|outcome| receiver.counters.outcomes.get(outcome)).sum()
    });
    if is_beyond(lost, LOST_THRESHOLD) {
        problems.push(HealthProblem::new(
            format!(
                "receiver {name}: {lost} of {due} interrupts left no sample, for want of room ({during})"
            ),
            "raise memory_limit_mib of the receiver, or lower samples_per_second",
        ));
    }
    problems
}

fn exporter_problems(
    exporter: &ExporterSnapshot,
    before: Option<&StatsSnapshot>,
    during: &str,
) -> Vec<HealthProblem> {
    let (name, stats) = (&exporter.name, &exporter.stats);
    let mut problems = Vec::new();
    if let Some(outage) = &stats.outage {
        let lasting = SystemTime::now().duration_since(outage.since).unwrap_or_default();
        let label = |wanted| exporter.labels.iter().find(|(key, _)| *key == wanted).map(|(_, value)| value);
        let port = label("server_port").map(|port| format!(":{port}")).unwrap_or_default();
        let place = label("server_address").map(|host| format!(" to {host}{port}")).unwrap_or_default();
        problems.push(HealthProblem::new(
            format!(
                "exporter {name}: nothing could be sent{place} for {}, in {} attempts: {}",
                approximate_duration(lasting),
                outage.attempts,
                outage.reason
            ),
            "see that the receiver runs, and check the exporter's endpoint, TLS and headers",
        ));
    }
    let counts_before = before.and_then(|note| note.exporters.get(name)).copied().unwrap_or_default();
    for &state in State::ALL {
        let Some((says, next)) = state_description(state) else { continue };
        let count = recent_count(stats.counts, counts_before, state);
        if count > 0 {
            let answer = stats.last_partial_success.as_ref().filter(|_| is_refusal(state));
            let answer = answer.filter(|answer| !answer.message.is_empty());
            let answer = answer.map(|answer| format!(": {}", answer.message)).unwrap_or_default();
            problems.push(HealthProblem::new(
                format!("exporter {name}: {count} events {says} ({during}){answer}"),
                next,
            ));
        }
    }
    let (bytes, capacity) = (stats.queue_bytes, stats.queue_capacity_bytes);
    if capacity > 0 && bytes as f64 > QUEUE_FULL_THRESHOLD * capacity as f64 {
        problems.push(HealthProblem::new(
            format!(
                "exporter {name}: its queue is {}% full; what has no room is dropped",
                100 * bytes / capacity
            ),
            "see why the receiver takes so little, or raise sending_queue.queue_size",
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

/// What is wrong with events in a state, and what to do; `None` where nothing is.
const fn state_description(state: State) -> Option<(&'static str, &'static str)> {
    Some(match state {
        State::Queued | State::Delivered => return None,
        State::Rejected => {
            ("were rejected by the receiver", "see the receiver's log: it says what it does not take")
        }
        State::PartiallyRejected => (
            "were in requests of which the receiver rejected a part",
            "see the receiver's log: it says what it does not take",
        ),
        State::Incompatible => (
            "were rejected: the receiver speaks another version of OTLP profiles",
            "use a version of the receiver that VERSIONING.md names",
        ),
        State::Unknown => (
            "were sent and never properly answered: the receiver may have them",
            "see the receiver's log, and whatever is between here and there",
        ),
        State::DroppedQueueFull => (
            "were dropped: the queue was full",
            "see why the receiver takes so little, or raise sending_queue.queue_size",
        ),
        State::DroppedTooLarge => (
            "were dropped: alone they were larger than a request may be",
            "raise the receiver's limit of a request's size",
        ),
        State::DroppedRetriesExhausted => (
            "were dropped: the receiver could not be reached in time",
            "see that the receiver runs, or raise retry_on_failure.max_elapsed_time",
        ),
        State::DroppedShutdown => {
            ("were dropped: their exporter ended before they were sent", "see that the receiver runs")
        }
        State::DroppedWriteFailed => {
            ("were dropped: they could not be written", "see that the disk has room and can be written to")
        }
        State::DroppedStorageDamaged => (
            "were lost: the queue on disk was damaged",
            "see that the disk is sound; nothing else needs to be done",
        ),
    })
}

fn degraded_problem(degraded: &DegradedFeature) -> HealthProblem {
    let DegradedFeature { feature, cost, reason } = degraded;
    HealthProblem::new(
        format!("{feature} can't be used here ({reason}): {cost}"),
        "run `sidewinder check` where the profiler runs: it says what helps",
    )
}

/// A time for people: `42 s`, `5 min`, `3 h`.
pub(super) fn approximate_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ ..120 => format!("{seconds} s"),
        seconds @ ..7_200 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}

/// How long the time is that counts as now.
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
    use crate::stats::ReceiverCounters;

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
    fn an_exporter_that_reaches_nobody_is_a_problem_from_its_first_attempt() {
        let well = exporter(Counts { delivered: events(5), queued: events(3), ..Counts::default() }, None);
        assert_eq!(exporter_problems(&well, None, "in the last 9 s"), []);
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
    fn what_was_dropped_before_the_window_is_history() {
        let dropped = |count| Counts { dropped_queue_full: events(count), ..Counts::default() };
        let note = |count| StatsSnapshot {
            at: std::time::Instant::now(),
            receivers: std::collections::BTreeMap::new(),
            exporters: [("otlp_grpc".to_owned(), dropped(count))].into(),
        };
        let now = exporter(dropped(7), None);
        assert_eq!(exporter_problems(&now, Some(&note(7)), "in the last 5 min"), []);
        let [problem] = &exporter_problems(&now, Some(&note(4)), "in the last 5 min")[..] else { panic!() };
        assert_eq!(
            problem.message,
            "exporter otlp_grpc: 3 events were dropped: the queue was full (in the last 5 min)"
        );
    }

    #[test]
    fn every_state_in_which_events_are_lost_is_told_and_a_refusal_with_the_receivers_words() {
        for &state in State::ALL {
            let mut counts = Counts::default();
            for (of, count) in [
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
                *of = events(u64::from(count == state));
            }
            let problems = exporter_problems(&exporter(counts, None), None, "");
            let is_lost = !matches!(state, State::Queued | State::Delivered);
            assert_eq!(problems.len(), usize::from(is_lost), "{state:?}");
            let quotes = problems.iter().any(|problem| problem.message.contains("no such tenant"));
            assert_eq!(quotes, is_refusal(state), "{state:?}");
        }
    }

    #[test]
    fn counters_are_problems_in_their_time_and_beyond_their_share() {
        let stats = ServiceStats::new(Arc::new(Config::default()));
        let receiver = |counted| stats.record_counters("profiling", counted);
        let counted = ReceiverCounters {
            due: 1_000,
            missed: 40,
            incomplete_tables: 2,
            events_dropped: 3,
            ..ReceiverCounters::default()
        };
        let before = receiver(counted.clone());
        let said = |now: &ReceiverStats, before| -> Vec<String> {
            let problems = counter_problems("profiling", now, before, "in the last 5 min");
            problems.into_iter().map(|problem| problem.message).collect()
        };
        let tables = "receiver profiling: 2 files have no whole unwind table, for want of memory: stacks through them \
                      may be cut (since the start)";
        assert_eq!(
            said(&before, None),
            [
                "receiver profiling: 3 events were dropped: they came faster than they could be named (in the last 5 min)",
                tables
            ]
        );
        let later = receiver(ReceiverCounters { due: 2_000, missed: 40, ..counted.clone() });
        assert_eq!(said(&later, Some(&before)), [tables], "drops are history, what is cut is still cut");
        let missed = receiver(ReceiverCounters { due: 2_000, missed: 91, ..counted });
        let of_missed = said(&missed, Some(&before));
        assert!(of_missed[0].starts_with("receiver profiling: 51 interrupts were missed"), "{of_missed:?}");
        let busy =
            ReceiverCounters { due: 100, outcomes: [("busy", 6)].into(), ..ReceiverCounters::default() };
        let stats = ServiceStats::new(Arc::new(Config::default()));
        let of_busy = said(&stats.record_counters("profiling", busy), None);
        assert!(of_busy[0].contains("6 of 100 interrupts left no sample"), "{of_busy:?}");
    }

    #[test]
    fn a_receiver_that_does_not_sample_a_refused_configuration_and_what_is_degraded_are_problems() {
        let stats = ServiceStats::new(Arc::new(Config::default()));
        stats.set_activity("profiling", Activity::Profiling);
        assert_eq!(problems(&stats), []);
        stats.set_activity("profiling", Activity::Failed("no right\n  next: run as root".to_owned()));
        stats.record_refused_reload("unknown key".to_owned());
        stats.set_degraded(vec![DegradedFeature {
            feature: "loops",
            cost: "stacks are cut",
            reason: "kernel",
        }]);
        let problems = problems(&stats);
        let whats: Vec<_> = problems.iter().map(|problem| &*problem.message).collect();
        assert_eq!(
            whats,
            [
                "the configuration that was read last is refused, the one before it is in use: unknown key",
                "receiver profiling takes no samples: no right",
                "loops can't be used here (kernel): stacks are cut",
            ]
        );
        assert_eq!(problems[1].next_step, "run as root");
    }
}
