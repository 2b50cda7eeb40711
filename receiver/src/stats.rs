//! The state of the service: what each receiver has counted, and how the events of each exporter ended.
//!
//! Metrics, status pages and `sidewinder status` all read this and nothing else.

pub(crate) mod counters;
mod history;
mod receiver;

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use sidewinder_config::Config;
use sidewinder_otlp::Tally;
use sidewinder_otlp::send::{Counts, ExporterStats};

pub(crate) use self::history::{INTERVAL, StatsSnapshot, WINDOW};
pub(crate) use self::receiver::{Activity, EventCoverage, ReceiverCounters, ReceiverStats};

use self::history::StatsHistory;
use crate::export::Destination;
use crate::lock::lock;
use crate::naming::NameCounts;
use crate::supervise::ThreadSupervisor;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ServiceStats {
    started_at: SystemTime,
    started: Instant,
    is_up: AtomicBool,
    threads: ThreadSupervisor,
    receivers: Mutex<BTreeMap<String, ReceiverStats>>,
    exporters: Mutex<BTreeMap<String, ExporterHistory>>,
    configuration: Mutex<ConfigurationStats>,
    degraded: Mutex<Vec<DegradedFeature>>,
    history: Mutex<StatsHistory>,
    /// Where depths of stacks go while metrics are measured.
    stack_depths: Mutex<Option<Histogram<u64>>>,
}

/// All exporters that have had this name since the start.
#[derive(Debug, Default)]
struct ExporterHistory {
    /// Of those that are gone.
    retired: Counts,
    /// Those that take or still send, the newest last.
    active: Vec<Arc<Destination>>,
}

/// An exporter at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ExporterSnapshot {
    pub(crate) name: String,
    /// Where the newest of that name sends to.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) stats: ExporterStats,
}

/// Which configuration holds.
#[derive(Clone, Debug)]
pub(crate) struct ConfigurationStats {
    pub(crate) config: Arc<Config>,
    /// Since when.
    pub(crate) since: SystemTime,
    /// How often another one was taken over.
    pub(crate) reloads: u64,
    /// How often one was refused.
    pub(crate) refused: u64,
    /// Why the last one was refused; `None`: it was not.
    pub(crate) refusal: Option<String>,
}

/// Something that works less well than it could here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct DegradedFeature {
    /// What.
    pub(crate) feature: &'static str,
    /// What it costs.
    pub(crate) cost: &'static str,
    /// Why, in a word.
    pub(crate) reason: &'static str,
}

impl ServiceStats {
    /// Of a service that is about to start with this configuration.
    pub(crate) fn new(config: Arc<Config>) -> Self {
        let now = SystemTime::now();
        Self {
            started_at: now,
            started: Instant::now(),
            is_up: AtomicBool::new(false),
            threads: ThreadSupervisor::default(),
            receivers: Mutex::default(),
            exporters: Mutex::default(),
            configuration: Mutex::new(ConfigurationStats {
                config,
                since: now,
                reloads: 0,
                refused: 0,
                refusal: None,
            }),
            degraded: Mutex::default(),
            history: Mutex::default(),
            stack_depths: Mutex::default(),
        }
    }

