//! Publication into the BPF maps: the mapped ranges of each process, its thread-context variables, and its runtimes.
//!
//! Owner: the sampling thread. Input: processes and their files. Output: the BPF maps.

use std::collections::{BTreeSet, HashSet};

use sidewinder_bpf::{ProcessesError, Profiler, PublishedRuntime, TlsVariable};
use sidewinder_process::{Pid, Process};
use tracing::debug;

use super::files::FileTracker;
use super::replacements::MappingReplacements;

/// The state of publication.
#[derive(Debug, Default)]
pub(crate) struct Publication {
    /// Processes whose published mappings are from before their last exec.
    outdated: HashSet<Pid>,
    pub(crate) replacements: MappingReplacements,
}

impl Publication {
    /// Publishes a process as known up to `known_ns`, and requests the tables of its files.
    pub(super) fn publish(
        &mut self,
        process: &Process,
        variables: &[TlsVariable],
        runtimes: &[&PublishedRuntime],
        known_ns: u64,
        files: &mut FileTracker,
        profiler: &mut Profiler<'_>,
    ) {
        let pid = process.pid();
        // A scan may be newer than the last event.
        let known_ns = known_ns.max(process.known_since_ns());
        let (mut ranges, mut mapped) = (Vec::new(), BTreeSet::new());
        for mapping in process.mappings() {
            let file = files.identify(process, mapping);
            if let Some(file) = file
                && files.binaries.request_table(file, &files.table, pid)
            {
                mapped.insert(file);
            }
            files.binaries.push_ranges(&mut ranges, file, mapping);
        }
        files.binaries.set_mapped_files(pid, mapped);
        let (arena, tables) = (&mut profiler.arena, &mut profiler.tables);
        loop {
            match profiler.processes.publish(arena, pid.0, &ranges, variables, runtimes, known_ns) {
                Ok(()) => break,
                Err(ProcessesError::Mappings { .. }) if tables.evict_oldest(arena).is_some() => {}
                Err(error) => {
                    debug!(%error, "the stacks of this process will be incomplete");
                    // The published mappings are no longer current.
                    profiler.processes.remove(arena, pid.0);
                    return;
                }
            }
        }
        self.replacements.mark_published(pid);
        if profiler.processes.is_outdated(pid.0) {
            self.outdated.insert(pid);
        }
    }

    /// Removes a process that has exited, unless its PID is in use again.
    pub(super) fn unpublish(
        &mut self,
        pid: Pid,
        is_in_use: bool,
        files: &mut FileTracker,
        profiler: &mut Profiler<'_>,
    ) {
        self.outdated.remove(&pid);
        if !is_in_use {
            profiler.processes.remove(&mut profiler.arena, pid.0);
            files.binaries.set_mapped_files(pid, BTreeSet::new());
            self.replacements.mark_published(pid);
        }
    }

    /// Confirms the mappings of outdated processes for which all events up to `watermark_ns` are known.
    pub(super) fn confirm(&mut self, watermark_ns: u64, profiler: &Profiler<'_>) {
        self.outdated.retain(|pid| {
            profiler.processes.confirm(pid.0, watermark_ns);
            profiler.processes.is_outdated(pid.0)
        });
    }

    /// Whether any process waits for its mappings to be confirmed.
    pub(super) fn has_outdated(&self) -> bool {
        !self.outdated.is_empty()
    }
}
