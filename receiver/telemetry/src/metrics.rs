//! Sidewinder's metrics of itself, each listed once: here, or in [`COUNTERS`] if a receiver counts it.
//!
//! The metrics named `otelcol_*` have the names, types and label keys of a Collector, so that dashboards for Collectors show
//! Sidewinder too. There are two units: `otelcol_*` count samples (`Sample` messages), `sidewinder_events` counts events
//! (interrupts).

#[cfg(test)]
mod documentation;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::Duration;

use opentelemetry::KeyValue;
use sidewinder_base::memory;
use sidewinder_config::MetricLevel;
use sidewinder_otlp::send::State;

use super::process;
use crate::stats::counters::{COUNTERS, Counter, CounterMetric as Of};
use crate::stats::{ExporterSnapshot, ReceiverStats, ServiceStats};

/// One metric: its description, and how its values are read.
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) description: &'static str,
    pub(super) unit: &'static str,
    pub(super) kind: InstrumentKind,
    /// The lowest `service::telemetry::metrics::level` at which it is measured.
    pub(super) level: MetricLevel,
    pub(super) read: fn(&ServiceStats) -> Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum InstrumentKind {
    /// Only grows.
    Counter,
    /// Only grows, with fractions.
    FractionalCounter,
    Gauge,
}

/// A value with its labels.
pub(super) struct Point {
    pub(super) value: f64,
    pub(super) labels: Vec<KeyValue>,
}

/// A value without labels.
fn single(value: f64) -> Vec<Point> {
    vec![Point { value, labels: Vec::new() }]
}

