//! The state of the service: what each receiver has counted, and how the events of each exporter ended.
//!
//! Metrics, status pages and `sidewinder status` all read this and nothing else.

pub(crate) mod counters;
mod history;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::iter;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::KeyValue;
use opentelemetry::metrics::Histogram;
use sidewinder_bpf::{Audience, ContextCounts};
use sidewinder_config::Config;
use sidewinder_otlp::Tally;
use sidewinder_otlp::send::{Counts, ExporterStats};
use sidewinder_process::RegistryCounters;

pub(crate) use self::history::{INTERVAL, Note, WINDOW};

use self::counters::{COUNTERS, Metric};
use self::history::History;
use crate::export::Destination;
use crate::foreign::ReadCounts;
use crate::naming::NameCounts;
use crate::sampling::Sampler;
use crate::supervise::Threads;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct ServiceStats {
    started_at: SystemTime,
    started: Instant,
    is_up: AtomicBool,
    threads: Threads,
    receivers: Mutex<BTreeMap<String, ReceiverStats>>,
    exporters: Mutex<BTreeMap<String, ExporterHistory>>,
    configuration: Mutex<ConfigurationStats>,
    degraded: Mutex<Vec<Degraded>>,
    history: Mutex<History>,
    /// Where depths of stacks go while metrics are measured.
    stack_depths: Mutex<Option<Histogram<u64>>>,
}

/// What a receiver does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Activity {
    /// Loading programs, reading what runs.
    Starting,
    /// Taking samples.
    Profiling,
    /// Every process that was to be sampled has ended.
    OutOfScope,
    /// Trying again soon what went wrong for this reason.
    Failed(String),
    /// Told to end.
    Stopped,
}

impl Activity {
    pub(crate) const fn label(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Profiling => "profiling",
            Self::OutOfScope => "out_of_scope",
            Self::Failed(_) => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// A receiver at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverStats {
    pub(crate) activity: Activity,
    /// Of all runs since the start.
    pub(crate) counted: Counted,
    /// Handed to pipelines.
    pub(crate) accepted: Tally,
    /// How frames were named.
    pub(crate) names: NameCounts,
    /// Of the runs that have ended.
    before: Counted,
    names_before: NameCounts,
}

impl ReceiverStats {
    fn new() -> Self {
        Self {
            activity: Activity::Starting,
            counted: Counted::default(),
            accepted: Tally::default(),
            names: NameCounts::default(),
            before: Counted::default(),
            names_before: NameCounts::default(),
        }
    }
}

/// All that it has counted, as `key=value` words, outcomes first.
impl fmt::Display for ReceiverStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (outcome, count) in self.counted.outcomes.iter().filter(|(_, count)| **count > 0) {
            write!(f, "{outcome}={count} ")?;
        }
        for counter in COUNTERS {
            let count = (counter.read)(self);
            // Those that add up are told even where they are 0.
            if count > 0 || !matches!(counter.metric, Metric::From(_)) {
                write!(f, "{}={count} ", counter.key())?;
            }
        }
        write!(f, "table_bytes={} map_bytes={}", self.counted.table_bytes, self.counted.map_bytes)
    }
}

/// What a receiver has counted. Each counter has a row in [`COUNTERS`].
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct Counted {
    /// Interrupts by how they ended, each once; their sum with [`Self::missed`] is what was due.
    pub(crate) outcomes: BTreeMap<&'static str, u64>,
    /// Interrupts of which no program heard.
    pub(crate) missed: u64,
    /// Interrupts that were due by the events' own clocks.
    pub(crate) due: u64,
    /// Of the idle ones, those of which no program heard.
    pub(crate) idle_inferred: u64,
    /// Events that were handed on to be named.
    pub(crate) events_exported: u64,
    /// Events that were not: naming could not keep up.
    pub(crate) events_dropped: u64,
    pub(crate) stack_bodies_missing: u64,
    pub(crate) walked_late: u64,
    /// Walks that lacked something, and for whose snapshot there was no room.
    pub(crate) snapshots_refused: u64,
    /// What became of the readings of threads' contexts.
    pub(crate) contexts: ContextCounts,
    /// Processes that publish a context which must not be read.
    pub(crate) contexts_refused: u64,
    /// How reads of processes' memory ended.
    pub(crate) reads: ReadCounts,
    /// Records of the eBPF programs that are of no kind that is known here.
    pub(crate) unknown_records: u64,
    /// Walks that were begun while another one was under way on the same CPU.
    pub(crate) nested_walks: u64,
    /// Samples whose stack was known, and stacks that were sent.
    pub(crate) stacks_known: u64,
    pub(crate) stacks_sent: u64,
    /// Of processes.
    pub(crate) processes: RegistryCounters,
    /// Events of processes that were taken up before all earlier ones had come.
    pub(crate) released_early: u64,
    /// Frames found by rows, by proven frame pointers and by unproven ones.
    pub(crate) steps: [u64; 3],
    /// Stacks by classes of their number of frames: 2^i up to 2^(i+1)-1.
    pub(crate) depths: Vec<u64>,
    pub(crate) table_evictions: u64,
    /// Files read again because a walk missed an evicted table.
    pub(crate) table_reloads: u64,
    /// Files of whose tables a part is missing, or all, for want of memory to read them.
    pub(crate) tables_cut: u64,
    /// Processes for which the scope's list had no room.
    pub(crate) scope_full: u64,
    /// What it costs that this list was full in the run at hand, if it was.
    pub(crate) scope_full_cost: Option<&'static str>,
    /// Time in our programs, where the kernel measures it.
    pub(crate) run_time: Option<Duration>,
    /// Bytes of unwind tables in the arena, now.
    pub(crate) table_bytes: u64,
    /// Bytes of kernel memory of all maps, now.
    pub(crate) map_bytes: u64,
    /// Whose events are open, now.
    pub(crate) events_of: EventsOf,
}

