//! The metrics that Sidewinder gives of itself, each listed once.
//!
//! Those named `otelcol_*` are a Collector's: names, types and label keys are what a scrape of one shows, so that
//! dashboards made for Collectors show Sidewinder too. Both units of contracts are told: `otelcol_*` count samples
//! (`Sample` messages), `sidewinder_events` counts events (interrupts).

use std::sync::Arc;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{AsyncInstrument, AsyncInstrumentBuilder, Histogram, Meter};
use sidewinder_config::MetricLevel;
use sidewinder_otlp::send::State;

use super::process;
use crate::memory;
use crate::vitals::{ExporterNow, ReceiverVitals, Vitals};

/// One metric: what it is called and how it is read.
struct Metric {
    name: &'static str,
    description: &'static str,
    unit: &'static str,
    kind: Kind,
    /// From which `service::telemetry::metrics::level` on it is measured.
    level: MetricLevel,
    read: fn(&Vitals) -> Vec<Point>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Only grows.
    Counter,
    /// Only grows, with fractions.
    FractionalCounter,
    Gauge,
}

/// A value with its labels.
struct Point {
    value: f64,
    labels: Vec<KeyValue>,
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

/// What a Collector labels with the place that an exporter sends to.
fn of_sending(vitals: &Vitals, read: impl Fn(&ExporterNow) -> u64) -> Vec<Point> {
    let labels = |exporter: &ExporterNow| {
        let mut labels = vec![("exporter", exporter.name.as_str())];
        labels.extend(exporter.labels.iter().map(|(key, value)| (*key, value.as_str())));
        point(read(exporter), &labels)
    };
    vitals.exporters().iter().map(labels).collect()
}

fn of_exporters(vitals: &Vitals, read: impl Fn(&ExporterNow) -> u64) -> Vec<Point> {
    vitals.exporters().iter().map(|exporter| point(read(exporter), &[("exporter", &exporter.name)])).collect()
}

/// What a Collector labels with the kind of data.
fn of_requests(exporters: &[ExporterNow], read: impl Fn(&ExporterNow) -> u64) -> Vec<Point> {
    let labels = |exporter: &ExporterNow| {
        point(read(exporter), &[("exporter", &exporter.name), ("data_type", "profiles")])
    };
    exporters.iter().map(labels).collect()
}

/// Of the exporters that have a queue.
fn of_queues(vitals: &Vitals, read: impl Fn(&ExporterNow) -> u64) -> Vec<Point> {
    let mut exporters = vitals.exporters();
    exporters.retain(|exporter| exporter.stats.queue_capacity_bytes > 0);
    of_requests(&exporters, read)
}

fn of_receivers(vitals: &Vitals, read: impl Fn(&ReceiverVitals) -> u64) -> Vec<Point> {
    let labels = |(name, receiver): (&String, &ReceiverVitals)| {
        point(read(receiver), &[("receiver", name), ("transport", "ebpf")])
    };
    vitals.receivers().iter().map(labels).collect()
}

/// As [`of_receivers`], without a Collector's label.
fn by_receiver(vitals: &Vitals, read: impl Fn(&ReceiverVitals) -> u64) -> Vec<Point> {
    let receivers = vitals.receivers();
    receivers.iter().map(|(name, receiver)| point(read(receiver), &[("receiver", name)])).collect()
}

/// States in which an exporter gave up samples that it had taken.
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

static METRICS: &[Metric] = &[
    Metric {
        name: "otelcol_exporter_sent_profile_samples",
        description: "Number of profile samples successfully sent to destination.",
        unit: "{samples}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| of_sending(vitals, |exporter| exporter.stats.counts.delivered.samples),
    },
    Metric {
        name: "otelcol_exporter_send_failed_profile_samples",
        description: "Number of profile samples in failed attempts to send to destination.",
        unit: "{samples}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| {
            of_sending(vitals, |exporter| {
                SEND_FAILED.iter().map(|state| exporter.stats.counts.get(*state).samples).sum()
            })
        },
    },
    Metric {
        name: "otelcol_exporter_enqueue_failed_profile_samples",
        description: "Number of profile samples failed to be added to the sending queue.",
        unit: "{samples}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| of_exporters(vitals, |exporter| exporter.stats.counts.dropped_queue_full.samples),
    },
    Metric {
        name: "otelcol_exporter_queue_size",
        description: "Current size of the sending queue.",
        unit: "{bytes}",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| of_queues(vitals, |exporter| exporter.stats.queue_bytes),
    },
    Metric {
        name: "otelcol_exporter_queue_capacity",
        description: "Fixed capacity of the sending queue.",
        unit: "{bytes}",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| of_queues(vitals, |exporter| exporter.stats.queue_capacity_bytes),
    },
    Metric {
        name: "otelcol_exporter_in_flight_requests",
        description: "Number of requests that are being sent or wait for their next attempt.",
        unit: "{requests}",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| of_requests(&vitals.exporters(), |exporter| exporter.stats.in_flight_requests as u64),
    },
    Metric {
        name: "otelcol_receiver_accepted_profile_samples",
        description: "Number of profile samples successfully pushed into the pipeline.",
        unit: "{samples}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| of_receivers(vitals, |receiver| receiver.accepted.samples),
    },
    Metric {
        name: "otelcol_receiver_refused_profile_samples",
        description: "Number of profile samples that could not be pushed into the pipeline: naming could not keep up.",
        unit: "{samples}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| of_receivers(vitals, |receiver| receiver.counted.events_dropped),
    },
    Metric {
        name: "otelcol_receiver_failed_profile_samples",
        description: "Number of profile samples that failed inside of the receiver: the body of their stack never arrived.",
        unit: "{samples}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| of_receivers(vitals, |receiver| receiver.counted.stack_bodies_missing),
    },
    Metric {
        name: "otelcol_process_cpu_seconds",
        description: "Total CPU user and system time of this process, time in eBPF programs not included.",
        unit: "s",
        kind: Kind::FractionalCounter,
        level: MetricLevel::Basic,
        read: |_| single(process::cpu_time().as_secs_f64()),
    },
    Metric {
        name: "otelcol_process_memory_rss",
        description: "Total physical memory of this process (resident set size), maps of eBPF that are not mapped not included.",
        unit: "By",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |_| memory::resident_bytes().map_or_else(Vec::new, |bytes| vec![point(bytes, &[])]),
    },
    Metric {
        name: "otelcol_process_uptime",
        description: "Uptime of the process.",
        unit: "s",
        kind: Kind::FractionalCounter,
        level: MetricLevel::Basic,
        read: |vitals| single(vitals.uptime().as_secs_f64()),
    },
    Metric {
        name: "sidewinder_interrupts",
        description: "Interrupts by how they ended; the outcomes of a receiver add up to the interrupts that were due.",
        unit: "{interrupts}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| {
            let mut points = Vec::new();
            for (name, receiver) in vitals.receivers() {
                let counted = &receiver.counted;
                let missed = ("missed", counted.missed);
                for (outcome, count) in
                    counted.outcomes.iter().map(|(outcome, count)| (*outcome, *count)).chain([missed])
                {
                    points.push(point(count, &[("receiver", &name), ("outcome", outcome)]));
                }
            }
            points
        },
    },
    Metric {
        name: "sidewinder_events",
        description: "Events by exporter and what became of them; the states of an exporter add up to what it was given.",
        unit: "{events}",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| {
            let mut points = Vec::new();
            for exporter in vitals.exporters() {
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
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| by_receiver(vitals, |receiver| receiver.accepted.events),
    },
    Metric {
        name: "sidewinder_bpf_run_seconds",
        description: "Time in eBPF programs; only where the kernel measures it (sysctl kernel.bpf_stats_enabled, or metrics::level: detailed from the start with CAP_SYS_ADMIN, which is given up then).",
        unit: "s",
        kind: Kind::FractionalCounter,
        level: MetricLevel::Basic,
        read: |vitals| {
            let receivers = vitals.receivers();
            let timed = receivers.iter().filter_map(|(name, receiver)| {
                let run_time = receiver.counted.run_time?;
                let labels = vec![KeyValue::new("receiver", name.clone())];
                Some(Point { value: run_time.as_secs_f64(), labels })
            });
            timed.collect()
        },
    },
    Metric {
        name: "sidewinder_maps_bytes",
        description: "Kernel memory of all eBPF maps.",
        unit: "By",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| by_receiver(vitals, |receiver| receiver.counted.map_bytes),
    },
    Metric {
        name: "sidewinder_tables_bytes",
        description: "Unwind tables in eBPF maps.",
        unit: "By",
        kind: Kind::Gauge,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.counted.table_bytes),
    },
    Metric {
        name: "sidewinder_tables_evictions",
        description: "Unwind tables that made room for others.",
        unit: "{tables}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.counted.table_evictions),
    },
    Metric {
        name: "sidewinder_tables_cut",
        description: "Files without a whole unwind table, for want of memory to read them.",
        unit: "{files}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.counted.tables_cut),
    },
    Metric {
        name: "sidewinder_names_left_out",
        description: "Look-ups that gave no name, and functions without one, for want of memory for the symbols.",
        unit: "{names}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.left_out.names),
    },
    Metric {
        name: "sidewinder_lines_left_out",
        description: "Files without all lines and inlined calls, for want of memory, and look-ups, for want of time.",
        unit: "{lines}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.left_out.lines),
    },
    Metric {
        name: "sidewinder_files_refused",
        description: "Files that processes name (maps of code, debug files) and that are not read: somebody else's, or what \
                      the process could not read itself.",
        unit: "{files}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| {
            let mut points = Vec::new();
            for (name, receiver) in vitals.receivers() {
                for (reason, count) in receiver.left_out.files.by_reason() {
                    points.push(point(count, &[("receiver", &name), ("reason", reason)]));
                }
            }
            points
        },
    },
    Metric {
        name: "sidewinder_walked_late",
        description: "Events whose stack was walked after the interrupt, because its table was not there in time.",
        unit: "{events}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.counted.walked_late),
    },
    Metric {
        name: "sidewinder_thread_contexts",
        description: "Readings of the span that a sampled thread is in: read; changing, where the thread was just writing \
                      it; unreadable.",
        unit: "{readings}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| {
            let receivers = vitals.receivers();
            let points = receivers.iter().flat_map(|(name, receiver)| {
                let contexts = receiver.counted.contexts;
                let by_result = [
                    ("read", contexts.read),
                    ("changing", contexts.changing),
                    ("unreadable", contexts.unreadable),
                ];
                by_result.map(|(result, count)| point(count, &[("receiver", name), ("result", result)]))
            });
            points.collect()
        },
    },
    Metric {
        name: "sidewinder_contexts_refused",
        description: "Processes that publish a context which can't be read, for want of CAP_SYS_PTRACE.",
        unit: "{processes}",
        kind: Kind::Counter,
        level: MetricLevel::Normal,
        read: |vitals| by_receiver(vitals, |receiver| receiver.counted.contexts_refused),
    },
    Metric {
        name: "sidewinder_receiver_activity",
        description: "1 for what a receiver does now: starting, profiling, out_of_scope, failed or stopped.",
        unit: "1",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| {
            let receivers = vitals.receivers();
            let labels = |(name, receiver): (&String, &ReceiverVitals)| {
                point(1, &[("receiver", name), ("activity", receiver.activity.label())])
            };
            receivers.iter().map(labels).collect()
        },
    },
    Metric {
        name: "sidewinder_degraded",
        description: "1 for each feature that works less well than it could.",
        unit: "1",
        kind: Kind::Gauge,
        level: MetricLevel::Basic,
        read: |vitals| {
            let degraded = vitals.degraded();
            let labels = |what: &crate::vitals::Degraded| {
                point(1, &[("feature", what.feature), ("reason", what.reason)])
            };
            degraded.iter().map(labels).collect()
        },
    },
    Metric {
        name: "sidewinder_config_reloads",
        description: "Configurations that were read again, by whether they were taken over.",
        unit: "{reloads}",
        kind: Kind::Counter,
        level: MetricLevel::Basic,
        read: |vitals| {
            let configuration = vitals.configuration();
            [("applied", configuration.reloads), ("refused", configuration.refused)]
                .into_iter()
                .map(|(result, count)| point(count, &[("result", result)]))
                .collect()
        },
    },
];