#[expect(clippy::cast_precision_loss, reason = "counts stay far below 2^53")]
fn point(value: u64, labels: &[(&'static str, &str)]) -> Point {
    let labels = labels.iter().map(|(key, value)| KeyValue::new(*key, (*value).to_owned())).collect();
    Point { value: value as f64, labels }
}

/// One point per exporter, with the labels of the endpoint, as in a Collector.
fn send_target_points(stats: &ServiceStats, read: impl Fn(&ExporterSnapshot) -> u64) -> Vec<Point> {
    let labels = |exporter: &ExporterSnapshot| {
        let mut labels = vec![("exporter", exporter.name.as_str())];
        labels.extend(exporter.labels.iter().map(|(key, value)| (*key, value.as_str())));
        point(read(exporter), &labels)
    };
    stats.exporters().iter().map(labels).collect()
}

fn exporter_points(stats: &ServiceStats, read: impl Fn(&ExporterSnapshot) -> u64) -> Vec<Point> {
    stats.exporters().iter().map(|exporter| point(read(exporter), &[("exporter", &exporter.name)])).collect()
}

/// One point per exporter, with the label of the data type, as in a Collector.
fn request_points(exporters: &[ExporterSnapshot], read: impl Fn(&ExporterSnapshot) -> u64) -> Vec<Point> {
    let labels = |exporter: &ExporterSnapshot| {
        point(read(exporter), &[("exporter", &exporter.name), ("data_type", "profiles")])
    };
    exporters.iter().map(labels).collect()
}

/// One point per exporter that has a queue.
fn queue_points(stats: &ServiceStats, read: impl Fn(&ExporterSnapshot) -> u64) -> Vec<Point> {
    let mut exporters = stats.exporters();
    exporters.retain(|exporter| exporter.stats.queue_capacity_bytes > 0);
    request_points(&exporters, read)
}

fn collector_receiver_points(stats: &ServiceStats, read: impl Fn(&ReceiverStats) -> u64) -> Vec<Point> {
    let labels = |(name, receiver): (&String, &ReceiverStats)| {
        point(read(receiver), &[("receiver", name), ("transport", "ebpf")])
    };
    stats.receivers().iter().map(labels).collect()
}

/// Like [`collector_receiver_points`], without the label `transport` of a Collector.
fn receiver_points(stats: &ServiceStats, read: impl Fn(&ReceiverStats) -> u64) -> Vec<Point> {
    let receivers = stats.receivers();
    receivers.iter().map(|(name, receiver)| point(read(receiver), &[("receiver", name)])).collect()
}

/// A point for each of several counts of a receiver, with this label.
fn receiver_points_by(
    stats: &ServiceStats,
    label: &'static str,
    read: impl Fn(&ReceiverStats) -> Vec<(&'static str, u64)>,
) -> Vec<Point> {
    let mut points = Vec::new();
    for (name, receiver) in stats.receivers() {
        let counts = read(&receiver).into_iter();
        points.extend(counts.map(|(value, count)| point(count, &[("receiver", &name), (label, value)])));
    }
    points
}

/// The states of samples that an exporter had accepted and failed to send.
const SEND_FAILED: [State; 9] = [
    State::Rejected,
    State::PartiallyRejected,
    State::Incompatible,
    State::Unknown,
    State::DroppedTooLarge,
    State::DroppedRetriesExhausted,
    State::DroppedShutdown,
    State::DroppedWriteFailed,
    State::DroppedStorageDamaged,
];

/// All metrics but those of [`COUNTERS`], and [`STACK_DEPTH`].
pub(super) static METRICS: &[Metric] = &[
    Metric {
        name: "otelcol_exporter_sent_profile_samples",
        description: "Number of profile samples successfully sent to destination.",
        unit: "{samples}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| send_target_points(stats, |exporter| exporter.stats.counts.delivered.samples),
    },
    Metric {
        name: "otelcol_exporter_send_failed_profile_samples",
        description: "Number of profile samples in failed attempts to send to destination.",
        unit: "{samples}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| {
            send_target_points(stats, |exporter| {
                SEND_FAILED.iter().map(|state| exporter.stats.counts.get(*state).samples).sum()
            })
        },
    },
    Metric {
        name: "otelcol_exporter_enqueue_failed_profile_samples",
        description: "Number of profile samples failed to be added to the sending queue.",
        unit: "{samples}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| exporter_points(stats, |exporter| exporter.stats.counts.dropped_queue_full.samples),
    },
    Metric {
        name: "otelcol_exporter_queue_size",
        description: "Current size of the sending queue.",
        unit: "{bytes}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| queue_points(stats, |exporter| exporter.stats.queue_bytes),
    },
    Metric {
        name: "otelcol_exporter_queue_capacity",
        description: "Fixed capacity of the sending queue.",
        unit: "{bytes}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| queue_points(stats, |exporter| exporter.stats.queue_capacity_bytes),
    },
    Metric {
        name: "otelcol_exporter_in_flight_requests",
        description: "Number of requests being sent or waiting for a retry.",
        unit: "{requests}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| request_points(&stats.exporters(), |exporter| exporter.stats.in_flight_requests as u64),
    },
    Metric {
        name: "otelcol_receiver_accepted_profile_samples",
        description: "Number of profile samples successfully pushed into the pipeline.",
        unit: "{samples}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| collector_receiver_points(stats, |receiver| receiver.accepted.samples),
    },
    Metric {
        name: "otelcol_receiver_refused_profile_samples",
        description: "Number of profile samples that could not be pushed into the pipeline: naming could not keep up.",
        unit: "{samples}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| collector_receiver_points(stats, |receiver| receiver.counters.events_dropped),
    },
    Metric {
        name: "otelcol_receiver_failed_profile_samples",
        description: "Number of profile samples that failed inside the receiver: the frames of their stack never arrived.",
        unit: "{samples}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| collector_receiver_points(stats, |receiver| receiver.counters.stack_bodies_missing),
    },
    Metric {
        name: "otelcol_process_cpu_seconds",
        description: "Total CPU user and system time of this process, excluding time in eBPF programs.",
        unit: "s",
        kind: InstrumentKind::FractionalCounter,
        level: MetricLevel::Basic,
        read: |_| single(process::cpu_time().as_secs_f64()),
    },
    Metric {
        name: "otelcol_process_memory_rss",
        description: "Total physical memory of this process (resident set size), excluding eBPF maps that are not mapped.",
        unit: "By",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |_| memory::resident_bytes().map_or_else(Vec::new, |bytes| vec![point(bytes, &[])]),
    },
    Metric {
        name: "otelcol_process_uptime",
        description: "Uptime of the process.",
        unit: "s",
        kind: InstrumentKind::FractionalCounter,
        level: MetricLevel::Basic,
        read: |stats| single(stats.uptime().as_secs_f64()),
    },
    Metric {
        name: "sidewinder_interrupts",
        description: "Interrupts by outcome. A receiver's outcomes add up to the interrupts that were due, or to slightly more: some are counted twice, before and after a later walk.",
        unit: "{interrupts}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| {
            receiver_points_by(stats, "outcome", |receiver| {
                receiver.highest_outcomes.of_clock.iter().map(|(outcome, count)| (*outcome, *count)).collect()
            })
        },
    },
    Metric {
        name: "sidewinder_interrupts_of_other_kinds",
        description: "Interrupts for kinds of profile other than CPU time, by kind and outcome; each kind's outcomes add up as in sidewinder_interrupts.",
        unit: "{interrupts}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| {
            let mut points = Vec::new();
            for (name, receiver) in stats.receivers() {
                for ((kind, outcome), count) in &receiver.highest_outcomes.of_other_kinds {
                    let labels = [("receiver", &*name), ("kind", kind), ("outcome", outcome)];
                    points.push(point(*count, &labels));
                }
            }
            points
        },
    },
    Metric {
        name: "sidewinder_events",
        description: "Events by exporter and state; an exporter's states add up to the events that it was given.",
        unit: "{events}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| {
            let mut points = Vec::new();
            for exporter in stats.exporters() {
                for state in State::ALL {
                    let count = exporter.stats.counts.get(*state).events;
                    points.push(point(count, &[("exporter", &exporter.name), ("state", state.as_str())]));
                }
            }
            points
        },
    },
    Metric {
        name: "sidewinder_receiver_events",
        description: "Events that a receiver handed to its pipelines.",
        unit: "{events}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| receiver_points(stats, |receiver| receiver.accepted.events),
    },
    Metric {
        name: "sidewinder_bpf_run_seconds",
        description: "Time spent in eBPF programs, if the kernel measures it (sysctl kernel.bpf_stats_enabled, or metrics::level: detailed at startup with CAP_SYS_ADMIN, which is then dropped).",
        unit: "s",
        kind: InstrumentKind::FractionalCounter,
        level: MetricLevel::Basic,
        read: |stats| {
            let receivers = stats.receivers();
            let timed = receivers.iter().filter_map(|(name, receiver)| {
                let run_time = receiver.counters.bpf_run_time?;
                let labels = vec![KeyValue::new("receiver", name.clone())];
                Some(Point { value: run_time.as_secs_f64(), labels })
            });
            timed.collect()
        },
    },
    Metric {
        name: "sidewinder_cpu_steal_seconds",
        description: "Time in which the sampled virtual CPUs were ready to run but their host ran something else (steal time in /proc/stat), since sampling started; interrupts due in that time are missed.",
        unit: "s",
        kind: InstrumentKind::FractionalCounter,
        level: MetricLevel::Normal,
        read: |stats| {
            let receivers = stats.receivers();
            let points = receivers.iter().map(|(name, receiver)| Point {
                value: Duration::from_nanos(receiver.counters.cpu_steal.stolen_ns).as_secs_f64(),
                labels: vec![KeyValue::new("receiver", name.clone())],
            });
            points.collect()
        },
    },
    Metric {
        name: "sidewinder_maps_bytes",
        description: "Kernel memory of all eBPF maps.",
        unit: "By",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| receiver_points(stats, |receiver| receiver.counters.maps_bytes),
    },
    Metric {
        name: "sidewinder_tables_bytes",
        description: "Size of the unwind tables in eBPF maps.",
        unit: "By",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Normal,
        read: |stats| receiver_points(stats, |receiver| receiver.counters.tables_bytes),
    },
    Metric {
        name: "sidewinder_source_maps",
        description: "JavaScript files whose source maps were looked up (symbolize::source_maps), by result: read; none, the script names none; missing, the named file does not exist; changed, the script on disk is not the one that is running; unreadable, a file can't or must not be read; too_big; malformed; unsupported, at a network URL. Without a map, functions are shown as in the script.",
        unit: "{scripts}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Normal,
        read: |stats| {
            receiver_points_by(stats, "result", |receiver| receiver.names.source_maps.by_outcome().collect())
        },
    },
    Metric {
        name: "sidewinder_files_refused",
        description: "Files that processes refer to (executables, libraries, perf maps, debug files) but that are not read, because they belong to another user, the process itself could not read them, or their file system may never respond.",
        unit: "{files}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Normal,
        read: |stats| {
            receiver_points_by(stats, "reason", |receiver| receiver.names.files_refused.by_reason().collect())
        },
    },
    Metric {
        name: "sidewinder_quarantined_processes",
        description: "Processes whose memory is temporarily not read, because a read of it timed out.",
        unit: "{processes}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Normal,
        read: |stats| {
            receiver_points(stats, |receiver| receiver.counters.foreign_reads.quarantined_processes)
        },
    },
    Metric {
        name: "sidewinder_stuck_reader_threads",
        description: "Threads stuck while reading a process's memory.",
        unit: "{threads}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Normal,
        read: |stats| receiver_points(stats, |receiver| receiver.counters.foreign_reads.stuck_reader_threads),
    },
    Metric {
        name: "sidewinder_faulty_threads",
        description: "1 for each thread of Sidewinder that hangs or has panicked.",
        unit: "{threads}",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| {
            let faulty = stats.threads().faulty_threads();
            let to_point = |faulty: &sidewinder_base::supervise::FaultyThread| {
                point(1, &[("thread", faulty.thread), ("fault", faulty.fault.label())])
            };
            faulty.iter().map(to_point).collect()
        },
    },
    Metric {
        name: "sidewinder_receiver_activity",
        description: "1 for the current activity of a receiver: starting, profiling, out_of_scope, failed or stopped.",
        unit: "1",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| {
            let receivers = stats.receivers();
            let labels = |(name, receiver): (&String, &ReceiverStats)| {
                point(1, &[("receiver", name), ("activity", receiver.activity.label())])
            };
            receivers.iter().map(labels).collect()
        },
    },
    Metric {
        name: "sidewinder_degraded",
        description: "1 for each feature that is limited or not available, by its id and the reason. Ids are those of `sidewinder check --json`, names of counters and probes, and pod_events, process_context, python_frames, scope_list, process_memory and reader_threads; reasons are privilege, kernel, container, file, list_full and process. The name of a feature, and what its absence costs, are in `sidewinder status --json`.",
        unit: "1",
        kind: InstrumentKind::Gauge,
        level: MetricLevel::Basic,
        read: |stats| {
            let degraded = stats.degraded();
            let labels = |degraded: &crate::stats::DegradedFeature| {
                point(1, &[("feature", degraded.id), ("reason", degraded.reason.label())])
            };
            degraded.iter().map(labels).collect()
        },
    },
    Metric {
        name: "sidewinder_config_reloads",
        description: "Reloads of the configuration, by result.",
        unit: "{reloads}",
        kind: InstrumentKind::Counter,
        level: MetricLevel::Basic,
        read: |stats| {
            let configuration = stats.configuration();
            [("applied", configuration.reloads), ("refused", configuration.refused)]
                .into_iter()
                .map(|(result, count)| point(count, &[("result", result)]))
                .collect()
        },
    },
];