/// Whose events are open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum EventsOf {
    /// Those of every task, as the scope wants it.
    #[default]
    EveryTask,
    /// Those of so many containers of the pod.
    Containers(usize),
    /// Those of every task, though the scope is the pod.
    EveryTaskForPod,
}

impl Counted {
    pub(crate) fn of(sampler: &Sampler<'_>, dropped: u64) -> Self {
        let (tally, profiler, control) = (sampler.tally(), sampler.profiler(), sampler.control_counts());
        let (stacks_known, stacks_sent) = profiler.stacks_known_and_sent();
        let outcomes = tally.interrupts.outcomes.iter().map(|(outcome, count)| (outcome.label(), *count));
        Self {
            events_of: match profiler.audience() {
                Audience::Containers(containers) => EventsOf::Containers(containers.len()),
                Audience::EveryTask if sampler.is_of_pod() => EventsOf::EveryTaskForPod,
                Audience::EveryTask => EventsOf::EveryTask,
            },
            outcomes: outcomes.collect(),
            missed: tally.interrupts.missed(),
            due: tally.interrupts.due,
            idle_inferred: tally.interrupts.idle_inferred,
            events_exported: tally.events - dropped.min(tally.events),
            events_dropped: dropped,
            stack_bodies_missing: tally.bodies_missing,
            walked_late: tally.deferred_walks,
            snapshots_refused: tally.snapshots_refused,
            contexts: profiler.contexts(),
            contexts_refused: control.contexts_refused,
            reads: control.reads,
            unknown_records: profiler.unknown_records(),
            nested_walks: profiler.nested_walks(),
            stacks_known,
            stacks_sent,
            processes: control.processes,
            released_early: control.released_early,
            steps: profiler.frames_by_mode(),
            depths: profiler.depths().to_vec(),
            table_evictions: profiler.tables.evictions(),
            table_reloads: control.table_reloads,
            tables_cut: control.tables_cut,
            scope_full: profiler.scope_full(),
            scope_full_cost: sampler.scope_full_cost(),
            run_time: profiler.run_time(),
            table_bytes: profiler.tables.loaded_bytes(),
            map_bytes: profiler.map_bytes(),
        }
    }

