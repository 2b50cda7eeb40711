//! What addresses are called, and why some have no name.

use std::io;
use std::ops::AddAssign;
use std::sync::Arc;

use sidewinder_address::FileOffset;

use crate::demangle::demangle;
use crate::language::Language;

/// The caller's number for a file's contents: equal numbers, equal symbols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BinaryId(pub u32);

/// What a function is called. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SymbolName {
    /// As its source spells it, or the system name where no demangling applies.
    pub demangled: Arc<str>,
    /// As the linker knows it.
    pub system_name: Arc<str>,
    /// What it was compiled from.
    pub language: Language,
}

impl SymbolName {
    /// A function whose name is all that is known of it.
    #[must_use]
    pub fn from_symbol(system_name: Arc<str>) -> Self {
        let language = Language::from_symbol(&system_name);
        Self::new(system_name, language)
    }

    pub(crate) fn new(system_name: impl Into<Arc<str>>, language: Language) -> Self {
        let system_name = system_name.into();
        let demangled = demangle(&system_name);
        let demangled = if *demangled == *system_name { Arc::clone(&system_name) } else { demangled.into() };
        Self { demangled, system_name, language }
    }
}

/// A function at an address, and where in its source that is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CodeFrame {
    /// The function.
    pub name: SymbolName,
    /// The path of the source file, as its compiler knew it.
    pub path: Option<Arc<str>>,
    /// Counted from 1, 0 where it is not known.
    pub line: u32,
    /// Counted from 1, 0 where it is not known.
    pub column: u32,
}

/// What the symbols say about an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The function that holds it. Before it the functions that were inlined there, innermost first; never empty.
    Named(Arc<[CodeFrame]>),
    /// No name.
    Unnamed {
        /// Why not.
        why: UnnamedReason,
        /// What the file as a whole is compiled from, if that is known.
        language: Language,
    },
}

/// Why an address has no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum UnnamedReason {
    /// The file cannot be opened.
    NotOpened(io::ErrorKind),
    /// The file is not ELF, or broken, or no longer what it was.
    Broken,
    /// The file has no function symbols (stripped).
    NoSymbols,
    /// The file has symbols, and none holds the address.
    NotCovered,
    /// The file's table is not held, and reading it takes more than its share of time, or [nothing is read any
    /// more](crate::Symbolizer::stop_reading).
    NoRoom,
}

/// What happened so far. Each look-up counts once as `named` or under one of the reasons.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SymbolizerStats {
    /// Look-ups that gave a name.
    pub named: u64,
    /// [`UnnamedReason::NotOpened`].
    pub not_opened: u64,
    /// [`UnnamedReason::Broken`].
    pub broken: u64,
    /// [`UnnamedReason::NoSymbols`].
    pub no_symbols: u64,
    /// [`UnnamedReason::NotCovered`].
    pub not_covered: u64,
    /// [`UnnamedReason::NoRoom`].
    pub no_room: u64,
    /// Names longer than the limit, given in part.
    pub names_cut: u64,
    /// Symbols left out of tables by a limit.
    pub symbols_cut: u64,
    /// Tables read, again after an eviction included.
    pub tables_read: u64,
    /// Tables dropped to stay under the budget.
    pub tables_evicted: u64,
    /// Files whose lines and inlined calls are missing, or some of them, for want of memory.
    pub files_without_lines: u64,
    /// Look-ups that gave no line because finding lines took its share of time already.
    pub lines_left_out: u64,
}

impl AddAssign for SymbolizerStats {
    fn add_assign(&mut self, more: Self) {
        let Self {
            named,
            not_opened,
            broken,
            no_symbols,
            not_covered,
            no_room,
            names_cut,
            symbols_cut,
            tables_read,
            tables_evicted,
            files_without_lines,
            lines_left_out,
        } = more;
        self.named += named;
        self.not_opened += not_opened;
        self.broken += broken;
        self.no_symbols += no_symbols;
        self.not_covered += not_covered;
        self.no_room += no_room;
        self.names_cut += names_cut;
        self.symbols_cut += symbols_cut;
        self.tables_read += tables_read;
        self.tables_evicted += tables_evicted;
        self.files_without_lines += files_without_lines;
        self.lines_left_out += lines_left_out;
    }
}

impl SymbolizerStats {
    /// Counts a look-up.
    pub(crate) fn count(&mut self, lookup: &Lookup) {
        let count = match lookup {
            Lookup::Named(_) => &mut self.named,
            Lookup::Unnamed { why: UnnamedReason::NotOpened(_), .. } => &mut self.not_opened,
            Lookup::Unnamed { why: UnnamedReason::Broken, .. } => &mut self.broken,
            Lookup::Unnamed { why: UnnamedReason::NoSymbols, .. } => &mut self.no_symbols,
            Lookup::Unnamed { why: UnnamedReason::NotCovered, .. } => &mut self.not_covered,
            Lookup::Unnamed { why: UnnamedReason::NoRoom, .. } => &mut self.no_room,
        };
        *count += 1;
    }
}

/// What to call an address without a name: `libfoo.so+0x1234`, the file's last component and the place in it.
#[must_use]
pub fn unnamed_frame(file_name: &str, offset: FileOffset) -> String {
    let base = file_name.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or(file_name);
    format!("{base}+{offset:#x}")
}
