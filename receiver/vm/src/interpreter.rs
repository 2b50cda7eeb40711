//! Virtual machines whose frames can be walked.

use std::io;

use sidewinder_process::{ExecutableMapping, ReadAt};

use sidewinder_bpf::WalkedRuntime;

use crate::{RuntimeSet, cpython, hotspot, v8};

/// The virtual machine that an ELF file contains.
#[derive(Clone, Debug)]
pub enum Interpreter {
    /// CPython.
    CPython(Box<cpython::Interpreter>),
    /// HotSpot.
    HotSpot(hotspot::JvmLibrary),
    /// V8.
    V8(Box<v8::Library>),
}

impl Interpreter {
    /// Reads a file; `None` if it contains none of the set, or one that is not supported, or not on this architecture.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt, wanted: RuntimeSet) -> io::Result<Option<Self>> {
        let wanted = wanted.and(RuntimeSet::WALKED);
        if wanted.contains(WalkedRuntime::CPython)
            && let Some(found) = cpython::Interpreter::read(file)?
        {
            return Ok(Some(Self::CPython(Box::new(found))));
        }
        if wanted.contains(WalkedRuntime::HotSpot)
            && let Some(found) = hotspot::JvmLibrary::read(file)?
        {
            return Ok(Some(Self::HotSpot(found)));
        }
        if wanted.contains(WalkedRuntime::V8)
            && let Some(found) = v8::Library::read(file)?
        {
            return Ok(Some(Self::V8(Box::new(found))));
        }
        Ok(None)
    }

    /// The load bias of its file, given one of the file's mappings: the difference to the addresses in the file.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        match self {
            Self::CPython(interpreter) => interpreter.bias_of(mapping),
            Self::HotSpot(library) => library.bias_of(mapping),
            Self::V8(library) => library.bias_of(mapping),
        }
    }
}
