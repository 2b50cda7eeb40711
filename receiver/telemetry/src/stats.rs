//! The state of the service: the counters of each receiver, and the states of each exporter's events.
//!
//! Inputs: the threads of receivers and exporters update it. Outputs: metrics, status pages and `sidewinder status` read
//! only this. Shared by all threads; each part has a lock of its own.

pub mod counters;
mod history;
mod outcomes;
mod receiver;

use std::collections::{BTreeMap, BTreeSet};
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use sidewinder_base::exit::FailureReport;
use sidewinder_base::lock::lock;
use sidewinder_base::supervise::ThreadSupervisor;
use sidewinder_config::Config;
use sidewinder_kind::{Counter, SampledProbe};
use sidewinder_naming::NameCounts;
use sidewinder_otlp::Tally;
use sidewinder_otlp::send::{Counts, ExporterStats};
use sidewinder_report::Destination;
use sidewinder_tables::IncompleteTables;

pub(crate) use self::history::{INTERVAL, StatsSnapshot, WINDOW};
pub use self::outcomes::{current_outcome_counts, outcome_counts};
#[cfg(test)]
pub(crate) use self::receiver::FunctionCopyCounts;
pub use self::receiver::{Activity, ReceiverCounters, ReceiverStats, counts_by_label};
pub(crate) use self::receiver::{EventCoverage, MISSED};

use self::history::StatsHistory;

/// All statistics of a service.
#[derive(Debug)]
pub struct ServiceStats {
    started_at: SystemTime,
    started: Instant,
    is_up: AtomicBool,
    threads: ThreadSupervisor,
    receivers: Mutex<BTreeMap<String, ReceiverStats>>,
    exporters: Mutex<BTreeMap<String, ExporterHistory>>,
    configuration: Mutex<ConfigurationStats>,
    degraded: Mutex<Vec<DegradedFeature>>,
    history: Mutex<StatsHistory>,
    /// The histogram of stack depths, while metrics are measured.
    stack_depths: Mutex<Option<Histogram<u64>>>,
}

/// All exporters of one name since the start.
#[derive(Debug, Default)]
struct ExporterHistory {
    /// The counts of those that have ended.
    retired: Counts,
    /// Those that accept or still send, the newest last.
    active: Vec<Arc<Destination>>,
}

/// The state of an exporter at one moment.
#[derive(Clone, Debug)]
pub struct ExporterSnapshot {
    pub(crate) name: String,
    /// Labels that say where the newest exporter of that name sends to.
    pub(crate) labels: Vec<(&'static str, String)>,
    pub(crate) stats: ExporterStats,
}

/// The configuration in use, and the reloads so far.
#[derive(Clone, Debug)]
pub struct ConfigurationStats {
    pub(crate) config: Arc<Config>,
    /// Since when it is in use.
    pub(crate) since: SystemTime,
    /// How many reloads were applied.
    pub(crate) reloads: u64,
    /// How many reloads were refused.
    pub(crate) refused: u64,
    /// Why the last reload was refused; `None` if it was applied.
    pub(crate) refusal: Option<FailureReport>,
}

/// A feature that is not available, or limited, on this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DegradedFeature {
    /// The feature, for programs: the label `feature` of a metric.
    pub id: &'static str,
    /// The feature, for users.
    pub name: &'static str,
    /// What its absence costs the user.
    pub cost: &'static str,
    /// Why it is missing.
    pub reason: DegradedReason,
}

/// Why a feature is not available, or limited.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DegradedReason {
    /// Sidewinder lacks a privilege.
    Privilege,
    /// The kernel, or the machine, does not have it.
    Kernel,
    /// The container hides it.
    Container,
    /// A file does not have it, or has too much of it.
    File,
    /// A list is full.
    ListFull,
    /// A process stands in its way.
    Process,
}

impl DegradedReason {
    /// The label `reason` of a metric.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Privilege => "privilege",
            Self::Kernel => "kernel",
            Self::Container => "container",
            Self::File => "file",
            Self::ListFull => "list_full",
            Self::Process => "process",
        }
    }
}

