//! Where threads have the pointer to their `PyThreadState`.
//!
//! In the value of a pthread key and, since 3.12, in a thread-local variable, too. The variable is null while the thread has
//! released the interpreter's lock, as C code that computes does; the key's value stays. So the key comes first. Neither is
//! exported: their places are read from the code of exported functions.

use std::io;

use sidewinder_address::{Avma, Svma};
use sidewinder_process::tls::{ElfFile, ElfSymbol, TlsLocation, TlsSymbol, TlsVariableError};
use sidewinder_process::{ForeignMemory, ReadAt};
use sidewinder_vm_runtime::arch::pthread_layout;
use sidewinder_vm_runtime::pthread::{BLOCK_PAIRS, CLibrary, KeyValues, PAIR_BYTES, PthreadLayout};

use crate::arch::{self, Argument, ThreadLocal};

/// `PTHREAD_KEYS_MAX` of glibc; musl's is smaller.
const KEYS_MAX: u32 = 1024;
/// `Py_tss_t._key`, behind `_is_initialized`.
const KEY: u32 = 4;
/// The value of a pair, behind its generation.
const VALUE: u32 = 8;

/// How the pointer is found.
#[derive(Clone, Debug)]
pub(super) struct ThreadStateLocator {
    /// The `Py_tss_t` with the pthread key whose value a thread has as long as it has a state.
    key: Option<Svma>,
    /// The layout of threads, if it is the same in all versions of the C library.
    pthread: Option<PthreadLayout>,
    /// The variable that has the state only while the thread holds the interpreter's lock.
    variable: Option<Variable>,
}

/// Where each thread has the value of a key.
fn value_of(key: u32, values: KeyValues) -> TlsLocation {
    match values {
        KeyValues::Blocks { first, pointers } => {
            let offset = u64::from(key % BLOCK_PAIRS * PAIR_BYTES + VALUE);
            match key / BLOCK_PAIRS {
                0 => TlsLocation::Static { offset: first + offset.cast_signed() },
                block => TlsLocation::Indirect { pointer: pointers + i64::from(block) * 8, offset },
            }
        }
        KeyValues::Array { pointer } => TlsLocation::Indirect { pointer, offset: u64::from(key) * 8 },
    }
}

/// How the thread-local variable is found.
#[derive(Clone, Debug)]
enum Variable {
    /// By an access in the code.
    Access(ThreadLocal),
    /// By its symbol.
    Symbol(TlsSymbol),
}

/// Exported functions that return the pointer.
pub(super) struct Getters {
    /// Of the key: `PyGILState_GetThisThreadState`.
    pub(super) this: Option<ElfSymbol>,
    /// Of the variable: `_PyThreadState_GetCurrent`.
    pub(super) current: Option<ElfSymbol>,
}

impl ThreadStateLocator {
    /// Reads the code of the getters. `None` if there is neither way.
    pub(super) fn read(
        file: &impl ReadAt,
        elf: &ElfFile,
        runtime: ElfSymbol,
        getters: &Getters,
        minor: u8,
    ) -> io::Result<Option<Self>> {
        let is_musl = elf.mentions(file, b"libc.musl-")? || elf.mentions(file, b"libc.so\0")?;
        let library = if is_musl { CLibrary::Musl } else { CLibrary::Glibc };
        let key = key(file, elf, runtime, getters.this, minor)?;
        let variable = if minor >= 12 { variable(file, elf, getters.current)? } else { None };
        let pthread = pthread_layout(library);
        Ok((key.is_some() || variable.is_some()).then_some(Self { key, pthread, variable }))
    }

    /// The layout of threads in a process whose C library has the layout `found`, if that was read.
    pub(super) fn pthread(&self, found: Option<PthreadLayout>) -> Option<PthreadLayout> {
        self.pthread.or(found)
    }

    pub(super) fn locate(
        &self,
        bias: u64,
        memory: &impl ForeignMemory,
        found: Option<PthreadLayout>,
    ) -> Result<TlsLocation, TlsVariableError> {
        let (Some(key), Some(PthreadLayout { values, .. })) = (self.key, self.pthread(found)) else {
            return self.locate_variable(bias, memory);
        };
        let pair = memory.word(Avma(key.0.wrapping_add(bias))).map_err(TlsVariableError::Unreadable)?;
        match (pair as u32, (pair >> 32) as u32) {
            (0, _) => Err(TlsVariableError::NotYet),
            (_, key @ ..KEYS_MAX) => Ok(value_of(key, values)),
            (_, key) => Err(TlsVariableError::Unreadable(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{key} is not a pthread key"),
            ))),
        }
    }

    pub(super) fn locate_variable(
        &self,
        bias: u64,
        memory: &impl ForeignMemory,
    ) -> Result<TlsLocation, TlsVariableError> {
        match &self.variable {
            None => Err(TlsVariableError::NotYet),
            Some(Variable::Access(ThreadLocal::Static(offset))) => {
                Ok(TlsLocation::Static { offset: *offset })
            }
            Some(Variable::Access(ThreadLocal::Got(entry))) => match entry.locate(bias, memory) {
                Ok(found) => found.ok_or(TlsVariableError::NotYet),
                Err(error) => Err(TlsVariableError::Unreadable(error)),
            },
            Some(Variable::Symbol(symbol)) => symbol.locate(bias, memory),
        }
    }
}

/// The variable whose value `getter` returns, or else `_Py_tss_tstate`, if a symbol table has it.
fn variable(file: &impl ReadAt, elf: &ElfFile, getter: Option<ElfSymbol>) -> io::Result<Option<Variable>> {
    if let Some(getter) = getter {
        let code = code(file, elf, getter)?;
        if let Some(found) = arch::thread_local(&code, getter.address) {
            return Ok(Some(Variable::Access(found)));
        }
    }
    Ok(TlsSymbol::read_any(file, b"_Py_tss_tstate")?.map(Variable::Symbol))
}

