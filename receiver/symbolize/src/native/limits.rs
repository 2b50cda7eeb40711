//! What one file may cost, and what that leaves out.

/// Names of one address that are compared.
pub(super) const ALIASES_LIMIT: usize = 64;

/// What one file may cost at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymbolLimits {
    /// Symbols kept, at [`SymbolTable::BYTES_PER_SYMBOL`](crate::SymbolTable::BYTES_PER_SYMBOL) each.
    pub symbols: usize,
    /// Symbols looked at in each table, which bounds the time.
    pub symbols_scanned: u64,
    /// The longest name given; the rest of a longer one is cut off.
    pub name_bytes: usize,
}

impl Default for SymbolLimits {
    fn default() -> Self {
        Self { symbols: 2 << 20, symbols_scanned: 16 << 20, name_bytes: 4096 }
    }
}

/// Symbols that a file has and its [`SymbolTable`](crate::SymbolTable) has not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct OmittedSymbols {
    /// Left out because [`SymbolLimits::symbols`] were kept, or [`SymbolLimits::symbols_scanned`] looked at.
    pub beyond_limit: u64,
    /// Left out because they lie more than 4 GiB above the first code, or their names more than 512 MiB
    /// into the table of names.
    pub out_of_range: u64,
}
