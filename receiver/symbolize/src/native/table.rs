//! The index of one file's symbols.

use std::ops::Range;

use sidewinder_address::Svma;

use super::build::{self, SymbolTableBuilder};
use super::entry::{NameRef, SymbolEntry};
use super::index::SymbolIndex;
use super::limits::{ALIASES_LIMIT, OmittedSymbols, SymbolLimits};
use super::name::read_name;
use super::parts::LoadedParts;
use crate::alias::{self, Binding};
use crate::demangle::PLT_SUFFIX;
use crate::elf::ElfLayout;
use crate::error::SymbolTableError;
use crate::image::Image;
use crate::language::Language;

/// One function's symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// The linker's name, without a symbol version. Bytes that aren't UTF-8 are replaced.
    pub name: String,
    /// Whether the name was longer than [`SymbolLimits::name_bytes`].
    pub is_name_cut: bool,
    /// Where the function starts.
    pub start: Svma,
    /// In bytes; 0 if the file doesn't state it.
    pub size: u64,
    /// Its source language, as far as known.
    pub language: Language,
}

/// An index of the function symbols of one file, from `.symtab` and, for addresses missing there, `.dynsym`.
///
/// The index keeps addresses; names stay in the file and are read on demand. So a file of two million symbols costs 24
/// MiB, whatever the length of its names, and the [`Image`] stays open.
#[derive(Debug)]
pub struct SymbolTable {
    pub(super) image: Image,
    pub(super) layout: ElfLayout,
    pub(super) entries: SymbolIndex,
    /// Which of them are loaded, if not all fit in memory.
    pub(super) parts: Option<LoadedParts>,
    /// Start of the first executable section, which [`SymbolEntry::start`] is relative to.
    pub(super) base: u64,
    /// The code placed by the Go linker; the rest of a Go program's text is C's.
    pub(super) go_text: Option<Range<u64>>,
    pub(super) limits: SymbolLimits,
    pub(super) cut: OmittedSymbols,
    /// Of the symbols left out, those that were not read.
    pub(super) unscanned: u64,
}

impl SymbolTable {
    /// The memory of one symbol.
    pub const BYTES_PER_SYMBOL: usize = size_of::<SymbolEntry>();

    /// Indexes a file's function symbols. A file without any gives an empty table.
    ///
    /// # Errors
    ///
    /// [`SymbolTableError`] if the file isn't an ELF file, or is shorter than its headers claim.
    pub fn read(image: impl Into<Image>, limits: SymbolLimits) -> Result<Self, SymbolTableError> {
        let image = image.into();
        let layout = ElfLayout::read(&image)?;
        Self::index(image, layout, limits)
    }

    pub(crate) fn index(
        image: Image,
        layout: ElfLayout,
        limits: SymbolLimits,
    ) -> Result<Self, SymbolTableError> {
        let base = layout.code.first().map_or(0, |range| range.start);
        let collected = SymbolTableBuilder::new(&image, &layout, limits, base).collect()?;
        let entries = SymbolIndex::new(collected.entries);
        // Without symbols there are no names to read.
        let image = if entries.is_empty() { Image::from(Vec::new()) } else { image };
        Ok(Self {
            image,
            layout,
            entries,
            parts: None,
            base,
            go_text: collected.go_text,
            limits,
            cut: collected.cut,
            unscanned: collected.unscanned,
        })
    }

    /// The most symbols that the index of a file will hold.
    pub(crate) fn symbols_at_most(layout: &ElfLayout, limits: &SymbolLimits) -> usize {
        build::symbols_at_most(layout, limits)
    }

    /// The function that contains an address.
    ///
    /// Of functions that nest, the innermost. A symbol without a size extends to the next symbol or to the end of its
    /// section. Of several names, the one that a reader would know best: an exported one before a local one, then the
    /// one with the fewest leading underscores, then global before weak.
    ///
    /// # Errors
    ///
    /// [`SymbolTableError::Read`] if the name can no longer be read from the file.
    pub fn lookup(&self, svma: Svma) -> Result<Option<Symbol>, SymbolTableError> {
        self.locate(svma).map_or(Ok(None), |located| self.name(located))
    }

