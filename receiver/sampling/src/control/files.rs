//! The files that processes map: their identities, their unwind tables, and which of them have been announced to the
//! reporter.
//!
//! Owner: the sampling thread.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use sidewinder_address::LoadSegment;
use sidewinder_bpf::{Arena, Profiler};
use sidewinder_message::{FileInfo, Message};
use sidewinder_process::{ExecutableMapping, FileId, FileTable, FileTableLimits, Pid, ProcRoot, Process};
use sidewinder_tables::{Binaries, BuildError, ReadyFile};
use sidewinder_text::ExternalText;
use tracing::{debug, info, warn};

use super::runtimes::RuntimeTracker;

/// The identities and unwind tables of mapped files.
#[derive(Debug)]
pub(crate) struct FileTracker {
    pub(crate) table: FileTable,
    pub(crate) binaries: Binaries,
    /// Files that the reporter knows, and whether they were announced with their headers.
    announced: HashMap<FileId, bool>,
}

impl FileTracker {
    pub(crate) fn new(binaries: Binaries) -> Self {
        Self {
            table: FileTable::new(ProcRoot::default(), FileTableLimits::default()),
            binaries,
            announced: HashMap::new(),
        }
    }

    /// The file of a mapping; `None` if it has none. Records why a file can't be read.
    pub(super) fn identify(&mut self, process: &Process, mapping: &ExecutableMapping) -> Option<FileId> {
        let identified = self.table.identify(process, mapping)?;
        if let (Some(error), Some(file)) = (&identified.unreadable, mapping.backing.file()) {
            self.binaries.refusals().record_code(process.pid(), file.path(), error);
        }
        Some(identified.id)
    }

    /// Announces a file that frames refer to, unless it already is, and keeps it.
    pub(super) fn announce(&mut self, file: FileId) -> Option<Message> {
        self.binaries.touch(file);
        if self.announced.contains_key(&file) { None } else { self.announcement(file, None) }
    }

    /// Announces a file whose headers have been read, even if it was announced without them.
    fn announce_with_headers(&mut self, file: FileId, loads: &[LoadSegment]) -> Option<Message> {
        let has_headers = self.announced.get(&file).is_some_and(|has_headers| *has_headers);
        if has_headers { None } else { self.announcement(file, Some(loads)) }
    }

    fn announcement(&mut self, file: FileId, loads: Option<&[LoadSegment]>) -> Option<Message> {
        let entry = self.table.get(file)?;
        let info = FileInfo {
            path: String::from_utf8_lossy(entry.path()).into_owned(),
            build_ids: entry.build_ids().clone(),
            hash: entry.hash(),
            loads: loads.unwrap_or_default().to_vec(),
            content: entry.opened().cloned(),
            companions: self.binaries.companions(file),
        };
        self.announced.insert(file, loads.is_some());
        Some(Message::File(file, Arc::new(info)))
    }

    /// Loads the unwind tables that have been built. Adds the runtimes that their files contain. Returns the
    /// announcements of the files, and the processes to publish again; a process may be listed more than once.
    pub(super) fn load_built(
        &mut self,
        profiler: &mut Profiler<'_>,
        runtimes: &mut RuntimeTracker,
    ) -> (Vec<Message>, Vec<Pid>) {
        let (mut announcements, mut users) = (Vec::new(), Vec::new());
        for ready in self.binaries.load_ready(&mut profiler.arena, &mut profiler.tables) {
            self.log_failure(&ready);
            self.log_left_out(&ready, &profiler.arena);
            announcements.extend(self.announce_with_headers(ready.file, &ready.loads));
            if let Some(layout) = ready.pthread {
                runtimes.add_c_library(ready.file, layout);
            }
            if let Some(runtime) = ready.runtime
                && !runtimes.add_file(ready.file, runtime)
            {
                let path = self.shown_path(ready.file);
                warn!(%path, "degraded: Python functions are not shown, because the evaluation loop has too many parts");
            }
            users.extend(ready.users);
        }
        (announcements, users)
    }

    fn log_left_out(&self, ready: &ReadyFile, arena: &Arena) {
        if ready.is_left_out {
            let enough_mib = self.binaries.incomplete_tables(arena).memory_limit_mib;
            let path = self.shown_path(ready.file);
            info!(
                %path,
                "its unwind table does not fit: stacks through functions not seen before are walked late; \
                 memory_limit_mib: {enough_mib} would hold all tables"
            );
        }
    }

    fn shown_path(&self, file: FileId) -> ExternalText<'_> {
        ExternalText::from_bytes(self.table.get(file).map_or(&[][..], |entry| entry.path()))
    }

    fn log_failure(&self, ready: &ReadyFile) {
        let Some(error) = &ready.failure else { return };
        let (path, reason) = (self.shown_path(ready.file), error as &dyn Error);
        match error {
            BuildError::OverBudget(_) if ready.is_known_failure => {}
            BuildError::OverBudget(_) | BuildError::Panicked => {
                warn!(%path, reason, "degraded: incomplete unwind table");
            }
            BuildError::Elf(_) | BuildError::Unwind(_) => debug!(%path, reason, "no unwind table"),
        }
    }

    /// Forgets the files that no process has mapped for this long, and returns them.
    pub(super) fn forget_unused(&mut self, age: Duration, profiler: &mut Profiler<'_>) -> Vec<FileId> {
        let unused = self.binaries.forget_unused(age, &mut profiler.arena, &mut profiler.tables);
        for file in &unused {
            self.table.forget(*file);
        }
        unused
    }

    /// Tells the reporter to forget a file, if it was announced.
    pub(super) fn retract(&mut self, file: FileId) -> Option<Message> {
        self.announced.remove(&file).map(|_| Message::ForgetFile(file))
    }
}
