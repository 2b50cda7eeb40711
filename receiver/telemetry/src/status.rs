//! The status of the service as one JSON document, for `sidewinder status` and the pages.

use std::collections::BTreeMap;
use std::time::SystemTime;

use jiff::Timestamp;
use serde_json::{Value, json};
use sidewinder_base::memory;
use sidewinder_config::{ComponentId, Config};
use sidewinder_otlp::send::State;
use sidewinder_tables::{IncompleteTable, IncompleteTables};

use super::problems::{self, HealthProblem};
use super::process;
use crate::stats::counters::COUNTERS;
use crate::stats::{Activity, DegradedFeature, EventCoverage, ExporterSnapshot, ReceiverStats, ServiceStats};

/// The document. Its keys are a public interface: see VERSIONING.md.
pub(crate) fn document(stats: &ServiceStats) -> Value {
    let configuration = stats.configuration();
    let receivers = stats.receivers();
    let exporters = stats.exporters();
    let by_id = |(id, receiver): (&String, &ReceiverStats)| (id.clone(), receiver_document(receiver));
    let degraded: Vec<Value> = stats
        .degraded()
        .iter()
        .map(|DegradedFeature { id, name, cost, reason }| {
            json!({ "feature": id, "name": name, "reason": reason.label(), "cost": cost })
        })
        .collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pid": std::process::id(),
        "up": stats.is_up(),
        "started_at": rfc3339(stats.started_at()),
        "uptime_seconds": stats.uptime().as_secs(),
        "cpu_seconds": process::cpu_time().as_secs_f64(),
        "memory_rss_bytes": memory::resident_bytes(),
        "configuration": {
            "since": rfc3339(configuration.since),
            "reloads": configuration.reloads,
            "refused": configuration.refused,
            "refusal": configuration.refusal.map(|failure| failure.to_string()),
        },
        "receivers": receivers.iter().map(by_id).collect::<BTreeMap<_, _>>(),
        "exporters": exporters.iter().map(|exporter| (exporter.name.clone(), exporter_document(exporter))).collect::<BTreeMap<_, _>>(),
        "pipelines": pipelines(&configuration.config),
        "extensions": ids(configuration.config.extensions.keys()),
        "ui": configuration.config.ui.enabled.then(|| format!("http://{}/", configuration.config.ui.endpoint)),
        "degraded": degraded,
        "window_seconds": problems::window_duration(stats).as_secs(),
        "problems": problems::problems(stats).iter().map(HealthProblem::to_json).collect::<Vec<_>>(),
        "faulty_threads": stats.threads().faulty_threads().iter().map(ToString::to_string).collect::<Vec<_>>(),
    })
}

fn receiver_document(receiver: &ReceiverStats) -> Value {
    let counters = &receiver.counters;
    let reason = match &receiver.activity {
        Activity::Failed(failure) => Some(failure.to_string()),
        _ => None,
    };
    json!({
        "activity": receiver.activity.label(),
        "reason": reason,
        "events_of": match counters.event_coverage {
            EventCoverage::Containers(count) => format!("{count} containers"),
            EventCoverage::EveryTask | EventCoverage::EveryTaskForPod => "every task".to_owned(),
        },
        // `null`: every task.
        "containers": match counters.event_coverage {
            EventCoverage::Containers(count) => Some(count),
            EventCoverage::EveryTask | EventCoverage::EveryTaskForPod => None,
        },
        "interrupts": counters.outcomes,
        "interrupts_missed": counters.missed,
        "steal_share": counters.cpu_steal.share(),
        "events": receiver.accepted.events,
        "samples": receiver.accepted.samples,
        "events_dropped": counters.events_dropped,
        "maps_bytes": counters.maps_bytes,
        "tables_bytes": counters.tables_bytes,
        "tables_evictions": counters.tables_evictions,
        "tables_cut": counters.tables_cut,
        "tables_incomplete": incomplete_tables(&receiver.tables_incomplete),
        "scope_list_full": counters.scope_list_full,
        "contexts_read": counters.thread_contexts.read,
        "contexts_refused": counters.contexts_refused,
        "interpreters_refused": counters.interpreters_refused,
        "foreign_reads": BTreeMap::from(counters.foreign_reads.by_result()),
        "quarantined_processes": counters.foreign_reads.quarantined_processes,
        "stuck_reader_threads": counters.foreign_reads.stuck_reader_threads,
        "names_left_out": receiver.names.names_left_out(),
        "lines_left_out": receiver.names.lines_left_out(),
        "files_refused": receiver.names.files_refused.by_reason().collect::<BTreeMap<_, _>>(),
        "counters": COUNTERS
            .iter()
            .map(|counter| (counter.key(), (counter.read)(receiver)))
            .collect::<BTreeMap<_, _>>(),
    })
}

/// `null` if all tables are whole.
fn incomplete_tables(tables: &IncompleteTables) -> Option<Value> {
    let file = |file: &IncompleteTable| {
        json!({
            "path": file.path,
            "code_bytes": file.code_bytes,
            "left_out_code_bytes": file.left_out_code_bytes,
            "unread_bytes": file.unread_bytes,
        })
    };
    (!tables.files.is_empty()).then(|| {
        json!({
            "files": tables.files.iter().map(file).collect::<Vec<_>>(),
            "more_files": tables.more_files,
            "memory_limit_mib_for_all": tables.memory_limit_mib,
        })
    })
}

fn exporter_document(exporter: &ExporterSnapshot) -> Value {
    let stats = &exporter.stats;
    let events = State::ALL.iter().map(|state| (state.as_str(), stats.counts.get(*state).events));
    let refusal = stats.last_partial_success.as_ref();
    json!({
        "events": events.collect::<BTreeMap<_, _>>(),
        "queue_bytes": stats.queue_bytes,
        "queue_capacity_bytes": stats.queue_capacity_bytes,
        "in_flight_requests": stats.in_flight_requests,
        "last_failure": stats.last_failure,
        "outage": stats.outage.as_ref().map(|outage| {
            json!({ "since": rfc3339(outage.since), "attempts": outage.attempts, "reason": outage.reason })
        }),
        "last_partial_success": refusal.map(|refusal| {
            json!({ "rejected_profiles": refusal.rejected_profiles, "message": refusal.message })
        }),
    })
}

fn pipelines(config: &Config) -> BTreeMap<String, Value> {
    let pipelines = config.pipelines.iter().map(|(id, pipeline)| {
        let parts = json!({
            "receivers": ids(&pipeline.receivers),
            "processors": ids(&pipeline.processors),
            "exporters": ids(&pipeline.exporters),
        });
        (id.to_string(), parts)
    });
    pipelines.collect()
}

fn ids<'a>(ids: impl IntoIterator<Item = &'a ComponentId>) -> Vec<String> {
    ids.into_iter().map(ToString::to_string).collect()
}

/// Formats a time as in RFC 3339; `None` if it is out of range.
pub(super) fn rfc3339(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| time.to_string())
}
