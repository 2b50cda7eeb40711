//! The table of a receiver's counters, one row each. Metrics, `sidewinder status`, the log and `docs/metrics.md` are made
//! from it: a new counter needs a new row.

use std::fmt;

use sidewinder_bpf::VmMissing;
use sidewinder_config::MetricLevel;

use super::receiver::ReceiverStats;

/// A counter of a receiver. It only grows while the profiler runs.
pub(crate) struct Counter {
    /// The name of the metric without its prefix `sidewinder_`.
    pub(crate) name: &'static str,
    /// A label's key and value. Counters of the same metric differ in the value.
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// What is counted, in plural.
    pub(crate) unit: &'static str,
    pub(crate) description: &'static str,
    pub(crate) metric: CounterMetric,
    pub(crate) read: fn(&ReceiverStats) -> u64,
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
    pub(crate) fn key(&self) -> String {
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

const WAITS: &str = "off_cpu_waits_missing";
const WAITS_DESCRIPTION: &str = "Waits that are missing from off-CPU time: possibly begun before the start and over before they were listed (unseen: an upper bound, with threads that ran then), the record of their end had no room (end_lost), or their end never came, for that or another reason (without_end). For `lock_wakers`: waits without the sample of their waker, and such samples without their wait (waker_unmatched).";
const FOUND_WAITS: &str = "off_cpu_waits_found";
const FOUND_WAITS_DESCRIPTION: &str = "Waits that were found in progress: begun before the start, or at a context switch that sampling skipped. Their stacks are read from the memory of their process; one that is unread lacks its user frames.";
const MORE_MEMORY_HINT: &str = "raise memory_limit_mib of the receiver";
const FEWER_SAMPLES_HINT: &str = "lower samples_per_second of the receiver, or give the profiler more CPU";

/// All counters as `key=value` words, outcomes first.
impl fmt::Display for ReceiverStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (outcome, count) in self.counters.outcomes.iter().filter(|(_, count)| **count > 0) {
            write!(f, "{outcome}={count} ")?;
        }
        let of_other_kinds = &self.counters.outcomes_of_other_kinds;
        for ((kind, outcome), count) in of_other_kinds.iter().filter(|(_, count)| **count > 0) {
            write!(f, "{kind}.{outcome}={count} ")?;
        }
        for counter in COUNTERS {
            let count = (counter.read)(self);
            // Counters that are terms of a sum are shown even if they are 0.
            if count > 0 || !matches!(counter.metric, CounterMetric::FromLevel(_)) {
                write!(f, "{}={count} ", counter.key())?;
            }
        }
        write!(f, "table_bytes={} map_bytes={}", self.counters.table_bytes, self.counters.map_bytes)
    }
}

