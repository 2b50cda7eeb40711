//! What a process has in its memory for debuggers of the code that it makes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_process::{ForeignMemory as _, JitListError, ProcessMemory, SymbolFile, read_jit_list};
use sidewinder_symbolize::JitSymbols;
use tracing::debug;

use crate::foreign::ForeignProcess;

/// Variables of one process that lead to lists: a program may have several compilers in it.
const DESCRIPTORS_MAX: usize = 4;
/// The longest file that is read. LLVM's are some kB, with debug information some hundred.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of files that are read at once. What is left is read the next time.
const READ_BATCH_BYTES_MAX: u64 = 8 << 20;
/// How long a list that could not be read is left alone. One without end takes long each time.
const BACKOFF: Duration = Duration::from_secs(10);

/// How long the memory of a process is waited for: what is read at once takes some milliseconds.
const READ_TIMEOUT: Duration = Duration::from_millis(250);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct GdbJitInterface {
    descriptors: Vec<Avma>,
    /// Files that have been taken up.
    loaded_files: HashSet<SymbolFile>,
    symbols: JitSymbols,
    /// Lists and files that could not be read.
    failed_reads: u64,
    backoff_until: Option<Instant>,
}

impl GdbJitInterface {
    /// That of a process whose variables are there; names take `room_bytes` at most.
    pub(super) fn new(mut descriptors: Vec<Avma>, room_bytes: usize) -> Option<Self> {
        descriptors.sort_unstable();
        descriptors.dedup();
        descriptors.truncate(DESCRIPTORS_MAX);
        let symbols = JitSymbols::new(room_bytes);
        (!descriptors.is_empty()).then(|| Self {
            descriptors,
            loaded_files: HashSet::new(),
            symbols,
            failed_reads: 0,
            backoff_until: None,
        })
    }

    /// Takes up what the process has made since, and forgets what it has thrown away.
    pub(super) fn refresh(&mut self, process: &ForeignProcess) {
        if self.backoff_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let (descriptors, known) = (self.descriptors.clone(), self.loaded_files.clone());
        let changes =
            process.read_within(READ_TIMEOUT, move |memory| JitChanges::read(memory, &descriptors, known));
        match changes {
            Ok(Ok(changes)) => self.apply(changes),
            Ok(Err(JitListError::Busy)) => {}
            Ok(Err(error)) => self.back_off(&error),
            Err(error) => self.back_off(&error),
        }
    }

    fn apply(&mut self, changes: JitChanges) {
        if changes.is_reset {
            self.symbols.clear();
        }
        self.loaded_files = changes.loaded_files;
        for content in changes.added {
            match content {
                Some(bytes) => self.symbols.add(&bytes),
                None => self.failed_reads += 1,
            }
        }
    }

    fn back_off(&mut self, error: &impl std::error::Error) {
        debug!(%error, "no names of code that a process made");
        self.failed_reads += 1;
        self.backoff_until = Some(Instant::now() + BACKOFF);
    }

    /// The function that holds an address.
    pub(super) fn lookup(&self, address: u64) -> Option<&str> {
        self.symbols.lookup(address)
    }

    /// Functions for which there was no room, and what could not be read.
    pub(super) fn omitted(&self) -> u64 {
        self.failed_reads + self.symbols.cut()
    }

    /// Memory held, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.symbols.heap_bytes() + self.loaded_files.capacity() * size_of::<SymbolFile>()
    }
}

/// What a process has made since it was looked at last.
#[derive(Debug)]
struct JitChanges {
    /// Files that have been taken up, those of now included.
    loaded_files: HashSet<SymbolFile>,
    /// Whether what was known before is forgotten.
    is_reset: bool,
    /// The files of now, of those that can be read their contents.
    added: Vec<Option<Vec<u8>>>,
}

impl JitChanges {
    fn read(
        memory: &ProcessMemory,
        descriptors: &[Avma],
        mut known: HashSet<SymbolFile>,
    ) -> Result<Self, JitListError> {
        let lists: Result<Vec<_>, JitListError> =
            descriptors.iter().map(|descriptor| read_jit_list(memory, *descriptor)).collect();
        let listed = lists?.concat();
        let now: HashSet<SymbolFile> = listed.iter().copied().collect();
        // Nothing tells which names of what is gone are another file's too.
        let is_anew = !known.is_subset(&now);
        if is_anew {
            known.clear();
        }
        let mut added = Vec::new();
        let mut left_bytes = READ_BATCH_BYTES_MAX;
        // In the order in which they were added, so that the newest holds.
        for file in listed.into_iter().rev() {
            if known.contains(&file) {
                continue;
            }
            if file.bytes <= FILE_BYTES_MAX {
                let Some(left) = left_bytes.checked_sub(file.bytes) else { break };
                left_bytes = left;
            }
            known.insert(file);
            added.push(read(memory, &file));
        }
        Ok(Self { loaded_files: known, is_reset: is_anew, added })
    }
}

fn read(memory: &ProcessMemory, file: &SymbolFile) -> Option<Vec<u8>> {
    let length = usize::try_from(file.bytes).ok().filter(|_| file.bytes <= FILE_BYTES_MAX)?;
    let mut bytes = vec![0; length];
    memory.read_exact(file.start, &mut bytes).ok()?;
    Some(bytes)
}
