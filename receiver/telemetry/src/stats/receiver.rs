//! The activity and the counters of one receiver.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

use sidewinder_base::exit::FailureReport;
use sidewinder_base::foreign::ReadCounts;
use sidewinder_bpf::{
    ContextCounts, EventScope, FrameCounts, FunctionCopies, Interrupts, StealTime, VmCounts, VmMissing,
};
use sidewinder_kind::{Counter, Kind, KindSet, SampledProbe};
use sidewinder_naming::NameCounts;
use sidewinder_otlp::Tally;
use sidewinder_process::RegistryCounters;
use sidewinder_tables::{IncompleteTables, SavedTableCounts};

use sidewinder_sampling::{CodeObjectLosses, LongWaitCounts, Sampler, SamplingTally, WaitCounts};

/// What a receiver is doing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Loading programs and reading the running processes.
    Starting,
    /// Taking samples.
    Profiling,
    /// All processes in scope have ended.
    OutOfScope,
    /// Failed for this reason; will try again.
    Failed(FailureReport),
    /// Stopped on request.
    Stopped,
}

impl Activity {
    /// What status and metrics call it.
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Profiling => "profiling",
            Self::OutOfScope => "out_of_scope",
            Self::Failed(_) => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// The state of a receiver at one moment.
#[derive(Clone, Debug)]
pub struct ReceiverStats {
    pub(crate) activity: Activity,
    /// The totals of all runs since the start.
    pub counters: ReceiverCounters,
    /// The outcomes of these, none of which falls.
    pub(crate) highest_outcomes: HighestOutcomes,
    /// What was handed to pipelines.
    pub accepted: Tally,
    /// How frames were named, in all runs.
    pub names: NameCounts,
    /// The configured counters that this machine does not have, and that the current run goes without.
    pub(crate) missing_counters: Vec<Counter>,
    /// The probes of the current run that are attached nowhere.
    pub unattached_probes: Vec<SampledProbe>,
    /// The files that have no whole unwind table now, for lack of memory.
    pub(crate) tables_incomplete: IncompleteTables,
    /// The totals of the runs that have ended.
    pub(super) previous_runs: ReceiverCounters,
    pub(super) previous_names: NameCounts,
}

impl ReceiverStats {
    pub(super) fn new() -> Self {
        Self {
            activity: Activity::Starting,
            counters: ReceiverCounters::default(),
            highest_outcomes: HighestOutcomes::default(),
            accepted: Tally::default(),
            names: NameCounts::default(),
            missing_counters: Vec::new(),
            unattached_probes: Vec::new(),
            tables_incomplete: IncompleteTables::default(),
            previous_runs: ReceiverCounters::default(),
            previous_names: NameCounts::default(),
        }
    }
}

/// The highest count of each outcome so far. An interrupt whose stack is walked later moves from the outcome in the program to
/// that of the later walk, but a metric's counter must not fall: backends would take it for a restart from 0.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct HighestOutcomes {
    /// Of the CPU clock, by outcome, which may be `missed`.
    pub(crate) of_clock: BTreeMap<&'static str, u64>,
    /// As in [`ReceiverCounters::outcomes_of_other_kinds`].
    pub(crate) of_other_kinds: BTreeMap<(&'static str, &'static str), u64>,
}

impl HighestOutcomes {
    pub(super) fn update(&mut self, counters: &ReceiverCounters) {
        let of_clock = counters.outcomes.iter().chain([(&MISSED, &counters.missed)]);
        raise(&mut self.of_clock, of_clock);
        raise(&mut self.of_other_kinds, &counters.outcomes_of_other_kinds);
    }
}

/// Raises each of `highest` to the current count, if that is higher.
fn raise<'counts, Key: Ord + Copy + 'counts>(
    highest: &mut BTreeMap<Key, u64>,
    current: impl IntoIterator<Item = (&'counts Key, &'counts u64)>,
) {
    for (key, count) in current {
        let highest = highest.entry(*key).or_default();
        *highest = (*highest).max(*count);
    }
}

