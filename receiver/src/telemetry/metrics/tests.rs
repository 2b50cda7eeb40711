use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sidewinder_bpf::{ContextCounts, StealTime, VmCounts};
use sidewinder_config::Config;
use sidewinder_process::RegistryCounters;
use sidewinder_symbolize::SymbolizerStats;

use super::documentation::documentation;
use super::*;
use crate::foreign::ReadCounts;
use crate::naming::NameCounts;
use crate::refusals::RefusedFiles;
use crate::sampling::{CodeObjectLosses, LongWaitCounts, SavedTableCounts, WaitCounts};
use crate::source_maps::SourceMapCounts;
use crate::stats::{EventCoverage, ReceiverCounters};
use crate::telemetry::instruments::to_u64;
use crate::vm::VmNameCounts;

/// Assigns a unique value to each counter.
#[derive(Default)]
struct UniqueValues(BTreeMap<u64, &'static str>);

impl UniqueValues {
    fn assign(&mut self, counter: &'static str) -> u64 {
        // Scattered (SplitMix64), so that no sum of some values is another value, and exact as floating-point numbers.
        let state = (self.0.len() as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 16;
        self.0.insert(value, counter);
        value
    }
}

/// Sets each field of each struct of counters, without `..`: a new counter does not compile until it has a value here,
/// and the test fails until it has a row in [`COUNTERS`] or a metric in [`METRICS`].
#[test]
fn every_counter_is_in_a_metric_or_has_a_reason_not_to_be() {
    // In nanoseconds, scattered values would be too large.
    const STEAL_SECONDS: u64 = 1_234_567_891;
    let mut values = UniqueValues::default();
    values.0.insert(STEAL_SECONDS, "steal.stolen_ns");
    let mut unique = |name| values.assign(name);
    let counters = ReceiverCounters {
        outcomes: [("complete", unique("outcomes"))].into(),
        outcomes_of_other_kinds: [(("off_cpu", "complete"), unique("outcomes_of_other_kinds"))].into(),
        missed: unique("missed"),
        due: unique("due"),
        idle_inferred: unique("idle_inferred"),
        // The rest of the time is in the summary and in `status`.
        steal: StealTime { stolen_ns: STEAL_SECONDS * 1_000_000_000, total_ns: 0 },
        events_exported: unique("events_exported"),
        events_dropped: unique("events_dropped"),
        stack_bodies_missing: unique("stack_bodies_missing"),
        deferred_walks: unique("walked_late"),
        snapshots_refused: unique("snapshots_refused"),
        waits: WaitCounts {
            unseen: unique("waits.unseen"),
            ends_lost: unique("waits.ends_lost"),
            without_end: unique("waits.without_end"),
            wakers_unmatched: unique("waits.wakers_unmatched"),
        },
        long_waits: LongWaitCounts {
            found: unique("long_waits.found"),
            found_unread: unique("long_waits.found_unread"),
            events_so_far: unique("long_waits.events_so_far"),
            lists_failed: unique("long_waits.lists_failed"),
        },
        contexts: ContextCounts {
            read: unique("contexts.read"),
            changing: unique("contexts.changing"),
            unreadable: unique("contexts.unreadable"),
        },
        contexts_refused: unique("contexts_refused"),
        vm_frames: VmCounts {
            frames: unique("vm_frames.frames"),
            groups: unique("vm_frames.groups"),
            missing: [
                unique("vm_frames.no_state"),
                unique("vm_frames.other_thread"),
                unique("vm_frames.unreadable"),
                unique("vm_frames.no_frames"),
                unique("vm_frames.too_early"),
                unique("vm_frames.busy"),
                unique("vm_frames.no_caller"),
            ],
            objects_sent: unique("vm_function_copies.sent"),
            objects_dropped: unique("vm_function_copies.dropped"),
        },
        code_object_losses: CodeObjectLosses {
            refused: unique("vm_function_copies.refused"),
            expired: unique("vm_function_copies.expired"),
        },
        interpreters_refused: unique("interpreters_refused"),
        reads: ReadCounts {
            completed: unique("reads.answered"),
            timed_out: unique("reads.timed_out"),
            late: unique("reads.late"),
            quarantined: unique("reads.quarantined"),
            refused: unique("reads.refused"),
            failed: unique("reads.failed"),
            in_quarantine: unique("reads.in_quarantine"),
            stuck_threads: unique("reads.stuck_threads"),
        },
        unknown_records: unique("unknown_records"),
        nested_walks: unique("nested_walks"),
        stacks_known: unique("stacks_known"),
        stacks_sent: unique("stacks_sent"),
        processes: RegistryCounters {
            events: unique("processes.events"),
            lost_events: unique("processes.lost_events"),
            outdated_events: unique("processes.outdated_events"),
            outside_events: unique("processes.outside_events"),
            reads: unique("processes.reads"),
            processes_left_out: unique("processes.processes_left_out"),
            mappings_left_out: unique("processes.mappings_left_out"),
            malformed_maps_lines: unique("processes.malformed_maps_lines"),
            unreadable_processes: unique("processes.unreadable_processes"),
        },
        released_early: unique("released_early"),
        steps: [unique("steps.table"), unique("steps.frame_pointer"), unique("steps.unproven")],
        depths: vec![unique("depths")],
        table_evictions: unique("table_evictions"),
        table_reloads: unique("table_reloads"),
        incomplete_tables: unique("tables_cut"),
        saved_tables: SavedTableCounts {
            uses: unique("tables_read_back"),
            failures: unique("tables_not_saved"),
        },
        scope_full: unique("scope_full"),
        // Shown as a degraded feature.
        scope_full_cost: None,
        run_time: Some(Duration::from_secs(unique("run_time"))),
        table_bytes: unique("table_bytes"),
        map_bytes: unique("map_bytes"),
        // Shown by `status` and as a degraded feature.
        event_coverage: EventCoverage::EveryTask,
    };
    let names = NameCounts {
        vm: VmNameCounts {
            named: unique("vm.named"),
            without_code: unique("vm.without_code"),
            replaced: unique("vm.replaced"),
            unreadable: unique("vm.unreadable"),
            forgotten: unique("vm.forgotten"),
        },
        symbols: SymbolizerStats {
            named: unique("symbols.named"),
            not_opened: unique("symbols.not_opened"),
            broken: unique("symbols.broken"),
            no_symbols: unique("symbols.no_symbols"),
            not_covered: unique("symbols.not_covered"),
            no_room: unique("symbols.no_room"),
            names_cut: unique("symbols.names_cut"),
            symbols_cut: unique("symbols.symbols_cut"),
            tables_read: unique("symbols.tables_read"),
            tables_evicted: unique("symbols.tables_evicted"),
            files_without_lines: unique("symbols.files_without_lines"),
            lines_left_out: unique("symbols.lines_left_out"),
        },
        jit: unique("jit"),
        // These have each outcome and each reason: they are made from the enumeration.
        source_maps: SourceMapCounts::default(),
        files: RefusedFiles::default(),
    };
    let stats = ServiceStats::new(Arc::new(Config::default()));
    let receiver = {
        stats.record_name_counts("profiling", names);
        stats.record_counters("profiling", counters)
    };
    let in_metrics = METRICS.iter().flat_map(|metric| (metric.read)(&stats));
    let in_metrics = in_metrics.chain(
        counter_names(MetricLevel::Detailed).into_iter().flat_map(|name| counter_points(name, &stats)),
    );
    let shown: BTreeSet<u64> = in_metrics.map(|point| to_u64(point.value)).collect();
    let mut explained = BTreeSet::new();
    for counter in COUNTERS {
        let expected = (counter.read)(&receiver);
        match counter.metric {
            Of::FromLevel(_) => assert!(shown.contains(&expected), "{} is not shown", counter.name),
            Of::Part(metric) => {
                let metric = METRICS.iter().find(|candidate| candidate.name == metric).unwrap();
                let values = (metric.read)(&stats).into_iter().map(|point| to_u64(point.value));
                assert!(values.into_iter().any(|value| value == expected), "{} is not in it", counter.name);
            }
            Of::None(_) => _ = explained.insert(expected),
        }
    }
    for (value, name) in &values.0 {
        assert!(shown.contains(value) || explained.contains(value), "{name} is not shown anywhere");
    }
}

#[test]
fn names_are_unique_and_counters_of_one_metric_differ_in_one_label() {
    let mut keys = BTreeSet::new();
    for counter in COUNTERS {
        assert!(keys.insert(counter.key()), "{} twice", counter.key());
        let family = || COUNTERS.iter().filter(|other| other.name == counter.name);
        assert!(
            family().all(|other| other.description == counter.description && other.metric == counter.metric)
        );
        assert!(family().all(|other| other.label.map(|(key, _)| key) == counter.label.map(|(key, _)| key)));
        assert!(METRICS.iter().all(|metric| metric.name != format!("sidewinder_{}", counter.name)));
    }
}

#[test]
fn metrics_are_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
    let expected = documentation();
    if std::env::var_os("METRICS").is_some_and(|value| value == "accept") {
        std::fs::write(&path, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        actual == expected,
        "docs/metrics.md is not up to date: METRICS=accept cargo test -p sidewinder metrics"
    );
}
