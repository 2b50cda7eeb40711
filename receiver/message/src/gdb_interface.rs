//! The GDB JIT interface: symbol files of generated code that a process keeps in its memory for debuggers.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_process::{ForeignMemory, JitListError, SymbolFile, read_jit_list};
use sidewinder_symbolize::JitSymbols;
use tracing::debug;

use sidewinder_base::foreign::ForeignProcess;

/// The maximum number of descriptors of one process. A program may contain several compilers, each with its own descriptor.
const DESCRIPTORS_MAX: usize = 4;
/// The largest symbol file that is read. LLVM's have some kB, or some hundred kB with debug information.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// The maximum size of the files that are read at once. The rest is read the next time.
const READ_BATCH_BYTES_MAX: u64 = 8 << 20;
/// How long a list that could not be read is not retried. An endless list takes long each time.
const BACKOFF: Duration = Duration::from_secs(10);

/// How long to wait for the memory of a process. One batch normally takes some milliseconds.
const READ_TIMEOUT: Duration = Duration::from_millis(250);

/// The symbol files of one process.
#[derive(Debug)]
pub struct GdbJitInterface {
    descriptors: Vec<Avma>,
    /// Files that have been loaded.
    loaded_files: HashSet<SymbolFile>,
    symbols: JitSymbols,
    /// The number of lists and files that could not be read.
    failed_reads: u64,
    backoff_until: Option<Instant>,
}

impl GdbJitInterface {
    /// The interface of a process with these descriptors; `None` if there are none. `budget_bytes` limits the memory for
    /// names.
    pub(super) fn new(mut descriptors: Vec<Avma>, budget_bytes: usize) -> Option<Self> {
        descriptors.sort_unstable();
        descriptors.dedup();
        descriptors.truncate(DESCRIPTORS_MAX);
        let symbols = JitSymbols::new(budget_bytes);
        (!descriptors.is_empty()).then(|| Self {
            descriptors,
            loaded_files: HashSet::new(),
            symbols,
            failed_reads: 0,
            backoff_until: None,
        })
    }

    /// Loads the files that the process has added since the last time, and forgets those that it has removed.
    pub fn refresh(&mut self, process: &ForeignProcess) {
        if self.backoff_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let (descriptors, loaded_files) = (self.descriptors.clone(), self.loaded_files.clone());
        let changes = process
            .read_within(READ_TIMEOUT, move |memory| JitChanges::read(memory, &descriptors, loaded_files));
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
        debug!(%error, "can't read the names of generated code");
        self.failed_reads += 1;
        self.backoff_until = Some(Instant::now() + BACKOFF);
    }

    /// The function that contains an address.
    pub fn lookup(&self, address: u64) -> Option<&str> {
        self.symbols.lookup(address)
    }

    /// The number of symbol files that have been loaded.
    pub fn files(&self) -> usize {
        self.loaded_files.len()
    }

    /// The number of functions that didn't fit the budget, and of lists and files that could not be read.
    pub fn omitted(&self) -> u64 {
        self.failed_reads + self.symbols.cut()
    }

    /// The memory used, in bytes.
    pub fn heap_bytes(&self) -> usize {
        self.symbols.heap_bytes() + self.loaded_files.capacity() * size_of::<SymbolFile>()
    }
}

/// The changes of a process's symbol files since they were last read.
#[derive(Debug)]
struct JitChanges {
    /// All files that have been loaded, including the added ones.
    loaded_files: HashSet<SymbolFile>,
    /// Whether the files that were loaded before are forgotten.
    is_reset: bool,
    /// The contents of the added files; `None` for a file that can't be read.
    added: Vec<Option<Vec<u8>>>,
}

impl JitChanges {
    fn read(
        memory: &impl ForeignMemory,
        descriptors: &[Avma],
        mut loaded_files: HashSet<SymbolFile>,
    ) -> Result<Self, JitListError> {
        let lists: Result<Vec<_>, JitListError> =
            descriptors.iter().map(|descriptor| read_jit_list(memory, *descriptor)).collect();
        let listed = lists?.concat();
        let current: HashSet<SymbolFile> = listed.iter().copied().collect();
        // After a file was removed, all are loaded again, since its names may be those of another file too.
        let is_reset = !loaded_files.is_subset(&current);
        if is_reset {
            loaded_files.clear();
        }
        let mut added = Vec::new();
        let mut left_bytes = READ_BATCH_BYTES_MAX;
        // In the order in which they were added, so that the newest takes precedence.
        for file in listed.into_iter().rev() {
            if loaded_files.contains(&file) {
                continue;
            }
            if file.bytes <= FILE_BYTES_MAX {
                let Some(left) = left_bytes.checked_sub(file.bytes) else { break };
                left_bytes = left;
            }
            loaded_files.insert(file);
            added.push(read(memory, &file));
        }
        Ok(Self { loaded_files, is_reset, added })
    }
}

fn read(memory: &impl ForeignMemory, file: &SymbolFile) -> Option<Vec<u8>> {
    let length = usize::try_from(file.bytes).ok().filter(|_| file.bytes <= FILE_BYTES_MAX)?;
    let mut bytes = vec![0; length];
    memory.read_exact(file.start, &mut bytes).ok()?;
    Some(bytes)
}