impl ServiceStats {
    /// The statistics of a service that starts with this configuration.
    pub fn new(config: Arc<Config>) -> Self {
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

    /// When the service started.
    pub fn started_at(&self) -> SystemTime {
        self.started_at
    }

    pub(crate) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    /// Whether the service is up: it has started, is not stopping, and no thread is faulty.
    pub(crate) fn is_up(&self) -> bool {
        self.is_up.load(Ordering::Relaxed) && self.threads.faulty_threads().is_empty()
    }

    /// The threads of the service.
    pub fn threads(&self) -> &ThreadSupervisor {
        &self.threads
    }

    /// Records whether the service has started all that its configuration describes.
    pub fn set_is_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// Sets the current activity of a receiver.
    pub fn set_activity(&self, name: &str, activity: Activity) {
        self.with_receiver(name, |receiver| receiver.activity = activity);
    }

    /// Records which configured counters a receiver goes without.
    pub fn record_missing_counters(&self, name: &str, missing: Vec<Counter>) {
        self.with_receiver(name, |receiver| receiver.missing_counters = missing);
    }

    /// Records the probes of a receiver that are attached nowhere.
    pub fn record_unattached_probes(&self, name: &str, unattached: Vec<SampledProbe>) {
        self.with_receiver(name, |receiver| receiver.unattached_probes = unattached);
    }

    /// Records the files that have no whole unwind table now.
    pub fn record_incomplete_tables(&self, name: &str, tables: IncompleteTables) {
        self.with_receiver(name, |receiver| receiver.tables_incomplete = tables);
    }

    /// Records the counters of a receiver's current run. Returns the totals of all its runs.
    pub fn record_counters(&self, name: &str, counters: ReceiverCounters) -> ReceiverStats {
        let depths = lock(&self.stack_depths).clone();
        self.with_receiver(name, |receiver| {
            let totals = counters.plus_previous(&receiver.previous_runs);
            receiver.highest_outcomes.update(&totals);
            let before = mem::replace(&mut receiver.counters, totals);
            if let Some(depths) = depths {
                record_stack_depths(&depths, name, &before.stack_depths, &receiver.counters.stack_depths);
            }
            receiver.clone()
        })
    }

    /// Records the end of a receiver's run: its counters are kept, its gauges become zero.
    pub fn record_receiver_end(&self, name: &str) {
        self.with_receiver(name, |receiver| {
            receiver.tables_incomplete = IncompleteTables::default();
            receiver.counters.tables_bytes = 0;
            receiver.counters.maps_bytes = 0;
            receiver.counters.scope_list_full_cost = None;
            receiver.counters.foreign_reads.quarantined_processes = 0;
            receiver.counters.foreign_reads.stuck_reader_threads = 0;
            receiver.previous_runs = receiver.counters.clone();
            receiver.previous_names = receiver.names;
        });
    }

    /// Adds what a receiver has handed to its pipelines.
    pub fn record_accepted(&self, name: &str, tally: Tally) {
        self.with_receiver(name, |receiver| receiver.accepted += tally);
    }

    /// Records the name counts of a receiver's current run.
    pub fn record_name_counts(&self, name: &str, counts: NameCounts) {
        self.with_receiver(name, |receiver| {
            receiver.names = counts;
            receiver.names += receiver.previous_names;
        });
    }

    fn with_receiver<T>(&self, name: &str, change: impl FnOnce(&mut ReceiverStats) -> T) -> T {
        let mut receivers = lock(&self.receivers);
        change(receivers.entry(name.to_owned()).or_insert_with(ReceiverStats::new))
    }

    /// The state of each receiver, by name.
    pub fn receivers(&self) -> BTreeMap<String, ReceiverStats> {
        lock(&self.receivers).clone()
    }

    /// Adds a new exporter.
    pub fn add_exporter(&self, destination: &Arc<Destination>) {
        let mut exporters = lock(&self.exporters);
        exporters.entry(destination.name().to_owned()).or_default().active.push(Arc::clone(destination));
    }

    /// Removes an exporter that has ended. Its counts are kept.
    pub fn retire_exporter(&self, destination: &Arc<Destination>) {
        let mut exporters = lock(&self.exporters);
        let Some(exporter) = exporters.get_mut(destination.name()) else { return };
        let before = exporter.active.len();
        exporter.active.retain(|active| !Arc::ptr_eq(active, destination));
        if exporter.active.len() < before {
            exporter.retired += destination.stats().counts;
        }
    }

    /// The state of the exporters of each name.
    pub fn exporters(&self) -> Vec<ExporterSnapshot> {
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
                for destination in &exporter.active {
                    let now = destination.stats();
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

    /// The configuration in use.
    pub fn configuration(&self) -> ConfigurationStats {
        lock(&self.configuration).clone()
    }

    /// Records that another configuration is in use.
    pub fn record_reload(&self, config: Arc<Config>) {
        let mut configuration = lock(&self.configuration);
        configuration.config = config;
        configuration.since = SystemTime::now();
        configuration.reloads += 1;
        configuration.refusal = None;
    }

    /// Records that a change of the configuration was refused.
    pub fn record_refused_reload(&self, reason: FailureReport) {
        let mut configuration = lock(&self.configuration);
        configuration.refused += 1;
        configuration.refusal = Some(reason);
    }

    pub(crate) fn degraded(&self) -> Vec<DegradedFeature> {
        let mut degraded = lock(&self.degraded).clone();
        let receivers = lock(&self.receivers);
        let any_receiver = |condition: fn(&ReceiverCounters) -> bool| {
            receivers.values().any(|receiver| condition(&receiver.counters))
        };
        if any_receiver(|counters| counters.event_coverage == EventCoverage::EveryTaskForPod) {
            degraded.push(DegradedFeature {
                id: "pod_events",
                name: "events of this pod's containers alone",
                cost: "every interrupt on the node runs the program, which ignores other pods",
                reason: DegradedReason::Container,
            });
        }
        let missing: BTreeSet<_> =
            receivers.values().flat_map(|receiver| &receiver.missing_counters).copied().collect();
        degraded.extend(missing.into_iter().map(|counter| DegradedFeature {
            id: counter.name(),
            name: counter.name(),
            cost: "this machine does not have the counter, so it is not sampled",
            reason: DegradedReason::Kernel,
        }));
        let unattached: BTreeSet<_> =
            receivers.values().flat_map(|receiver| &receiver.unattached_probes).copied().collect();
        degraded.extend(unattached.into_iter().map(|probe| DegradedFeature {
            id: probe.name(),
            name: probe.name(),
            cost: "no process in scope has a file with this probe's place, or the kernel refuses it: it counts nothing",
            reason: DegradedReason::File,
        }));
        if any_receiver(|counters| counters.contexts_refused > 0) {
            degraded.push(DegradedFeature {
                id: "process_context",
                name: "what processes publish of themselves",
                cost: "profiles lack the SDK's resource, and samples their thread's span",
                reason: DegradedReason::Privilege,
            });
        }
        if any_receiver(|counters| counters.interpreters_refused > 0) {
            degraded.push(DegradedFeature {
                id: "python_frames",
                name: "functions of every Python",
                cost: "a build whose evaluation loop has too many parts is shown with only its native frames",
                reason: DegradedReason::File,
            });
        }
        let full: BTreeSet<_> =
            receivers.values().filter_map(|receiver| receiver.counters.scope_list_full_cost).collect();
        degraded.extend(full.into_iter().map(|cost| DegradedFeature {
            id: "scope_list",
            name: "the list of included or excluded processes",
            cost,
            reason: DegradedReason::ListFull,
        }));
        if any_receiver(|counters| counters.foreign_reads.quarantined_processes > 0) {
            degraded.push(DegradedFeature {
                id: "process_memory",
                name: "reading of every process",
                cost: "a process whose memory can't be read in time (userfaultfd, FUSE) is in quarantine: its stacks are \
                       profiled, its resource and spans are not read",
                reason: DegradedReason::Process,
            });
        }
        if any_receiver(|counters| counters.foreign_reads.is_stuck()) {
            degraded.push(DegradedFeature {
                id: "reader_threads",
                name: "reading of processes",
                cost: "all reader threads are stuck: no process's resource or spans are read",
                reason: DegradedReason::Process,
            });
        }
        degraded
    }

    /// Stores a snapshot of all counters, for [`Self::snapshot_before_window`].
    pub(crate) fn take_snapshot(&self) {
        let exporters = self.exporters().into_iter().map(|exporter| (exporter.name, exporter.stats.counts));
        let snapshot =
            StatsSnapshot { at: Instant::now(), receivers: self.receivers(), exporters: exporters.collect() };
        lock(&self.history).add(snapshot);
    }

    /// The last snapshot from before the [`WINDOW`]; `None` if there is none that old.
    pub(crate) fn snapshot_before_window(&self) -> Option<StatsSnapshot> {
        lock(&self.history).before(Instant::now()).cloned()
    }

    /// Records the features that are missing here, instead of those recorded before.
    pub fn set_degraded(&self, degraded: Vec<DegradedFeature>) {
        *lock(&self.degraded) = degraded;
    }

    /// Sets the histogram in which stack depths are recorded from now on.
    pub(crate) fn measure_stack_depths(&self, histogram: Option<Histogram<u64>>) {
        *lock(&self.stack_depths) = histogram;
    }
}

/// Records the stacks that were counted since `before`, each with the depth in the middle of its class.
fn record_stack_depths(histogram: &Histogram<u64>, receiver: &str, before: &[u64], now: &[u64]) {
    let labels = [KeyValue::new("receiver", receiver.to_owned())];
    let before = before.iter().copied().chain(iter::repeat(0));
    for (class, (now, before)) in now.iter().zip(before).enumerate() {
        // A histogram has no way to record a value several times at once.
        for _ in before..*now {
            histogram.record((3 << class) / 2, &labels);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_identifiers_each_of_its_own() {
        let stats = ServiceStats::new(Arc::new(Config::default()));
        assert_eq!(stats.degraded(), []);
        let mut counters = ReceiverCounters {
            event_coverage: EventCoverage::EveryTaskForPod,
            contexts_refused: 1,
            interpreters_refused: 1,
            scope_list_full_cost: Some("processes are not sampled"),
            ..ReceiverCounters::default()
        };
        counters.foreign_reads.quarantined_processes = 1;
        counters.foreign_reads.stuck_reader_threads = u64::MAX;
        stats.record_counters("profiling", counters);
        let degraded = stats.degraded();
        let ids: BTreeSet<_> = degraded.iter().map(|degraded| degraded.id).collect();
        assert_eq!(ids.len(), degraded.len());
        let expected = [
            "pod_events",
            "process_context",
            "process_memory",
            "python_frames",
            "reader_threads",
            "scope_list",
        ];
        assert_eq!(ids, expected.into());
    }
}