    /// Whether the file has no function symbols at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.parts.is_none()
    }

    /// The number of symbols kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// The symbols left out by limits.
    #[must_use]
    pub fn cut(&self) -> OmittedSymbols {
        self.cut
    }

    /// Memory held by the index, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.entries.heap_bytes() + self.layout.code.capacity() * size_of::<Range<u64>>()
    }

    /// The language of this file's code if no symbol reveals it: [`Language::Go`] or unknown.
    #[must_use]
    pub fn language_of(&self, svma: Svma) -> Language {
        let is_go = self.layout.is_go && self.go_text.as_ref().is_none_or(|text| text.contains(&svma.0));
        if is_go { Language::Go } else { Language::Unknown }
    }

    /// The entries that cover an address, all with one start. [`LocatedSymbol::is_certain`] returns whether a symbol
    /// states that it reaches the address.
    pub(crate) fn locate(&self, svma: Svma) -> Option<LocatedSymbol<'_>> {
        let offset = u32::try_from(svma.0.checked_sub(self.base)?).ok()?;
        let (start, reached) = match self.entries.last_start_reaching(offset) {
            Some(start) => (start, Some(offset)),
            None => {
                let nearest = self.entries.last_start(offset)?;
                let section = self.layout.code_section(self.base + u64::from(nearest))?;
                (section.contains(&svma.0).then_some(nearest)?, None)
            }
        };
        let aliases = self.entries.starting_at(start);
        let located = LocatedSymbol { start: Svma(self.base + u64::from(start)), aliases, reached };
        located.names().next().is_some().then_some(located)
    }

    /// The best of the names at an address.
    pub(crate) fn name(&self, located: LocatedSymbol<'_>) -> Result<Option<Symbol>, SymbolTableError> {
        let mut best: Option<(Binding, Symbol)> = None;
        for entry in located.names().take(ALIASES_LIMIT) {
            let (name, is_name_cut) = self.read_name(entry.name)?;
            let language = match Language::from_symbol(&name) {
                Language::Unknown => self.language_of(located.start),
                mangled => mangled,
            };
            let binding = entry.name.binding();
            let symbol =
                Symbol { name, is_name_cut, start: located.start, size: u64::from(entry.size), language };
            let is_better = best.as_ref().is_none_or(|(other, shown)| {
                alias::preference(binding, &symbol.name) < alias::preference(*other, &shown.name)
            });
            if is_better {
                best = Some((binding, symbol));
            }
        }
        Ok(best.map(|(_, symbol)| symbol))
    }

    fn read_name(&self, name_ref: NameRef) -> Result<(String, bool), SymbolTableError> {
        let table = if name_ref.is_dynamic() { &self.layout.dynsym } else { &self.layout.symtab };
        let strings = table.as_ref().map_or(0..0, |table| table.strings.clone());
        let (bytes, is_cut) = read_name(&self.image, strings, name_ref.offset(), self.limits.name_bytes)?;
        let name = String::from_utf8_lossy(&bytes);
        // In `.symtab` the linker appends a version to the name: `memcpy@@GLIBC_2.14`.
        let mut text = match name.find('@') {
            Some(at) if at > 0 => name.get(..at).unwrap_or(&name).to_owned(),
            _ => name.into_owned(),
        };
        if name_ref.is_stub() {
            text.push_str(PLT_SUFFIX);
        }
        Ok((text, is_cut))
    }
}

/// The symbols at an address, before any name is read.
#[derive(Clone, Copy)]
pub(crate) struct LocatedSymbol<'a> {
    pub(crate) start: Svma,
    aliases: &'a [SymbolEntry],
    /// The offset that a symbol must reach to count; `None` if no sized symbol does and unsized ones count.
    reached: Option<u32>,
}

impl<'a> LocatedSymbol<'a> {
    /// Whether a symbol states by its size that it contains the address.
    pub(crate) fn is_certain(&self) -> bool {
        self.reached.is_some()
    }

    /// The number of symbols that count.
    pub(crate) fn count(&self) -> usize {
        self.names().count()
    }

    fn names(self) -> impl Iterator<Item = &'a SymbolEntry> {
        self.aliases.iter().filter(move |entry| match self.reached {
            Some(offset) => entry.reaches(offset),
            None => entry.size == 0,
        })
    }
}
