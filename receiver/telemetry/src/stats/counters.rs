//! The table of a receiver's counters, one row each. Metrics, `sidewinder status`, the log and `docs/metrics.md` are made
//! from it: a new counter needs a new row.

use sidewinder_bpf::VmMissing;
use sidewinder_config::MetricLevel;

use super::receiver::ReceiverStats;

/// A counter of a receiver. It only grows while the profiler runs.
pub struct Counter {
    /// The name of the metric without its prefix `sidewinder_`.
    pub name: &'static str,
    /// A label's key and value. Counters of the same metric differ in the value.
    pub label: Option<(&'static str, &'static str)>,
    /// What is counted, in plural.
    pub unit: &'static str,
    /// What it counts, as the metric's description.
    pub description: &'static str,
    pub(crate) metric: CounterMetric,
    /// Its value for a receiver.
    pub read: fn(&ReceiverStats) -> u64,
    /// When the counter indicates a problem.
    pub(crate) alarm: Option<Alarm>,
}

/// Which metric shows a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CounterMetric {
    /// A metric of its own, from this `service::telemetry::metrics::level` on.
    FromLevel(MetricLevel),
    /// A part of another metric, which has a Collector's name or more labels.
    Part(&'static str),
    /// No metric, for this reason.
    None(&'static str),
}

/// When a counter indicates a problem.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Alarm {
    pub(crate) window: AlarmWindow,
    /// The count may reach this share (0 to 1) of the interrupts in the window.
    pub(crate) threshold: f64,
    /// What is wrong, as a text that follows the count.
    pub(crate) message: &'static str,
    /// What to do.
    pub(crate) next_step: &'static str,
}

/// The time in which a count indicates a problem.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AlarmWindow {
    /// The last minutes: earlier counts no longer matter.
    Recently,
    /// Since the start: the problem does not go away.
    Start,
}

impl Counter {
    /// Its key in the log and in `status --json`.
    pub fn key(&self) -> String {
        match self.label {
            Some((_, value)) => format!("{}_{value}", self.name),
            None => self.name.to_owned(),
        }
    }

    const fn new(
        name: &'static str,
        unit: &'static str,
        description: &'static str,
        read: fn(&ReceiverStats) -> u64,
    ) -> Self {
        Self {
            name,
            label: None,
            unit,
            description,
            metric: CounterMetric::FromLevel(MetricLevel::Normal),
            read,
            alarm: None,
        }
    }

    const fn at_level(self, level: MetricLevel) -> Self {
        Self { metric: CounterMetric::FromLevel(level), ..self }
    }

    const fn labelled(self, key: &'static str, value: &'static str) -> Self {
        Self { label: Some((key, value)), ..self }
    }

    const fn part_of_metric(self, metric: &'static str) -> Self {
        Self { metric: CounterMetric::Part(metric), ..self }
    }

    const fn without_metric(self, why: &'static str) -> Self {
        Self { metric: CounterMetric::None(why), ..self }
    }

    /// Any count in the last minutes is a problem.
    const fn alarm(self, message: &'static str, next_step: &'static str) -> Self {
        Self {
            alarm: Some(Alarm { window: AlarmWindow::Recently, threshold: 0.0, message, next_step }),
            ..self
        }
    }

    /// Any count since the start is a problem.
    const fn permanent_alarm(self, message: &'static str, next_step: &'static str) -> Self {
        Self { alarm: Some(Alarm { window: AlarmWindow::Start, threshold: 0.0, message, next_step }), ..self }
    }

    /// A count above this share of the interrupts in the last minutes is a problem.
    const fn alarm_above(self, threshold: f64, message: &'static str, next_step: &'static str) -> Self {
        Self { alarm: Some(Alarm { window: AlarmWindow::Recently, threshold, message, next_step }), ..self }
    }
}

const WAITS_DESCRIPTION: &str = "Waits missing from off-CPU time: unseen, which may have begun before the start and ended before they were listed (an upper bound that includes threads that ran then); end_lost, for whose end there was no room; without_end, whose end never arrived, for that or another reason. For `lock_wakers`: waker_unmatched, waits without a sample of their waker, and such samples without their wait.";
const FOUND_WAITS_DESCRIPTION: &str = "Waits found in progress: begun before the start, or at a context switch that was not sampled. Their stacks are read from their process's memory; an unread one lacks its user frames.";
const MORE_MEMORY_HINT: &str = "raise the receiver's memory_limit_mib";
const FEWER_SAMPLES_HINT: &str = "lower the receiver's samples_per_second, or give the profiler more CPU";

