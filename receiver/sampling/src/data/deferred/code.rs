//! Looks up the code of a process for deferred walks. It uses only files and tables, since the process may have exited.

use std::collections::HashSet;

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{Profiler, WalkedRuntime};
use sidewinder_process::{FileId, Process, ReadAt as _};
use sidewinder_unwind::CALL_BYTES;

use super::code_lookup::{CodeLocation, CodeLookup};
use crate::{ProcessView, VmCode};

/// The code of a process.
pub(crate) struct ProcessCode<'a, 'view, 'obj> {
    process: &'a Process,
    view: &'a mut ProcessView<'view>,
    profiler: &'a Profiler<'obj>,
    files_seen: HashSet<FileId>,
    /// The runtime of which the code that the process generates is, once that was looked up.
    generator: Option<Option<WalkedRuntime>>,
}

impl<'a, 'view, 'obj> ProcessCode<'a, 'view, 'obj> {
    pub(crate) fn new(
        process: &'a Process,
        view: &'a mut ProcessView<'view>,
        profiler: &'a Profiler<'obj>,
    ) -> Self {
        Self { process, view, profiler, files_seen: HashSet::new(), generator: None }
    }

    /// The files that the walk has encountered.
    pub(crate) fn into_files_seen(self) -> HashSet<FileId> {
        self.files_seen
    }
}

impl CodeLookup for ProcessCode<'_, '_, '_> {
    fn locate(&mut self, address: Avma) -> CodeLocation {
        let Some(mapping) = self.process.mapping_set().find(address) else { return CodeLocation::Unmapped };
        let Some(file) = self.view.file_of(self.process, mapping) else { return CodeLocation::Anonymous };
        let Some(offset) = mapping.file_offset_of(address) else { return CodeLocation::Unmapped };
        let Some(rule) = self.view.rule_at(file, offset, self.profiler) else {
            return CodeLocation::TableNotLoaded { file, offset };
        };
        self.files_seen.insert(file);
        CodeLocation::File { file, offset, rule }
    }

    fn vm_code_at(&self, file: FileId, offset: FileOffset) -> Option<VmCode> {
        self.view.vm_code_at(file, offset)
    }

    fn generator(&mut self) -> Option<WalkedRuntime> {
        let Self { process, view, .. } = self;
        *self.generator.get_or_insert_with(|| view.generator_of(process))
    }

    fn bytes_before(&mut self, address: Avma) -> Option<[u8; CALL_BYTES]> {
        let start = Avma(address.0.checked_sub(CALL_BYTES as u64)?);
        let mapping = self.process.mapping_set().find(start)?;
        let offset = mapping.file_offset_of(start)?;
        let file = self.view.file_of(self.process, mapping)?;
        let mut bytes = [0; CALL_BYTES];
        self.view.content_of(file)?.read_exact_at(&mut bytes, offset.0).ok()?;
        Some(bytes)
    }
}
