//! The function symbols of one ELF file.

use std::io;
use std::ops::Range;

use sidewinder_address::Svma;

use crate::alias::{self, Binding};
use crate::demangle::PLT_SUFFIX;
use crate::elf::{CodeSymbol, Layout, TableLayout};
use crate::image::Image;
use crate::language::Language;
use crate::plt;

/// Why a file gives no symbol table, or a symbol no name.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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

/// What one file may cost at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Symbols kept, at [`SymbolTable::BYTES_PER_SYMBOL`] each.
    pub symbols: usize,
    /// Symbols looked at in each table, which bounds the time.
    pub symbols_scanned: u64,
    /// The longest name given; the rest of a longer one is cut off.
    pub name_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { symbols: 2 << 20, symbols_scanned: 16 << 20, name_bytes: 4096 }
    }
}

/// Symbols that a file has and its [`SymbolTable`] has not.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Cut {
    /// Left out because [`Limits::symbols`] were kept, or [`Limits::symbols_scanned`] looked at.
    pub beyond_limit: u64,
    /// Left out because they lie more than 4 GiB above the first code, or their names more than 512 MiB
    /// into the table of names.
    pub out_of_reach: u64,
}

/// One function's symbol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// As the linker knows it, without a symbol version. Bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Whether the name was longer than [`Limits::name_bytes`].
    pub is_name_cut: bool,
    /// Where the function starts.
    pub start: Svma,
    /// In bytes; 0 where the file does not tell.
    pub size: u64,
    /// What it was compiled from, as far as is known.
    pub language: Language,
}

/// An index of the function symbols of one file, from `.symtab` and, for addresses that it lacks, `.dynsym`.
///
/// The index keeps addresses; names stay in the file and are read when they are asked for. So a file of two
/// million symbols costs 24 MiB, whatever the length of its names, and the [`Image`] stays open.
#[derive(Debug)]
pub struct SymbolTable {
    image: Image,
    layout: Layout,
    /// Sorted by start.
    entries: Box<[Entry]>,
    /// Start of the first executable section: what [`Entry::start`] counts from.
    base: u64,
    /// What the Go linker placed; the rest of a Go program's text is C's.
    go_text: Option<Range<u64>>,
    limits: Limits,
    cut: Cut,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Bytes from the table's base.
    start: u32,
    /// In bytes, 0 where unknown.
    size: u32,
    name: NameRef,
}

const _: () = assert!(SymbolTable::BYTES_PER_SYMBOL == 12);

/// Where a name is (29 bits of offset), in which table's strings (1 bit), and its binding or that it is a stub (2 bits).
#[derive(Clone, Copy, Debug)]
struct NameRef(u32);

/// Functions that start before an address and are asked whether they reach it. Functions nest where
/// assembly gives symbols to parts of one, a few deep.
const LOOK_BACK: usize = 64;
/// Names of one address that are compared.
const ALIASES_LIMIT: usize = 64;
/// Unsized symbols of a Go file whose names are read to find the bounds of its text.
const GO_MARKS_LIMIT: u32 = 256;

impl SymbolTable {
    /// What one symbol costs.
    pub const BYTES_PER_SYMBOL: usize = size_of::<Entry>();

    /// Indexes a file's function symbols. A file without any gives an empty table.
    ///
    /// # Errors
    ///
    /// [`Error`] where the file is no ELF file, or ends before what its headers promise.
    pub fn read(image: impl Into<Image>, limits: Limits) -> Result<Self, Error> {
        let image = image.into();
        let layout = Layout::read(&image)?;
        Self::index(image, layout, limits)
    }

    pub(crate) fn index(image: Image, layout: Layout, limits: Limits) -> Result<Self, Error> {
        let base = layout.code.first().map_or(0, |range| range.start);
        let mut build = Build {
            entries: Vec::with_capacity(Self::symbols_at_most(&layout, &limits)),
            base,
            limits,
            cut: Cut::default(),
        };
        let mut go_text = GoText::default();
        if let Some(table) = &layout.full {
            let beyond_limit = layout.for_each_symbol(&image, table, limits.symbols_scanned, |symbol| {
                if layout.is_go && symbol.size == 0 {
                    go_text.note(&image, table, &symbol);
                }
                build.add(&layout, &symbol, NameRef::in_full);
            })?;
            build.cut.beyond_limit += beyond_limit;
        }
        build.entries.sort_unstable_by_key(|entry| entry.start);
        if let Some(table) = &layout.dynamic {
            let known = build.entries.len();
            let beyond_limit = layout.for_each_symbol(&image, table, limits.symbols_scanned, |symbol| {
                let is_known = build.start_of(&symbol).is_some_and(|start| {
                    build.entries[..known].binary_search_by_key(&start, |entry| entry.start).is_ok()
                });
                if !is_known {
                    build.add(&layout, &symbol, NameRef::in_dynamic);
                }
            })?;
            build.cut.beyond_limit += beyond_limit;
            build.entries.sort_unstable_by_key(|entry| entry.start);
        }
        build.add_stubs(&layout, &image);
        // Without symbols there are no names to read.
        let image = if build.entries.is_empty() { Image::from(Vec::new()) } else { image };
        Ok(Self {
            image,
            layout,
            entries: build.entries.into_boxed_slice(),
            base,
            go_text: go_text.range(),
            limits,
            cut: build.cut,
        })
    }

