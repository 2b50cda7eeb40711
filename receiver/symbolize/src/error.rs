//! Why a file has no usable symbols.

use std::io;

/// Why a file gives no symbol table, or a symbol no name.
#[derive(Debug, thiserror::Error)]
pub enum SymbolTableError {
    /// The first bytes are not those of a 32-bit or 64-bit ELF file.
    #[error("not an ELF file")]
    NotElf,
    /// Without section headers the symbols can't be located.
    #[error("the file has no section headers")]
    NoSections,
    /// The file is shorter than its headers claim, or the disk fails.
    #[error("cannot read {what} at offset {offset:#x}")]
    Read {
        /// The part of the file that was being read.
        what: &'static str,
        /// Its offset in the file.
        offset: u64,
        /// The system's error; `UnexpectedEof` if the file is too short.
        source: io::Error,
    },
}
