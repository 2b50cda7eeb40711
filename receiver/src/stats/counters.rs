//! What receivers count, a row for each counter. Metrics, `sidewinder status`, the log and `docs/metrics.md` are made of
//! these rows: whoever adds a counter adds a row.

use std::fmt;

use sidewinder_config::MetricLevel;

use super::receiver::ReceiverStats;

/// A counter of a receiver. It only grows while the profiler runs.
pub(crate) struct Counter {
    /// The metric is `sidewinder_` and this.
    pub(crate) name: &'static str,
    /// Counters that are one metric differ in the value of this label.
    pub(crate) label: Option<(&'static str, &'static str)>,
    /// What one of them is, in plural.
    pub(crate) unit: &'static str,
    pub(crate) description: &'static str,
    pub(crate) metric: CounterMetric,
    pub(crate) read: fn(&ReceiverStats) -> u64,
    /// When it means that something is wrong.
    pub(crate) alarm: Option<Alarm>,
}

/// Which metric shows a counter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CounterMetric {
    /// One of its own, from this `service::telemetry::metrics::level` on.
    FromLevel(MetricLevel),
    /// Another one, of a Collector's name or with more labels.
    Part(&'static str),
    /// None, for this reason.
    None(&'static str),
}

/// When a counter means that something is wrong.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Alarm {
    pub(crate) window: AlarmWindow,
    /// The share of the interrupts of that time that may be counted, of 1.
    pub(crate) threshold: f64,
    /// What is wrong; the number comes before it.
    pub(crate) message: &'static str,
    /// What to do.
    pub(crate) next_step: &'static str,
}

/// Of which time a number counts as wrong now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AlarmWindow {
    /// The last minutes: what is over is history.
    Recently,
    /// Since the start: it stays as it is.
    Start,
}

impl Counter {
    /// The word for it in the log and in `status --json`.
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

    /// Any number of the last minutes is wrong.
    const fn alarm(self, says: &'static str, next: &'static str) -> Self {
        Self {
            alarm: Some(Alarm {
                window: AlarmWindow::Recently,
                threshold: 0.0,
                message: says,
                next_step: next,
            }),
            ..self
        }
    }

    /// Any number is wrong for as long as the profiler runs.
    const fn permanent_alarm(self, says: &'static str, next: &'static str) -> Self {
        Self {
            alarm: Some(Alarm { window: AlarmWindow::Start, threshold: 0.0, message: says, next_step: next }),
            ..self
        }
    }

    /// More than this share of the interrupts of the last minutes is wrong.
    const fn alarm_above(self, beyond: f64, says: &'static str, next: &'static str) -> Self {
        Self {
            alarm: Some(Alarm {
                window: AlarmWindow::Recently,
                threshold: beyond,
                message: says,
                next_step: next,
            }),
            ..self
        }
    }
}

const MORE_MEMORY_HINT: &str = "raise memory_limit_mib of the receiver";
const FEWER_SAMPLES_HINT: &str = "lower samples_per_second of the receiver, or give the profiler more CPU";

/// All that it has counted, as `key=value` words, outcomes first.
impl fmt::Display for ReceiverStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (outcome, count) in self.counters.outcomes.iter().filter(|(_, count)| **count > 0) {
            write!(f, "{outcome}={count} ")?;
        }
        for counter in COUNTERS {
            let count = (counter.read)(self);
            // Those that add up are told even where they are 0.
            if count > 0 || !matches!(counter.metric, CounterMetric::FromLevel(_)) {
                write!(f, "{}={count} ", counter.key())?;
            }
        }
        write!(f, "table_bytes={} map_bytes={}", self.counters.table_bytes, self.counters.map_bytes)
    }
}

