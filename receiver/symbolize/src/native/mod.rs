//! The function symbols of one ELF file.

mod build;
mod division;
mod entry;
mod go_text;
mod limits;
mod name;
mod parts;
mod table;

pub use limits::{Cut, Limits};
pub(crate) use table::Located;
pub use table::{Symbol, SymbolTable};