/// The counters of a receiver. Each has a row in [`COUNTERS`](super::counters::COUNTERS).
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ReceiverCounters {
    /// Interrupts by outcome, each counted once; their sum plus [`Self::missed`] equals [`Self::interrupts_by_witness`].
    pub outcomes: BTreeMap<&'static str, u64>,
    /// The same of other kinds of profile than CPU time, by the name of the kind and the outcome, which may be `missed`.
    pub outcomes_of_other_kinds: BTreeMap<(&'static str, &'static str), u64>,
    /// Interrupts for which no program ran.
    pub missed: u64,
    /// Interrupts that were due according to the events' own clocks.
    pub interrupts_by_witness: u64,
    /// Those of the idle interrupts for which no program ran.
    pub idle_inferred: u64,
    /// How much of the time of the sampled CPUs the hypervisor has taken, which explains missed interrupts.
    pub cpu_steal: StealTime,
    /// Events that were passed on for naming.
    pub events_exported: u64,
    /// Events that were dropped because naming could not keep up.
    pub events_dropped: u64,
    /// Events whose stack never arrived.
    pub stack_bodies_missing: u64,
    /// Events with the stack of a deferred walk.
    pub walked_late: u64,
    /// Incomplete walks for whose snapshot there was no room.
    pub snapshots_refused: u64,
    /// Waits that are missing from off-CPU time.
    pub off_cpu_waits_missing: WaitCounts,
    /// Waits that were charged, or found, before they ended.
    pub long_waits: LongWaitCounts,
    /// Reads of threads' contexts, by result.
    pub thread_contexts: ContextCounts,
    /// Processes that publish a context which this process has no privilege to read.
    pub contexts_refused: u64,
    /// Walks of runtimes' frames, by result.
    pub vm_frames: VmCounts,
    /// Functions of young processes, which are sent with their stacks.
    pub vm_function_copies: FunctionCopyCounts,
    /// Files with an interpreter whose loop is too scattered for walks.
    pub interpreters_refused: u64,
    /// Reads of processes' memory, by result.
    pub foreign_reads: ReadCounts,
    /// Records of the eBPF programs whose kind is unknown.
    pub unknown_records: u64,
    /// Walks that started during another walk on the same CPU.
    pub nested_walks: u64,
    /// Samples whose stack had been sent before.
    pub stacks_known: u64,
    /// Stacks that were sent with all frames.
    pub stacks_sent: u64,
    /// The counters of the process registry.
    pub processes: RegistryCounters,
    /// Process events that were applied before all earlier ones had arrived.
    pub process_events_unordered: u64,
    /// Callers that walks found, by method.
    pub frames: FrameCounts,
    /// Stacks by classes of their number of frames: 2^i up to 2^(i+1)-1.
    pub stack_depths: Vec<u64>,
    /// Tables that were removed from the BPF maps for lack of room.
    pub tables_evictions: u64,
    /// Files that were read again because a walk needed an evicted table.
    pub tables_reloads: u64,
    /// Files whose table is missing, or incomplete, because of the memory limit.
    pub tables_cut: u64,
    /// Uses of tables that are saved on disk.
    pub saved_tables: SavedTableCounts,
    /// Processes for which there was no room in the list of the scope.
    pub scope_list_full: u64,
    /// The cost for the user if that list has been full in the current run.
    pub scope_list_full_cost: Option<&'static str>,
    /// The run time of Sidewinder's eBPF programs; `None` if the kernel does not measure it.
    pub bpf_run_time: Option<Duration>,
    /// The current size of the unwind tables in the arena, in bytes.
    pub tables_bytes: u64,
    /// The current kernel memory of all maps, in bytes.
    pub maps_bytes: u64,
    /// For which tasks events are open now.
    pub event_coverage: EventCoverage,
}

/// Functions of young processes: what became of those that could be sent, and of those that were.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FunctionCopyCounts {
    pub(crate) sent: u64,
    /// Attempts to send one that found the ring half full.
    pub(crate) dropped: u64,
    /// Of those sent, the ones for which the receiver had no room.
    pub(crate) refused: u64,
    /// Of those sent, the ones that no sample of their process followed in time.
    pub(crate) expired: u64,
}

impl FunctionCopyCounts {
    fn new(FunctionCopies { sent, dropped }: FunctionCopies, losses: CodeObjectLosses) -> Self {
        let CodeObjectLosses { refused, expired } = losses;
        Self { sent, dropped, refused, expired }
    }
}

impl AddAssign for FunctionCopyCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { sent, dropped, refused, expired } = more;
        self.sent += sent;
        self.dropped += dropped;
        self.refused += refused;
        self.expired += expired;
    }
}