/// The names of the metrics of [`COUNTERS`] at a level, each once.
pub(super) fn counter_names(level: MetricLevel) -> BTreeSet<&'static str> {
    let is_measured = |counter: &&Counter| matches!(counter.metric, Of::FromLevel(from) if from <= level);
    COUNTERS.iter().filter(is_measured).map(|counter| counter.name).collect()
}

/// The values of the counters of this name, for each receiver.
pub(super) fn counter_points(name: &str, stats: &ServiceStats) -> Vec<Point> {
    let receivers = stats.receivers();
    let counters = || COUNTERS.iter().filter(|counter| counter.name == name);
    let points = receivers.iter().flat_map(|(receiver, counted)| {
        counters().map(move |counter| {
            let labels: Vec<_> = [("receiver", receiver.as_str())].into_iter().chain(counter.label).collect();
            point((counter.read)(counted), &labels)
        })
    });
    points.collect()
}

/// The only metric that is recorded when values change, rather than read.
pub(super) const STACK_DEPTH: &str = "sidewinder_stack_depth";
pub(super) const STACK_DEPTH_DESCRIPTION: &str = "Frames per stack, complete or truncated, as the middle of their class: 1, 2 to 3, 4 to 7 and so on. A walk needs an iteration of its loop for four user frames, or a tail call for 32.";
