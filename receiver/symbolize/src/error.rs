//! Why symbols of a file cannot be had.

use std::io;

/// Why a file gives no symbol table, or a symbol no name.
#[derive(Debug, thiserror::Error)]
pub enum SymbolTableError {
    /// The first bytes are not those of an ELF file of 32 or 64 bits.
    #[error("not an ELF file")]
    NotElf,
    /// Without section headers there is no way to the symbols.
    #[error("the file has no section headers")]
    NoSections,
    /// The file ends before what its headers promise, or the disk fails.
    #[error("cannot read {what} at offset {offset:#x}")]
    Read {
        /// The part of the file that was wanted.
        what: &'static str,
        /// Where in the file it should be.
        offset: u64,
        /// What the system said; `UnexpectedEof` where the file is too short.
        source: io::Error,
    },
}
