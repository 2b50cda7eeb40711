//! Names for addresses: ELF symbols, demangling, kernel symbols.
//!
//! Every file here may be hostile: it belongs to a process that is being profiled. Files are read by
//! position, never mapped, so one that shrinks gives an error instead of a signal; every count and
//! length taken from one is bounded by [`Limits`], and what a bound leaves out is counted in [`Cut`].
//!
//! [`SymbolTable`] is one file's index, [`Symbolizer`] keeps the tables and names in use under a byte
//! budget, [`KernelSymbols`] is the running kernel's table.
#![forbid(unsafe_code)]

mod alias;
mod binary;
mod cache;
mod demangle;
mod dwarf;
mod elf;
mod files;
mod go;
mod image;
mod jit;
mod kernel;
mod language;
mod names;
mod native;
mod plt;

pub use cache::{Symbolizer, SymbolizerOptions};
pub use demangle::demangle;
pub use files::Files;
pub use image::Image;
pub use jit::{JitForm, JitMap};
pub use kernel::{KernelName, KernelSymbols, KernelTable};
pub use language::Language;
pub use names::{CodeFrame, FileId, Lookup, Name, NoName, Stats, unnamed};
pub use native::{Cut, Error, Limits, Symbol, SymbolTable};
