//! The exporters that pipelines use. A reload replaces them without losing what they have queued.
//!
//! Owner: the main thread of the service.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_base::memory::MemoryBudget;
use sidewinder_base::supervise;
use sidewinder_config::{ComponentId, Config, ExporterConfig, Extension};
use sidewinder_report::Destination;
use tracing::error;

use sidewinder_telemetry::stats::ServiceStats;

/// How long after the stop signal exporters may take to send what is queued.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1500);
/// The least time that exporters have for that: enough for a request to a Collector nearby.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// How long after that the thread of an exporter may take to end.
const THREAD_JOIN_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a replaced exporter may continue to send what it has queued.
const RETIREMENT_TIMEOUT: Duration = Duration::from_secs(600);

/// All exporters in use, and those that were replaced and have not ended yet.
#[derive(Debug)]
pub(super) struct Destinations {
    stats: Arc<ServiceStats>,
    active: BTreeMap<ComponentId, Arc<Destination>>,
    /// The exporters that were replaced and still send, each with its deadline.
    retired: Vec<(Arc<Destination>, Instant)>,
}

/// Exporters that are opened but not in use yet.
#[derive(Debug)]
pub(super) struct NewExporters(BTreeMap<ComponentId, Arc<Destination>>);

impl Destinations {
    pub(super) fn open(config: &Config, stats: &Arc<ServiceStats>) -> Result<Self, Failure> {
        let mut active = BTreeMap::new();
        for (id, _) in config.used_exporters() {
            let destination = open(id, config)?;
            stats.add_exporter(&destination);
            active.insert(id.clone(), destination);
        }
        Ok(Self { stats: Arc::clone(stats), active, retired: Vec::new() })
    }

    pub(super) fn get(&self, id: &ComponentId) -> Option<&Arc<Destination>> {
        self.active.get(id)
    }

    /// Opens the exporters that are new or different in `next`.
    ///
    /// Exporters that keep their queue on disk are left to [`Self::replace`]: only one at a time may use the disk.
    ///
    /// # Errors
    /// If one of them can't be opened; then none stays open.
    pub(super) fn prepare(&self, config: &Config, next: &Config) -> Result<NewExporters, Failure> {
        let written_files: BTreeSet<&Path> =
            config.used_exporters().filter_map(|(_, exporter)| output_file(exporter)).collect();
        let mut opened = NewExporters(BTreeMap::new());
        for (id, exporter) in next.used_exporters().filter(|(id, _)| !is_unchanged(id, config, next)) {
            if output_file(exporter).is_some_and(|path| written_files.contains(path)) {
                let message = format!(
                    "exporter {id} would overwrite a file that is being written: choose another path"
                );
                return Err(Failure::new(ExitCause::Usage, message));
            }
            if !has_storage(exporter) {
                opened.0.insert(id.clone(), open(id, next)?);
            }
        }
        Ok(opened)
    }

    /// Replaces the exporters that are missing or different in `next`. No receiver may send meanwhile.
    pub(super) fn replace(&mut self, config: &Config, next: &Config, opened: NewExporters) {
        let used: BTreeSet<&ComponentId> = next.used_exporters().map(|(id, _)| id).collect();
        let is_replaced = |id: &ComponentId| !used.contains(id) || !is_unchanged(id, config, next);
        let replaced: Vec<ComponentId> = self.active.keys().filter(|id| is_replaced(id)).cloned().collect();
        for id in replaced {
            let Some(destination) = self.active.remove(&id) else { continue };
            if config.exporters.get(&id).is_some_and(has_storage) {
                // What is not sent in time stays on disk.
                self.retire(&destination, SHUTDOWN_TIMEOUT);
            } else {
                self.retired.push((destination, Instant::now() + RETIREMENT_TIMEOUT));
            }
        }
        let mut new = opened.0;
        for (id, _) in next.used_exporters().filter(|(_, exporter)| has_storage(exporter)) {
            if self.active.contains_key(id) {
                continue;
            }
            let reopened = open(id, next).or_else(|failure| {
                error!(exporter = %id, "{failure:#}; the exporter keeps its old configuration");
                open(id, config)
            });
            match reopened {
                Ok(destination) => drop(new.insert(id.clone(), destination)),
                Err(failure) => error!(exporter = %id, "{failure:#}; this exporter sends nothing"),
            }
        }
        for (id, destination) in new {
            self.stats.add_exporter(&destination);
            self.active.insert(id, destination);
        }
    }

