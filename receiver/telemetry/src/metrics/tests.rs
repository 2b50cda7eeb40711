use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use sidewinder_base::foreign::ReadCounts;
use sidewinder_base::refusals::RefusedFiles;
use sidewinder_bpf::{ContextCounts, FrameCounts, StealTime, VmCounts};
use sidewinder_config::Config;
use sidewinder_naming::NameCounts;
use sidewinder_naming::source_maps::SourceMapCounts;
use sidewinder_naming::vm::VmNameCounts;
use sidewinder_process::RegistryCounters;
use sidewinder_sampling::{FoundWaitCounts, LongWaitCounts, WaitCounts};
use sidewinder_symbolize::{LookupCounts, SymbolizerStats};
use sidewinder_tables::SavedTableCounts;

use super::documentation::documentation;
use super::*;
use crate::instruments::to_u64;
use crate::stats::{EventCoverage, FunctionCopyCounts, ReceiverCounters};
use crate::status;

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
    values.0.insert(STEAL_SECONDS, "cpu_steal.stolen_ns");
    let mut unique = |name| values.assign(name);
    let counters = ReceiverCounters {
        outcomes: [("complete", unique("outcomes"))].into(),
        outcomes_of_other_kinds: [(("off_cpu", "complete"), unique("outcomes_of_other_kinds"))].into(),
        missed: unique("missed"),
        interrupts_by_witness: unique("interrupts_by_witness"),
        idle_inferred: unique("idle_inferred"),
        // The rest of the time is in the summary and in `status`.
        cpu_steal: StealTime { stolen_ns: STEAL_SECONDS * 1_000_000_000, total_ns: 0 },
        events_exported: unique("events_exported"),
        events_dropped: unique("events_dropped"),
        stack_bodies_missing: unique("stack_bodies_missing"),
        walked_late: unique("walked_late"),
        snapshots_refused: unique("snapshots_refused"),
        off_cpu_waits_missing: WaitCounts {
            unseen: unique("off_cpu_waits_missing.unseen"),
            end_lost: unique("off_cpu_waits_missing.end_lost"),
            without_end: unique("off_cpu_waits_missing.without_end"),
            waker_unmatched: unique("off_cpu_waits_missing.waker_unmatched"),
        },
        long_waits: LongWaitCounts {
            off_cpu_waits_found: FoundWaitCounts {
                read: unique("off_cpu_waits_found.read"),
                unread: unique("off_cpu_waits_found.unread"),
            },
            off_cpu_events_so_far: unique("off_cpu_events_so_far"),
            off_cpu_lists_failed: unique("off_cpu_lists_failed"),
        },
        thread_contexts: ContextCounts {
            read: unique("thread_contexts.read"),
            changing: unique("thread_contexts.changing"),
            unreadable: unique("thread_contexts.unreadable"),
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
        },
        vm_function_copies: FunctionCopyCounts {
            sent: unique("vm_function_copies.sent"),
            dropped: unique("vm_function_copies.dropped"),
            refused: unique("vm_function_copies.refused"),
            expired: unique("vm_function_copies.expired"),
        },
        interpreters_refused: unique("interpreters_refused"),
        foreign_reads: ReadCounts {
            answered: unique("foreign_reads.answered"),
            timed_out: unique("foreign_reads.timed_out"),
            late: unique("foreign_reads.late"),
            quarantined: unique("foreign_reads.quarantined"),
            refused: unique("foreign_reads.refused"),
            failed: unique("foreign_reads.failed"),
            quarantined_processes: unique("quarantined_processes"),
            stuck_reader_threads: unique("stuck_reader_threads"),
        },
        unknown_records: unique("unknown_records"),
        nested_walks: unique("nested_walks"),
        stacks_known: unique("stacks_known"),
        stacks_sent: unique("stacks_sent"),
        processes: RegistryCounters {
            process_events: unique("process_events"),
            process_events_lost: unique("process_events_lost"),
            process_events_outdated: unique("process_events_outdated"),
            process_events_outside: unique("process_events_outside"),
            process_reads: unique("process_reads"),
            processes_left_out: unique("processes_left_out"),
            mappings_left_out: unique("mappings_left_out"),
            maps_lines_malformed: unique("maps_lines_malformed"),
            processes_unreadable: unique("processes_unreadable"),
        },
        process_events_unordered: unique("process_events_unordered"),
        frames: FrameCounts {
            table: unique("frames.table"),
            frame_pointer: unique("frames.frame_pointer"),
            guess: unique("frames.guess"),
        },
        stack_depths: vec![unique("stack_depths")],
        tables_evictions: unique("tables_evictions"),
        tables_reloads: unique("tables_reloads"),
        tables_cut: unique("tables_cut"),
        saved_tables: SavedTableCounts {
            tables_read_back: unique("tables_read_back"),
            tables_not_saved: unique("tables_not_saved"),
        },
        scope_list_full: unique("scope_list_full"),
        // Shown as a degraded feature.
        scope_list_full_cost: None,
        bpf_run_time: Some(Duration::from_secs(unique("bpf_run_time"))),
        tables_bytes: unique("tables_bytes"),
        maps_bytes: unique("maps_bytes"),
        // Shown by `status` and as a degraded feature.
        event_coverage: EventCoverage::EveryTask,
    };
    let names = NameCounts {
        vm_functions: VmNameCounts {
            named: unique("vm_functions.named"),
            without_code: unique("vm_functions.without_code"),
            replaced: unique("vm_functions.replaced"),
            unreadable: unique("vm_functions.unreadable"),
            forgotten: unique("vm_functions.forgotten"),
        },
        symbols: SymbolizerStats {
            name_lookups: LookupCounts {
                named: unique("name_lookups.named"),
                file_not_opened: unique("name_lookups.file_not_opened"),
                file_broken: unique("name_lookups.file_broken"),
                no_symbols: unique("name_lookups.no_symbols"),
                not_covered: unique("name_lookups.not_covered"),
                no_room: unique("name_lookups.no_room"),
            },
            names_shortened: unique("names_shortened"),
            symbols_left_out: unique("symbols_left_out"),
            symbol_tables_reads: unique("symbol_tables_reads"),
            symbol_tables_evictions: unique("symbol_tables_evictions"),
            files_without_lines: unique("files_without_lines"),
            line_lookups_left_out: unique("line_lookups_left_out"),
        },
        jit_names_left_out: unique("jit_names_left_out"),
        // These have each outcome and each reason: they are made from the enumeration.
        source_maps: SourceMapCounts::default(),
        files_refused: RefusedFiles::default(),
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
    // A counter that `status` shows apart has the same name there.
    let document = status::document(&stats);
    let receiver = document["receivers"]["profiling"].as_object().unwrap();
    let all = receiver["counters"].as_object().unwrap();
    let apart: Vec<_> = receiver.iter().filter(|(key, _)| all.contains_key(*key)).collect();
    assert!(apart.len() > 5, "{apart:?}");
    for (key, value) in apart {
        assert_eq!(value, &all[key], "{key}");
    }
    // So has a size, which is no counter but has a metric.
    let sizes: Vec<_> = receiver.keys().filter(|key| key.ends_with("_bytes")).collect();
    assert_eq!(sizes.len(), 2, "{sizes:?}");
    for size in sizes {
        assert!(METRICS.iter().any(|metric| metric.name == format!("sidewinder_{size}")), "{size}");
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
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics.md");
    let expected = documentation();
    if std::env::var_os("GENERATED").is_some_and(|value| value == "accept") {
        std::fs::write(&path, &expected).unwrap();
    }
    let actual = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(actual == expected, "docs/metrics.md is not up to date: `make generated` regenerates it");
}