/// The one metric that is not read but recorded.
const STACK_DEPTH: &str = "sidewinder_stack_depth";

/// The last of each class of depths that are counted together.
const DEPTHS: [f64; 14] =
    [1.0, 3.0, 7.0, 15.0, 31.0, 63.0, 127.0, 255.0, 511.0, 1_023.0, 2_047.0, 4_095.0, 8_191.0, 16_383.0];

/// Makes `meter` read every metric of `level` from `vitals`, and returns where depths of stacks are to be recorded.
pub(super) fn register(meter: &Meter, level: MetricLevel, vitals: &Arc<Vitals>) -> Option<Histogram<u64>> {
    for metric in METRICS.iter().filter(|metric| metric.level <= level) {
        match metric.kind {
            Kind::Counter => {
                _ = observed(meter.u64_observable_counter(metric.name), metric, vitals, whole).build();
            }
            Kind::FractionalCounter => {
                let same = |value| value;
                _ = observed(meter.f64_observable_counter(metric.name), metric, vitals, same).build();
            }
            Kind::Gauge => {
                _ = observed(meter.u64_observable_gauge(metric.name), metric, vitals, whole).build();
            }
        }
    }
    (level >= MetricLevel::Normal).then(|| {
        meter
            .u64_histogram(STACK_DEPTH)
            .with_description(
                "Frames of stacks, complete or cut, in the middle of their class: 1, 2 to 3, 4 to 7 and so on. A walk takes a \
                 round of its loop for four of user mode, or a tail call for 32.",
            )
            .with_unit("{frames}")
            .with_boundaries(DEPTHS.to_vec())
            .build()
    })
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was a u64")]
fn whole(value: f64) -> u64 {
    value as u64
}

/// An instrument that says what the metric is and reads it whenever asked.
fn observed<'a, I, M: 'static>(
    instrument: AsyncInstrumentBuilder<'a, I, M>,
    metric: &'static Metric,
    vitals: &Arc<Vitals>,
    number: fn(f64) -> M,
) -> AsyncInstrumentBuilder<'a, I, M> {
    let vitals = Arc::clone(vitals);
    let observe = move |observer: &dyn AsyncInstrument<M>| {
        for point in (metric.read)(&vitals) {
            observer.observe(number(point.value), &point.labels);
        }
    };
    instrument.with_description(metric.description).with_unit(metric.unit).with_callback(observe)
}
