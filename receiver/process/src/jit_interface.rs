//! The list in which a process registers its JIT-compiled code for debuggers: an object file in memory for each piece.
//!
//! Source: "JIT Compilation Interface", GDB's manual. A debugger would stop the process at each change; here the list is
//! read while the process runs and may be changing it. It is not trusted: it may be endless.

use std::io;

use sidewinder_address::Avma;
use thiserror::Error;

use crate::memory::ForeignMemory;

/// The variable that contains the list.
pub const JIT_DESCRIPTOR: &[u8] = b"__jit_debug_descriptor";

/// `struct jit_descriptor`: version, last action, its entry, and the first entry.
const DESCRIPTOR_BYTES: usize = 24;
const VERSION: u32 = 1;
/// `struct jit_code_entry`: next, previous, the file's address and length.
const ENTRY_BYTES: usize = 32;
/// Entries of a list that are read. LLVM creates one for each module, LuaJIT one for each trace.
const ENTRIES_MAX: usize = 4096;
/// How often a list that changes while it is read is read.
const TRIES: u32 = 3;

/// An object file in the memory of a process, and the entry that refers to it.
///
/// Equal values mean the same code, unless an entry was freed and its memory and its neighbour's were reused for a file of
/// the same length at the same address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SymbolFile {
    entry: Avma,
    next: Avma,
    /// Its start address.
    pub start: Avma,
    /// Its length in bytes, as reported by the process.
    pub bytes: u64,
}

/// Why a list can't be read.
#[derive(Debug, Error)]
pub enum JitListError {
    /// Its version is not supported.
    #[error("version {0} of the JIT code list is not supported")]
    Version(u32),
    /// It was changed during each read.
    #[error("the JIT code list is being changed")]
    Busy,
    /// It is longer than the limit, or endless.
    #[error("the JIT code list has more than {ENTRIES_MAX} entries, or is endless")]
    TooLong,
    /// Its memory can't be read, or not with our privileges.
    #[error("can't read the JIT code list")]
    Unreadable(#[from] io::Error),
}

/// Reads the list of a descriptor. The last file was added first: writers insert at the front.
///
/// # Errors
/// See [`JitListError`].
pub fn read_jit_list(memory: &impl ForeignMemory, descriptor: Avma) -> Result<Vec<SymbolFile>, JitListError> {
    for _ in 0..TRIES {
        let before = read::<DESCRIPTOR_BYTES>(memory, descriptor)?;
        let [a, b, c, d, ..] = before;
        match u32::from_ne_bytes([a, b, c, d]) {
            VERSION => {}
            other => return Err(JitListError::Version(other)),
        }
        let listed = follow(memory, Avma(word(&before, 16)));
        // The list is consistent only if nothing changed during the read.
        let is_steady = read::<DESCRIPTOR_BYTES>(memory, descriptor)? == before;
        if is_steady {
            return listed;
        }
    }
    Err(JitListError::Busy)
}

fn follow(memory: &impl ForeignMemory, first: Avma) -> Result<Vec<SymbolFile>, JitListError> {
    let mut files = Vec::new();
    let mut entry = first;
    while entry.0 != 0 {
        if files.len() == ENTRIES_MAX {
            return Err(JitListError::TooLong);
        }
        let fields = read::<ENTRY_BYTES>(memory, entry)?;
        let next = Avma(word(&fields, 0));
        files.push(SymbolFile { entry, next, start: Avma(word(&fields, 16)), bytes: word(&fields, 24) });
        entry = next;
    }
    Ok(files)
}

fn read<const BYTES: usize>(memory: &impl ForeignMemory, at: Avma) -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    memory.read_exact(at, &mut bytes)?;
    Ok(bytes)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().map_or(0, u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const DESCRIPTOR: Avma = Avma(0x1000);
    /// More than any list needs.
    const READINGS_MAX: u32 = 100_000;

    /// Memory at [`DESCRIPTOR`], whose first entry may change after some reads.
    struct Memory {
        bytes: Vec<u8>,
        readings: Cell<u32>,
        changes_after: u32,
    }

    impl ForeignMemory for Memory {
        fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
            let missing = || io::Error::from(rustix::io::Errno::FAULT);
            let start = at.0.checked_sub(DESCRIPTOR.0).ok_or_else(missing)? as usize;
            let end = start.checked_add(to.len()).ok_or_else(missing)?;
            to.copy_from_slice(self.bytes.get(start..end).ok_or_else(missing)?);
            self.readings.set(self.readings.get() + 1);
            if self.readings.get() > READINGS_MAX {
                return Err(missing());
            }
            if self.readings.get() > self.changes_after && at == DESCRIPTOR {
                to[8] = self.readings.get() as u8;
            }
            Ok(())
        }
    }

    fn memory(version: u64, words: &[u64]) -> Memory {
        let words = [&[version, 0], words].concat();
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        Memory { bytes, readings: Cell::new(0), changes_after: u32::MAX }
    }

    /// Two entries, at 0x1018 and 0x1038.
    const TWO: [u64; 9] = [0x1018, 0x1038, 0, 0xa000, 0x100, 0, 0x1018, 0xb000, 0x200];

    #[test]
    fn all_entries_are_read_in_the_order_of_the_list() {
        let files = read_jit_list(&memory(1, &TWO), DESCRIPTOR).unwrap();
        let places: Vec<_> = files.iter().map(|file| (file.start, file.bytes)).collect();
        assert_eq!(places, [(Avma(0xa000), 0x100), (Avma(0xb000), 0x200)]);
        assert_eq!(read_jit_list(&memory(1, &[0]), DESCRIPTOR).unwrap(), []);
    }

    #[test]
    fn a_list_without_end_is_left() {
        let mut endless = TWO;
        endless[5] = 0x1018;
        let failure = read_jit_list(&memory(1, &endless), DESCRIPTOR);
        assert!(matches!(failure, Err(JitListError::TooLong)), "{failure:?}");
        // Each entry points to another one, 24 bytes further; more of them than the limit.
        let long: Vec<u64> = (0..3 * 5_000).map(|at| 0x1018 + u64::div_ceil(at, 3) * 24).collect();
        let failure = read_jit_list(&memory(1, &long), DESCRIPTOR);
        assert!(matches!(failure, Err(JitListError::TooLong)), "{failure:?}");
    }

    #[test]
    fn what_leads_nowhere_or_is_of_another_version_is_an_error() {
        for words in [&[0x10][..], &[u64::MAX - 8], &[0x1018, 0xdead_0000, 0, 0, 0]] {
            let failure = read_jit_list(&memory(1, words), DESCRIPTOR);
            assert!(matches!(failure, Err(JitListError::Unreadable(_))), "{failure:?}");
        }
        let failure = read_jit_list(&memory(2, &TWO), DESCRIPTOR);
        assert!(matches!(failure, Err(JitListError::Version(2))), "{failure:?}");
        assert!(matches!(read_jit_list(&memory(1, &TWO), Avma(8)), Err(JitListError::Unreadable(_))));
    }

    #[test]
    fn a_list_that_changes_meanwhile_is_read_again() {
        let busy = Memory { changes_after: 0, ..memory(1, &TWO) };
        assert!(matches!(read_jit_list(&busy, DESCRIPTOR), Err(JitListError::Busy)));
        assert_eq!(busy.readings.get(), TRIES * 4);
    }
}