/// All counters of a receiver, except the outcomes of interrupts, which have a list of their own.
pub(crate) static COUNTERS: &[Counter] = &[
    // Interrupts and events.
    Counter::new("missed", "interrupts", "Interrupts that never ran, usually because the virtual machine was descheduled: see sidewinder_cpu_steal_seconds.", |r| {
        r.counters.missed
    })
    .part_of_metric("sidewinder_interrupts")
    .alarm_above(
        0.05,
        "interrupts were missed: they never ran, usually because the virtual machine was descheduled",
        "compare the steal time: the host is overcommitted if it is as much; otherwise lower samples_per_second of the receiver",
    ),
    Counter::new("interrupts_by_witness", "interrupts", "Interrupts that were due by the clocks of the CPUs.", |r| {
        r.counters.due
    })
    .without_metric("it is the sum of sidewinder_interrupts"),
    Counter::new(
        "idle_inferred",
        "interrupts",
        "Idle interrupts for which the kernel did not run Sidewinder's program, because the CPU slept.",
        |r| r.counters.idle_inferred,
    ),
    Counter::new("events_exported", "events", "Events that were passed on for naming.", |r| {
        r.counters.events_exported
    })
    .without_metric("the named ones are in sidewinder_receiver_events"),
    Counter::new("events_dropped", "events", "Events that were dropped because they arrived faster than they could be named.", |r| {
        r.counters.events_dropped
    })
    .part_of_metric("otelcol_receiver_refused_profile_samples")
    .alarm("events were dropped: they arrived faster than they could be named", FEWER_SAMPLES_HINT),
    Counter::new("stack_bodies_missing", "events", "Events whose stack never arrived.", |r| {
        r.counters.stack_bodies_missing
    })
    .part_of_metric("otelcol_receiver_failed_profile_samples")
    .alarm_above(0.01, "events arrived without their stack", MORE_MEMORY_HINT),
    Counter::new(
        "unknown_records",
        "records",
        "Records of the eBPF programs that the receiver can't read.",
        |r| r.counters.unknown_records,
    )
    .permanent_alarm(
        "records of the eBPF programs could not be read",
        "report this: it is a bug of Sidewinder",
    ),
    // Walks.
    Counter::new(
        "walked_late",
        "events",
        "Events whose stack was walked after the interrupt, because an unwind table was missing at the time.",
        |r| r.counters.deferred_walks,
    ),
    Counter::new(
        "snapshots_refused",
        "walks",
        "Walks without an unwind table whose snapshot had no room, so that they could not be completed later.",
        |r| r.counters.snapshots_refused,
    ),
    Counter::new(
        "nested_walks",
        "walks",
        "Walks that started during another walk on the same CPU.",
        |r| r.counters.nested_walks,
    ),
    Counter::new(
        "stacks_known",
        "stacks",
        "Stacks that the receiver already had, of which only the ID was sent.",
        |r| r.counters.stacks_known,
    ),
    Counter::new("stacks_sent", "stacks", "Stacks that were sent to the receiver with all frames.", |r| {
        r.counters.stacks_sent
    }),
    Counter::new(FRAMES, "frames", FRAMES_DESCRIPTION, |r| r.counters.steps[0]).labelled("by", "table"),
    Counter::new(FRAMES, "frames", FRAMES_DESCRIPTION, |r| r.counters.steps[1])
        .labelled("by", "frame_pointer"),
    Counter::new(FRAMES, "frames", FRAMES_DESCRIPTION, |r| r.counters.steps[2])
        .labelled("by", "guess"),
    Counter::new("stack_depths", "stacks", "Stacks by their number of frames.", |r| {
        r.counters.depths.iter().sum()
    })
    .without_metric("it is recorded as the histogram sidewinder_stack_depth"),
    // Off-CPU time.
    Counter::new(WAITS, "waits", WAITS_DESCRIPTION, |r| r.counters.waits.unseen).labelled("reason", "unseen"),
    Counter::new(WAITS, "waits", WAITS_DESCRIPTION, |r| r.counters.waits.ends_lost).labelled("reason", "end_lost"),
    Counter::new(WAITS, "waits", WAITS_DESCRIPTION, |r| r.counters.waits.without_end)
        .labelled("reason", "without_end"),
    Counter::new(WAITS, "waits", WAITS_DESCRIPTION, |r| r.counters.waits.wakers_unmatched)
        .labelled("reason", "waker_unmatched"),
    Counter::new(FOUND_WAITS, "waits", FOUND_WAITS_DESCRIPTION, |r| {
        r.counters.long_waits.found
    })
    .labelled("stack", "read"),
    Counter::new(FOUND_WAITS, "waits", FOUND_WAITS_DESCRIPTION, |r| r.counters.long_waits.found_unread)
        .labelled("stack", "unread"),
    Counter::new("off_cpu_events_so_far", "events", "Events of waits that went on: a wait has one for each report in which it is charged.", |r| {
        r.counters.long_waits.events_so_far
    }),
    Counter::new("off_cpu_lists_failed", "attempts", "How often the waits in progress could not be listed: threads are then charged when they wake up.", |r| {
        r.counters.long_waits.lists_failed
    })
    .alarm(
        "waits in progress could not be listed: off-CPU time is missing the threads that have not woken up",
        "`sidewinder check` says what this kernel lacks",
    ),
    // Tables.
    Counter::new("tables_evictions", "tables", "Unwind tables that were evicted to make room for others.", |r| {
        r.counters.table_evictions
    }),
    Counter::new(
        "tables_reloads",
        "tables",
        "Files that were read again because a walk needed an evicted unwind table.",
        |r| r.counters.table_reloads,
    ),
    Counter::new(
        "tables_cut",
        "files",
        "Files without a complete unwind table, because of the memory limit.",
        |r| r.counters.incomplete_tables,
    )
    .permanent_alarm(
        "files have no complete unwind table, because of the memory limit: stacks through them may be truncated",
        MORE_MEMORY_HINT,
    ),
    Counter::new(
        "tables_read_back",
        "tables",
        "Unwind tables that were read from unwind.tables_directory instead of being built.",
        |r| r.counters.saved_tables.uses,
    ),
    Counter::new(
        "tables_not_saved",
        "errors",
        "Failures to write to unwind.tables_directory.",
        |r| r.counters.saved_tables.failures,
    )
    .permanent_alarm(
        "times an unwind table could not be saved in unwind.tables_directory",
        "check that the disk has room and is writable",
    ),
    // A count above 0 is shown as a degraded feature.
    Counter::new(
        "scope_list_full",
        "processes",
        "Processes that did not fit in the scope's list of processes: included ones are not sampled; once an excluded one \
         does not fit, no process that started after the profiler is sampled.",
        |r| r.counters.scope_full,
    )
    .at_level(MetricLevel::Basic),
    // What threads and processes publish.
    Counter::new(CONTEXTS, "readings", CONTEXTS_DESCRIPTION, |r| r.counters.contexts.read)
        .labelled("result", "read"),
    Counter::new(CONTEXTS, "readings", CONTEXTS_DESCRIPTION, |r| r.counters.contexts.changing)
        .labelled("result", "changing"),
    Counter::new(CONTEXTS, "readings", CONTEXTS_DESCRIPTION, |r| r.counters.contexts.unreadable)
        .labelled("result", "unreadable"),
    // A count above 0 is shown as a degraded feature.
    Counter::new(
        "contexts_refused",
        "processes",
        "Processes that publish a context which can't be read: before Linux 6.1, and without CAP_SYS_PTRACE.",
        |r| r.counters.contexts_refused,
    ),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.completed).labelled("result", "answered"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.timed_out).labelled("result", "timed_out"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.late).labelled("result", "late"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.quarantined).labelled("result", "quarantined"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.refused).labelled("result", "refused"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.failed).labelled("result", "failed"),
    // Virtual machines.
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.frames)
        .labelled("state", "frames"),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.groups)
        .labelled("state", "groups"),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[0])
        .labelled("state", VmMissing::ALL[0].label()),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[1])
        .labelled("state", VmMissing::ALL[1].label()),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[2])
        .labelled("state", VmMissing::ALL[2].label()),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[3])
        .labelled("state", VmMissing::ALL[3].label()),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[4])
        .labelled("state", VmMissing::ALL[4].label()),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[5])
        .labelled("state", VmMissing::ALL[5].label()),
    Counter::new(VM_FRAMES, "frames", VM_FRAMES_DESCRIPTION, |r| r.counters.vm_frames.missing[6])
        .labelled("state", VmMissing::ALL[6].label()),
    // A count above 0 is shown as a degraded feature.
    Counter::new(
        "interpreters_refused",
        "files",
        "Files with an interpreter whose evaluation loop is in more parts than walks look up: its frames aren't shown.",
        |r| r.counters.interpreters_refused,
    ),
    Counter::new(VM_COPIES, "functions", VM_COPIES_DESCRIPTION, |r| r.counters.vm_frames.objects_sent)
        .labelled("state", "sent"),
    Counter::new(VM_COPIES, "functions", VM_COPIES_DESCRIPTION, |r| r.counters.vm_frames.objects_dropped)
        .labelled("state", "dropped"),
    Counter::new(VM_COPIES, "functions", VM_COPIES_DESCRIPTION, |r| r.counters.code_object_losses.refused)
        .labelled("state", "refused"),
    Counter::new(VM_COPIES, "functions", VM_COPIES_DESCRIPTION, |r| r.counters.code_object_losses.expired)
        .labelled("state", "expired"),
    Counter::new(VM_FUNCTIONS, "functions", VM_FUNCTIONS_DESCRIPTION, |r| r.names.vm.named).labelled("result", "named"),
    Counter::new(VM_FUNCTIONS, "functions", VM_FUNCTIONS_DESCRIPTION, |r| r.names.vm.without_code)
        .labelled("result", "without_code"),
    Counter::new(VM_FUNCTIONS, "functions", VM_FUNCTIONS_DESCRIPTION, |r| r.names.vm.replaced)
        .labelled("result", "replaced"),
    Counter::new(VM_FUNCTIONS, "functions", VM_FUNCTIONS_DESCRIPTION, |r| r.names.vm.unreadable)
        .labelled("result", "unreadable"),
    Counter::new(VM_FUNCTIONS, "functions", VM_FUNCTIONS_DESCRIPTION, |r| r.names.vm.forgotten)
        .labelled("result", "forgotten"),
    // Processes.
    Counter::new(
        "process_events",
        "events",
        "Process events that were applied: forks, execs, mappings, exits.",
        |r| r.counters.processes.events,
    ),
    // No alarm: what was lost is read from /proc.
    Counter::new(
        "process_events_lost",
        "events",
        "Process events that the kernel lost because a buffer was full; /proc is then read again.",
        |r| r.counters.processes.lost_events,
    ),
    Counter::new(
        "process_events_outdated",
        "events",
        "Process events that were ignored because /proc had been read after them.",
        |r| r.counters.processes.outdated_events,
    ),
    Counter::new(
        "process_events_outside",
        "events",
        "Process events of other PID namespaces.",
        |r| r.counters.processes.outside_events,
    ),
    Counter::new(
        "process_events_unordered",
        "events",
        "Process events that were applied before all earlier ones had arrived, because too many were pending.",
        |r| r.counters.released_early,
    ),
    Counter::new("process_reads", "processes", "Processes that were read from /proc.", |r| {
        r.counters.processes.reads
    }),
    Counter::new(
        "processes_left_out",
        "processes",
        "Processes that are not tracked, because too many are running.",
        |r| r.counters.processes.processes_left_out,
    )
    .alarm("processes are not tracked: too many are running", "select fewer in scope of the receiver"),
    Counter::new(
        "processes_unreadable",
        "processes",
        "Processes whose mappings could not be read from /proc, for example because they have just ended.",
        |r| r.counters.processes.unreadable_processes,
    ),
    Counter::new(
        "mappings_left_out",
        "mappings",
        "Mappings that are not tracked, for lack of memory.",
        |r| r.counters.processes.mappings_left_out,
    )
    .alarm(
        "mappings are not tracked, because their process has too many: code in them has no names",
        "exclude that process in scope of the receiver",
    ),
    Counter::new("maps_lines_malformed", "lines", "Lines of /proc/PID/maps that could not be read.", |r| {
        r.counters.processes.malformed_maps_lines
    })
    .permanent_alarm("lines of /proc/PID/maps could not be read", "report this: it is a bug of Sidewinder"),
    // Names.
    Counter::new(LOOKUPS, "lookups", LOOKUPS_DESCRIPTION, |r| r.names.symbols.named)
        .labelled("result", "named"),
    Counter::new(LOOKUPS, "lookups", LOOKUPS_DESCRIPTION, |r| r.names.symbols.not_opened)
        .labelled("result", "file_not_opened"),
    Counter::new(LOOKUPS, "lookups", LOOKUPS_DESCRIPTION, |r| r.names.symbols.broken)
        .labelled("result", "file_broken"),
    Counter::new(LOOKUPS, "lookups", LOOKUPS_DESCRIPTION, |r| r.names.symbols.no_symbols)
        .labelled("result", "no_symbols"),
    Counter::new(LOOKUPS, "lookups", LOOKUPS_DESCRIPTION, |r| r.names.symbols.not_covered)
        .labelled("result", "not_covered"),
    Counter::new(LOOKUPS, "lookups", LOOKUPS_DESCRIPTION, |r| r.names.symbols.no_room)
        .labelled("result", "no_room"),
    Counter::new("symbols_left_out", "symbols", "Symbols that did not fit in their file's table.", |r| {
        r.names.symbols.symbols_cut
    })
    .without_metric("it is part of sidewinder_names_left_out"),
    Counter::new(
        "jit_names_left_out",
        "functions",
        "Functions generated at run time that did not fit, or whose entry could not be parsed.",
        |r| r.names.jit,
    )
    .without_metric("it is part of sidewinder_names_left_out"),
    Counter::new(
        "names_left_out",
        "names",
        "Lookups without a name, and functions without one, because of the memory limit for symbols.",
        |r| r.names.omitted(),
    )
    .alarm("names of functions are missing, because of the memory limit for symbols", MORE_MEMORY_HINT),
    Counter::new(
        "lines_left_out",
        "lines",
        "Files without all lines and inlined calls because of the memory limit, and lookups without them because of the time limit.",
        |r| r.names.omitted_lines(),
    ),
    Counter::new(
        "files_without_lines",
        "files",
        "Files without all lines and inlined calls, because of the memory limit.",
        |r| r.names.symbols.files_without_lines,
    )
    .without_metric("it is part of sidewinder_lines_left_out"),
    Counter::new("line_lookups_left_out", "lookups", "Lookups without a line, because of the time limit.", |r| {
        r.names.symbols.lines_left_out
    })
    .without_metric("it is part of sidewinder_lines_left_out"),
    Counter::new("names_shortened", "names", "Names that were truncated because they were too long.", |r| {
        r.names.symbols.names_cut
    }),
    Counter::new(
        "symbol_tables_reads",
        "tables",
        "Symbol tables that were read, including again after an eviction.",
        |r| r.names.symbols.tables_read,
    ),
    Counter::new("symbol_tables_evictions", "tables", "Symbol tables that were evicted to make room for others.", |r| {
        r.names.symbols.tables_evicted
    }),
];

