//! Files with more symbols than fit in memory.
//!
//! Their code is divided into parts, and the symbols of a part are read when an address in it is looked up. Each read
//! scans the file's whole table, because symbols are in no order there.

use sidewinder_address::Svma;

use super::build::{CollectedSymbols, SymbolTableBuilder, symbols_at_most};
use super::limits::SymbolLimits;
use super::parts::LoadedParts;
use super::table::SymbolTable;
use crate::error::SymbolTableError;

/// A part is at least a page, and a file has at most [`PARTS_MAX`] parts.
const PART_BYTES_MIN: u64 = 4096;
const PARTS_MAX: u64 = 1024;
/// This many parts fit at once, if symbols are spread evenly.
const PARTS_AT_ONCE: u64 = 16;

impl SymbolTable {
    /// Divides a table that was cut by its limits into parts, which are read on demand.
    pub(crate) fn split_into_parts(&mut self) {
        if self.unscanned == self.cut.beyond_limit {
            return;
        }
        let end = self.layout.code.last().map_or(self.base, |section| section.end);
        let code_bytes = (end - self.base).min(u64::from(u32::MAX));
        let symbols = symbols_at_most(&self.layout, &SymbolLimits { symbols: usize::MAX, ..self.limits });
        let evenly = u128::from(code_bytes) * self.limits.symbols as u128 / symbols.max(1) as u128;
        let part_bytes = u64::try_from(evenly).unwrap_or(u64::MAX) / PARTS_AT_ONCE;
        let part_bytes = part_bytes.max(code_bytes.div_ceil(PARTS_MAX)).max(PART_BYTES_MIN);
        let count = code_bytes.div_ceil(part_bytes) as usize;
        self.parts = Some(LoadedParts { part_bytes, is_loaded: vec![false; count].into() });
        self.cut.beyond_limit = self.unscanned;
        self.entries.clear();
        self.entries.reserve_exact(self.limits.symbols);
    }

    /// Whether all symbols that may cover an address are loaded.
    pub(crate) fn has_part(&self, svma: Svma) -> bool {
        self.missing_part(svma).is_none()
    }

    /// Loads the symbols around an address, replacing all others if they don't fit beside them.
    pub(crate) fn load_part(&mut self, svma: Svma) -> Result<(), SymbolTableError> {
        let Some(part) = self.missing_part(svma) else { return Ok(()) };
        // A part that can't be read is not tried again.
        self.mark_loaded(part);
        let room = self.limits.symbols.saturating_sub(self.entries.len());
        let mut collected = self.collect(part, room)?;
        if collected.cut.beyond_limit > self.unscanned && !self.entries.is_empty() {
            self.entries.clear();
            self.parts.iter_mut().for_each(|parts| parts.is_loaded.fill(false));
            self.mark_loaded(part);
            collected = self.collect(part, self.limits.symbols)?;
        }
        self.entries.append(&mut collected.entries);
        // Symbols that extend into several parts, or lie before them, are read with each.
        self.entries.sort_unstable();
        self.entries.dedup();
        self.cut.beyond_limit += collected.cut.beyond_limit.saturating_sub(self.unscanned);
        Ok(())
    }

    fn mark_loaded(&mut self, part: usize) {
        if let Some(is_held) = self.parts.as_mut().and_then(|parts| parts.is_loaded.get_mut(part)) {
            *is_held = true;
        }
    }

    fn missing_part(&self, svma: Svma) -> Option<usize> {
        let parts = self.parts.as_ref()?;
        let part = usize::try_from(svma.0.checked_sub(self.base)? / parts.part_bytes).ok()?;
        parts.is_loaded.get(part).is_some_and(|is_held| !is_held).then_some(part)
    }

    fn collect(&self, part: usize, room: usize) -> Result<CollectedSymbols, SymbolTableError> {
        let part_bytes = self.parts.as_ref().map_or(0, |parts| parts.part_bytes);
        let at = |part: u64| u32::try_from(part.saturating_mul(part_bytes)).unwrap_or(u32::MAX);
        let part = at(part as u64)..at(part as u64 + 1);
        let limits = SymbolLimits { symbols: room, ..self.limits };
        SymbolTableBuilder::new(&self.image, &self.layout, limits, self.base).with_part(part).collect()
    }
}