    /// Ends the replaced exporters that have sent everything, or whose deadline has passed.
    pub(super) fn reap_retired(&mut self) {
        let retiring = std::mem::take(&mut self.retired);
        for (destination, deadline) in retiring {
            if destination.stats().counts.queued.events == 0 || Instant::now() >= deadline {
                self.retire(&destination, Duration::ZERO);
            } else {
                self.retired.push((destination, deadline));
            }
        }
    }

    fn retire(&self, destination: &Arc<Destination>, timeout: Duration) {
        destination.close(timeout);
        finish(std::slice::from_ref(destination), Instant::now() + timeout + THREAD_JOIN_TIMEOUT);
        self.stats.retire_exporter(destination);
    }

    /// Sends what is queued, within [`SHUTDOWN_TIMEOUT`] of `stop_time`, and logs how many events each exporter delivered
    /// and lost. Returns false if the thread of an exporter hangs.
    pub(super) fn shutdown(self, stop_time: Instant) -> bool {
        let retiring = self.retired.into_iter().map(|(destination, _)| destination);
        let all: Vec<Arc<Destination>> = self.active.into_values().chain(retiring).collect();
        // All at once, so that a slow exporter does not use up the time of the others.
        let timeout = SHUTDOWN_TIMEOUT.saturating_sub(stop_time.elapsed()).max(LAST_REQUEST_TIMEOUT);
        all.iter().for_each(|destination| destination.close(timeout));
        finish(&all, Instant::now() + timeout + THREAD_JOIN_TIMEOUT)
    }
}

/// Waits until these exporters have ended, or until the deadline. Returns false if one has not.
fn finish(destinations: &[Arc<Destination>], deadline: Instant) -> bool {
    destinations.iter().fold(true, |all_ended, destination| {
        let ending = Arc::clone(destination);
        let has_ended =
            supervise::run_with_deadline(deadline, "end-export", move || ending.finish()).is_some();
        if !has_ended {
            error!(
                exporter = destination.name(),
                "this exporter's thread did not stop in time and is abandoned"
            );
        }
        all_ended && has_ended
    })
}

fn open(id: &ComponentId, config: &Config) -> Result<Arc<Destination>, Failure> {
    // Equal shares: an exporter whose endpoint is gone must not use up the memory of the others.
    let memory_bytes = MemoryBudget::for_queues(config) / config.used_exporters().count().max(1);
    Destination::open(id, config, memory_bytes).map(Arc::new)
}

fn output_file(exporter: &ExporterConfig) -> Option<&Path> {
    match exporter {
        ExporterConfig::File(exporter) => Some(&exporter.path),
        ExporterConfig::OtlpGrpc(_) | ExporterConfig::OtlpHttp(_) | ExporterConfig::Debug(_) => None,
    }
}

fn has_storage(exporter: &ExporterConfig) -> bool {
    match exporter {
        ExporterConfig::OtlpGrpc(exporter) => exporter.sending_queue.storage.is_some(),
        ExporterConfig::OtlpHttp(exporter) => exporter.sending_queue.storage.is_some(),
        ExporterConfig::File(_) | ExporterConfig::Debug(_) => false,
    }
}

/// Whether an exporter and the extensions that it uses are the same in both configurations.
fn is_unchanged(id: &ComponentId, config: &Config, next: &Config) -> bool {
    let is_used = |config: &Config| config.used_exporters().any(|(used, _)| used == id);
    is_used(config)
        && is_used(next)
        && exporter_with_extensions(id, config) == exporter_with_extensions(id, next)
}

fn exporter_with_extensions<'a>(
    id: &ComponentId,
    config: &'a Config,
) -> (Option<&'a ExporterConfig>, Vec<Option<&'a Extension>>) {
    let exporter = config.exporters.get(id);
    let extensions = match exporter {
        Some(ExporterConfig::OtlpGrpc(exporter)) => [&exporter.auth, &exporter.sending_queue.storage],
        Some(ExporterConfig::OtlpHttp(exporter)) => [&exporter.auth, &exporter.sending_queue.storage],
        Some(ExporterConfig::File(_) | ExporterConfig::Debug(_)) | None => [&None, &None],
    };
    (exporter, extensions.map(|id| id.as_ref().and_then(|id| config.extensions.get(id))).to_vec())
}