impl ReceiverStats {
    /// A field of the log, as `outcome=count` words: the outcomes that interrupts had; those of other kinds than CPU time behind
    /// their kind and a dot.
    pub fn outcomes_field(&self) -> String {
        let of_clock = self.counters.outcomes.iter().map(|(outcome, count)| ((*outcome).to_owned(), *count));
        let of_other_kinds = &self.counters.outcomes_of_other_kinds;
        let of_other_kinds =
            of_other_kinds.iter().map(|((kind, outcome), count)| (format!("{kind}.{outcome}"), *count));
        words(of_clock.chain(of_other_kinds).filter(|(_, count)| *count > 0))
    }

    /// A field of the log, as `counter=count` words: all counters that are not 0, and those that are terms of a sum.
    pub fn counters_field(&self) -> String {
        let counts = COUNTERS.iter().map(|counter| (counter, (counter.read)(self)));
        let is_shown = |(counter, count): &(&Counter, u64)| {
            *count > 0 || !matches!(counter.metric, CounterMetric::FromLevel(_))
        };
        let sizes = [("tables_bytes", self.counters.tables_bytes), ("maps_bytes", self.counters.maps_bytes)];
        let counts = counts.filter(is_shown).map(|(counter, count)| (counter.key(), count));
        words(counts.chain(sizes.map(|(name, bytes)| (name.to_owned(), bytes))))
    }
}

fn words(counts: impl Iterator<Item = (String, u64)>) -> String {
    counts.map(|(name, count)| format!("{name}={count}")).collect::<Vec<_>>().join(" ")
}

/// A row of [`COUNTERS`]. The field that it reads has the name that is published:
///
/// - `counter!(stacks_sent in counters, ...)`: the counter `stacks_sent`, which is `counters.stacks_sent` of a receiver.
/// - `counter!(vm_functions.named by "result" in names, ...)`: the counter `vm_functions` with the label `result="named"`, which is
///   `names.vm_functions.named`.
/// - `counter!(names_left_out() in names, ...)`: a sum that a method makes.
macro_rules! counter {
    ($name:ident in $($place:ident).+, $unit:literal, $description:expr) => {
        Counter::new(stringify!($name), $unit, $description, |receiver| receiver.$($place).+.$name)
    };
    ($name:ident() in $($place:ident).+, $unit:literal, $description:expr) => {
        Counter::new(stringify!($name), $unit, $description, |receiver| receiver.$($place).+.$name())
    };
    ($name:ident.$value:ident by $label:literal in $($place:ident).+, $unit:literal, $description:expr) => {
        Counter::new(stringify!($name), $unit, $description, |receiver| receiver.$($place).+.$name.$value)
            .labelled($label, stringify!($value))
    };
    ($name:ident.missing[$reason:expr] by $label:literal in $($place:ident).+, $unit:literal, $description:expr) => {
        Counter::new(stringify!($name), $unit, $description, |receiver| {
            receiver.$($place).+.$name.missing[$reason as usize]
        })
        .labelled($label, $reason.label())
    };
}