    /// What both counted; what they hold now is `self`'s.
    fn after(mut self, before: &Self) -> Self {
        // Without `..`: a counter that is added must be added up.
        let Self {
            outcomes,
            missed,
            due,
            idle_inferred,
            events_exported,
            events_dropped,
            stack_bodies_missing,
            walked_late,
            snapshots_refused,
            contexts,
            contexts_refused,
            reads,
            unknown_records,
            nested_walks,
            stacks_known,
            stacks_sent,
            processes,
            released_early,
            steps,
            depths,
            table_evictions,
            table_reloads,
            tables_cut,
            scope_full,
            scope_full_cost: _,
            run_time,
            table_bytes: _,
            map_bytes: _,
            events_of: _,
        } = before;
        for (outcome, count) in outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        self.missed += missed;
        self.due += due;
        self.idle_inferred += idle_inferred;
        self.events_exported += events_exported;
        self.events_dropped += events_dropped;
        self.stack_bodies_missing += stack_bodies_missing;
        self.walked_late += walked_late;
        self.snapshots_refused += snapshots_refused;
        self.contexts += *contexts;
        self.contexts_refused += contexts_refused;
        self.reads = self.reads.after(reads);
        self.unknown_records += unknown_records;
        self.nested_walks += nested_walks;
        self.stacks_known += stacks_known;
        self.stacks_sent += stacks_sent;
        self.processes += *processes;
        self.released_early += released_early;
        self.steps.iter_mut().zip(steps).for_each(|(now, before)| *now += before);
        self.depths.resize(self.depths.len().max(depths.len()), 0);
        self.depths.iter_mut().zip(depths).for_each(|(now, before)| *now += before);
        self.table_evictions += table_evictions;
        self.table_reloads += table_reloads;
        self.tables_cut += tables_cut;
        self.scope_full += scope_full;
        self.run_time = match (self.run_time, *run_time) {
            (Some(now), Some(before)) => Some(now + before),
            (now, before) => now.or(before),
        };
        self
    }
}

/// All exporters that have had this name since the start.
#[derive(Debug, Default)]
struct ExporterHistory {
    /// Of those that are gone.
    ended: Counts,
    /// Those that take or still send, the newest last.
    present: Vec<Arc<Destination>>,
}

/// An exporter at one moment.
#[derive(Clone, Debug)]
pub(crate) struct ExporterNow {
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
pub(crate) struct Degraded {
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
            threads: Threads::default(),
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
        self.is_up.load(Ordering::Relaxed) && self.threads.faulty().is_empty()
    }

    /// The threads of the service.
    pub(crate) fn threads(&self) -> &Threads {
        &self.threads
    }

    pub(crate) fn set_up(&self, is_up: bool) {
        self.is_up.store(is_up, Ordering::Relaxed);
    }

    /// A run of a receiver does this now.
    pub(crate) fn receiver_does(&self, name: &str, activity: Activity) {
        self.with_receiver(name, |receiver| receiver.activity = activity);
    }

    /// A run of a receiver has counted this so far. Returns what all of them have.
    pub(crate) fn receiver_counted(&self, name: &str, counted: Counted) -> ReceiverStats {
        let depths = lock(&self.stack_depths).clone();
        self.with_receiver(name, |receiver| {
            let counted = counted.after(&receiver.before);
            let before = mem::replace(&mut receiver.counted, counted);
            if let Some(depths) = depths {
                record(&depths, name, &before.depths, &receiver.counted.depths);
            }
            receiver.clone()
        })
    }

    /// A run of a receiver has ended: what it counted stays, what it held is free.
    pub(crate) fn receiver_ended(&self, name: &str) {
        self.with_receiver(name, |receiver| {
            receiver.counted.table_bytes = 0;
            receiver.counted.map_bytes = 0;
            receiver.counted.scope_full_cost = None;
            receiver.counted.reads.in_quarantine = 0;
            receiver.counted.reads.stuck_threads = 0;
            receiver.before = receiver.counted.clone();
            receiver.names_before = receiver.names;
        });
    }

    /// A receiver has handed this to its pipelines.
    pub(crate) fn receiver_handed_on(&self, name: &str, tally: Tally) {
        self.with_receiver(name, |receiver| receiver.accepted += tally);
    }

