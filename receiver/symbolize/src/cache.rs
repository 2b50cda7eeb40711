//! The tables and names in use, under a byte budget.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use sidewinder_address::{FileOffset, Svma};

use crate::demangle::demangle;
use crate::elf::Layout;
use crate::image::Image;
use crate::language::Language;
use crate::native::{Error, Limits, SymbolTable};

/// Files kept open at once, well below the usual limit of 1,024 descriptors.
const OPEN_FILES_LIMIT: usize = 256;
/// What a file costs beside its index: the entry, and what it remembers of a failure.
const FILE_BYTES: usize = 512;
/// What a cached name costs beside its two strings.
const NAME_BYTES: usize = 160;

/// Of all time, one part in so many may go into reading tables again that were evicted: where those in use don't fit, it
/// would be all of it.
const REREADING_SHARE: u32 = 10;
/// Evicted tables that are remembered; then all of them are forgotten.
const EVICTED_MAX: usize = 16_384;

/// The caller's number for a file's contents: equal numbers, equal symbols.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(pub u32);

/// What a function is called. Cloning is cheap.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Name {
    /// As its source spells it, or the system name where no demangling applies.
    pub demangled: Arc<str>,
    /// As the linker knows it.
    pub system_name: Arc<str>,
    /// Where the function starts.
    pub start: Svma,
    /// What it was compiled from.
    pub language: Language,
}

/// What the symbols say about an address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Lookup {
    /// The function that holds it.
    Named(Name),
    /// No name.
    Unnamed {
        /// Why not.
        why: NoName,
        /// What the file as a whole is compiled from, if that is known.
        language: Language,
    },
}

/// Why an address has no name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NoName {
    /// The file cannot be opened.
    NotOpened(io::ErrorKind),
    /// The file is not ELF, or broken, or no longer what it was.
    Broken,
    /// The file has no function symbols (stripped).
    NoSymbols,
    /// The file has symbols, and none holds the address.
    NotCovered,
    /// The file's table was evicted, and reading evicted tables again takes its share of time already.
    NoRoom,
}

/// What happened so far. Each look-up counts once as `named` or under one of the reasons.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Stats {
    /// Look-ups that gave a name.
    pub named: u64,
    /// [`NoName::NotOpened`].
    pub not_opened: u64,
    /// [`NoName::Broken`].
    pub broken: u64,
    /// [`NoName::NoSymbols`].
    pub no_symbols: u64,
    /// [`NoName::NotCovered`].
    pub not_covered: u64,
    /// [`NoName::NoRoom`].
    pub no_room: u64,
    /// Names longer than the limit, given in part.
    pub names_cut: u64,
    /// Symbols left out of tables by a limit.
    pub symbols_cut: u64,
    /// Tables read, again after an eviction included.
    pub tables_read: u64,
    /// Tables dropped to stay under the budget.
    pub tables_evicted: u64,
}

/// Gives names to addresses of many files in bounded memory.
///
/// Three quarters of the budget hold symbol tables, the rest names; each evicts what was used least recently. One
/// table never takes more than a third of the tables' part, so that two large files in turn don't evict each other: the
/// symbols that do not fit are left out and counted. Where evicted tables are wanted again and again, most of these
/// look-ups give no name, so that they take a bounded share of time.
#[derive(Debug)]
pub struct Symbolizer {
    files: LruCache<FileId, Result<SymbolTable, NoName>>,
    files_bytes: usize,
    open_files: usize,
    files_budget_bytes: usize,
    names: LruCache<(FileId, Svma), Name>,
    names_bytes: usize,
    names_budget_bytes: usize,
    evicted: HashSet<FileId>,
    began: Instant,
    /// For reading evicted tables again.
    rereading: Duration,
    stats: Stats,
}

