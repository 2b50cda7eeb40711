//! What one receiver does and has counted.

use std::collections::BTreeMap;
use std::time::Duration;

use sidewinder_bpf::{ContextCounts, EventScope};
use sidewinder_otlp::Tally;
use sidewinder_process::RegistryCounters;

use crate::foreign::ReadCounts;
use crate::naming::NameCounts;
use crate::sampling::Sampler;

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
    pub(crate) counters: ReceiverCounters,
    /// Handed to pipelines.
    pub(crate) accepted: Tally,
    /// How frames were named.
    pub(crate) names: NameCounts,
    /// Of the runs that have ended.
    pub(super) previous_runs: ReceiverCounters,
    pub(super) previous_names: NameCounts,
}

impl ReceiverStats {
    pub(super) fn new() -> Self {
        Self {
            activity: Activity::Starting,
            counters: ReceiverCounters::default(),
            accepted: Tally::default(),
            names: NameCounts::default(),
            previous_runs: ReceiverCounters::default(),
            previous_names: NameCounts::default(),
        }
    }
}

/// What a receiver has counted. Each counter has a row in [`COUNTERS`](super::counters::COUNTERS).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ReceiverCounters {
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
    pub(crate) deferred_walks: u64,
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
    pub(crate) incomplete_tables: u64,
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
    pub(crate) event_coverage: EventCoverage,
}

/// Whose events are open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum EventCoverage {
    /// Those of every task, as the scope wants it.
    #[default]
    EveryTask,
    /// Those of so many containers of the pod.
    Containers(usize),
    /// Those of every task, though the scope is the pod.
    EveryTaskForPod,
}

impl ReceiverCounters {
    pub(crate) fn from_sampler(sampler: &Sampler<'_>, dropped: u64) -> Self {
        let (tally, profiler, control) = (sampler.tally(), sampler.profiler(), sampler.control_counts());
        let (stacks_known, stacks_sent) = profiler.stacks_deduplicated_and_sent();
        let outcomes = tally.interrupts.outcomes.iter().map(|(outcome, count)| (outcome.label(), *count));
        Self {
            event_coverage: match profiler.event_scope() {
                EventScope::Containers(containers) => EventCoverage::Containers(containers.len()),
                EventScope::EveryTask if sampler.is_pod_scope() => EventCoverage::EveryTaskForPod,
                EventScope::EveryTask => EventCoverage::EveryTask,
            },
            outcomes: outcomes.collect(),
            missed: tally.interrupts.missed(),
            due: tally.interrupts.expected,
            idle_inferred: tally.interrupts.idle_inferred,
            events_exported: tally.events - dropped.min(tally.events),
            events_dropped: dropped,
            stack_bodies_missing: tally.stacks_missing,
            deferred_walks: tally.deferred_walks,
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
            incomplete_tables: control.incomplete_tables,
            scope_full: profiler.scope_full(),
            scope_full_cost: sampler.scope_full_cost(),
            run_time: profiler.run_time(),
            table_bytes: profiler.tables.loaded_bytes(),
            map_bytes: profiler.map_bytes(),
        }
    }

    /// What both counted; what they hold now is `self`'s.
    pub(super) fn plus_previous(mut self, before: &Self) -> Self {
        // Without `..`: a counter that is added must be added up.
        let Self {
            outcomes,
            missed,
            due,
            idle_inferred,
            events_exported,
            events_dropped,
            stack_bodies_missing,
            deferred_walks: walked_late,
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
            incomplete_tables: tables_cut,
            scope_full,
            scope_full_cost: _,
            run_time,
            table_bytes: _,
            map_bytes: _,
            event_coverage: _,
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
        self.deferred_walks += walked_late;
        self.snapshots_refused += snapshots_refused;
        self.contexts += *contexts;
        self.contexts_refused += contexts_refused;
        self.reads = self.reads.plus_previous(reads);
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
        self.incomplete_tables += tables_cut;
        self.scope_full += scope_full;
        self.run_time = match (self.run_time, *run_time) {
            (Some(now), Some(before)) => Some(now + before),
            (now, before) => now.or(before),
        };
        self
    }
}
