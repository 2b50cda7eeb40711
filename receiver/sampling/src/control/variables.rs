//! The thread-local variables in which the threads of a process publish their span. Each has a known symbol name. Its
//! address follows from the symbol in its file and from what the dynamic linker has written into the process.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;

use sidewinder_bpf::{Pointee, TlsVariable, TlsVector};
use sidewinder_process::tls::{TlsSymbol, TlsVariableError, read_constant};
use sidewinder_process::{FileId, FileTable, ForeignMemory, GoLabels, Process, ReadAt};
use sidewinder_vm::published_location;
use tracing::debug;

/// The pointer to the record of a thread (OTEP 4947).
const RECORD_SYMBOL: &[u8] = b"otel_thread_ctx_v1";
/// The pointer to the labels of a thread (custom-labels), and the constant that states the version of that interface.
const LABEL_SET_SYMBOL: &[u8] = b"custom_labels_current_set";
const LABEL_SET_VERSION: (&[u8], u32) = (b"custom_labels_abi_version", 1);

/// The symbols of the variables, by file; `None`: the file has none.
#[derive(Debug, Default)]
pub(super) struct ContextVariables {
    records: HashMap<FileId, Option<TlsSymbol>>,
    label_sets: HashMap<FileId, Option<TlsSymbol>>,
}

impl ContextVariables {
    /// Forgets a file.
    pub(super) fn forget(&mut self, file: FileId) {
        self.records.remove(&file);
        self.label_sets.remove(&file);
    }

    /// The variables of a process, not yet located in its memory. There are few: one for each library that defines one.
    pub(super) fn find(
        &mut self,
        to: Pointee,
        process: &Process,
        files: &mut FileTable,
    ) -> Vec<UnlocatedVariable> {
        let mut found = Vec::new();
        let vector = thread_vector(process);
        for mapping in process.mappings() {
            let Some(file) = files.identify(process, mapping).map(|identified| identified.id) else {
                continue;
            };
            let Some(symbol) = self.symbol(to, file, files) else { continue };
            let Some(bias) = symbol.bias_of(mapping) else { continue };
            found.push(UnlocatedVariable { symbol: symbol.clone(), bias, vector, pointee: to });
        }
        found
    }

    /// How to reach the labels of the current goroutine, if the process runs a Go program; at most one variable.
    pub(super) fn find_goroutine(process: &Process, files: &mut FileTable) -> Vec<TlsVariable> {
        for mapping in process.mappings() {
            let Some(file) = files.identify(process, mapping).map(|identified| identified.id) else {
                continue;
            };
            let labels = files.get(file).and_then(|entry| GoLabels::read(entry.opened()?).ok()?);
            if let Some(GoLabels { g, curg, labels, is_slice }) = labels
                && let Ok(g) = g.map(i32::try_from).transpose()
            {
                return vec![TlsVariable::Goroutine { g, curg, labels, is_slice }];
            }
        }
        Vec::new()
    }

    fn symbol(&mut self, to: Pointee, file: FileId, files: &FileTable) -> Option<&TlsSymbol> {
        let known = match to {
            Pointee::Record => &mut self.records,
            Pointee::LabelSet => &mut self.label_sets,
        };
        match known.entry(file) {
            Entry::Occupied(known) => known.into_mut().as_ref(),
            Entry::Vacant(vacant) => {
                let opened = files.get(file)?.opened()?;
                let symbol = match to {
                    Pointee::Record => TlsSymbol::read(opened, RECORD_SYMBOL),
                    Pointee::LabelSet => read_label_set(opened),
                };
                // A file that can't be read is not retried.
                vacant.insert(symbol.unwrap_or_default()).as_ref()
            }
        }
    }
}

/// A variable defined by a file that a process maps, at an address that is not known yet.
#[derive(Debug)]
pub(super) struct UnlocatedVariable {
    symbol: TlsSymbol,
    bias: u64,
    vector: TlsVector,
    pointee: Pointee,
}

impl UnlocatedVariable {
    /// Locates variables in the memory of their process, and adds each location once.
    pub(super) fn locate_all(all: &[Self], memory: &impl ForeignMemory, found: &mut Vec<TlsVariable>) {
        for Self { symbol, bias, vector, pointee: to } in all {
            let located = symbol.locate(*bias, memory).map(|at| published_location(at, *vector));
            match located.map(|at| at.map(|at| TlsVariable::Variable { at, to: *to })) {
                Ok(Some(variable)) if !found.contains(&variable) => found.push(variable),
                Ok(_) | Err(TlsVariableError::NotYet) => {}
                Err(error) => debug!(%error, "no thread context"),
            }
        }
    }
}

/// The symbol of the labels, if the file states a supported version.
fn read_label_set(file: &impl ReadAt) -> io::Result<Option<TlsSymbol>> {
    let Some(symbol) = TlsSymbol::read(file, LABEL_SET_SYMBOL)? else { return Ok(None) };
    let (name, version) = LABEL_SET_VERSION;
    Ok((read_constant(file, name)? == Some(version)).then_some(symbol))
}

/// The format of the dynamic thread vectors of a process: that of its C library.
pub(super) fn thread_vector(process: &Process) -> TlsVector {
    // The file name of musl depends on the distribution. glibc's `libc.so` is a linker script, which is never mapped.
    let is_musl_name =
        |name: &[u8]| name == b"libc.so" || name.starts_with(b"ld-musl-") || name.starts_with(b"libc.musl-");
    let mut names = process.mappings().filter_map(|mapping| Some(mapping.backing.file()?.name()));
    if names.any(is_musl_name) { TlsVector::Musl } else { TlsVector::Glibc }
}
