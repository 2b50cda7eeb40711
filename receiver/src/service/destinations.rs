//! The exporters that pipelines use, and how they are replaced without losing what they hold.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_config::{ComponentId, Config, Exporter, Extension};
use tracing::error;

use crate::exit::{Cause, Failure};
use crate::export::Destination;
use crate::memory::Budget;
use crate::stats::ServiceStats;
use crate::supervise;

/// How long it may take from the signal to stop until exporters have sent what is left.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_millis(1500);
/// What exporters have for that at the least: a request to a Collector nearby.
const LAST_REQUEST_TIMEOUT: Duration = Duration::from_millis(200);
/// How long the thread of an exporter may take to end after that.
const END_PATIENCE: Duration = Duration::from_secs(3);
/// How long an exporter that was replaced goes on sending what it holds.
const RETIREMENT: Duration = Duration::from_secs(600);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Destinations {
    stats: Arc<ServiceStats>,
    present: BTreeMap<ComponentId, Arc<Destination>>,
    /// Those that were replaced and still send, and until when they may.
    retiring: Vec<(Arc<Destination>, Instant)>,
}

/// New exporters that nobody uses yet.
#[derive(Debug)]
pub(super) struct Opened(BTreeMap<ComponentId, Arc<Destination>>);

impl Destinations {
    pub(super) fn open(config: &Config, stats: &Arc<ServiceStats>) -> Result<Self, Failure> {
        let mut present = BTreeMap::new();
        for (id, _) in used(config) {
            let destination = open(id, config)?;
            stats.exporter_opened(&destination);
            present.insert(id.clone(), destination);
        }
        Ok(Self { stats: Arc::clone(stats), present, retiring: Vec::new() })
    }

    pub(super) fn get(&self, id: &ComponentId) -> Option<&Arc<Destination>> {
        self.present.get(id)
    }

    /// Opens what `next` has and `config` has not, or not like this. Where one can't be opened none is.
    ///
    /// Exporters that keep their queue on disk are left to [`Self::change`]: the disk belongs to one at a time.
    pub(super) fn prepare(&self, config: &Config, next: &Config) -> Result<Opened, Failure> {
        let written: BTreeSet<&Path> = used(config).filter_map(|(_, exporter)| file(exporter)).collect();
        let mut opened = Opened(BTreeMap::new());
        for (id, exporter) in used(next).filter(|(id, _)| !is_same(id, config, next)) {
            if file(exporter).is_some_and(|path| written.contains(path)) {
                let what =
                    format!("exporter {id} would begin a file anew that is being written: name another path");
                return Err(Failure::new(Cause::Usage, what));
            }
            if !has_storage(exporter) {
                opened.0.insert(id.clone(), open(id, next)?);
            }
        }
        Ok(opened)
    }

    /// Puts exporters into the place of those that `next` does not have, or not like this. Nobody may send meanwhile.
    pub(super) fn change(&mut self, config: &Config, next: &Config, opened: Opened) {
        let wanted: BTreeSet<&ComponentId> = used(next).map(|(id, _)| id).collect();
        let is_replaced = |id: &ComponentId| !wanted.contains(id) || !is_same(id, config, next);
        let replaced: Vec<ComponentId> = self.present.keys().filter(|id| is_replaced(id)).cloned().collect();
        for id in replaced {
            let Some(destination) = self.present.remove(&id) else { continue };
            if config.exporters.get(&id).is_some_and(has_storage) {
                // What is not sent by then stays on the disk.
                self.end(&destination, SHUTDOWN_TIMEOUT);
            } else {
                self.retiring.push((destination, Instant::now() + RETIREMENT));
            }
        }
        let mut new = opened.0;
        for (id, _) in used(next).filter(|(_, exporter)| has_storage(exporter)) {
            if self.present.contains_key(id) {
                continue;
            }
            let reopened = open(id, next).or_else(|failure| {
                error!(exporter = %id, "{failure}; going on with the exporter as it was");
                open(id, config)
            });
            match reopened {
                Ok(destination) => drop(new.insert(id.clone(), destination)),
                Err(failure) => error!(exporter = %id, "{failure}; nothing is sent by this exporter"),
            }
        }
        for (id, destination) in new {
            self.stats.exporter_opened(&destination);
            self.present.insert(id, destination);
        }
    }

