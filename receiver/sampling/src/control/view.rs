//! What the data part reads of the control part, and what it asks of it.

use sidewinder_address::FileOffset;
use sidewinder_base::foreign::ForeignReader;
use sidewinder_bpf::{Newcomer, Outcome, Profiler, SampleRecord, WalkedRuntime};
use sidewinder_process::{ExecutableMapping, FileId, FileTable, OpenedFile, Pid, Process};
use sidewinder_tables::Binaries;
use sidewinder_unwind::Rule;

use super::membership::Membership;
use super::processes::ProcessTracker;
use super::replacements::MappingReplacements;
use super::runtimes::{RuntimeTracker, VmCode};

/// The processes in scope and their code, as of the process events that have been applied.
///
/// Nothing here changes what control knows. The exception is a cache: identifying a file for the first time opens it.
pub(crate) struct ProcessView<'a> {
    pub(super) processes: &'a ProcessTracker,
    pub(super) membership: &'a Membership,
    pub(super) replacements: &'a MappingReplacements,
    pub(super) files: &'a mut FileTable,
    pub(super) binaries: &'a Binaries,
    pub(super) runtimes: &'a RuntimeTracker,
}

impl<'a> ProcessView<'a> {
    /// Whether a sample is of a process out of scope.
    pub(crate) fn leaves_out(&self, sample: &SampleRecord) -> bool {
        self.membership.leaves_out(sample, self.processes)
    }

    /// The process that a sample belongs to.
    pub(crate) fn process_of(&self, sample: &SampleRecord) -> Option<&'a Process> {
        self.processes.process_of(sample)
    }

    /// The running process that has a PID.
    pub(crate) fn running(&self, pid: Pid) -> Option<&'a Process> {
        self.processes.registry.process(pid)
    }

    /// Whether the walk of a sample may have used mappings that its process had replaced.
    pub(crate) fn may_be_stale(&self, sample: &SampleRecord) -> bool {
        self.replacements.affects(sample)
    }

    /// The reader of processes' memory and of their files in `/proc`.
    pub(crate) fn reader(&self) -> &'a ForeignReader {
        self.processes.reader()
    }

    /// The file of a mapping; `None` if it has none.
    pub(crate) fn file_of(&mut self, process: &Process, mapping: &ExecutableMapping) -> Option<FileId> {
        self.files.identify(process, mapping).map(|identified| identified.id)
    }

    /// The content of a file, while it can be read.
    pub(crate) fn content_of(&self, file: FileId) -> Option<&OpenedFile> {
        self.files.get(file)?.opened()
    }

    /// The rule at an offset of a file, or the outcome of a walk there. `None`: its table is not loaded; see [`Request::Table`].
    pub(crate) fn rule_at(
        &self,
        file: FileId,
        at: FileOffset,
        profiler: &Profiler<'_>,
    ) -> Option<Result<Rule, Outcome>> {
        if !self.binaries.is_tracked(file) && self.content_of(file).is_none() {
            return Some(Err(Outcome::NoRule));
        }
        self.binaries.rule_at(file, at, &profiler.arena, &profiler.tables)
    }

    /// Whether the rule at an offset of a file can be looked up, now that it has been requested.
    pub(crate) fn has_rule(&self, file: FileId, at: FileOffset, profiler: &Profiler<'_>) -> bool {
        self.binaries.rule_at(file, at, &profiler.arena, &profiler.tables).is_some()
    }

    /// The code of a runtime at a location in a file, if it executes frames that are not in snapshots of stacks.
    pub(crate) fn vm_code_at(&self, file: FileId, at: FileOffset) -> Option<VmCode> {
        self.runtimes.code_at(file, at)
    }

    /// The runtime of which the code that a process generates is, if a snapshot says no more of its functions.
    pub(crate) fn generator_of(&mut self, process: &Process) -> Option<WalkedRuntime> {
        let runtimes = self.runtimes;
        if !runtimes.has_generator() {
            return None;
        }
        process.mappings().find_map(|mapping| runtimes.generator(self.file_of(process, mapping)?))
    }
}

/// What the data part asks of the control part. Control answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    /// Open the events of a container of the pod.
    OpenContainer(Newcomer),
    /// Look for what a process publishes of its generated code, while it exists: a sample has arrived from it.
    FindJitSource(Pid),
    /// Tell the reporter of a file that frames refer to, and keep it open.
    UseFile(FileId),
    /// Read the mappings of a process again: a walk has missed one.
    Rescan(Pid),
    /// Build or load the table at an offset of a file: a walk in this process has missed it.
    Table { file: FileId, at: FileOffset, user: Pid },
}