/// All counters of a receiver, except the outcomes of interrupts, which have a list of their own.
pub static COUNTERS: &[Counter] = &[
    // Interrupts and events.
    counter!(
        missed in counters, "interrupts",
        "Interrupts that never ran, usually because the virtual machine was descheduled: see sidewinder_cpu_steal_seconds."
    )
    .part_of_metric("sidewinder_interrupts")
    .alarm_above(
        0.05,
        "interrupts were missed: they never ran, usually because the virtual machine was descheduled",
        "compare with the steal time: if it is as high, the host is overcommitted; otherwise lower the receiver's samples_per_second",
    ),
    counter!(interrupts_by_witness in counters, "interrupts", "Interrupts that were due by the clocks of the CPUs.")
    .without_metric("it is the sum of sidewinder_interrupts"),
    counter!(
        idle_inferred in counters, "interrupts",
        "Idle interrupts for which the kernel did not run Sidewinder's program, because the CPU slept."
    ),
    counter!(events_exported in counters, "events", "Events that were passed on for naming.")
    .without_metric("the named ones are in sidewinder_receiver_events"),
    counter!(events_dropped in counters, "events", "Events that were dropped because they arrived faster than they could be named.")
    .part_of_metric("otelcol_receiver_refused_profile_samples")
    .alarm("events were dropped: they arrived faster than they could be named", FEWER_SAMPLES_HINT),
    counter!(stack_bodies_missing in counters, "events", "Events whose stack never arrived.")
    .part_of_metric("otelcol_receiver_failed_profile_samples")
    .alarm_above(0.01, "events arrived without their stack", MORE_MEMORY_HINT),
    counter!(unknown_records in counters, "records", "Records of the eBPF programs that the receiver can't read.")
    .permanent_alarm(
        "records of the eBPF programs could not be read",
        "report this: it is a bug in Sidewinder",
    ),
    // Walks.
    counter!(
        walked_late in counters, "events",
        "Events whose stack was walked after the interrupt, because an unwind table was missing at the time."
    ),
    counter!(
        snapshots_refused in counters, "walks",
        "Walks that lacked an unwind table and could not be completed later, because there was no room for a snapshot."
    ),
    counter!(nested_walks in counters, "walks", "Walks that started during another walk on the same CPU."),
    counter!(stacks_known in counters, "stacks", "Stacks that the receiver already had, so that only their ID was sent."),
    counter!(stacks_sent in counters, "stacks", "Stacks that were sent to the receiver with all frames."),
    counter!(frames.table by "by" in counters, "frames", FRAMES_DESCRIPTION),
    counter!(frames.frame_pointer by "by" in counters, "frames", FRAMES_DESCRIPTION),
    counter!(frames.guess by "by" in counters, "frames", FRAMES_DESCRIPTION),
    counter!(stack_depths() in counters, "stacks", "Stacks by their number of frames.")
    .without_metric("it is recorded as the histogram sidewinder_stack_depth"),
    // Off-CPU time.
    counter!(off_cpu_waits_missing.unseen by "reason" in counters, "waits", WAITS_DESCRIPTION),
    counter!(off_cpu_waits_missing.end_lost by "reason" in counters, "waits", WAITS_DESCRIPTION),
    counter!(off_cpu_waits_missing.without_end by "reason" in counters, "waits", WAITS_DESCRIPTION),
    counter!(off_cpu_waits_missing.waker_unmatched by "reason" in counters, "waits", WAITS_DESCRIPTION),
    counter!(off_cpu_waits_found.read by "stack" in counters.long_waits, "waits", FOUND_WAITS_DESCRIPTION),
    counter!(off_cpu_waits_found.unread by "stack" in counters.long_waits, "waits", FOUND_WAITS_DESCRIPTION),
    counter!(
        off_cpu_events_so_far in counters.long_waits, "events",
        "Events of waits still in progress: a wait has one for each report in which it is charged."
    ),
    counter!(
        off_cpu_lists_failed in counters.long_waits, "attempts",
        "Times that the waits in progress could not be listed; threads are then charged when they wake up."
    )
    .alarm(
        "waits in progress could not be listed: off-CPU time lacks the threads that have not woken up",
        "`sidewinder check` says what this kernel lacks",
    ),
    // Tables.
    counter!(tables_evictions in counters, "tables", "Unwind tables that were evicted to make room for others."),
    counter!(tables_reloads in counters, "tables", "Files that were read again because a walk needed an evicted unwind table."),
    counter!(tables_cut in counters, "files", "Files without a complete unwind table, because of the memory limit.")
    .permanent_alarm(
        "files have no complete unwind table, because of the memory limit: stacks through them may be truncated",
        MORE_MEMORY_HINT,
    ),
    counter!(
        tables_read_back in counters.saved_tables, "tables",
        "Unwind tables that were read from unwind.tables_directory instead of being built."
    ),
    counter!(tables_not_saved in counters.saved_tables, "errors", "Failures to write to unwind.tables_directory.")
    .permanent_alarm(
        "times an unwind table could not be saved in unwind.tables_directory",
        "check that the disk has room and is writable",
    ),
    // A count above 0 is shown as a degraded feature.
    counter!(
        scope_list_full in counters, "processes",
        "Processes that did not fit in the scope's list of processes: included ones are not sampled; once an excluded one \
         does not fit, no process that started after the profiler is sampled."
    )
    .at_level(MetricLevel::Basic),
    // What threads and processes publish.
    counter!(thread_contexts.read by "result" in counters, "readings", CONTEXTS_DESCRIPTION),
    counter!(thread_contexts.changing by "result" in counters, "readings", CONTEXTS_DESCRIPTION),
    counter!(thread_contexts.unreadable by "result" in counters, "readings", CONTEXTS_DESCRIPTION),
    // A count above 0 is shown as a degraded feature.
    counter!(
        contexts_refused in counters, "processes",
        "Processes whose published context can't be read, which needs Linux 6.1 or CAP_SYS_PTRACE."
    ),
    counter!(foreign_reads.answered by "result" in counters, "reads", READS_DESCRIPTION),
    counter!(foreign_reads.timed_out by "result" in counters, "reads", READS_DESCRIPTION),
    counter!(foreign_reads.late by "result" in counters, "reads", READS_DESCRIPTION),
    counter!(foreign_reads.quarantined by "result" in counters, "reads", READS_DESCRIPTION),
    counter!(foreign_reads.refused by "result" in counters, "reads", READS_DESCRIPTION),
    counter!(foreign_reads.failed by "result" in counters, "reads", READS_DESCRIPTION),
    // Virtual machines.
    counter!(vm_frames.frames by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.groups by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::NoState] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::OtherThread] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::Unreadable] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::NoFrames] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::TooEarly] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::Busy] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    counter!(vm_frames.missing[VmMissing::NoCaller] by "state" in counters, "frames", VM_FRAMES_DESCRIPTION),
    // A count above 0 is shown as a degraded feature.
    counter!(
        interpreters_refused in counters, "files",
        "Files with an interpreter whose evaluation loop has more parts than a walk can look up; its frames aren't shown."
    ),
    counter!(vm_function_copies.sent by "state" in counters, "functions", VM_COPIES_DESCRIPTION),
    counter!(vm_function_copies.dropped by "state" in counters, "functions", VM_COPIES_DESCRIPTION),
    counter!(vm_function_copies.refused by "state" in counters, "functions", VM_COPIES_DESCRIPTION),
    counter!(vm_function_copies.expired by "state" in counters, "functions", VM_COPIES_DESCRIPTION),
    counter!(vm_functions.named by "result" in names, "functions", VM_FUNCTIONS_DESCRIPTION),
    counter!(vm_functions.without_code by "result" in names, "functions", VM_FUNCTIONS_DESCRIPTION),
    counter!(vm_functions.replaced by "result" in names, "functions", VM_FUNCTIONS_DESCRIPTION),
    counter!(vm_functions.unreadable by "result" in names, "functions", VM_FUNCTIONS_DESCRIPTION),
    counter!(vm_functions.forgotten by "result" in names, "functions", VM_FUNCTIONS_DESCRIPTION),
    // Processes.
    counter!(process_events in counters.processes, "events", "Process events applied: forks, execs, mappings, exits."),
    // No alarm: what was lost is read from /proc.
    counter!(
        process_events_lost in counters.processes, "events",
        "Process events that the kernel lost because a buffer was full; /proc is then read again."
    ),
    counter!(
        process_events_outdated in counters.processes, "events",
        "Process events that were ignored because /proc had been read after them."
    ),
    counter!(process_events_outside in counters.processes, "events", "Process events of other PID namespaces."),
    counter!(
        process_events_unordered in counters, "events",
        "Process events that were applied before all earlier ones had arrived, because too many were pending."
    ),
    counter!(process_reads in counters.processes, "processes", "Processes that were read from /proc."),
    counter!(processes_left_out in counters.processes, "processes", "Processes that are not tracked because too many are running.")
    .alarm("processes are not tracked: too many are running", "select fewer in the receiver's scope"),
    counter!(
        processes_unreadable in counters.processes, "processes",
        "Processes whose mappings could not be read from /proc, for example because they have just ended."
    ),
    counter!(mappings_left_out in counters.processes, "mappings", "Mappings that are not tracked, for lack of memory.")
    .alarm(
        "mappings are not tracked, because their process has too many: code in them has no names",
        "exclude that process in the receiver's scope",
    ),
    counter!(maps_lines_malformed in counters.processes, "lines", "Lines of /proc/PID/maps that could not be read.")
    .permanent_alarm("lines of /proc/PID/maps could not be read", "report this: it is a bug in Sidewinder"),
    // Names.
    counter!(name_lookups.named by "result" in names.symbols, "lookups", LOOKUPS_DESCRIPTION),
    counter!(name_lookups.file_not_opened by "result" in names.symbols, "lookups", LOOKUPS_DESCRIPTION),
    counter!(name_lookups.file_broken by "result" in names.symbols, "lookups", LOOKUPS_DESCRIPTION),
    counter!(name_lookups.no_symbols by "result" in names.symbols, "lookups", LOOKUPS_DESCRIPTION),
    counter!(name_lookups.not_covered by "result" in names.symbols, "lookups", LOOKUPS_DESCRIPTION),
    counter!(name_lookups.no_room by "result" in names.symbols, "lookups", LOOKUPS_DESCRIPTION),
    counter!(symbols_left_out in names.symbols, "symbols", "Symbols that did not fit in their file's table.")
    .without_metric("it is part of sidewinder_names_left_out"),
    counter!(
        jit_names_left_out in names, "functions",
        "Functions generated at run time that did not fit, or whose entry could not be parsed."
    )
    .without_metric("it is part of sidewinder_names_left_out"),
    counter!(
        names_left_out() in names, "names",
        "Lookups without a name, and functions without one, because of the memory limit for symbols."
    )
    .alarm("function names are missing because of the memory limit for symbols", MORE_MEMORY_HINT),
    counter!(
        lines_left_out() in names, "lines",
        "Files without all lines and inlined calls because of the memory limit, and lookups without them because of the time limit."
    ),
    counter!(
        files_without_lines in names.symbols, "files",
        "Files without all lines and inlined calls, because of the memory limit."
    )
    .without_metric("it is part of sidewinder_lines_left_out"),
    counter!(line_lookups_left_out in names.symbols, "lookups", "Lookups without a line, because of the time limit.")
    .without_metric("it is part of sidewinder_lines_left_out"),
    counter!(names_shortened in names.symbols, "names", "Names that were truncated because they were too long."),
    counter!(symbol_tables_reads in names.symbols, "tables", "Symbol tables that were read, including again after an eviction."),
    counter!(symbol_tables_evictions in names.symbols, "tables", "Symbol tables that were evicted to make room for others."),
];

