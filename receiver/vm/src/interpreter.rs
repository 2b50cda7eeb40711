//! Virtual machines whose frames can be walked.

use std::io;

use sidewinder_process::{ExecutableMapping, ReadAt};

use crate::{Runtime, arch, cpython, hotspot, v8};

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

/// Which virtual machines to look for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct InterpreterSet {
    /// CPython.
    pub cpython: bool,
    /// HotSpot.
    pub hotspot: bool,
    /// V8.
    pub v8: bool,
}

impl InterpreterSet {
    /// All.
    pub const ALL: Self = Self { cpython: true, hotspot: true, v8: true };
    /// None.
    pub const NONE: Self = Self { cpython: false, hotspot: false, v8: false };

    /// Those whose frames can be walked on this architecture.
    pub const WALKED: Self = arch::WALKED;

    /// Those that are in another set, too.
    #[must_use]
    fn and(self, other: Self) -> Self {
        Self {
            cpython: self.cpython && other.cpython,
            hotspot: self.hotspot && other.hotspot,
            v8: self.v8 && other.v8,
        }
    }

    /// Whether it contains that of a runtime.
    #[must_use]
    pub fn has(self, runtime: Runtime) -> bool {
        match runtime {
            Runtime::CPython => self.cpython,
            Runtime::Jvm => self.hotspot,
            Runtime::V8 => self.v8,
            _ => false,
        }
    }

    /// Whether it contains none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }
}

impl Interpreter {
    /// Reads a file; `None` if it contains none of the set, or one that is not supported, or not on this architecture.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt, wanted: InterpreterSet) -> io::Result<Option<Self>> {
        let wanted = wanted.and(InterpreterSet::WALKED);
        if wanted.cpython
            && let Some(found) = cpython::Interpreter::read(file)?
        {
            return Ok(Some(Self::CPython(Box::new(found))));
        }
        if wanted.hotspot
            && let Some(found) = hotspot::JvmLibrary::read(file)?
        {
            return Ok(Some(Self::HotSpot(found)));
        }
        if wanted.v8
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
