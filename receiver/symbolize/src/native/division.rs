//! Files with more symbols than fit in memory.
//!
//! Their code is divided into parts, and the symbols of a part are read when an address in it is looked up. Each read
//! scans the file's whole table, because symbols are in no order there: so it reads the parts of addresses that are looked up
//! next, too.

use sidewinder_address::Svma;

use super::build::{CollectedSymbols, SymbolTableBuilder, symbols_at_most};
use super::index::SymbolIndex;
use super::limits::SymbolLimits;
use super::parts::LoadedParts;
use super::table::SymbolTable;
use crate::error::SymbolTableError;

/// A part is at least a page, and a file has at most [`PARTS_MAX`] parts.
const PART_BYTES_MIN: u64 = 4096;
const PARTS_MAX: u64 = 4096;
/// This many parts fit at once, if symbols are spread evenly.
const PARTS_AT_ONCE: u64 = 64;

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
        self.entries = SymbolIndex::with_capacity(self.limits.symbols);
    }

    /// Whether all symbols that may cover an address are loaded.
    pub(crate) fn has_part(&self, svma: Svma) -> bool {
        self.missing_part(svma).is_none()
    }

    /// Loads the symbols around an address, and around addresses that are looked up after it, which are in order, as far as they
    /// fit. Replaces all others if they don't fit beside them.
    pub(crate) fn load_parts(&mut self, svma: Svma, next: &[Svma]) -> Result<(), SymbolTableError> {
        let Some(first) = self.missing_part(svma) else { return Ok(()) };
        let mut wanted = vec![first];
        wanted.extend(next.iter().filter_map(|next| self.part_of(*next)).filter(|part| *part > first));
        wanted.dedup();
        // A part that can't be read is not tried again.
        self.mark_loaded(first);
        let missing: Vec<usize> =
            wanted.iter().copied().filter(|part| *part == first || self.is_missing(*part)).collect();
        let room = self.limits.symbols.saturating_sub(self.entries.len());
        let mut loaded = &missing;
        let mut collected = self.collect(&missing, room)?;
        let is_cut = collected.cut.beyond_limit > self.unscanned || collected.parts < missing.len();
        if is_cut && !self.entries.is_empty() {
            self.entries.clear();
            self.parts.iter_mut().for_each(|parts| parts.is_loaded.fill(false));
            loaded = &wanted;
            collected = self.collect(&wanted, self.limits.symbols)?;
        }
        loaded.iter().take(collected.parts).for_each(|part| self.mark_loaded(*part));
        // Symbols that extend into several parts, or lie before them, are read with each.
        self.entries.extend(collected.entries);
        self.cut.beyond_limit += collected.cut.beyond_limit.saturating_sub(self.unscanned);
        Ok(())
    }

    fn mark_loaded(&mut self, part: usize) {
        if let Some(is_held) = self.parts.as_mut().and_then(|parts| parts.is_loaded.get_mut(part)) {
            *is_held = true;
        }
    }

    fn missing_part(&self, svma: Svma) -> Option<usize> {
        self.part_of(svma).filter(|part| self.is_missing(*part))
    }

    /// The part that an address is in; the last one for addresses behind it, which its symbols may reach.
    fn part_of(&self, svma: Svma) -> Option<usize> {
        let LoadedParts { part_bytes, is_loaded } = self.parts.as_ref()?;
        let part = usize::try_from(svma.0.checked_sub(self.base)? / part_bytes).unwrap_or(usize::MAX);
        Some(part.min(is_loaded.len().checked_sub(1)?))
    }

    fn is_missing(&self, part: usize) -> bool {
        let is_loaded = self.parts.as_ref().and_then(|parts| parts.is_loaded.get(part));
        is_loaded.is_some_and(|is_loaded| !is_loaded)
    }

    fn collect(&self, parts: &[usize], room: usize) -> Result<CollectedSymbols, SymbolTableError> {
        let part_bytes = self.parts.as_ref().map_or(0, |parts| parts.part_bytes);
        let at = |part: u64| u32::try_from(part.saturating_mul(part_bytes)).unwrap_or(u32::MAX);
        let parts = parts.iter().map(|part| at(*part as u64)..at(*part as u64 + 1)).collect();
        let limits = SymbolLimits { symbols: room, ..self.limits };
        SymbolTableBuilder::new(&self.image, &self.layout, limits, self.base).with_parts(parts).collect()
    }
}
