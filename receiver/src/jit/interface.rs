//! What a process has in its memory for debuggers of the code that it makes.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_process::{ForeignMemory as _, JitListError, ProcessMemory, SymbolFile, read_jit_list};
use sidewinder_symbolize::JitSymbols;
use tracing::debug;

/// Variables of one process that lead to lists: a program may have several compilers in it.
const DESCRIPTORS_MAX: usize = 4;
/// The longest file that is read. LLVM's are some kB, with debug information some hundred.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Bytes of files that are read at once. What is left is read the next time.
const BYTES_AT_ONCE: u64 = 8 << 20;
/// How long a list that could not be read is left alone. One without end takes long each time.
const REST: Duration = Duration::from_secs(10);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Interface {
    descriptors: Vec<Avma>,
    /// Files that have been taken up.
    known: HashSet<SymbolFile>,
    symbols: JitSymbols,
    /// Lists and files that could not be read.
    unread: u64,
    rests_until: Option<Instant>,
}

impl Interface {
    /// That of a process whose variables are there; names take `room_bytes` at most.
    pub(super) fn of(mut descriptors: Vec<Avma>, room_bytes: usize) -> Option<Self> {
        descriptors.sort_unstable();
        descriptors.dedup();
        descriptors.truncate(DESCRIPTORS_MAX);
        let symbols = JitSymbols::new(room_bytes);
        (!descriptors.is_empty()).then(|| Self {
            descriptors,
            known: HashSet::new(),
            symbols,
            unread: 0,
            rests_until: None,
        })
    }

    /// Takes up what the process has made since, and forgets what it has thrown away.
    pub(super) fn refresh(&mut self, memory: &ProcessMemory) {
        if self.rests_until.is_some_and(|until| Instant::now() < until) {
            return;
        }
        let lists: Result<Vec<_>, JitListError> =
            self.descriptors.iter().map(|descriptor| read_jit_list(memory, *descriptor)).collect();
        let listed = match lists {
            Ok(lists) => lists.concat(),
            Err(JitListError::Busy) => return,
            Err(error) => {
                debug!(%error, "no names of code that a process made");
                self.unread += 1;
                self.rests_until = Some(Instant::now() + REST);
                return;
            }
        };
        let now: HashSet<SymbolFile> = listed.iter().copied().collect();
        if !self.known.is_subset(&now) {
            // Nothing tells which of its names are another file's too.
            self.known.clear();
            self.symbols.clear();
        }
        let mut left_bytes = BYTES_AT_ONCE;
        // In the order in which they were added, so that the newest holds.
        for file in listed.into_iter().rev() {
            if self.known.contains(&file) {
                continue;
            }
            if file.bytes <= FILE_BYTES_MAX {
                let Some(left) = left_bytes.checked_sub(file.bytes) else { break };
                left_bytes = left;
            }
            self.known.insert(file);
            match read(memory, &file) {
                Some(bytes) => self.symbols.add(&bytes),
                None => self.unread += 1,
            }
        }
    }

    /// The function that holds an address.
    pub(super) fn lookup(&self, address: u64) -> Option<&str> {
        self.symbols.lookup(address)
    }

    /// Functions for which there was no room, and what could not be read.
    pub(super) fn cut(&self) -> u64 {
        self.unread + self.symbols.cut()
    }

    /// Memory held, in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        self.symbols.heap_bytes() + self.known.capacity() * size_of::<SymbolFile>()
    }
}

fn read(memory: &ProcessMemory, file: &SymbolFile) -> Option<Vec<u8>> {
    let length = usize::try_from(file.bytes).ok().filter(|_| file.bytes <= FILE_BYTES_MAX)?;
    let mut bytes = vec![0; length];
    memory.read_exact(file.start, &mut bytes).ok()?;
    Some(bytes)
}