    /// A run of a receiver has named so much so far.
    pub(crate) fn receiver_named(&self, name: &str, counts: NameCounts) {
        self.with_receiver(name, |receiver| {
            receiver.names = counts;
            receiver.names += receiver.names_before;
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
    pub(crate) fn exporter_opened(&self, destination: &Arc<Destination>) {
        let mut exporters = lock(&self.exporters);
        exporters.entry(destination.name().to_owned()).or_default().present.push(Arc::clone(destination));
    }

    /// An exporter has ended: what it counted stays.
    pub(crate) fn exporter_ended(&self, destination: &Arc<Destination>) {
        let mut exporters = lock(&self.exporters);
        let Some(exporter) = exporters.get_mut(destination.name()) else { return };
        let before = exporter.present.len();
        exporter.present.retain(|present| !Arc::ptr_eq(present, destination));
        if exporter.present.len() < before {
            exporter.ended += destination.stats().counts;
        }
    }

    pub(crate) fn exporters(&self) -> Vec<ExporterNow> {
        lock(&self.exporters)
            .iter()
            .map(|(name, exporter)| {
                let mut stats = ExporterStats {
                    counts: exporter.ended,
                    queue_bytes: 0,
                    queue_capacity_bytes: 0,
                    in_flight_requests: 0,
                    last_partial_success: None,
                    last_failure: None,
                    outage: None,
                };
                for present in &exporter.present {
                    let now = present.stats();
                    stats.counts += now.counts;
                    stats.queue_bytes += now.queue_bytes;
                    stats.queue_capacity_bytes = now.queue_capacity_bytes;
                    stats.in_flight_requests += now.in_flight_requests;
                    stats.last_partial_success = now.last_partial_success.or(stats.last_partial_success);
                    stats.last_failure = now.last_failure.or(stats.last_failure);
                    stats.outage = now.outage.or(stats.outage);
                }
                let newest = exporter.present.last();
                let labels = newest.map(|newest| newest.labels().to_vec()).unwrap_or_default();
                ExporterNow { name: name.clone(), labels, stats }
            })
            .collect()
    }

    pub(crate) fn configuration(&self) -> ConfigurationStats {
        lock(&self.configuration).clone()
    }

    pub(crate) fn reloaded(&self, config: Arc<Config>) {
        let mut configuration = lock(&self.configuration);
        configuration.config = config;
        configuration.since = SystemTime::now();
        configuration.reloads += 1;
        configuration.refusal = None;
    }

    pub(crate) fn reload_refused(&self, reason: String) {
        let mut configuration = lock(&self.configuration);
        configuration.refused += 1;
        configuration.refusal = Some(reason);
    }

    pub(crate) fn degraded(&self) -> Vec<Degraded> {
        let mut degraded = lock(&self.degraded).clone();
        let receivers = lock(&self.receivers);
        let of_any =
            |is_so: fn(&Counted) -> bool| receivers.values().any(|receiver| is_so(&receiver.counted));
        if of_any(|counted| counted.events_of == EventsOf::EveryTaskForPod) {
            degraded.push(Degraded {
                feature: "events of this pod's containers alone",
                cost: "each interrupt of the node is looked at, and left if it is another pod's",
                reason: "container",
            });
        }
        if of_any(|counted| counted.contexts_refused > 0) {
            degraded.push(Degraded {
                feature: "what processes publish of themselves",
                cost: "profiles without the resource of the SDK, samples without the span of their thread",
                reason: "privilege",
            });
        }
        let full: BTreeSet<_> =
            receivers.values().filter_map(|receiver| receiver.counted.scope_full_cost).collect();
        let feature = "the list of included or excluded processes";
        degraded.extend(full.into_iter().map(|cost| Degraded { feature, cost, reason: "list_full" }));
        if of_any(|counted| counted.reads.in_quarantine > 0) {
            degraded.push(Degraded {
                feature: "reading of every process",
                cost: "a process whose memory is not given to readers (userfaultfd, FUSE) is in quarantine: its stacks are \
                       profiled, its resource and spans are not read",
                reason: "process",
            });
        }
        if of_any(|counted| counted.reads.is_stuck()) {
            degraded.push(Degraded {
                feature: "reading of processes",
                cost: "all threads that read are stuck: no resource and no span of any process is read",
                reason: "process",
            });
        }
        degraded
    }

    /// Notes what has been counted, for [`Self::before_window`].
    pub(crate) fn take_note(&self) {
        let exporters = self.exporters().into_iter().map(|exporter| (exporter.name, exporter.stats.counts));
        let note = Note { at: Instant::now(), receivers: self.receivers(), exporters: exporters.collect() };
        lock(&self.history).add(note);
    }

    /// What had been counted before the last minutes; `None` where we did not run then.
    pub(crate) fn before_window(&self) -> Option<Note> {
        lock(&self.history).before(Instant::now()).cloned()
    }

    pub(crate) fn set_degraded(&self, degraded: Vec<Degraded>) {
        *lock(&self.degraded) = degraded;
    }

    /// Where depths of stacks go from now on.
    pub(crate) fn measure_stack_depths(&self, histogram: Option<Histogram<u64>>) {
        *lock(&self.stack_depths) = histogram;
    }
}

/// Records the stacks that have been counted meanwhile, each as one in the middle of its class.
fn record(histogram: &Histogram<u64>, receiver: &str, before: &[u64], now: &[u64]) {
    let labels = [KeyValue::new("receiver", receiver.to_owned())];
    let before = before.iter().copied().chain(iter::repeat(0));
    for (class, (now, before)) in now.iter().zip(before).enumerate() {
        // A histogram takes one value at a time.
        for _ in before..*now {
            histogram.record((3 << class) / 2, &labels);
        }
    }
}

/// What these locks guard is changed whole, also where a thread panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
