//! Where functions begin by a file's symbols, and which of them never return.

use std::collections::BTreeSet;

use object::File;

use super::imports::never_returns;
use crate::code::piece::{CodeSlice, piece_at};
use crate::elf::memory_of;
use crate::known_functions::is_never_called;
use crate::memory::{ADDRESS_BYTES, Reservation};
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::for_each_code_symbol;

/// What the file's symbols state about its functions.
pub(super) struct NamedFunctions<'memory> {
    /// The starts of functions in the code that is analyzed. The cold part of a function has a symbol, but isn't called.
    pub(super) starts: BTreeSet<u32>,
    /// The starts of functions that never return.
    pub(super) never_return: BTreeSet<u32>,
    /// For both.
    pub(super) reserved: Reservation<'memory>,
}

impl<'memory> NamedFunctions<'memory> {
    /// Haskell's symbols for code (`..._info`) are left out, because that code is jumped to, and so is what doesn't fit the memory.
    pub(super) fn from_file<R: ReadFile<'memory>>(
        file: &File<'memory, R>,
        code: &CodeRanges,
        analyzed: &[CodeSlice<'_>],
        has_haskell: bool,
    ) -> Self {
        let is_haskell = |name: &[u8]| has_haskell && name.ends_with(b"_info");
        let begins = |name: &[u8]| is_begin_of_function(name) && !is_haskell(name);
        let (starts, never_return) = (BTreeSet::new(), BTreeSet::new());
        let mut named = Self { starts, never_return, reserved: memory_of(file).nothing() };
        for_each_code_symbol(file, |symbol| {
            let Some(start) = code.offset(symbol.address) else { return };
            let is_start = symbol.is_function && begins(symbol.name) && piece_at(analyzed, start).is_some();
            if is_start && named.reserved.grow(ADDRESS_BYTES) {
                named.starts.insert(start);
            }
            if never_returns(symbol.name) && named.reserved.grow(ADDRESS_BYTES) {
                named.never_return.insert(start);
            }
        });
        named
    }
}

/// Whether a function is called where this name's symbol is. The cold part of a function has a symbol, but isn't called.
pub(super) fn is_begin_of_function(name: &[u8]) -> bool {
    !is_never_called(name) && !name.windows(5).any(|part| part == b".cold")
}