impl Symbolizer {
    /// A symbolizer that holds at most `budget_bytes`.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        let names_budget_bytes = budget_bytes / 4;
        Self {
            files: LruCache::unbounded(),
            files_bytes: 0,
            open_files: 0,
            files_budget_bytes: budget_bytes - names_budget_bytes,
            names: LruCache::unbounded(),
            names_bytes: 0,
            names_budget_bytes,
            evicted: HashSet::new(),
            began: Instant::now(),
            rereading: Duration::ZERO,
            stats: Stats::default(),
        }
    }

    /// The function at an address of a file. `open` is called where the file's table is not at hand; a failure is
    /// remembered until it is evicted or [forgotten](Self::forget).
    pub fn name<I: Into<Image>>(
        &mut self,
        file: FileId,
        open: impl FnOnce() -> io::Result<I>,
        svma: Svma,
    ) -> Lookup {
        let lookup = match self.have(file, open) {
            true => self.find(file, svma),
            false => Lookup::Unnamed { why: NoName::NoRoom, language: Language::Unknown },
        };
        let count = match &lookup {
            Lookup::Named(_) => &mut self.stats.named,
            Lookup::Unnamed { why: NoName::NotOpened(_), .. } => &mut self.stats.not_opened,
            Lookup::Unnamed { why: NoName::Broken, .. } => &mut self.stats.broken,
            Lookup::Unnamed { why: NoName::NoSymbols, .. } => &mut self.stats.no_symbols,
            Lookup::Unnamed { why: NoName::NotCovered, .. } => &mut self.stats.not_covered,
            Lookup::Unnamed { why: NoName::NoRoom, .. } => &mut self.stats.no_room,
        };
        *count += 1;
        lookup
    }

    /// Drops what is known of a file, so that the next look-up opens it again.
    pub fn forget(&mut self, file: FileId) {
        self.evicted.remove(&file);
        if let Some(table) = self.files.pop(&file) {
            self.uncount(&table);
        }
        let keys: Vec<_> = self.names.iter().map(|(key, _)| *key).filter(|key| key.0 == file).collect();
        for name in keys.iter().filter_map(|key| self.names.pop(key)).collect::<Vec<_>>() {
            self.names_bytes -= name_bytes(&name);
        }
    }

    /// What happened so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Memory held, in bytes, by the same reckoning as the budget.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.files_bytes + self.names_bytes
    }

    fn find(&mut self, file: FileId, svma: Svma) -> Lookup {
        let table = match self.files.get(&file) {
            Some(Ok(table)) => table,
            Some(Err(why)) => return Lookup::Unnamed { why: *why, language: Language::Unknown },
            // Only a table larger than the whole budget is gone already.
            None => return Lookup::Unnamed { why: NoName::NoSymbols, language: Language::Unknown },
        };
        let Some(located) = table.locate(svma) else {
            let why = if table.is_empty() { NoName::NoSymbols } else { NoName::NotCovered };
            return Lookup::Unnamed { why, language: table.language_of(svma) };
        };
        let key = (file, located.start);
        if let Some(name) = self.names.get(&key) {
            return Lookup::Named(name.clone());
        }
        let symbol = match table.name(located) {
            Ok(Some(symbol)) => symbol,
            Ok(None) => {
                return Lookup::Unnamed { why: NoName::NotCovered, language: table.language_of(svma) };
            }
            Err(_) => return Lookup::Unnamed { why: NoName::Broken, language: table.language_of(svma) },
        };
        self.stats.names_cut += u64::from(symbol.is_name_cut);
        let system_name: Arc<str> = symbol.name.into();
        let demangled = demangle(&system_name);
        let demangled = if *demangled == *system_name { Arc::clone(&system_name) } else { demangled.into() };
        let name = Name { demangled, system_name, start: symbol.start, language: symbol.language };
        self.keep_name(key, name.clone());
        Lookup::Named(name)
    }

    /// Sees to it that a file's table is at hand, if there is time for it.
    fn have<I: Into<Image>>(&mut self, file: FileId, open: impl FnOnce() -> io::Result<I>) -> bool {
        if self.files.contains(&file) {
            return true;
        }
        let is_again = self.evicted.contains(&file);
        let began = Instant::now();
        if is_again && self.rereading > (began - self.began) / REREADING_SHARE {
            return false;
        }
        self.load(file, open);
        if is_again {
            self.rereading += began.elapsed();
        }
        true
    }

    fn load<I: Into<Image>>(&mut self, file: FileId, open: impl FnOnce() -> io::Result<I>) {
        let table = match open() {
            Ok(image) => self.read(image.into()).map_err(|_| NoName::Broken),
            Err(error) => Err(NoName::NotOpened(error.kind())),
        };
        self.make_room(file_bytes(&table));
        self.files_bytes += file_bytes(&table);
        self.open_files += usize::from(is_open(&table));
        self.files.put(file, table);
    }

    /// Reads a table, after others have made room for it.
    fn read(&mut self, image: Image) -> Result<SymbolTable, Error> {
        let room = (self.files_budget_bytes / 3).saturating_sub(FILE_BYTES) / SymbolTable::BYTES_PER_SYMBOL;
        let limits = Limits::default();
        let limits = Limits { symbols: limits.symbols.min(room), ..limits };
        let layout = Layout::read(&image)?;
        self.make_room(
            FILE_BYTES + SymbolTable::symbols_at_most(&layout, &limits) * SymbolTable::BYTES_PER_SYMBOL,
        );
        let table = SymbolTable::index(image, layout, limits)?;
        self.stats.tables_read += 1;
        self.stats.symbols_cut += table.cut().beyond_limit + table.cut().out_of_reach;
        Ok(table)
    }

    fn make_room(&mut self, bytes: usize) {
        while self.files_bytes + bytes > self.files_budget_bytes || self.open_files >= OPEN_FILES_LIMIT {
            let Some((file, table)) = self.files.pop_lru() else { break };
            self.uncount(&table);
            self.stats.tables_evicted += u64::from(table.is_ok());
            if self.evicted.len() >= EVICTED_MAX {
                self.evicted.clear();
            }
            self.evicted.insert(file);
        }
    }

    fn uncount(&mut self, table: &Result<SymbolTable, NoName>) {
        self.files_bytes -= file_bytes(table);
        self.open_files -= usize::from(is_open(table));
    }

    fn keep_name(&mut self, key: (FileId, Svma), name: Name) {
        self.names_bytes += name_bytes(&name);
        if let Some((_, replaced)) = self.names.push(key, name) {
            self.names_bytes -= name_bytes(&replaced);
        }
        while self.names_bytes > self.names_budget_bytes {
            let Some((_, name)) = self.names.pop_lru() else { break };
            self.names_bytes -= name_bytes(&name);
        }
    }
}

fn file_bytes(table: &Result<SymbolTable, NoName>) -> usize {
    FILE_BYTES + table.as_ref().map_or(0, SymbolTable::heap_bytes)
}

/// A table without symbols has closed its file.
fn is_open(table: &Result<SymbolTable, NoName>) -> bool {
    table.as_ref().is_ok_and(|table| !table.is_empty())
}

fn name_bytes(name: &Name) -> usize {
    NAME_BYTES + name.demangled.len() + name.system_name.len()
}

/// What to call an address without a name: `libfoo.so+0x1234`, the file's last component and the place in it.
#[must_use]
pub fn unnamed(file_name: &str, offset: FileOffset) -> String {
    let base = file_name.rsplit('/').next().filter(|base| !base.is_empty()).unwrap_or(file_name);
    format!("{base}+{offset:#x}")
}
