//! Looks up the code of a process for deferred walks. It uses only files and tables, since the process may have exited.

use std::collections::HashSet;

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{Outcome, Profiler};
use sidewinder_process::{FileId, Process, ReadAt as _};
use sidewinder_unwind::CALL_BYTES;

use super::walk::{CodeLocation, CodeLookup};
use crate::sampling::control::{FileTracker, InterpreterTracker, VmCode};

/// The code of a process.
pub(crate) struct ProcessCode<'a, 'obj> {
    process: &'a Process,
    files: &'a mut FileTracker,
    profiler: &'a Profiler<'obj>,
    interpreters: &'a InterpreterTracker,
    files_seen: HashSet<FileId>,
    /// Whether the process maps a file with V8, once that was looked up.
    maps_v8: Option<bool>,
}

impl<'a, 'obj> ProcessCode<'a, 'obj> {
    pub(crate) fn new(
        process: &'a Process,
        files: &'a mut FileTracker,
        interpreters: &'a InterpreterTracker,
        profiler: &'a Profiler<'obj>,
    ) -> Self {
        Self { process, files, profiler, interpreters, files_seen: HashSet::new(), maps_v8: None }
    }

    /// The files that the walk has encountered.
    pub(crate) fn into_files_seen(self) -> HashSet<FileId> {
        self.files_seen
    }
}

impl CodeLookup for ProcessCode<'_, '_> {
    /// Also requests the table of a file that is seen for the first time.
    fn locate(&mut self, address: Avma) -> CodeLocation {
        let (process, files) = (self.process, &mut *self.files);
        let Some(mapping) = process.mapping_set().find(address) else { return CodeLocation::Unmapped };
        let Some(identified) = files.table.identify(process, mapping) else { return CodeLocation::Anonymous };
        let file = identified.id;
        let Some(offset) = mapping.file_offset_of(address) else { return CodeLocation::Unmapped };
        let rule = if files.binaries.request_table(file, &files.table, process.pid()) {
            files.binaries.rule_at(file, offset, &self.profiler.arena, &self.profiler.tables)
        } else {
            Some(Err(Outcome::NoRule))
        };
        let Some(rule) = rule else { return CodeLocation::TableNotLoaded { file, offset } };
        self.files_seen.insert(file);
        CodeLocation::File { file, offset, rule }
    }

    fn vm_code_at(&self, file: FileId, offset: FileOffset) -> Option<VmCode> {
        self.interpreters.code_at(file, offset)
    }

    fn generates_javascript(&mut self) -> bool {
        let Self { process, files, interpreters, .. } = self;
        *self.maps_v8.get_or_insert_with(|| {
            interpreters.has_v8()
                && process.mappings().any(|mapping| {
                    files.table.identify(process, mapping).is_some_and(|file| interpreters.is_v8(file.id))
                })
        })
    }

    fn bytes_before(&mut self, address: Avma) -> Option<[u8; CALL_BYTES]> {
        let start = Avma(address.0.checked_sub(CALL_BYTES as u64)?);
        let mapping = self.process.mapping_set().find(start)?;
        let offset = mapping.file_offset_of(start)?;
        let file = self.files.table.identify(self.process, mapping)?.id;
        let mut bytes = [0; CALL_BYTES];
        self.files.table.get(file)?.opened()?.read_exact_at(&mut bytes, offset.0).ok()?;
        Some(bytes)
    }
}