    pub(crate) fn started_at(&self) -> SystemTime {
        self.started_at
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the service is up: between its start and its end, with every thread at work.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed) && self.threads.faulty_threads().is_empty()
    }

    /// The threads of the service.
    pub(crate) fn threads(&self) -> &ThreadSupervisor {
        &self.threads
    }

    pub(crate) fn set_is_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// A run of a receiver does this now.
    pub(crate) fn set_activity(&self, name: &str, activity: Activity) {
        self.with_receiver(name, |receiver| receiver.activity = activity);
    }

    /// A run of a receiver has counted this so far. Returns what all of them have.
    pub(crate) fn record_counters(&self, name: &str, counted: ReceiverCounters) -> ReceiverStats {
        let depths = lock(&self.stack_depths).clone();
        self.with_receiver(name, |receiver| {
            let counted = counted.plus_previous(&receiver.previous_runs);
            let before = mem::replace(&mut receiver.counters, counted);
            if let Some(depths) = depths {
                record_stack_depths(&depths, name, &before.depths, &receiver.counters.depths);
            }
            receiver.clone()
        })
    }

    /// A run of a receiver has ended: what it counted stays, what it held is free.
    pub(crate) fn record_receiver_end(&self, name: &str) {
        self.with_receiver(name, |receiver| {
            receiver.counters.table_bytes = 0;
            receiver.counters.map_bytes = 0;
            receiver.counters.scope_full_cost = None;
            receiver.counters.reads.in_quarantine = 0;
            receiver.counters.reads.stuck_threads = 0;
            receiver.previous_runs = receiver.counters.clone();
            receiver.previous_names = receiver.names;
        });
    }

    /// A receiver has handed this to its pipelines.
    pub(crate) fn record_accepted(&self, name: &str, tally: Tally) {
        self.with_receiver(name, |receiver| receiver.accepted += tally);
    }

    /// A run of a receiver has named so much so far.
    pub(crate) fn record_name_counts(&self, name: &str, counts: NameCounts) {
        self.with_receiver(name, |receiver| {
            receiver.names = counts;
            receiver.names += receiver.previous_names;
        });
    }

    fn with_receiver<T>(&self, name: &str, change: impl FnOnce(&mut ReceiverStats) -> T) -> T {
        let mut receivers = lock(&self.receivers);
        change(receivers.entry(name.to_owned()).or_insert_with(ReceiverStats::new))
    }

    pub(crate) fn receivers(&self) -> BTreeMap<String, ReceiverStats> {
        lock(&self.receivers).clone()
    }

    /// An exporter takes from now on.
    pub(crate) fn add_exporter(&self, destination: &Arc<Destination>) {
        let mut exporters = lock(&self.exporters);
        exporters.entry(destination.name().to_owned()).or_default().active.push(Arc::clone(destination));
    }

    /// An exporter has ended: what it counted stays.
    pub(crate) fn retire_exporter(&self, destination: &Arc<Destination>) {
        let mut exporters = lock(&self.exporters);
        let Some(exporter) = exporters.get_mut(destination.name()) else { return };
        let before = exporter.active.len();
        exporter.active.retain(|present| !Arc::ptr_eq(present, destination));
        if exporter.active.len() < before {
            exporter.retired += destination.stats().counts;
        }
    }

    pub(crate) fn exporters(&self) -> Vec<ExporterSnapshot> {
        lock(&self.exporters)
            .iter()
            .map(|(name, exporter)| {
                let mut stats = ExporterStats {
                    counts: exporter.retired,
                    queue_bytes: 0,
                    queue_capacity_bytes: 0,
                    in_flight_requests: 0,
                    last_partial_success: None,
                    last_failure: None,
                    outage: None,
                };
                for present in &exporter.active {
                    let now = present.stats();
                    stats.counts += now.counts;
                    stats.queue_bytes += now.queue_bytes;
                    stats.queue_capacity_bytes = now.queue_capacity_bytes;
                    stats.in_flight_requests += now.in_flight_requests;
                    stats.last_partial_success = now.last_partial_success.or(stats.last_partial_success);
                    stats.last_failure = now.last_failure.or(stats.last_failure);
                    stats.outage = now.outage.or(stats.outage);
                }
                let newest = exporter.active.last();
                let labels = newest.map(|newest| newest.labels().to_vec()).unwrap_or_default();
                ExporterSnapshot { name: name.clone(), labels, stats }
            })
            .collect()
    }

    pub(crate) fn configuration(&self) -> ConfigurationStats {
        lock(&self.configuration).clone()
    }

    pub(crate) fn record_reload(&self, config: Arc<Config>) {
        let mut configuration = lock(&self.configuration);
        configuration.config = config;
        configuration.since = SystemTime::now();
        configuration.reloads += 1;
        configuration.refusal = None;
    }

    pub(crate) fn record_refused_reload(&self, reason: String) {
        let mut configuration = lock(&self.configuration);
        configuration.refused += 1;
        configuration.refusal = Some(reason);
    }

    pub(crate) fn degraded(&self) -> Vec<DegradedFeature> {
        let mut degraded = lock(&self.degraded).clone();
        let receivers = lock(&self.receivers);
        let of_any = |is_so: fn(&ReceiverCounters) -> bool| {
            receivers.values().any(|receiver| is_so(&receiver.counters))
        };
        if of_any(|counted| counted.event_coverage == EventCoverage::EveryTaskForPod) {
            degraded.push(DegradedFeature {
                feature: "events of this pod's containers alone",
                cost: "each interrupt of the node is looked at, and left if it is another pod's",
                reason: "container",
            });
        }
        if of_any(|counted| counted.contexts_refused > 0) {
            degraded.push(DegradedFeature {
                feature: "what processes publish of themselves",
                cost: "profiles without the resource of the SDK, samples without the span of their thread",
                reason: "privilege",
            });
        }
        let full: BTreeSet<_> =
            receivers.values().filter_map(|receiver| receiver.counters.scope_full_cost).collect();
        let feature = "the list of included or excluded processes";
        degraded.extend(full.into_iter().map(|cost| DegradedFeature { feature, cost, reason: "list_full" }));
        if of_any(|counted| counted.reads.in_quarantine > 0) {
            degraded.push(DegradedFeature {
                feature: "reading of every process",
                cost: "a process whose memory is not given to readers (userfaultfd, FUSE) is in quarantine: its stacks are \
                       profiled, its resource and spans are not read",
                reason: "process",
            });
        }
        if of_any(|counted| counted.reads.is_stuck()) {
            degraded.push(DegradedFeature {
                feature: "reading of processes",
                cost: "all threads that read are stuck: no resource and no span of any process is read",
                reason: "process",
            });
        }
        degraded
    }

    /// Notes what has been counted, for [`Self::snapshot_before_window`].
    pub(crate) fn take_snapshot(&self) {
        let exporters = self.exporters().into_iter().map(|exporter| (exporter.name, exporter.stats.counts));
        let note =
            StatsSnapshot { at: Instant::now(), receivers: self.receivers(), exporters: exporters.collect() };
        lock(&self.history).add(note);
    }

    /// What had been counted before the last minutes; `None` where we did not run then.
    pub(crate) fn snapshot_before_window(&self) -> Option<StatsSnapshot> {
        lock(&self.history).before(Instant::now()).cloned()
    }

    pub(crate) fn set_degraded(&self, degraded: Vec<DegradedFeature>) {
        *lock(&self.degraded) = degraded;
    }

    /// Where depths of stacks go from now on.
    pub(crate) fn measure_stack_depths(&self, histogram: Option<Histogram<u64>>) {
        *lock(&self.stack_depths) = histogram;
    }
}

/// Records the stacks that have been counted meanwhile, each as one in the middle of its class.
fn record_stack_depths(histogram: &Histogram<u64>, receiver: &str, before: &[u64], now: &[u64]) {
    let labels = [KeyValue::new("receiver", receiver.to_owned())];
    let before = before.iter().copied().chain(iter::repeat(0));
    for (class, (now, before)) in now.iter().zip(before).enumerate() {
        // A histogram takes one value at a time.
        for _ in before..*now {
            histogram.record((3 << class) / 2, &labels);
        }
    }
}
