//! Collects the symbols of a file, or of parts of its code.

use std::collections::BTreeMap;
use std::ops::Range;

use super::entry::{NameRef, SymbolEntry};
use super::go_text::GoTextRange;
use super::limits::{ALIASES_LIMIT, OmittedSymbols, SymbolLimits};
use crate::elf::{CodeSymbol, ElfLayout};
use crate::error::SymbolTableError;
use crate::image::Image;
use crate::plt;

/// The collector's state, and its sources and limits.
pub(super) struct SymbolTableBuilder<'a> {
    image: &'a Image,
    layout: &'a ElfLayout,
    limits: SymbolLimits,
    base: u64,
    /// The parts that are wanted, in order, from the base; `None` means all code.
    parts: Option<Vec<Range<u32>>>,
    /// For each part, the last symbols that start before it and behind the part before it, all at one address: without a size they
    /// may extend into it.
    before: Vec<Vec<SymbolEntry>>,
    entries: Vec<SymbolEntry>,
    cut: OmittedSymbols,
    unscanned: u64,
    go_text: GoTextRange,
}

/// The collected symbols.
pub(super) struct CollectedSymbols {
    /// Sorted by start.
    pub(super) entries: Vec<SymbolEntry>,
    pub(super) go_text: Option<Range<u64>>,
    /// All symbols left out by limits.
    pub(super) cut: OmittedSymbols,
    /// Of those, symbols that were not read.
    pub(super) unscanned: u64,
    /// The parts that were collected: the first ones of those that were wanted.
    pub(super) parts: usize,
}

impl<'a> SymbolTableBuilder<'a> {
    pub(super) fn new(image: &'a Image, layout: &'a ElfLayout, limits: SymbolLimits, base: u64) -> Self {
        Self {
            image,
            layout,
            limits,
            base,
            parts: None,
            before: Vec::new(),
            entries: Vec::new(),
            cut: OmittedSymbols::default(),
            unscanned: 0,
            go_text: GoTextRange::default(),
        }
    }

    /// Leaves out symbols that lie outside these parts of the code, which are in order. If the symbols of all parts exceed the
    /// limit, the last parts are left out, until only the first remains.
    pub(super) fn with_parts(self, parts: Vec<Range<u32>>) -> Self {
        Self { before: vec![Vec::new(); parts.len()], parts: Some(parts), ..self }
    }

    /// Reads the tables. A file without symbols gives none.
    pub(super) fn collect(mut self) -> Result<CollectedSymbols, SymbolTableError> {
        if self.parts.is_none() {
            self.entries.reserve_exact(symbols_at_most(self.layout, &self.limits));
        }
        self.add_full()?;
        self.sort();
        self.add_dynamic()?;
        self.add_those_before();
        self.sort();
        self.add_stubs();
        self.sort();
        self.cut.beyond_limit += self.unscanned;
        let Self { entries, go_text, cut, unscanned, parts, .. } = self;
        let parts = parts.map_or(0, |parts| parts.len());
        Ok(CollectedSymbols { entries, go_text: go_text.range(), cut, unscanned, parts })
    }

    fn add_those_before(&mut self) {
        while !self.has_room_for(self.before.iter().map(Vec::len).sum()) && self.drop_last_parts() {}
        for mut before in std::mem::take(&mut self.before) {
            let room = self.limits.symbols.saturating_sub(self.entries.len());
            self.cut.beyond_limit += before.len().saturating_sub(room) as u64;
            before.truncate(room);
            self.entries.append(&mut before);
        }
    }

    fn has_room_for(&self, symbols: usize) -> bool {
        self.entries.len() + symbols <= self.limits.symbols
    }

    /// Leaves out the last half of the parts. Returns false if there is just one.
    fn drop_last_parts(&mut self) -> bool {
        let Some(parts) = self.parts.as_mut().filter(|parts| parts.len() > 1) else { return false };
        parts.truncate(parts.len() / 2);
        self.before.truncate(parts.len());
        let end = parts.last().map_or(0, |last| last.end);
        self.entries.retain(|entry| entry.start < end);
        true
    }

    fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| entry.start);
    }

    fn add_full(&mut self) -> Result<(), SymbolTableError> {
        let (image, layout) = (self.image, self.layout);
        let Some(table) = &layout.symtab else { return Ok(()) };
        self.unscanned += layout.for_each_symbol(image, table, self.limits.symbols_scanned, |symbol| {
            if layout.is_go && symbol.size == 0 {
                self.go_text.add_marker(image, table, &symbol);
            }
            self.add(&symbol, NameRef::in_symtab);
        })?;
        Ok(())
    }

    /// Adds the symbols of `.dynsym` for addresses that are missing from the full table.
    fn add_dynamic(&mut self) -> Result<(), SymbolTableError> {
        let (image, layout) = (self.image, self.layout);
        let Some(table) = &layout.dynsym else { return Ok(()) };
        self.unscanned += layout.for_each_symbol(image, table, self.limits.symbols_scanned, |symbol| {
            let known = self.full_count();
            if !self.start_of(&symbol).is_some_and(|start| self.is_known(known, start)) {
                self.add(&symbol, NameRef::in_dynsym);
            }
        })?;
        self.drop_known_before_part()
    }

    /// The number of entries of the full table, which come first. It decreases when parts are left out.
    fn full_count(&self) -> usize {
        self.entries.partition_point(|entry| !entry.name.is_dynamic())
    }

    /// For a part, removes the entries of `.dynsym` that start before the part at addresses where the full table also has a
    /// symbol: a symbol that ends before the part was not collected, and so its address was not known.
    fn drop_known_before_part(&mut self) -> Result<(), SymbolTableError> {
        let first = self.full_count();
        let (Some(parts), Some(table)) = (&self.parts, &self.layout.symtab) else { return Ok(()) };
        let is_in_part = |entry: &SymbolEntry| parts.iter().any(|part| part.contains(&entry.start));
        let reaching = self.entries.iter().skip(first).filter(|entry| !is_in_part(entry));
        let mut is_known: BTreeMap<u32, bool> = reaching.map(|entry| (entry.start, false)).collect();
        if is_known.is_empty() {
            return Ok(());
        }
        self.layout.for_each_symbol(self.image, table, self.limits.symbols_scanned, |symbol| {
            let start = self.start_of(&symbol).filter(|_| NameRef::in_symtab(&symbol).is_some());
            if let Some(is_known) = start.and_then(|start| is_known.get_mut(&start)) {
                *is_known = true;
            }
        })?;
        let mut number = 0;
        self.entries.retain(|entry| {
            number += 1;
            number <= first || !is_known.get(&entry.start).is_some_and(|is_known| *is_known)
        });
        Ok(())
    }

    /// Adds the stubs that no symbol names.
    fn add_stubs(&mut self) {
        let (image, layout) = (self.image, self.layout);
        let Some(table) = &layout.dynsym else { return };
        let known = self.entries.len();
        for stub in plt::plt_stubs(image, layout) {
            let Some(start) = stub.svma.checked_sub(self.base).and_then(|start| u32::try_from(start).ok())
            else {
                continue;
            };
            let is_wanted =
                self.parts.as_ref().is_none_or(|parts| parts.iter().any(|part| part.contains(&start)));
            if !is_wanted || self.is_known(known, start) {
                continue;
            }
            let name = || ElfLayout::name_of(image, table, stub.symbol).and_then(NameRef::for_stub);
            if self.entries.len() >= self.limits.symbols {
                self.cut.beyond_limit += 1;
            } else if let Some(name) = name() {
                self.entries.push(SymbolEntry { start, size: stub.bytes, name });
            }
        }
    }

    /// Whether one of the first entries, which are sorted, starts at this address.
    fn is_known(&self, first: usize, start: u32) -> bool {
        let is_before =
            self.before.iter().any(|before| before.first().is_some_and(|entry| entry.start == start));
        let known = self.entries.get(..first).unwrap_or_default();
        is_before || known.binary_search_by_key(&start, |entry| entry.start).is_ok()
    }

    fn start_of(&self, symbol: &CodeSymbol) -> Option<u32> {
        u32::try_from(symbol.svma.checked_sub(self.base)?).ok()
    }

    fn add(&mut self, symbol: &CodeSymbol, name: fn(&CodeSymbol) -> Option<NameRef>) {
        if self.layout.code_section(symbol.svma).is_none() {
            return;
        }
        if !self.has_room_for(1) && self.parts.is_none() {
            self.cut.beyond_limit += 1;
            return;
        }
        let (Some(start), Some(name)) = (self.start_of(symbol), name(symbol)) else {
            // For a part, symbols out of range were already counted with the whole.
            self.cut.out_of_range += u64::from(self.parts.is_none());
            return;
        };
        let size = u32::try_from(symbol.size).unwrap_or(u32::MAX);
        let entry = SymbolEntry { start, size, name };
        match self.place_of(&entry) {
            EntryPlace::Nowhere => {}
            EntryPlace::Before(part) => self.add_before(part, entry),
            EntryPlace::Within => {
                while !self.has_room_for(1) && self.drop_last_parts() {}
                match self.place_of(&entry) {
                    EntryPlace::Within if self.has_room_for(1) => self.entries.push(entry),
                    EntryPlace::Within => self.cut.beyond_limit += 1,
                    EntryPlace::Before(_) | EntryPlace::Nowhere => {}
                }
            }
        }
    }

    /// Where a symbol is among the parts.
    fn place_of(&self, entry: &SymbolEntry) -> EntryPlace {
        let Some(parts) = &self.parts else { return EntryPlace::Within };
        let next = parts.partition_point(|part| part.end <= entry.start);
        match parts.get(next) {
            None => EntryPlace::Nowhere,
            Some(part) if part.start <= entry.start || entry.reaches(part.start) => EntryPlace::Within,
            Some(_) => EntryPlace::Before(next),
        }
    }

    fn add_before(&mut self, part: usize, entry: SymbolEntry) {
        let Some(before) = self.before.get_mut(part) else { return };
        let last = before.first().map_or(entry.start, |before| before.start);
        if entry.start > last {
            before.clear();
        }
        if entry.start >= last && before.len() < ALIASES_LIMIT {
            before.push(entry);
        }
    }
}

/// Where a symbol is among the parts that are wanted.
enum EntryPlace {
    /// It has code in one of them.
    Within,
    /// It ends before this one.
    Before(usize),
    /// It starts behind all of them.
    Nowhere,
}

/// The most symbols of a file that are collected.
pub(super) fn symbols_at_most(layout: &ElfLayout, limits: &SymbolLimits) -> usize {
    let count = [&layout.symtab, &layout.dynsym].into_iter().flatten().map(|table| table.count).sum::<u64>();
    usize::try_from(count).unwrap_or(usize::MAX).min(limits.symbols)
}
