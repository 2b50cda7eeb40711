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
mod cache;
mod demangle;
mod elf;
mod image;
mod kernel;
mod language;
mod native;

pub use cache::{FileId, Lookup, Name, NoName, Stats, Symbolizer, unnamed};
pub use demangle::demangle;
pub use image::Image;
pub use kernel::{KernelName, KernelSymbols, KernelTable};
pub use language::Language;
pub use native::{Cut, Error, Limits, Symbol, SymbolTable};