/// For which tasks events are open.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum EventCoverage {
    /// For all tasks, as the scope requires.
    #[default]
    EveryTask,
    /// For this number of containers of the pod.
    Containers(usize),
    /// For all tasks, although the scope is the pod.
    EveryTaskForPod,
}

/// The name, among outcomes, of interrupts for which no program ran.
pub(crate) const MISSED: &str = "missed";

/// The number of interrupts by the label of their outcome, and of those that are [`MISSED`].
pub fn counts_by_label(interrupts: &Interrupts) -> impl Iterator<Item = (&'static str, u64)> + '_ {
    let outcomes = interrupts.outcomes.iter().map(|(outcome, count)| (outcome.label(), *count));
    outcomes.chain([(MISSED, interrupts.missed())])
}

fn outcomes_of_other_kinds(tally: &SamplingTally) -> BTreeMap<(&'static str, &'static str), u64> {
    let counts = tally.interrupts_of_other_kinds().flat_map(|(kind, interrupts)| {
        let name = kind.descriptor().value_type.name;
        counts_by_label(interrupts).map(move |(outcome, count)| ((name, outcome), count))
    });
    counts.collect()
}

impl ReceiverCounters {
    /// The counters of a sampler, and of the queue behind it, which has dropped so many events.
    pub fn from_sampler(sampler: &Sampler<'_>, dropped: u64) -> Self {
        let (tally, profiler, control) = (sampler.tally(), sampler.profiler(), sampler.control_counts());
        let mut vm_frames = profiler.vm_frames();
        // The programs don't defer walks.
        vm_frames.missing[VmMissing::TooEarly as usize] += tally.early_vm_frames;
        let clock = tally.clock_interrupts();
        let outcomes = clock.outcomes.iter().map(|(outcome, count)| (outcome.label(), *count));
        Self {
            event_coverage: match profiler.event_scope() {
                EventScope::Containers(containers) => EventCoverage::Containers(containers.len()),
                EventScope::EveryTask if sampler.is_pod_scope() => EventCoverage::EveryTaskForPod,
                EventScope::EveryTask => EventCoverage::EveryTask,
            },
            outcomes: outcomes.collect(),
            outcomes_of_other_kinds: outcomes_of_other_kinds(&tally),
            missed: clock.missed(),
            interrupts_by_witness: clock.expected,
            idle_inferred: clock.idle_inferred,
            cpu_steal: clock.steal,
            events_exported: tally.events - dropped.min(tally.events),
            events_dropped: dropped,
            stack_bodies_missing: tally.stack_bodies_missing,
            walked_late: tally.walked_late,
            snapshots_refused: tally.snapshots_refused,
            off_cpu_waits_missing: tally.off_cpu_waits_missing,
            long_waits: tally.long_waits,
            thread_contexts: profiler.thread_contexts(),
            contexts_refused: control.contexts_refused,
            vm_frames,
            vm_function_copies: FunctionCopyCounts::new(
                profiler.vm_function_copies(),
                tally.code_object_losses,
            ),
            interpreters_refused: control.interpreters_refused,
            foreign_reads: control.foreign_reads,
            unknown_records: profiler.unknown_records(),
            nested_walks: profiler.nested_walks(),
            stacks_known: profiler.stacks_known(),
            stacks_sent: profiler.stacks_sent(),
            processes: control.processes,
            process_events_unordered: control.process_events_unordered,
            frames: profiler.frames(),
            stack_depths: profiler.stack_depths().to_vec(),
            tables_evictions: profiler.tables.evictions(),
            tables_reloads: control.tables_reloads,
            tables_cut: control.tables_cut,
            saved_tables: control.saved_tables,
            scope_list_full: profiler.scope_list_full(),
            scope_list_full_cost: sampler.scope_list_full_cost(),
            bpf_run_time: profiler.bpf_run_time(),
            tables_bytes: profiler.tables.loaded_bytes(),
            maps_bytes: profiler.map_bytes() + control.read_map_bytes,
        }
    }

    /// The number of stacks whose frames were counted.
    pub fn stack_depths(&self) -> u64 {
        self.stack_depths.iter().sum()
    }

    /// The interrupts for a kind of profile that had an outcome, or are `missed`; `None` if the outcome isn't counted.
    pub(crate) fn outcome_count(&self, kind: Kind, outcome: &'static str) -> Option<u64> {
        match kind {
            Kind::Cpu { .. } if outcome == MISSED => Some(self.missed),
            Kind::Cpu { .. } => self.outcomes.get(outcome).copied(),
            Kind::Wall { .. } => {
                let sources = KindSet::new(kind).sampled();
                sources
                    .iter()
                    .filter_map(|source| self.outcome_count(source, outcome))
                    .reduce(|sum, count| sum + count)
            }
            other => {
                self.outcomes_of_other_kinds.get(&(other.descriptor().value_type.name, outcome)).copied()
            }
        }
    }

    /// The sum with the counters of previous runs; gauges are those of `self`.
    pub(super) fn plus_previous(mut self, before: &Self) -> Self {
        // Without `..`, so that a new counter does not compile until it is added up here.
        let Self {
            outcomes,
            outcomes_of_other_kinds,
            missed,
            interrupts_by_witness,
            idle_inferred,
            cpu_steal,
            events_exported,
            events_dropped,
            stack_bodies_missing,
            walked_late,
            snapshots_refused,
            off_cpu_waits_missing,
            long_waits,
            thread_contexts,
            contexts_refused,
            vm_frames,
            vm_function_copies,
            interpreters_refused,
            foreign_reads,
            unknown_records,
            nested_walks,
            stacks_known,
            stacks_sent,
            processes,
            process_events_unordered,
            frames,
            stack_depths,
            tables_evictions,
            tables_reloads,
            tables_cut,
            saved_tables,
            scope_list_full,
            scope_list_full_cost: _,
            bpf_run_time,
            tables_bytes: _,
            maps_bytes: _,
            event_coverage: _,
        } = before;
        for (outcome, count) in outcomes {
            *self.outcomes.entry(outcome).or_default() += count;
        }
        for (key, count) in outcomes_of_other_kinds {
            *self.outcomes_of_other_kinds.entry(*key).or_default() += count;
        }
        self.missed += missed;
        self.interrupts_by_witness += interrupts_by_witness;
        self.idle_inferred += idle_inferred;
        self.cpu_steal += *cpu_steal;
        self.events_exported += events_exported;
        self.events_dropped += events_dropped;
        self.stack_bodies_missing += stack_bodies_missing;
        self.walked_late += walked_late;
        self.snapshots_refused += snapshots_refused;
        self.off_cpu_waits_missing += *off_cpu_waits_missing;
        self.long_waits += *long_waits;
        self.thread_contexts += *thread_contexts;
        self.contexts_refused += contexts_refused;
        self.vm_frames += *vm_frames;
        self.vm_function_copies += *vm_function_copies;
        self.interpreters_refused += interpreters_refused;
        self.foreign_reads = self.foreign_reads.plus_previous(foreign_reads);
        self.unknown_records += unknown_records;
        self.nested_walks += nested_walks;
        self.stacks_known += stacks_known;
        self.stacks_sent += stacks_sent;
        self.processes += *processes;
        self.process_events_unordered += process_events_unordered;
        self.frames += *frames;
        self.stack_depths.resize(self.stack_depths.len().max(stack_depths.len()), 0);
        self.stack_depths.iter_mut().zip(stack_depths).for_each(|(now, before)| *now += before);
        self.tables_evictions += tables_evictions;
        self.tables_reloads += tables_reloads;
        self.tables_cut += tables_cut;
        self.saved_tables += *saved_tables;
        self.scope_list_full += scope_list_full;
        self.bpf_run_time = match (self.bpf_run_time, *bpf_run_time) {
            (Some(now), Some(before)) => Some(now + before),
            (now, before) => now.or(before),
        };
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_that_falls_after_a_later_walk_stays_in_metrics_until_it_is_exceeded() {
        let counters = |early, complete| ReceiverCounters {
            outcomes: BTreeMap::from([("unknown_process", early), ("complete", complete)]),
            missed: early,
            ..ReceiverCounters::default()
        };
        let mut highest = HighestOutcomes::default();
        for (counters, expected) in
            [(counters(3, 1), [3, 1]), (counters(1, 3), [3, 3]), (counters(4, 4), [4, 4])]
        {
            highest.update(&counters);
            let count = |outcome| highest.of_clock.get(outcome).copied();
            assert_eq!(["unknown_process", "complete"].map(count), expected.map(Some));
            assert_eq!(count(MISSED), Some(expected[0]));
        }
    }
}
