//! What `record` says at its end, for people and as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use sidewinder_base::refusals::RefusedFiles;
use sidewinder_base::terminal::print_notice;
use sidewinder_bpf::{Interrupts, UserProbeHits};
use sidewinder_kind::{Kind, SampledProbe};
use sidewinder_naming::source_maps::SourceMapCounts;
use sidewinder_render::{Profile, RecordingSummary, SampleType, guessed_callers};
use sidewinder_telemetry::stats::{counts_by_label, outcome_counts};
use sidewinder_text::{ExternalText, escaped_json};

use super::RecordingStats;
use super::gaps::NameGaps;
use crate::cli::RecordArgs;
use crate::output::Output;

/// Prints a summary of the recording, and which files were written. `totals`: the sum of the events of each kind in a report; without
/// `profiles`, it alone is known.
pub(super) fn log_summary(
    args: &RecordArgs,
    profiles: &[Profile],
    totals: &[(Kind, u64)],
    recorded: &RecordingStats,
    gaps: &NameGaps,
    written: &[&Output],
) {
    if args.quiet {
        return;
    }
    for profile in profiles {
        print_notice(format_args!("{}", sidewinder_render::summary(profile)));
    }
    if profiles.is_empty() {
        for (kind, total) in totals {
            let summary = RecordingSummary {
                measure: &SampleType::from_kind(*kind),
                total: *total,
                duration: Duration::from_nanos(recorded.end_ns.saturating_sub(recorded.start_ns)),
                outcomes: &outcome_counts(&recorded.tally, *kind),
            };
            print_notice(format_args!("{}", summary.to_text()));
        }
    }
    for (probe, hits) in &recorded.tally.probes {
        print_notice(format_args!("{}", probe_line(&ExternalText::new(probe.name()), hits)));
    }
    print_notice(format_args!("{}", gaps.lines()));
    for output in written {
        print_notice(format_args!("wrote {}\n", ExternalText::new(output.path())));
    }
}

/// What was sampled of the hits of a probe, if that was not each one.
fn probe_line(name: &ExternalText<'_>, hits: &UserProbeHits) -> String {
    let UserProbeHits { hits, uncounted, samples, .. } = *hits;
    let shown = sidewinder_render::group_thousands;
    if hits == 0 {
        return format!("{name}: no hit\n");
    }
    if samples == hits {
        return String::new();
    }
    let (sampled, all, rest) = (shown(samples), shown(hits), shown(uncounted));
    format!(
        "{name}: {sampled} of {all} hits were sampled, and stand for the others except the last {rest}; max_overhead \
         allows no more\n"
    )
}

/// The machine-readable summary: the outcomes of all interrupts, in which binaries callers were guessed, and which processes
/// and binaries have frames without a name.
pub(super) fn summary_json(
    recorded: &RecordingStats,
    refused: &RefusedFiles,
    source_maps: &SourceMapCounts,
    gaps: &NameGaps,
    profiles: &[Profile],
) -> String {
    let (clock, waits) = (recorded.tally.clock_interrupts(), recorded.tally.off_cpu_waits_missing);
    let long_waits = recorded.tally.long_waits;
    let others = recorded.tally.interrupts_of_other_kinds();
    let other_kinds: serde_json::Map<_, _> = others
        .map(|(kind, interrupts)| (kind.descriptor().value_type.name.to_owned(), outcomes_json(interrupts)))
        .collect();
    let frames = recorded.frames;
    let classes = recorded.stack_depths.iter().enumerate().filter(|(_, count)| **count > 0);
    let by_frames: serde_json::Map<_, _> =
        classes.map(|(class, count)| (format!(">={}", 1_u64 << class), json!(count))).collect();
    let guessed_in: Option<serde_json::Map<_, _>> = profiles.first().map(|profile| {
        guessed_callers(profile)
            .into_iter()
            .map(|guessed| (guessed.binary.to_owned(), json!(guessed.callers)))
            .collect()
    });
    let probes: serde_json::Map<_, _> = recorded.tally.probes.iter().map(probe_json).collect();
    let summary = json!({
        "interrupts_by_witness": clock.expected,
        "outcomes": outcomes_json(&clock),
        "outcomes_of_other_kinds": other_kinds,
        "probes": probes,
        "off_cpu_waits_missing": {
            "unseen": waits.unseen,
            "end_lost": waits.end_lost,
            "without_end": waits.without_end,
            "waker_unmatched": waits.waker_unmatched,
        },
        "off_cpu_waits_in_progress": {
            "found": long_waits.off_cpu_waits_found.read,
            "unread": long_waits.off_cpu_waits_found.unread,
            "events": long_waits.off_cpu_events_so_far,
            "lists_failed": long_waits.off_cpu_lists_failed,
        },
        "idle_inferred": clock.idle_inferred,
        "steal_share": clock.steal.share(),
        "events_exported": recorded.tally.events,
        "stack_bodies_missing": recorded.tally.stack_bodies_missing,
        "walked_late": recorded.tally.walked_late,
        "snapshots_refused": recorded.tally.snapshots_refused,
        "duration_ns": recorded.end_ns.saturating_sub(recorded.start_ns),
        "frames": { "table": frames.table, "frame_pointer": frames.frame_pointer, "guess": frames.guess },
        "guessed_in": guessed_in,
        "stacks": { "known": recorded.stacks_known, "sent": recorded.stacks_sent, "by_frames": by_frames },
        "tables_bytes": recorded.tables_bytes,
        "tables_evictions": recorded.tables_evictions,
        "tables_reloads": recorded.tables_reloads,
        "maps_bytes": recorded.maps_bytes,
        "unnamed": gaps.unnamed_json(),
        "without_symbols": gaps.stripped_json(),
        "files_refused": refused.by_reason().collect::<BTreeMap<_, _>>(),
        "source_maps": source_maps.by_outcome().collect::<BTreeMap<_, _>>(),
    });
    escaped_json(&format!("{summary:#}\n")).into_owned()
}