    /// Ends those that were replaced and have sent what they held.
    pub(super) fn end_retired(&mut self) {
        let retiring = std::mem::take(&mut self.retiring);
        for (destination, deadline) in retiring {
            if destination.stats().counts.queued.events == 0 || Instant::now() >= deadline {
                self.end(&destination, Duration::ZERO);
            } else {
                self.retiring.push((destination, deadline));
            }
        }
    }

    fn end(&self, destination: &Arc<Destination>, timeout: Duration) {
        destination.close(timeout);
        finish(std::slice::from_ref(destination), Instant::now() + timeout + END_PATIENCE);
        self.stats.exporter_ended(destination);
    }

    /// Sends what is left in the time that there is since `told_at`, and logs how many events each exporter delivered and
    /// lost. False: the thread of an exporter hangs.
    pub(super) fn shutdown(self, told_at: Instant) -> bool {
        let retiring = self.retiring.into_iter().map(|(destination, _)| destination);
        let all: Vec<Arc<Destination>> = self.present.into_values().chain(retiring).collect();
        // All at once: one that takes its time must not take the others'.
        let timeout = SHUTDOWN_TIMEOUT.saturating_sub(told_at.elapsed()).max(LAST_REQUEST_TIMEOUT);
        all.iter().for_each(|destination| destination.close(timeout));
        finish(&all, Instant::now() + timeout + END_PATIENCE)
    }
}

/// Waits until these exporters have ended, or until the deadline. False: one has not.
fn finish(destinations: &[Arc<Destination>], deadline: Instant) -> bool {
    destinations.iter().fold(true, |all_ended, destination| {
        let ending = Arc::clone(destination);
        let has_ended = supervise::until(deadline, "end-export", move || ending.finish()).is_some();
        if !has_ended {
            error!(
                exporter = destination.name(),
                "the thread of this exporter has not ended: it is left behind"
            );
        }
        all_ended && has_ended
    })
}

fn open(id: &ComponentId, config: &Config) -> Result<Arc<Destination>, Failure> {
    // A share for each: one whose receiver is gone must not fill up what others need.
    let memory_bytes = Budget::of_queues(config) / used(config).count().max(1);
    Destination::open(id, config, memory_bytes).map(Arc::new)
}

/// The exporters that a pipeline uses.
fn used(config: &Config) -> impl Iterator<Item = (&ComponentId, &Exporter)> {
    config
        .exporters
        .iter()
        .filter(|(id, _)| config.pipelines.values().any(|pipeline| pipeline.exporters.contains(id)))
}

fn file(exporter: &Exporter) -> Option<&Path> {
    match exporter {
        Exporter::File(exporter) => Some(&exporter.path),
        Exporter::OtlpGrpc(_) | Exporter::OtlpHttp(_) | Exporter::Debug(_) => None,
    }
}

fn has_storage(exporter: &Exporter) -> bool {
    match exporter {
        Exporter::OtlpGrpc(exporter) => exporter.sending_queue.storage.is_some(),
        Exporter::OtlpHttp(exporter) => exporter.sending_queue.storage.is_some(),
        Exporter::File(_) | Exporter::Debug(_) => false,
    }
}

/// Whether both configurations say the same of an exporter and the extensions that it asks.
fn is_same(id: &ComponentId, config: &Config, next: &Config) -> bool {
    let is_used = |config: &Config| used(config).any(|(used, _)| used == id);
    is_used(config) && is_used(next) && said(id, config) == said(id, next)
}

fn said<'a>(id: &ComponentId, config: &'a Config) -> (Option<&'a Exporter>, Vec<Option<&'a Extension>>) {
    let exporter = config.exporters.get(id);
    let asked = match exporter {
        Some(Exporter::OtlpGrpc(exporter)) => [&exporter.auth, &exporter.sending_queue.storage],
        Some(Exporter::OtlpHttp(exporter)) => [&exporter.auth, &exporter.sending_queue.storage],
        Some(Exporter::File(_) | Exporter::Debug(_)) | None => [&None, &None],
    };
    (exporter, asked.map(|id| id.as_ref().and_then(|id| config.extensions.get(id))).to_vec())
}
