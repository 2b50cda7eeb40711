//! Names for addresses: ELF symbols, demangling, kernel symbols.
#![forbid(unsafe_code)]
