//! The names of addresses, and the reasons why some have none.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

use sidewinder_address::FileOffset;

use crate::demangle::demangle;
use crate::language::Language;

/// The caller's ID for a file's contents: equal IDs, equal symbols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BinaryId(pub u32);

/// The names of a function. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolName {
    /// The name in the source, or the system name if it isn't mangled.
    pub demangled: Arc<str>,
    /// The linker's name.
    pub system_name: Arc<str>,
    /// Its source language.
    pub language: Language,
}

impl SymbolName {
    /// A function known only by its name.
    #[must_use]
    pub fn from_symbol(system_name: Arc<str>) -> Self {
        let language = Language::from_symbol(&system_name);
        Self::new(system_name, language)
    }

    /// A function of a language that doesn't mangle names.
    #[must_use]
    pub fn unmangled(name: Arc<str>) -> Self {
        Self { demangled: Arc::clone(&name), system_name: name, language: Language::Unknown }
    }

    pub(crate) fn new(system_name: impl Into<Arc<str>>, language: Language) -> Self {
        let system_name = system_name.into();
        let demangled = demangle(&system_name);
        let demangled = if *demangled == *system_name { Arc::clone(&system_name) } else { demangled.into() };
        Self { demangled, system_name, language }
    }
}

/// A function at an address, and the position in its source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeFrame {
    /// The function.
    pub name: SymbolName,
    /// The path of the source file, as given to the compiler.
    pub path: Option<Arc<str>>,
    /// Counted from 1, 0 if unknown.
    pub line: u32,
    /// Counted from 1, 0 if unknown.
    pub column: u32,
}

/// The result of looking up an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The functions at the address: those inlined there, innermost first, and then the function that contains it;
    /// never empty.
    Named(Arc<[CodeFrame]>),
    /// No name.
    Unnamed {
        /// The reason.
        why: UnnamedReason,
        /// The language of the file as a whole, if known.
        language: Language,
    },
}

/// Why an address has no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnnamedReason {
    /// The file cannot be opened.
    NotOpened(io::ErrorKind),
    /// The file is not ELF, malformed, or has changed.
    Broken,
    /// The file has no function symbols (stripped).
    NoSymbols,
    /// The file has symbols, and none covers the address.
    NotCovered,
    /// The file's table isn't held, and reading it would exceed its share of time, or [reading has
    /// stopped](crate::Symbolizer::stop_reading).
    NoRoom,
}

/// Look-ups by their result.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct LookupCounts {
    /// They gave a name.
    pub named: u64,
    /// [`UnnamedReason::NotOpened`].
    pub file_not_opened: u64,
    /// [`UnnamedReason::Broken`].
    pub file_broken: u64,
    /// [`UnnamedReason::NoSymbols`].
    pub no_symbols: u64,
    /// [`UnnamedReason::NotCovered`].
    pub not_covered: u64,
    /// [`UnnamedReason::NoRoom`].
    pub no_room: u64,
}

/// Statistics of a symbolizer.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SymbolizerStats {
    /// Each look-up, once.
    pub name_lookups: LookupCounts,
    /// Names longer than the limit, which were truncated.
    pub names_shortened: u64,
    /// Symbols left out of tables by a limit.
    pub symbols_left_out: u64,
    /// Tables read, including again after an eviction.
    pub symbol_tables_reads: u64,
    /// Tables dropped to stay under the budget.
    pub symbol_tables_evictions: u64,
    /// Files for which some or all lines and inlined calls are missing for lack of memory.
    pub files_without_lines: u64,
    /// Look-ups without a line because finding lines had used its share of time.
    pub line_lookups_left_out: u64,
}

impl AddAssign for LookupCounts {
    fn add_assign(&mut self, more: Self) {
        let Self { named, file_not_opened, file_broken, no_symbols, not_covered, no_room } = more;
        self.named += named;
        self.file_not_opened += file_not_opened;
        self.file_broken += file_broken;
        self.no_symbols += no_symbols;
        self.not_covered += not_covered;
        self.no_room += no_room;
    }
}

impl AddAssign for SymbolizerStats {
    fn add_assign(&mut self, more: Self) {
        let Self {
            name_lookups,
            names_shortened,
            symbols_left_out,
            symbol_tables_reads,
            symbol_tables_evictions,
            files_without_lines,
            line_lookups_left_out,
        } = more;
        self.name_lookups += name_lookups;
        self.names_shortened += names_shortened;
        self.symbols_left_out += symbols_left_out;
        self.symbol_tables_reads += symbol_tables_reads;
        self.symbol_tables_evictions += symbol_tables_evictions;
        self.files_without_lines += files_without_lines;
        self.line_lookups_left_out += line_lookups_left_out;
    }
}

impl LookupCounts {
    /// Counts a look-up.
    pub(crate) fn count(&mut self, lookup: &Lookup) {
        let count = match lookup {
            Lookup::Named(_) => &mut self.named,
            Lookup::Unnamed { why: UnnamedReason::NotOpened(_), .. } => &mut self.file_not_opened,
            Lookup::Unnamed { why: UnnamedReason::Broken, .. } => &mut self.file_broken,
            Lookup::Unnamed { why: UnnamedReason::NoSymbols, .. } => &mut self.no_symbols,
            Lookup::Unnamed { why: UnnamedReason::NotCovered, .. } => &mut self.not_covered,
            Lookup::Unnamed { why: UnnamedReason::NoRoom, .. } => &mut self.no_room,
        };
        *count += 1;
    }
}

/// The text for an address without a name: `libfoo.so+0x1234`, the file's last path component and the offset in it.
#[must_use]
pub fn unnamed_frame(file_name: &str, offset: FileOffset) -> String {
    let base = file_name.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or(file_name);
    format!("{base}+{offset:#x}")
}
