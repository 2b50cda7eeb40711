//! The limits of the cost of one file, and the counts of what they leave out.

/// Names of one address that are compared.
pub(super) const ALIASES_LIMIT: usize = 64;

/// The limits of the cost of one file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymbolLimits {
    /// Symbols kept, at [`SymbolTable::BYTES_PER_SYMBOL`](crate::SymbolTable::BYTES_PER_SYMBOL) each.
    pub symbols: usize,
    /// Symbols read in each table, which bounds the time.
    pub symbols_scanned: u64,
    /// The longest name returned; longer ones are truncated.
    pub name_bytes: usize,
}

impl Default for SymbolLimits {
    fn default() -> Self {
        Self { symbols: 2 << 20, symbols_scanned: 16 << 20, name_bytes: 4096 }
    }
}

/// Symbols of a file that its [`SymbolTable`](crate::SymbolTable) leaves out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OmittedSymbols {
    /// Left out because [`SymbolLimits::symbols`] were kept, or [`SymbolLimits::symbols_scanned`] read.
    pub beyond_limit: u64,
    /// Left out because they lie more than 4 GiB above the first code, or their names more than 512 MiB into the table
    /// of names.
    pub out_of_range: u64,
}