fn probe_json((probe, hits): &(SampledProbe, UserProbeHits)) -> (String, serde_json::Value) {
    let UserProbeHits { hits, samples, uncounted, cost_ns, period } = hits;
    let value = json!({
        "hits": hits,
        "samples": samples,
        "uncounted": uncounted,
        "cost_ns": cost_ns,
        "period": period,
    });
    (probe.name().to_owned(), value)
}

/// The number of interrupts with each outcome, those without a program run included.
fn outcomes_json(interrupts: &Interrupts) -> serde_json::Value {
    counts_by_label(interrupts).map(|(outcome, count)| (outcome.to_owned(), json!(count))).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use serde_json::Value;
    use sidewinder_bpf::FrameCounts;
    use sidewinder_config::Config;
    use sidewinder_sampling::{SamplingTally, WaitCounts};
    use sidewinder_telemetry::stats::counters::COUNTERS;
    use sidewinder_telemetry::stats::{ReceiverCounters, ServiceStats};

    use super::*;

    /// A service with the same counters shows them under the same names.
    #[test]
    fn counters_have_the_names_that_a_service_gives_them() {
        let (stack_bodies_missing, walked_late, snapshots_refused, events) = (2, 3, 5, 7);
        let off_cpu_waits_missing =
            WaitCounts { unseen: 11, end_lost: 13, without_end: 17, waker_unmatched: 19 };
        let frames = FrameCounts { table: 23, frame_pointer: 29, guess: 31 };
        let (tables_evictions, tables_reloads) = (37, 41);
        let recorded = RecordingStats {
            tally: SamplingTally {
                events,
                stack_bodies_missing,
                walked_late,
                snapshots_refused,
                off_cpu_waits_missing,
                ..SamplingTally::default()
            },
            start: SystemTime::UNIX_EPOCH,
            start_ns: 0,
            end_ns: 0,
            frames,
            stack_depths: Vec::new(),
            stacks_known: 0,
            stacks_sent: 0,
            tables_bytes: 0,
            tables_evictions,
            tables_reloads,
            maps_bytes: 0,
            denied_runtimes: Vec::new(),
        };
        let (refused, maps, gaps) =
            (RefusedFiles::default(), SourceMapCounts::default(), NameGaps::default());
        let summary: Value =
            serde_json::from_str(&summary_json(&recorded, &refused, &maps, &gaps, &[])).unwrap();
        let counters = ReceiverCounters {
            events_exported: events,
            stack_bodies_missing,
            walked_late,
            snapshots_refused,
            off_cpu_waits_missing,
            frames,
            tables_evictions,
            tables_reloads,
            ..ReceiverCounters::default()
        };
        let service = ServiceStats::new(Arc::new(Config::default())).record_counters("profiling", counters);
        let mut shown = Vec::new();
        for counter in COUNTERS {
            let value = match counter.label {
                Some((_, value)) => summary.get(counter.name).and_then(|counts| counts.get(value)),
                None => summary.get(counter.name),
            };
            if let Some(value) = value {
                assert_eq!(*value, (counter.read)(&service), "{}", counter.key());
                shown.push(counter.key());
            }
        }
        assert_eq!(shown.len(), 15, "{shown:?}");
    }
}