/// `autoTSSkey` in `_PyRuntime`: where `getter` reads it, or else at the offset that it has in builds of each version.
fn key(
    file: &impl ReadAt,
    elf: &ElfFile,
    runtime: ElfSymbol,
    getter: Option<ElfSymbol>,
    minor: u8,
) -> io::Result<Option<Svma>> {
    let usual = match minor {
        8 => 0x570,
        9 | 10 => 0x248,
        11 => 0x250,
        12 => 0x608,
        13 => 0x870,
        14 => 0x920,
        _ => return Ok(None),
    };
    let argument = match getter {
        Some(getter) => arch::first_argument(&code(file, elf, getter)?, getter.address),
        None => None,
    };
    // The argument is the structure or, if the call of that function is inlined, the key in it.
    let offset = match argument {
        Some(Argument::ThroughWord(_, offset)) => Some(u64::from(offset)),
        Some(Argument::ValueThroughWord(_, offset)) => offset.checked_sub(KEY).map(u64::from),
        Some(Argument::Address(at)) => at.checked_offset_from(runtime.address),
        Some(Argument::Value(at)) => {
            at.checked_offset_from(runtime.address).and_then(|at| at.checked_sub(KEY.into()))
        }
        None => None,
    };
    let within = offset.filter(|offset| *offset < runtime.bytes).unwrap_or(usual);
    Ok(runtime.address.checked_add(within))
}

/// The first bytes of a function.
fn code(file: &impl ReadAt, elf: &ElfFile, function: ElfSymbol) -> io::Result<Vec<u8>> {
    let bytes = usize::try_from(function.bytes).unwrap_or(usize::MAX).min(arch::FUNCTION_BYTES_MAX);
    elf.content(file, function.address, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process in which the pair of the key is at 0x5100.
    struct Pair(u32, u32);

    impl ForeignMemory for Pair {
        fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
            if at != Avma(0x5100) || to.len() != 8 {
                return Err(io::ErrorKind::NotFound.into());
            }
            to[..4].copy_from_slice(&self.0.to_le_bytes());
            to[4..].copy_from_slice(&self.1.to_le_bytes());
            Ok(())
        }
    }

    const VARIABLE: TlsLocation = TlsLocation::Static { offset: -24 };

    const BLOCKS: PthreadLayout =
        PthreadLayout { structure: 0, values: KeyValues::Blocks { first: 0x310, pointers: 0x510 } };
    const ARRAY: PthreadLayout = PthreadLayout { structure: 0, values: KeyValues::Array { pointer: 0x80 } };

    fn both(key: u64, pthread: Option<PthreadLayout>) -> ThreadStateLocator {
        let variable = Some(Variable::Access(ThreadLocal::Static(-24)));
        ThreadStateLocator { key: Some(Svma(key)), pthread, variable }
    }

    #[test]
    fn the_key_comes_first() {
        let state = both(0x100, Some(BLOCKS));
        let at = |pair: Pair| state.locate(0x5000, &pair, None);
        assert_eq!(at(Pair(1, 0)).unwrap(), TlsLocation::Static { offset: 0x318 });
        assert_eq!(at(Pair(1, 31)).unwrap(), TlsLocation::Static { offset: 0x318 + 31 * 16 });
        assert!(matches!(at(Pair(0, 5)), Err(TlsVariableError::NotYet)), "not created yet");
        assert!(matches!(at(Pair(1, 1024)), Err(TlsVariableError::Unreadable(_))), "not a key");
        let other = both(0x200, Some(BLOCKS));
        assert!(matches!(other.locate(0x5000, &Pair(1, 0), None), Err(TlsVariableError::Unreadable(_))));
    }

    #[test]
    fn the_values_of_further_keys_are_in_blocks() {
        let of = |layout, key| both(0x100, Some(layout)).locate(0x5000, &Pair(1, key), None).unwrap();
        let indirect = |pointer, offset| TlsLocation::Indirect { pointer, offset };
        assert_eq!(of(BLOCKS, 32), indirect(0x518, 8));
        assert_eq!(of(BLOCKS, 1023), indirect(0x510 + 31 * 8, 31 * 16 + 8));
        assert_eq!(of(ARRAY, 0), indirect(0x80, 0));
        assert_eq!(of(ARRAY, 5), indirect(0x80, 40));
    }

    #[test]
    fn the_variable_counts_where_there_is_no_key() {
        let variable_alone = ThreadStateLocator { key: None, ..both(0, Some(BLOCKS)) };
        assert_eq!(variable_alone.locate(0x5000, &Pair(1, 3), None).unwrap(), VARIABLE);
        let key_alone = ThreadStateLocator { variable: None, ..both(0x100, Some(BLOCKS)) };
        assert!(matches!(key_alone.locate_variable(0x5000, &Pair(1, 3)), Err(TlsVariableError::NotYet)));
    }

    #[test]
    fn a_layout_that_was_read_counts_where_none_is_known() {
        let below = PthreadLayout {
            structure: -0x720,
            values: KeyValues::Blocks { first: 0x110 - 0x720, pointers: 0x310 - 0x720 },
        };
        let state = both(0x100, None);
        let at = |found| state.locate(0x5000, &Pair(1, 2), found).unwrap();
        assert_eq!(at(Some(below)), TlsLocation::Static { offset: 0x110 - 0x720 + 40 });
        assert_eq!(at(None), VARIABLE);
        let known = both(0x100, Some(BLOCKS));
        assert_eq!(known.pthread(Some(below)), Some(BLOCKS));
    }
}
