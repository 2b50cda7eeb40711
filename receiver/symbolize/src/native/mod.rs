//! The function symbols of one ELF file.

mod build;
mod division;
mod entry;
mod go_text;
mod index;
mod limits;
mod name;
mod parts;
mod table;

pub use limits::{OmittedSymbols, SymbolLimits};
pub(crate) use table::LocatedSymbol;
pub use table::{Symbol, SymbolTable};
