//! Where the threads of a process keep their copies of a thread-local variable: what the files say that define or use it
//! ([`TlsSymbol`]), and what the dynamic linker has made of that in memory ([`TlsSymbol::locate`]).
//!
//! Source: Drepper, "ELF Handling For Thread-Local Storage"; what differs between architectures is in `arch`.

mod elf_reader;
mod symbol;
mod variable;

use std::io;

use sidewinder_address::{Avma, Svma};
use thiserror::Error;

use crate::arch;
use crate::mapping::ExecutableMapping;
use crate::memory::ForeignMemory;
pub(crate) use symbol::read_section;
pub use variable::{GlobalVariable, read_constant};

/// Words that lead to a variable which are kept of one file: a linker makes one of each kind.
const SLOTS_MAX: usize = 8;
/// Segments of one file that are kept.
const LOADS_MAX: usize = 64;
/// No static offset is larger, and nothing is mapped below that address (`vm.mmap_min_addr`): one word can hold either.
const LEAST_POINTER: u64 = 0x1_0000;

/// A thread-local variable of one name, as one file knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsSymbol {
    /// From the start of the initial image, where the file defines it.
    value: Option<u64>,
    image: Option<TlsImage>,
    /// A program is module 1, and its block is the first of the static ones: its offset is known when it is linked.
    is_program: bool,
    slots: Vec<TlsGotEntry>,
    loads: Vec<Load>,
}

/// `PT_TLS`: what the initial values of a file's variables are copied from.
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

/// Words that the dynamic linker fills in, by the relocation that asks for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TlsGotEntry {
    /// `TPOFF64`: the offset from the thread pointer of a place so far before the variable.
    Offset(Svma, i64),
    /// `TLSDESC`: a function, and its argument; likewise.
    Descriptor(Svma, i64),
    /// `DTPMOD64` of the symbol: the number of the module, and behind it the offset in its block.
    Module(Svma),
    /// `DTPMOD64` of the file itself: the offset is the symbol's value.
    OwnModule(Svma),
}

/// Where each thread has its copy.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum TlsLocation {
    /// At an offset from the thread pointer.
    Static {
        /// Negative where the ABI has static blocks below the thread pointer.
        offset: i64,
    },
    /// In a block that the thread's dynamic thread vector leads to.
    Dynamic {
        /// The number of the module, from 1.
        module: u64,
        /// From the start of the block.
        offset: u64,
    },
}

/// Why it isn't known where.
#[derive(Debug, Error)]
pub enum TlsVariableError {
    /// The dynamic linker has not come to it yet, or nothing in this file uses the variable.
    #[error("the dynamic linker has not said where the variable is")]
    NotYet,
    /// The words that it fills in can't be read.
    #[error("can't read what the dynamic linker has said")]
    Unreadable(#[source] io::Error),
}

impl TlsSymbol {
    /// Where this file is in memory, given one of its mappings: what is to be added to its own addresses.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        bias(&self.loads, mapping)
    }

    /// From the thread pointer, of a variable of a program.
    pub(crate) fn offset_in_program(&self) -> Option<i64> {
        Some(self.image?.offset_in_program(self.value?))
    }

    /// Where the threads of a process have their copies that this file, loaded so, leads to.
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
            match self.read_slot(*slot, bias, memory) {
                Ok(Some(location)) => return Ok(location),
                Ok(None) => {}
                Err(unreadable) => error = TlsVariableError::Unreadable(unreadable),
            }
        }
        Err(error)
    }

    /// What a slot says; `None` while it says nothing.
    fn read_slot(
        &self,
        slot: TlsGotEntry,
        bias: u64,
        memory: &impl ForeignMemory,
    ) -> io::Result<Option<TlsLocation>> {
        let pair =
            |at: u64| Ok::<_, io::Error>((memory.word(Avma(at))?, memory.word(Avma(at.wrapping_add(8)))?));
        let at = |svma: Svma| svma.0.wrapping_add(bias);
        Ok(match slot {
            TlsGotEntry::Offset(svma, distance) => {
                static_offset(memory.word(Avma(at(svma)))?).and_then(|place| place.offset_by(distance))
            }
            TlsGotEntry::Module(svma) => {
                let (module, offset) = pair(at(svma))?;
                dynamic(module, offset)
            }
            TlsGotEntry::OwnModule(svma) => {
                let module = memory.word(Avma(at(svma)))?;
                self.value.and_then(|value| dynamic(module, value))
            }
            TlsGotEntry::Descriptor(svma, distance) => match pair(at(svma))? {
                (0, _) => None,
                (_, argument) if static_offset(argument).is_some() => {
                    static_offset(argument).and_then(|place| place.offset_by(distance))
                }
                // What a dynamic one has for its argument begins as the two words of a module's slot do (glibc's
                // `struct tlsdesc_dynamic_arg`, musl's `struct td_index`). One that was not resolved yet has a
                // relocation there, which begins with an address: no number of a module.
                (_, argument) if argument >= LEAST_POINTER => {
                    let (module, offset) = pair(argument)?;
                    dynamic(module, offset).and_then(|place| place.offset_by(distance))
                }
                _ => None,
            },
        })
    }
}

/// What is to be added to the addresses of a file, given its segments and one of its mappings.
fn bias(loads: &[Load], mapping: &ExecutableMapping) -> Option<u64> {
    let offset = mapping.file_offset.0;
    let page_bytes = rustix::param::page_size() as u64;
    let load = loads.iter().find(|load| {
        // Mappings are of whole pages, so that one may begin before its segment does.
        let start = load.file_offset - load.file_offset % page_bytes;
        offset >= start && offset < load.file_offset.saturating_add(load.bytes)
    })?;
    let address = load.address.wrapping_add(offset).wrapping_sub(load.file_offset);
    Some(mapping.range.start.0.wrapping_sub(address))
}

impl TlsImage {
    /// From the thread pointer, of what lies `value` bytes into the program's block.
    fn offset_in_program(&self, value: u64) -> i64 {
        arch::offset_in_program(self.address, self.bytes, self.align, value)
    }
}

impl TlsLocation {
    /// What is so many bytes further, if that may be in the same block.
    fn offset_by(self, distance: i64) -> Option<Self> {
        match self {
            Self::Static { offset } => static_offset(offset.checked_add(distance)? as u64),
            Self::Dynamic { module, offset } => dynamic(module, offset.checked_add_signed(distance)?),
        }
    }
}

/// The place at an offset, if a static block may be there.
fn static_offset(word: u64) -> Option<TlsLocation> {
    let offset = word as i64;
    arch::STATIC_OFFSETS.contains(&offset).then_some(TlsLocation::Static { offset })
}

fn dynamic(module: u64, offset: u64) -> Option<TlsLocation> {
    let is_sane = (1..LEAST_POINTER >> 4).contains(&module) && offset <= i32::MAX as u64;
    is_sane.then_some(TlsLocation::Dynamic { module, offset })
}

#[cfg(test)]
mod tests;
