//! Locates the threads' copies of a thread-local variable, from the files that define or use it ([`TlsSymbol`]) and from the
//! words that the dynamic linker has written to memory ([`TlsSymbol::locate`]).
//!
//! Source: Drepper, "ELF Handling For Thread-Local Storage"; differences between architectures are in `arch`.

mod elf_file;
mod elf_reader;
mod symbol;
mod variable;

use std::io;

use sidewinder_address::{Avma, FileOffset, Svma};
use thiserror::Error;

use crate::arch;
use crate::mapping::ExecutableMapping;
use crate::memory::ForeignMemory;
pub use elf_file::{ElfFile, ElfSymbol};
pub(crate) use symbol::read_section;
pub use variable::{GlobalVariable, read_constant};

/// Slots for a variable that are kept of one file: a linker creates one of each kind.
const SLOTS_MAX: usize = 8;
/// Segments of one file that are kept.
const LOADS_MAX: usize = 64;

/// A thread-local variable with a given name, as one file describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSymbol {
    /// The offset from the start of the initial image, if the file defines it.
    value: Option<u64>,
    image: Option<TlsImage>,
    /// A program is module 1, and its block is the first static one: its offset is known at link time.
    is_program: bool,
    slots: Vec<TlsGotEntry>,
    loads: Vec<Load>,
}

/// `PT_TLS`: the initial values of a file's thread-local variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TlsImage {
    address: u64,
    bytes: u64,
    align: u64,
}

/// `PT_LOAD`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Load {
    file_offset: u64,
    address: u64,
    bytes: u64,
}

/// Words that the dynamic linker fills in, by type of relocation. Distances are in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsGotEntry {
    /// `TPOFF64`: the offset from the thread pointer of the address that is the given distance before the variable.
    Offset(Svma, i64),
    /// `TLSDESC`: a function, and its argument; the distance as above.
    Descriptor(Svma, i64),
    /// `DTPMOD64`: the module ID, followed by the offset in its block of what is the given distance before the variable.
    Module(Svma, i64),
    /// `DTPMOD64` of the file itself, and the variable's offset in its block.
    OwnModule(Svma, u64),
}

/// The location of each thread's copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsLocation {
    /// At an offset from the thread pointer.
    Static {
        /// Negative where the ABI has static blocks below the thread pointer.
        offset: i64,
    },
    /// In a block that the thread's dynamic thread vector points to.
    Dynamic {
        /// The module ID, from 1.
        module: u64,
        /// The offset from the start of the block.
        offset: u64,
    },
    /// In a block that a word of the thread points to, or null: the values of most pthread keys.
    Indirect {
        /// The offset of the word from the thread pointer.
        pointer: i64,
        /// The offset from the start of the block.
        offset: u64,
    },
}

/// Why the location is not known.
#[derive(Debug, Error)]
pub enum TlsVariableError {
    /// The dynamic linker has not resolved it yet, or nothing in this file uses the variable.
    #[error("the dynamic linker has not resolved the variable yet")]
    NotYet,
    /// The words that the dynamic linker fills in can't be read.
    #[error("can't read the words of the dynamic linker")]
    Unreadable(#[source] io::Error),
}

impl TlsSymbol {
    /// The load bias of this file, given one of its mappings: the difference to the addresses in the file.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        bias(&self.loads, mapping)
    }

    /// The offset from the thread pointer, of a program's variable.
    pub(crate) fn offset_in_program(&self) -> Option<i64> {
        Some(self.image?.offset_in_program(self.value?))
    }

    /// The location of the threads' copies in a process in which this file is loaded with the given bias.
    ///
    /// # Errors
    /// See [`TlsVariableError`].
    pub fn locate(&self, bias: u64, memory: &impl ForeignMemory) -> Result<TlsLocation, TlsVariableError> {
        if self.is_program
            && let (Some(value), Some(image)) = (self.value, self.image)
        {
            return Ok(TlsLocation::Static { offset: image.offset_in_program(value) });
        }
        let mut error = TlsVariableError::NotYet;
        for slot in &self.slots {
            match slot.locate(bias, memory) {
                Ok(Some(location)) => return Ok(location),
                Ok(None) => {}
                Err(unreadable) => error = TlsVariableError::Unreadable(unreadable),
            }
        }
        Err(error)
    }
}

