//! Collects the symbols of a file, or of parts of its code.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;

use super::entry::{NameRef, SymbolEntry, SymbolSource};
use super::go_text::GoTextRange;
use super::limits::{ALIASES_LIMIT, OmittedSymbols, SymbolLimits};
use crate::elf::{CodeSymbol, ElfLayout};
use crate::error::SymbolTableError;
use crate::image::Image;
use crate::plt;

/// The collector's state, its sources and limits.
///
/// Each start belongs to the first [`SymbolSource`] that has a symbol there; the symbols of later sources at this start are
/// hidden. What is collected for a part is a subset of what is collected for all code, and has every symbol that decides about an
/// address in it: those that have code in the part, and all of the last start before it.
pub(super) struct SymbolTableBuilder<'a> {
    image: &'a Image,
    layout: &'a ElfLayout,
    limits: SymbolLimits,
    base: u64,
    /// The parts that are wanted, in order, from the base; `None` means all code.
    parts: Option<Vec<Range<u32>>>,
    /// For each part, the last symbols that start between the part before it and this one and don't reach it, all of one start and
    /// one source, in order: without a size they may extend into it.
    before: Vec<Vec<SymbolEntry>>,
    /// Those of earlier sources come first, sorted, while symbols of a later one are added.
    entries: Vec<SymbolEntry>,
    cut: OmittedSymbols,
    unscanned: u64,
    go_text: GoTextRange,
}

/// The collected symbols.
pub(super) struct CollectedSymbols {
    /// In no order; some may be there twice.
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
        self.sort();
        self.add_stubs();
        self.drop_hidden()?;
        self.add_those_before();
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
        self.entries.sort_unstable();
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

    fn add_dynamic(&mut self) -> Result<(), SymbolTableError> {
        let (image, layout) = (self.image, self.layout);
        let Some(table) = &layout.dynsym else { return Ok(()) };
        self.unscanned += layout.for_each_symbol(image, table, self.limits.symbols_scanned, |symbol| {
            self.add(&symbol, NameRef::in_dynsym);
        })?;
        Ok(())
    }

    fn add_stubs(&mut self) {
        let (image, layout) = (self.image, self.layout);
        let Some(table) = &layout.dynsym else { return };
        let mut stubs = plt::plt_stubs(image, layout);
        // The last ones first, so that few names are read of stubs before a part.
        stubs.sort_unstable_by_key(|stub| Reverse(stub.svma));
        for stub in stubs {
            let Some(start) = self.offset_of(stub.svma) else { continue };
            if self.place_of(start, stub.bytes) == EntryPlace::Nowhere {
                continue;
            }
            let name = ElfLayout::name_of(image, table, stub.symbol).and_then(NameRef::for_stub);
            if let Some(name) = name {
                self.add_entry(SymbolEntry { start, size: stub.bytes, name });
            }
        }
    }

    /// Whether a symbol of an earlier source that was collected has this entry's start.
    fn is_hidden(&self, entry: &SymbolEntry) -> bool {
        let source = entry.name.source();
        if source == SymbolSource::Full {
            return false;
        }
        let earlier = self.entries.partition_point(|other| other.name.source() < source);
        let earlier = self.entries.get(..earlier).unwrap_or_default();
        let before = self.before.get(self.next_part(entry.start)).and_then(|before| before.first());
        earlier.binary_search_by_key(&entry.start, |other| other.start).is_ok()
            || before.is_some_and(|other| other.start == entry.start && other.name.source() < source)
    }

