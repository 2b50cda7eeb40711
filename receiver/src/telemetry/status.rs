//! The status of the service as one JSON document, for `sidewinder status` and the pages.
//!
//! The command finds running profilers by their abstract unix sockets (unix(7)), which have no file, vanish with their
//! process, and are visible only in their network namespace: a pod. Each connection gets the document, if the peer is root
//! or the same user, and is closed. The socket's task runs on the telemetry runtime.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use serde_json::{Value, json};
use sidewinder_config::{ComponentId, Config};
use sidewinder_otlp::send::State;
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::debug;

use super::problems::{self, HealthProblem};
use super::process;
use crate::memory;
use crate::sampling::{IncompleteTable, IncompleteTables};
use crate::stats::counters::COUNTERS;
use crate::stats::{Activity, EventCoverage, ExporterSnapshot, ReceiverStats, ServiceStats};

/// The prefix of each socket's name. A random UUID follows, because process IDs repeat across PID namespaces.
const PREFIX: &str = "sidewinder/status/";
/// The timeout of each side.
const IO_TIMEOUT: Duration = Duration::from_secs(5);
/// The size limit of a document in bytes.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// The document. Its keys are a public interface: see VERSIONING.md.
pub(super) fn document(stats: &ServiceStats) -> Value {
    let configuration = stats.configuration();
    let receivers = stats.receivers();
    let exporters = stats.exporters();
    let by_id = |(id, receiver): (&String, &ReceiverStats)| (id.clone(), receiver_document(receiver));
    let degraded: Vec<Value> = stats
        .degraded()
        .iter()
        .map(|degraded| json!({ "feature": degraded.feature, "reason": degraded.reason, "cost": degraded.cost }))
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
            "refusal": configuration.refusal,
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
        Activity::Failed(reason) => Some(reason),
        _ => None,
    };
    json!({
        "activity": receiver.activity.label(),
        "reason": reason,
        "events_of": match counters.event_coverage {
            EventCoverage::Containers(count) => format!("{count} containers"),
            EventCoverage::EveryTask | EventCoverage::EveryTaskForPod => "every task".to_owned(),
        },
        "interrupts": counters.outcomes,
        "interrupts_missed": counters.missed,
        "events": receiver.accepted.events,
        "samples": receiver.accepted.samples,
        "events_dropped": counters.events_dropped,
        "map_bytes": counters.map_bytes,
        "table_bytes": counters.table_bytes,
        "table_evictions": counters.table_evictions,
        "tables_cut": counters.incomplete_tables,
        "tables_incomplete": incomplete_tables(&receiver.incomplete_tables),
        "scope_list_full": counters.scope_full,
        "contexts_read": counters.contexts.read,
        "contexts_refused": counters.contexts_refused,
        "interpreters_refused": counters.interpreters_refused,
        "foreign_reads": BTreeMap::from(counters.reads.by_result()),
        "quarantined_processes": counters.reads.in_quarantine,
        "stuck_reader_threads": counters.reads.stuck_threads,
        "names_left_out": receiver.names.omitted(),
        "lines_left_out": receiver.names.omitted_lines(),
        "files_refused": receiver.names.files.by_reason().collect::<BTreeMap<_, _>>(),
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

/// Serves the document to `sidewinder status` until it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    accept_task: JoinHandle<()>,
}

impl StatusSocket {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(super) fn open(stats: Arc<ServiceStats>, runtime: &Handle) -> io::Result<Self> {
        let name = format!("{PREFIX}{}", std::fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
        listener.set_nonblocking(true)?;
        let _context = runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let accept_task = runtime.spawn(async move {
            loop {
                let Ok((mut stream, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                if !stream.peer_cred().is_ok_and(|peer| is_trusted(peer.uid())) {
                    debug!("refused the status to a peer that is neither root nor this user");
                    continue;
                }
                let text = document(&stats).to_string();
                let response = async {
                    stream.write_all(text.as_bytes()).await?;
                    stream.shutdown().await
                };
                // A peer that does not read in time gets no document. Serving one at a time is enough.
                let _ = tokio::time::timeout(IO_TIMEOUT, response).await;
            }
        });
        Ok(Self { accept_task })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// The documents of all profilers in this network namespace that respond and are run by root or by this user.
///
/// # Errors
/// If the kernel's list of sockets can't be read.
pub(crate) fn query_all() -> io::Result<Vec<Value>> {
    let sockets = std::fs::read_to_string("/proc/net/unix")?;
    let mut names: Vec<&str> = sockets
        .lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'))
        .filter(|name| name.starts_with(PREFIX))
        .collect();
    names.sort_unstable();
    // A connection to a socket is listed under the socket's name.
    names.dedup();
    Ok(names.into_iter().filter_map(|name| query(name).ok().flatten()).collect())
}

fn query(name: &str) -> io::Result<Option<Value>> {
    let stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    // Any process can bind such a name.
    if !is_trusted(socket_peercred(&stream)?.uid.as_raw()) {
        return Ok(None);
    }
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    let mut text = String::new();
    stream.take(DOCUMENT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text).ok())
}
