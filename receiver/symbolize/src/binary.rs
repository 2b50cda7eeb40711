//! The symbols of one binary: its own, and its companion files'.

use sidewinder_address::Svma;
use sidewinder_unwind::unpack_mini_debug_info;

use crate::dwarf::{DebugDetail, DebugInfo, PageCache, SectionsError};
use crate::elf::ElfLayout;
use crate::error::SymbolTableError;
use crate::files::BinaryFiles;
use crate::go::GoTable;
use crate::image::Image;
use crate::language::Language;
use crate::names::UnnamedReason;
use crate::native::{LocatedSymbol, Symbol, SymbolLimits, SymbolTable};

/// The tables of one binary.
#[derive(Debug)]
pub(crate) struct BinarySymbols {
    /// The most detailed table comes first; the last is the binary's own. Never empty.
    tables: Vec<SymbolTable>,
    /// Bytes of decompressed files held in memory.
    unpacked_bytes: usize,
    /// Go's own table.
    go: Option<GoTable>,
    /// Lines and inlined calls, from the first file that has any.
    debug: Option<DebugInfo>,
    /// Whether some or all of the debug information was left out for lack of memory.
    pub(crate) is_debug_cut: bool,
}

/// The limits of reading a binary, and the details wanted from it.
pub(crate) struct BinaryReadRequest<'a> {
    /// The limit for the tables and for the debug information, each.
    pub(crate) room_bytes: usize,
    pub(crate) wanted: DebugDetail,
    pub(crate) pages: &'a PageCache,
}

/// A function's location, before its name is read.
#[derive(Clone, Copy)]
pub(crate) struct SymbolMatch<'a> {
    table: &'a SymbolTable,
    table_number: u8,
    located: LocatedSymbol<'a>,
}

/// Identifies the symbols of a file that cover an address; addresses with equal keys have the same name.
///
/// All these symbols start at one address. Those that reach the looked-up address are the longest ones, so their count
/// identifies them.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct SymbolKey {
    start: Svma,
    count: u32,
    table_number: u8,
    is_certain: bool,
}

impl SymbolMatch<'_> {
    pub(crate) fn symbols(&self) -> SymbolKey {
        let located = &self.located;
        SymbolKey {
            start: located.start,
            count: u32::try_from(located.count()).unwrap_or(u32::MAX),
            table_number: self.table_number,
            is_certain: located.is_certain(),
        }
    }

    pub(crate) fn name(self) -> Result<Option<Symbol>, SymbolTableError> {
        self.table.name(self.located)
    }
}

impl BinarySymbols {
    /// Reads tables. `make_room` is called with the memory that they will take before they are read.
    ///
    /// For a binary without `.symtab`, its debug file is tried, and then its MiniDebugInfo (see GDB's manual); for one
    /// without lines, its debug file too. A malformed one of these is treated as absent.
    pub(crate) fn read(
        files: &impl BinaryFiles,
        request: &BinaryReadRequest<'_>,
        make_room: impl FnOnce(usize),
    ) -> Result<Self, UnnamedReason> {
        let image = files.content().map_err(|error| UnnamedReason::NotOpened(error.kind()))?;
        let layout = ElfLayout::read(&image).map_err(|_| UnnamedReason::Broken)?;
        let wants_debug = request.wanted.lines || request.wanted.inlines;
        let lacks_symbols = !has_symbols(&layout);
        let lacks_debug = wants_debug && !has_debug_info(&layout);
        let debug_file = if lacks_symbols || lacks_debug { parsed(files.debug_file()) } else { None };
        let mut unpacked_bytes = 0;
        let mut unpacked = || {
            let unpacked = mini_debug_info(&image, &layout, request.room_bytes)?;
            unpacked_bytes = unpacked.len();
            parsed(Some(unpacked.into()))
        };
        let companion = match &debug_file {
            _ if !lacks_symbols => None,
            Some((image, layout)) if has_symbols(layout) => Some((image.clone(), layout.clone())),
            _ => unpacked(),
        };
        let go = if layout.is_go { GoTable::read(&image, &layout) } else { None };
        let (debug, is_debug_cut) = match debug_file.filter(|_| lacks_debug) {
            Some((debug_image, debug_layout)) => {
                debug_info(files, request, &debug_image, &debug_layout, &layout)
            }
            None => debug_info(files, request, &image, &layout, &layout),
        };

        let parts: Vec<(Image, ElfLayout)> = companion.into_iter().chain([(image, layout)]).collect();
        let debug_bytes = debug.as_ref().map_or(0, DebugInfo::heap_bytes);
        let mut left = request.room_bytes.saturating_sub(unpacked_bytes) / SymbolTable::BYTES_PER_SYMBOL;
        let limits = |left: usize| SymbolLimits {
            symbols: SymbolLimits::default().symbols.min(left),
            ..SymbolLimits::default()
        };
        let expected: usize =
            parts.iter().map(|(_, layout)| SymbolTable::symbols_at_most(layout, &limits(left))).sum();
        make_room(expected.min(left) * SymbolTable::BYTES_PER_SYMBOL + unpacked_bytes + debug_bytes);
        let mut tables = Vec::with_capacity(parts.len());
        let count = parts.len();
        for (number, (image, layout)) in parts.into_iter().enumerate() {
            // Later tables always get some of the room.
            let room = if number + 1 < count { left / 4 * 3 } else { left };
            let mut table =
                SymbolTable::index(image, layout, limits(room)).map_err(|_| UnnamedReason::Broken)?;
            table.split_into_parts();
            left -= table.heap_bytes().div_ceil(SymbolTable::BYTES_PER_SYMBOL).min(left);
            tables.push(table);
        }
        // Go's own table has the same information about Go code.
        let is_debug_cut = is_debug_cut && go.is_none();
        Ok(Self { tables, unpacked_bytes, go, debug, is_debug_cut })
    }