    /// Removes the entries that reach a part from before it and are hidden by a symbol that doesn't reach it, and so was not
    /// collected.
    fn drop_hidden(&mut self) -> Result<(), SymbolTableError> {
        let Some(parts) = &self.parts else { return Ok(()) };
        let is_in_part =
            |start: u32| parts.get(self.next_part(start)).is_some_and(|part| part.start <= start);
        let may_be_hidden =
            |entry: &&SymbolEntry| entry.name.source() > SymbolSource::Full && !is_in_part(entry.start);
        let reaching = self.entries.iter().filter(may_be_hidden);
        let mut sources: BTreeMap<u32, SymbolSource> =
            reaching.map(|entry| (entry.start, entry.name.source())).collect();
        let tables =
            [(&self.layout.symtab, SymbolSource::Full), (&self.layout.dynsym, SymbolSource::Dynamic)];
        for (table, source) in tables {
            let is_later = sources.values().any(|of_entry| *of_entry > source);
            let Some(table) = table.as_ref().filter(|_| is_later) else { continue };
            self.layout.for_each_symbol(self.image, table, self.limits.symbols_scanned, |symbol| {
                let start = self.offset_of(symbol.svma).filter(|_| NameRef::in_symtab(&symbol).is_some());
                if let Some(first) = start.and_then(|start| sources.get_mut(&start)) {
                    *first = source.min(*first);
                }
            })?;
        }
        self.entries
            .retain(|entry| sources.get(&entry.start).is_none_or(|first| entry.name.source() <= *first));
        Ok(())
    }

    /// An address from the base on.
    fn offset_of(&self, svma: u64) -> Option<u32> {
        u32::try_from(svma.checked_sub(self.base)?).ok()
    }

    fn add(&mut self, symbol: &CodeSymbol, name: fn(&CodeSymbol) -> Option<NameRef>) {
        if self.layout.code_section(symbol.svma).is_none() {
            return;
        }
        let (Some(start), Some(name)) = (self.offset_of(symbol.svma), name(symbol)) else {
            // For a part, symbols out of range were already counted with the whole.
            self.cut.out_of_range += u64::from(self.parts.is_none());
            return;
        };
        let size = u32::try_from(symbol.size).unwrap_or(u32::MAX);
        self.add_entry(SymbolEntry { start, size, name });
    }

    fn add_entry(&mut self, entry: SymbolEntry) {
        let place = |builder: &Self| builder.place_of(entry.start, entry.size);
        if place(self) == EntryPlace::Nowhere || self.is_hidden(&entry) {
            return;
        }
        while place(self) == EntryPlace::Within && !self.has_room_for(1) && self.drop_last_parts() {}
        match place(self) {
            EntryPlace::Within if self.has_room_for(1) => self.entries.push(entry),
            EntryPlace::Within => self.cut.beyond_limit += 1,
            EntryPlace::Before(part) => self.add_before(part, entry),
            EntryPlace::Nowhere => {}
        }
    }

    /// Where a symbol is among the parts.
    fn place_of(&self, start: u32, size: u32) -> EntryPlace {
        let Some(parts) = &self.parts else { return EntryPlace::Within };
        let next = self.next_part(start);
        let Some(part) = parts.get(next) else { return EntryPlace::Nowhere };
        if part.start < start.saturating_add(size.max(1)) {
            return EntryPlace::Within;
        }
        let last = self.before.get(next).and_then(|before| before.first());
        if last.is_some_and(|last| last.start > start) {
            EntryPlace::Nowhere
        } else {
            EntryPlace::Before(next)
        }
    }

    /// The number of the first part that ends behind a start.
    fn next_part(&self, start: u32) -> usize {
        self.parts.as_ref().map_or(0, |parts| parts.partition_point(|part| part.end <= start))
    }

    fn add_before(&mut self, part: usize, entry: SymbolEntry) {
        let Some(before) = self.before.get_mut(part) else { return };
        before.retain(|last| last.start == entry.start);
        if let Err(at) = before.binary_search(&entry) {
            before.insert(at, entry);
            before.truncate(ALIASES_LIMIT);
        }
    }
}

/// Where a symbol is among the parts that are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum EntryPlace {
    /// It has code in one of them.
    Within,
    /// It ends before this one, and is not before others that do.
    Before(usize),
    /// It decides about no address in them.
    Nowhere,
}

/// The most symbols of a file that are collected.
pub(super) fn symbols_at_most(layout: &ElfLayout, limits: &SymbolLimits) -> usize {
    let count = [&layout.symtab, &layout.dynsym].into_iter().flatten().map(|table| table.count).sum::<u64>();
    usize::try_from(count).unwrap_or(usize::MAX).min(limits.symbols)
}
