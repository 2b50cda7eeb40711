//! Names for addresses: functions, source files, lines, inlined calls.
//!
//! Every file here may be hostile: it belongs to a process that is being profiled. Files are read by
//! position, never mapped, so one that shrinks gives an error instead of a signal; every count and
//! length taken from one is bounded, and what a bound leaves out is counted ([`OmittedSymbols`], [`SymbolizerStats`]).
//!
//! [`SymbolTable`] indexes one file, [`Symbolizer`] keeps what is in use of many files within a byte budget,
//! [`KernelSymbols`] is the running kernel's table, [`JitMap`] the functions that a runtime records of the code that it
//! generates, and [`JitSymbols`] those that it exposes to debuggers.
//!
//! # Modules
//!
//! `arch` is architecture-specific. `elf` finds the parts of a file, `native` indexes its symbols, `plt` its stubs,
//! `alias` chooses among several names, `demangle` and `language` interpret them. `go` reads Go's own table, `dwarf`
//! debug information, `sites` the places at which users probe programs, and `listing` shows machine code as text. `binary` combines one binary and its companion files ([`BinaryFiles`] finds those), `cache` many
//! binaries. `kernel` and `jit` are independent of these files.
#![forbid(unsafe_code)]

mod alias;
mod arch;
mod binary;
mod cache;
mod demangle;
mod dwarf;
mod elf;
mod error;
mod files;
mod go;
mod image;
mod jit;
mod kernel;
mod language;
mod listing;
mod names;
mod native;
mod plt;
mod sites;

pub use cache::{Symbolizer, SymbolizerOptions};
pub use demangle::demangle;
pub use error::SymbolTableError;
pub use files::BinaryFiles;
pub use image::Image;
pub use jit::{JitMap, JitMapFormat, JitSymbols};
pub use kernel::{KernelFunction, KernelName, KernelSymbols, KernelTable};
pub use language::Language;
pub use listing::{ListedInstruction, disassemble};
pub use names::{
    BinaryId, CodeFrame, Lookup, LookupCounts, SymbolName, SymbolizerStats, UnnamedReason, unnamed_frame,
};
pub use native::{OmittedSymbols, Symbol, SymbolLimits, SymbolTable};
pub use sites::{
    Operand, OperandAt, ProbeSite, SiteError, argument, find_function, find_return, find_usdt, register,
    result,
};