/// Every counter of a receiver but the outcomes of interrupts, which are a list of their own.
pub(crate) static COUNTERS: &[Counter] = &[
    // Interrupts and events.
    Counter::new("missed", "interrupts", "Interrupts that no program of ours was run for.", |r| {
        r.counters.missed
    })
    .part_of_metric("sidewinder_interrupts")
    .alarm_above(
        0.05,
        "interrupts were missed: the kernel ran no program of ours for them",
        FEWER_SAMPLES_HINT,
    ),
    Counter::new("interrupts_by_witness", "interrupts", "Interrupts by the clocks of the CPUs.", |r| {
        r.counters.due
    })
    .without_metric("it is the sum of sidewinder_interrupts"),
    Counter::new(
        "idle_inferred",
        "interrupts",
        "Of the idle interrupts, those that no program of ours was run for, because their CPU slept.",
        |r| r.counters.idle_inferred,
    ),
    Counter::new("events_exported", "events", "Events that were handed on to be named.", |r| {
        r.counters.events_exported
    })
    .without_metric("what came of them is in sidewinder_receiver_events"),
    Counter::new("events_dropped", "events", "Events that came faster than they could be named.", |r| {
        r.counters.events_dropped
    })
    .part_of_metric("otelcol_receiver_refused_profile_samples")
    .alarm("events were dropped: they came faster than they could be named", FEWER_SAMPLES_HINT),
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
        "report this: it is a fault of Sidewinder",
    ),
    // Walks.
    Counter::new(
        "walked_late",
        "events",
        "Events whose stack was walked after the interrupt, because its table was not there in time.",
        |r| r.counters.deferred_walks,
    ),
    Counter::new(
        "snapshots_refused",
        "walks",
        "Walks that lacked a table and kept too little, for want of room, to be walked later.",
        |r| r.counters.snapshots_refused,
    ),
    Counter::new(
        "nested_walks",
        "walks",
        "Walks that began while another one was under way on the same CPU.",
        |r| r.counters.nested_walks,
    ),
    Counter::new(
        "stacks_known",
        "stacks",
        "Stacks that the receiver had got before, of which only a number was sent.",
        |r| r.counters.stacks_known,
    ),
    Counter::new("stacks_sent", "stacks", "Stacks that were sent to the receiver whole.", |r| {
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
    // Tables.
    Counter::new("tables_evictions", "tables", "Unwind tables that made room for others.", |r| {
        r.counters.table_evictions
    }),
    Counter::new(
        "tables_reloads",
        "tables",
        "Files that were read again because a walk lacked a table that had made room.",
        |r| r.counters.table_reloads,
    ),
    Counter::new(
        "tables_cut",
        "files",
        "Files without a whole unwind table, for want of memory to read them.",
        |r| r.counters.incomplete_tables,
    )
    .permanent_alarm(
        "files have no whole unwind table, for want of memory: stacks through them may be cut",
        MORE_MEMORY_HINT,
    ),
    // That these are some is a degradation.
    Counter::new(
        "scope_list_full",
        "processes",
        "Processes for which the scope's list of processes had no room: not sampled where they are included; where they are \
         excluded, no process that is younger than the profiler is sampled from then on.",
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
    // That these are some is a degradation.
    Counter::new(
        "contexts_refused",
        "processes",
        "Processes that publish a context which can't be read, for want of CAP_SYS_PTRACE.",
        |r| r.counters.contexts_refused,
    ),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.completed).labelled("result", "answered"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.timed_out).labelled("result", "timed_out"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.late).labelled("result", "late"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.quarantined).labelled("result", "quarantined"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.refused).labelled("result", "refused"),
    Counter::new(READS, "reads", READS_DESCRIPTION, |r| r.counters.reads.failed).labelled("result", "failed"),
    // Processes.
    Counter::new(
        "process_events",
        "events",
        "Events of processes that were taken up: forks, execs, mappings, exits.",
        |r| r.counters.processes.events,
    ),
    // They are made up for: what they told is read from /proc.
    Counter::new(
        "process_events_lost",
        "events",
        "Events of processes that the kernel had no room for; /proc is read again then.",
        |r| r.counters.processes.lost_events,
    ),
    Counter::new(
        "process_events_outdated",
        "events",
        "Events of processes that tell less than what was read of their process meanwhile.",
        |r| r.counters.processes.outdated_events,
    ),
    Counter::new(
        "process_events_outside",
        "events",
        "Events of processes outside of our PID namespace.",
        |r| r.counters.processes.outside_events,
    ),
    Counter::new(
        "process_events_unordered",
        "events",
        "Events of processes that were taken up before earlier ones could have come, because too many waited.",
        |r| r.counters.released_early,
    ),
    Counter::new("process_reads", "processes", "Processes that were read from /proc.", |r| {
        r.counters.processes.reads
    }),
    Counter::new(
        "processes_left_out",
        "processes",
        "Processes that are not followed, because too many run.",
        |r| r.counters.processes.processes_left_out,
    )
    .alarm("processes are not followed: too many run", "name fewer in scope of the receiver"),
    Counter::new(
        "processes_unreadable",
        "processes",
        "Processes of which /proc does not tell the mappings; such as those that have just ended.",
        |r| r.counters.processes.unreadable_processes,
    ),
    Counter::new(
        "mappings_left_out",
        "mappings",
        "Mappings that are not followed, because their process has too many.",
        |r| r.counters.processes.mappings_left_out,
    )
    .alarm(
        "mappings are not followed, for their process has too many: code in them has no names",
        "exclude that process in scope of the receiver",
    ),
    Counter::new("maps_lines_malformed", "lines", "Lines of /proc/PID/maps that could not be read.", |r| {
        r.counters.processes.malformed_maps_lines
    })
    .permanent_alarm("lines of /proc/PID/maps could not be read", "report this: it is a fault of Sidewinder"),
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
    Counter::new("symbols_left_out", "symbols", "Symbols that had no room in their file's table.", |r| {
        r.names.symbols.symbols_cut
    })
    .without_metric("it is a part of sidewinder_names_left_out"),
    Counter::new(
        "jit_names_left_out",
        "functions",
        "Functions that processes made while they ran and that had no room, or no legible entry.",
        |r| r.names.jit,
    )
    .without_metric("it is a part of sidewinder_names_left_out"),
    Counter::new(
        "names_left_out",
        "names",
        "Look-ups that gave no name, and functions without one, for want of memory for the symbols.",
        |r| r.names.omitted(),
    )
    .alarm("names of functions are missing, for want of memory for the symbols", MORE_MEMORY_HINT),
    Counter::new(
        "lines_left_out",
        "lines",
        "Files without all lines and inlined calls, for want of memory, and look-ups, for want of time.",
        |r| r.names.omitted_lines(),
    ),
    Counter::new(
        "files_without_lines",
        "files",
        "Files without all lines and inlined calls, for want of memory.",
        |r| r.names.symbols.files_without_lines,
    )
    .without_metric("it is a part of sidewinder_lines_left_out"),
    Counter::new("line_lookups_left_out", "lookups", "Look-ups that gave no line, for want of time.", |r| {
        r.names.symbols.lines_left_out
    })
    .without_metric("it is a part of sidewinder_lines_left_out"),
    Counter::new("names_shortened", "names", "Names that were longer than is kept.", |r| {
        r.names.symbols.names_cut
    }),
    Counter::new(
        "symbol_tables_reads",
        "tables",
        "Tables of symbols that were read, again after an eviction included.",
        |r| r.names.symbols.tables_read,
    ),
    Counter::new("symbol_tables_evictions", "tables", "Tables of symbols that made room for others.", |r| {
        r.names.symbols.tables_evicted
    }),
];

const FRAMES: &str = "frames";
const FRAMES_DESCRIPTION: &str = "Callers that walks found, by how: by a table, by a frame pointer that a table proves, or by a frame pointer that nothing vouches for, which is a guess and marked as one.";
const CONTEXTS: &str = "thread_contexts";
const CONTEXTS_DESCRIPTION: &str = "Readings of the span that a sampled thread is in: read; changing, where the thread was just writing it; unreadable.";
const READS: &str = "foreign_reads";
const READS_DESCRIPTION: &str = "Reads of processes' memory by how they ended: answered; timed_out; late, after they timed out; quarantined, not tried as the process had timed out before; refused, not tried as too many waited; failed.";
const LOOKUPS: &str = "name_lookups";
const LOOKUPS_DESCRIPTION: &str = "Look-ups of a function's name, by what came of them.";