    /// How many symbols the index of a file will hold at most.
    pub(crate) fn symbols_at_most(layout: &Layout, limits: &Limits) -> usize {
        let count =
            [&layout.full, &layout.dynamic].into_iter().flatten().map(|table| table.count).sum::<u64>();
        usize::try_from(count).unwrap_or(usize::MAX).min(limits.symbols)
    }

    /// The function that holds an address.
    ///
    /// Of functions that nest, the innermost. A symbol without a size reaches to the next symbol or to the end of
    /// its section. Of several names, the one that a reader would know best: an exported one before a local one,
    /// then the one with the fewest leading underscores, then global before weak.
    ///
    /// # Errors
    ///
    /// [`Error::Read`] where the name cannot be read from the file any more.
    pub fn lookup(&self, svma: Svma) -> Result<Option<Symbol>, Error> {
        self.locate(svma).map_or(Ok(None), |located| self.name(located))
    }

    /// Whether the file has no function symbols at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many symbols are kept.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// What the limits left out.
    #[must_use]
    pub fn cut(&self) -> Cut {
        self.cut
    }

    /// Memory held by the index, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries) + self.layout.code.capacity() * size_of::<Range<u64>>()
    }

    /// What code of this file is written in where no symbol tells: [`Language::Go`] or unknown.
    #[must_use]
    pub fn language_of(&self, svma: Svma) -> Language {
        let is_go = self.layout.is_go && self.go_text.as_ref().is_none_or(|text| text.contains(&svma.0));
        if is_go { Language::Go } else { Language::Unknown }
    }

    /// The entries that name an address, all of one start.
    /// [`Located::is_certain`] tells whether a symbol states that it reaches the address.
    pub(crate) fn locate(&self, svma: Svma) -> Option<Located<'_>> {
        let offset = u32::try_from(svma.0.checked_sub(self.base)?).ok()?;
        let before = self.entries.get(..self.entries.partition_point(|entry| entry.start <= offset))?;
        let sized = before.iter().rev().take(LOOK_BACK).find(|entry| entry.reaches(offset));
        let (start, reached) = match sized {
            Some(entry) => (entry.start, Some(offset)),
            None => {
                let nearest = before.last()?.start;
                let section = self.layout.code_section(self.base + u64::from(nearest))?;
                (section.contains(&svma.0).then_some(nearest)?, None)
            }
        };
        let first = before.partition_point(|entry| entry.start < start);
        let last = before.partition_point(|entry| entry.start <= start);
        let aliases = before.get(first..last)?;
        let located = Located { start: Svma(self.base + u64::from(start)), aliases, reached };
        located.names().next().is_some().then_some(located)
    }

    /// The best of the names of a place.
    pub(crate) fn name(&self, located: Located<'_>) -> Result<Option<Symbol>, Error> {
        let mut best: Option<(Binding, Symbol)> = None;
        for entry in located.names().take(ALIASES_LIMIT) {
            let (name, is_name_cut) = self.read_name(entry.name)?;
            let language = match Language::of_symbol(&name) {
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

    fn read_name(&self, name_ref: NameRef) -> Result<(String, bool), Error> {
        let table = if name_ref.is_dynamic() { &self.layout.dynamic } else { &self.layout.full };
        let strings = table.as_ref().map_or(0..0, |table| table.strings.clone());
        let (bytes, is_cut) = read_name(&self.image, strings, name_ref.offset(), self.limits.name_bytes)?;
        let name = String::from_utf8_lossy(&bytes);
        // In `.symtab` the linker writes a version behind the name: `memcpy@@GLIBC_2.14`.
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

/// A place that symbols name, before any name is read.
#[derive(Clone, Copy)]
pub(crate) struct Located<'a> {
    pub(crate) start: Svma,
    aliases: &'a [Entry],
    /// The offset that a symbol must reach to count; `None` where no sized symbol does and unsized ones count.
    reached: Option<u32>,
}

impl<'a> Located<'a> {
    /// Whether a symbol says by its size that it holds the address.
    pub(crate) fn is_certain(&self) -> bool {
        self.reached.is_some()
    }

    fn names(self) -> impl Iterator<Item = &'a Entry> {
        self.aliases.iter().filter(move |entry| match self.reached {
            Some(offset) => entry.reaches(offset),
            None => entry.size == 0,
        })
    }
}

impl Entry {
    fn reaches(&self, offset: u32) -> bool {
        offset.checked_sub(self.start).is_some_and(|within| within < self.size)
    }
}

impl NameRef {
    const OFFSET_BITS: u32 = 29;
    const DYNAMIC: u32 = 1 << 31;
    /// In the place of a binding: stubs have none.
    const STUB: u32 = 3;

    fn in_full(symbol: &CodeSymbol) -> Option<Self> {
        let binding = match symbol.binding {
            Binding::Global => 0,
            Binding::Weak => 1,
            Binding::Local => 2,
        };
        (symbol.name >> Self::OFFSET_BITS == 0).then_some(Self(symbol.name | binding << Self::OFFSET_BITS))
    }

    fn in_dynamic(symbol: &CodeSymbol) -> Option<Self> {
        Self::in_full(symbol).map(|name| Self(name.0 | Self::DYNAMIC))
    }

    /// A stub, by the name of the function that it leads to.
    fn of_stub(name: u32) -> Option<Self> {
        (name >> Self::OFFSET_BITS == 0)
            .then_some(Self(name | Self::STUB << Self::OFFSET_BITS | Self::DYNAMIC))
    }

    fn is_stub(self) -> bool {
        self.0 >> Self::OFFSET_BITS & 3 == Self::STUB
    }

    fn offset(self) -> u32 {
        self.0 & ((1 << Self::OFFSET_BITS) - 1)
    }

    fn is_dynamic(self) -> bool {
        self.0 & Self::DYNAMIC != 0
    }

    fn binding(self) -> Binding {
        match self.0 >> Self::OFFSET_BITS & 3 {
            0 => Binding::Global,
            1 => Binding::Weak,
            _ => Binding::Local,
        }
    }
}

struct Build {
    entries: Vec<Entry>,
    base: u64,
    limits: Limits,
    cut: Cut,
}

impl Build {
    fn start_of(&self, symbol: &CodeSymbol) -> Option<u32> {
        u32::try_from(symbol.svma.checked_sub(self.base)?).ok()
    }

    fn add(&mut self, layout: &Layout, symbol: &CodeSymbol, name: fn(&CodeSymbol) -> Option<NameRef>) {
        if layout.code_section(symbol.svma).is_none() {
            return;
        }
        if self.entries.len() >= self.limits.symbols {
            self.cut.beyond_limit += 1;
            return;
        }
        let (Some(start), Some(name)) = (self.start_of(symbol), name(symbol)) else {
            self.cut.out_of_reach += 1;
            return;
        };
        let size = u32::try_from(symbol.size).unwrap_or(u32::MAX);
        self.entries.push(Entry { start, size, name });
    }

    /// Names the stubs that no symbol names.
    fn add_stubs(&mut self, layout: &Layout, image: &Image) {
        let Some(table) = &layout.dynamic else { return };
        let known = self.entries.len();
        for stub in plt::stubs(image, layout) {
            let Some(start) = stub.svma.checked_sub(self.base).and_then(|start| u32::try_from(start).ok())
            else {
                continue;
            };
            let is_known =
                |entries: &[Entry]| entries.binary_search_by_key(&start, |entry| entry.start).is_ok();
            if self.entries.get(..known).is_some_and(is_known) {
                continue;
            }
            if self.entries.len() >= self.limits.symbols {
                self.cut.beyond_limit += 1;
                continue;
            }
            let name = Layout::name_of(image, table, stub.symbol).and_then(NameRef::of_stub);
            if let Some(name) = name {
                self.entries.push(Entry { start, size: stub.bytes, name });
            }
        }
        self.entries.sort_unstable_by_key(|entry| entry.start);
    }
}

/// The bounds of Go's own code, which the Go linker marks with two unsized symbols.
#[derive(Default)]
struct GoText {
    start: Option<u64>,
    end: Option<u64>,
    marks_read: u32,
}

impl GoText {
    fn note(&mut self, image: &Image, table: &TableLayout, symbol: &CodeSymbol) {
        if self.marks_read == GO_MARKS_LIMIT {
            return;
        }
        self.marks_read += 1;
        // A name that cannot be read is no mark; whoever looks it up will learn why.
        let name = read_name(image, table.strings.clone(), symbol.name, 32).unwrap_or_default().0;
        match &*name {
            b"runtime.text" => self.start = Some(symbol.svma),
            b"runtime.etext" => self.end = Some(symbol.svma),
            _ => {}
        }
    }

    fn range(&self) -> Option<Range<u64>> {
        Some(self.start?..self.end?)
    }
}

fn read_name(
    image: &Image,
    strings: Range<u64>,
    offset: u32,
    limit: usize,
) -> Result<(Vec<u8>, bool), Error> {
    let missing = |offset, source| Error::Read { what: "symbol name", offset, source };
    let at = strings
        .start
        .checked_add(u64::from(offset))
        .filter(|at| *at < strings.end)
        .ok_or_else(|| missing(strings.start, io::ErrorKind::UnexpectedEof.into()))?;
    let room = usize::try_from(strings.end - at).unwrap_or(usize::MAX);
    image.read_c_string(at, limit.min(room)).map_err(|source| missing(at, source))
}