const FRAMES: &str = "frames";
const FRAMES_DESCRIPTION: &str = "Callers that walks found, by method: by a table, by a frame pointer that a table proves, or by an unproven frame pointer, which is a guess and marked as such.";
const CONTEXTS: &str = "thread_contexts";
const CONTEXTS_DESCRIPTION: &str = "Reads of the span that a sampled thread is in, by result: read; changing, if the thread was writing it; unreadable.";
const VM_FRAMES: &str = "vm_frames";
const VM_FRAMES_DESCRIPTION: &str = "Frames of virtual machines (CPython, HotSpot, V8) in sampled stacks; activations of an interpreter's loop whose frames were found \
     (groups); and frames that could not be found, by reason.";
const VM_COPIES: &str = "vm_function_copies";
const VM_COPIES_DESCRIPTION: &str = "Functions of processes younger than ten seconds that were sent with their stacks, because the process may end, or the \
     function be freed, before it is read, by state: sent; dropped, attempts to send one while the ring was half full; of those sent, refused, because 1 MiB of \
     them were waiting for their samples, and expired, because no sample of their process came within 10 s.";
const VM_FUNCTIONS: &str = "vm_functions";
const VM_FUNCTIONS_DESCRIPTION: &str = "Functions of interpreters whose names were read, by result; of those named, the ones whose compiled code was gone, so that \
     they have no inlined functions (without_code); and those that were forgotten because the memory for names was used up.";
const READS: &str = "foreign_reads";
const READS_DESCRIPTION: &str = "Reads of processes' memory, by result: answered; timed_out; late, after they timed out; quarantined, not tried because the process had timed out before; refused, not tried because too many were pending; failed.";
const LOOKUPS: &str = "name_lookups";
const LOOKUPS_DESCRIPTION: &str = "Lookups of a function's name, by result.";