const FRAMES_DESCRIPTION: &str = "Callers found by walks, by method: a table, a frame pointer that a table proves, or an unproven frame pointer, which is a guess and marked as such.";
const CONTEXTS_DESCRIPTION: &str = "Reads of a sampled thread's current span, by result: read; changing, the thread was writing it; unreadable.";
const VM_FRAMES_DESCRIPTION: &str = "Frames of language runtimes (CPython, HotSpot, V8) in sampled stacks; activations of an interpreter loop whose frames were found (groups); and frames that could not be found, by reason.";
const VM_COPIES_DESCRIPTION: &str = "Functions of processes younger than ten seconds that were sent with their stacks, because the process may exit or free the function before it is read, by state: sent; dropped, attempts to send one while the ring was half full; of those sent, refused, because 1 MiB of them were already waiting for their samples, and expired, because no sample of their process arrived within 10 s.";
const VM_FUNCTIONS_DESCRIPTION: &str = "Functions of language runtimes whose names were read, by result; of those named, without_code are those whose compiled code was gone, so that they have no inlined functions; forgotten are names dropped because the memory for names was used up.";
const READS_DESCRIPTION: &str = "Reads of processes' memory, by result: answered; timed_out; late, answered after they timed out; quarantined, not tried because the process had timed out before; refused, not tried because too many were pending; failed.";
const LOOKUPS_DESCRIPTION: &str = "Lookups of a function's name, by result.";