    /// Go's own table, if there is one.
    pub(crate) fn go(&self) -> Option<&GoTable> {
        self.go.as_ref()
    }

    /// Lines and inlined calls, if there are any.
    pub(crate) fn debug(&self) -> Option<&DebugInfo> {
        self.debug.as_ref()
    }

    /// Whether all symbols that may cover an address are loaded.
    pub(crate) fn has_part(&self, svma: Svma) -> bool {
        self.tables.iter().all(|table| table.has_part(svma))
    }

    /// Loads the symbols around an address, and around those that are looked up after it, which are in order. A file that can no
    /// longer be read has none.
    pub(crate) fn load_parts(&mut self, svma: Svma, next: &[Svma]) {
        for table in &mut self.tables {
            let _ = table.load_parts(svma, next);
        }
    }

    /// The function that covers an address: one that covers it by its size takes precedence over one that merely
    /// precedes it.
    pub(crate) fn find(&self, svma: Svma) -> Option<SymbolMatch<'_>> {
        let rank = |found: &SymbolMatch<'_>| (found.located.is_certain(), found.located.start.0);
        self.tables
            .iter()
            .zip(0..)
            .filter_map(|(table, table_number)| {
                Some(SymbolMatch { table, table_number, located: table.locate(svma)? })
            })
            .reduce(|best, other| if rank(&other) > rank(&best) { other } else { best })
    }

    /// Whether no table has any function.
    pub(crate) fn is_empty(&self) -> bool {
        self.go.is_none() && self.tables.iter().all(SymbolTable::is_empty)
    }

    /// As [`SymbolTable::language_of`].
    pub(crate) fn language_of(&self, svma: Svma) -> Language {
        self.tables.last().map_or(Language::Unknown, |table| table.language_of(svma))
    }

    /// Symbols left out by limits.
    pub(crate) fn symbols_cut(&self) -> u64 {
        self.tables.iter().map(SymbolTable::cut).map(|cut| cut.beyond_limit + cut.out_of_range).sum()
    }

    /// Memory held, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        let debug_bytes = self.debug.as_ref().map_or(0, DebugInfo::heap_bytes);
        self.unpacked_bytes + debug_bytes + self.tables.iter().map(SymbolTable::heap_bytes).sum::<usize>()
    }

    /// Files that are held open.
    pub(crate) fn open_files(&self) -> usize {
        let of_debug = self.debug.as_ref().map_or(0, DebugInfo::open_files);
        let of_go = usize::from(self.go.is_some());
        of_go + of_debug + self.tables.iter().filter(|table| !table.is_empty()).count()
    }
}

fn has_symbols(layout: &ElfLayout) -> bool {
    layout.symtab.as_ref().is_some_and(|table| table.count > 1)
}

fn has_debug_info(layout: &ElfLayout) -> bool {
    layout.section(".debug_info").is_some_and(|section| !section.bytes.is_empty())
}

fn parsed(image: Option<Image>) -> Option<(Image, ElfLayout)> {
    let image = image?;
    let layout = ElfLayout::read(&image).ok()?;
    Some((image, layout))
}

/// The debug information in a file, and whether some or all of it was left out for lack of memory.
fn debug_info(
    files: &impl BinaryFiles,
    request: &BinaryReadRequest<'_>,
    image: &Image,
    layout: &ElfLayout,
    own: &ElfLayout,
) -> (Option<DebugInfo>, bool) {
    if !(request.wanted.lines || request.wanted.inlines) {
        return (None, false);
    }
    let base = own.code.first().map_or(0, |range| range.start);
    match DebugInfo::read(image, layout, base, files, request.pages, request.room_bytes) {
        Ok(debug) => {
            let is_cut = debug.cut() > 0;
            (Some(debug), is_cut)
        }
        Err(why) => (None, why == SectionsError::NoRoom),
    }
}

/// The file in `.gnu_debugdata`, if it takes no more than half the memory that there is, and twice that while it is decompressed.
fn mini_debug_info(image: &Image, layout: &ElfLayout, room_bytes: usize) -> Option<Vec<u8>> {
    let section = layout.section(".gnu_debugdata")?;
    let bytes = section.bytes.end - section.bytes.start;
    if bytes > room_bytes as u64 {
        return None;
    }
    let mut compressed = vec![0; usize::try_from(bytes).ok()?];
    image.read_exact_at(section.bytes.start, &mut compressed).ok()?;
    unpack_mini_debug_info(&compressed, 2 * room_bytes as u64).ok()
}