impl TlsGotEntry {
    /// The location of the threads' copies, in a process in which the file is loaded with the given bias; `None` while the
    /// dynamic linker has not resolved it.
    ///
    /// # Errors
    /// If the words can't be read.
    pub fn locate(self, bias: u64, memory: &impl ForeignMemory) -> io::Result<Option<TlsLocation>> {
        let pair =
            |at: u64| Ok::<_, io::Error>((memory.word(Avma(at))?, memory.word(Avma(at.wrapping_add(8)))?));
        let at = |svma: Svma| svma.0.wrapping_add(bias);
        Ok(match self {
            Self::Offset(svma, distance) => {
                static_offset(memory.word(Avma(at(svma)))?).and_then(|place| place.offset_by(distance))
            }
            Self::Module(svma, distance) => {
                let (module, offset) = pair(at(svma))?;
                dynamic(module, offset).and_then(|place| place.offset_by(distance))
            }
            Self::OwnModule(svma, offset) => dynamic(memory.word(Avma(at(svma)))?, offset),
            Self::Descriptor(svma, distance) => match pair(at(svma))? {
                (0, _) => None,
                (_, argument) if static_offset(argument).is_some() => {
                    static_offset(argument).and_then(|place| place.offset_by(distance))
                }
                // The argument of a dynamic descriptor starts with the same two words as a module's slot (glibc's
                // `struct tlsdesc_dynamic_arg`, musl's `struct td_index`). An unresolved one has a relocation there, which
                // starts with an address: that is not a valid module ID.
                (_, argument) if argument >= arch::LEAST_POINTER => {
                    let (module, offset) = pair(argument)?;
                    dynamic(module, offset).and_then(|place| place.offset_by(distance))
                }
                _ => None,
            },
        })
    }
}

/// The load bias of a file, given its segments and one of its mappings.
fn bias(loads: &[Load], mapping: &ExecutableMapping) -> Option<u64> {
    let offset = mapping.file_offset.0;
    let page_bytes = rustix::param::page_size() as u64;
    let load = loads.iter().find(|load| {
        // Mappings consist of whole pages, so one may start before its segment.
        let start = load.file_offset - load.file_offset % page_bytes;
        offset >= start && offset < load.file_offset.saturating_add(load.bytes)
    })?;
    let address = load.address.wrapping_add(offset).wrapping_sub(load.file_offset);
    Some(mapping.range.start.0.wrapping_sub(address))
}

/// The place in a file of what is at an address, if the file has it.
fn file_offset(loads: &[Load], address: Svma) -> Option<FileOffset> {
    let within = |load: &Load| address.0.checked_sub(load.address).filter(|at| *at < load.bytes);
    loads.iter().find_map(|load| load.file_offset.checked_add(within(load)?)).map(FileOffset)
}

impl TlsImage {
    /// The offset from the thread pointer of the byte at offset `value` in the program's block.
    fn offset_in_program(&self, value: u64) -> i64 {
        arch::offset_in_program(self.address, self.bytes, self.align, value)
    }
}

impl TlsLocation {
    /// The location at a distance in bytes, if that may be in the same block.
    fn offset_by(self, distance: i64) -> Option<Self> {
        match self {
            Self::Static { offset } => static_offset(offset.checked_add(distance)? as u64),
            Self::Dynamic { module, offset } => dynamic(module, offset.checked_add_signed(distance)?),
            Self::Indirect { pointer, offset } => {
                Some(Self::Indirect { pointer, offset: offset.checked_add_signed(distance)? })
            }
        }
    }
}

/// The location at an offset, if it may be in a static block.
fn static_offset(word: u64) -> Option<TlsLocation> {
    let offset = word as i64;
    arch::STATIC_OFFSETS.contains(&offset).then_some(TlsLocation::Static { offset })
}

fn dynamic(module: u64, offset: u64) -> Option<TlsLocation> {
    let is_sane = (1..arch::LEAST_POINTER >> 4).contains(&module) && offset <= i32::MAX as u64;
    is_sane.then_some(TlsLocation::Dynamic { module, offset })
}

#[cfg(test)]
mod tests;
