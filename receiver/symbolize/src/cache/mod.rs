//! The tables and names in use, within a byte budget.

mod bounded;
mod tables;
mod units;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::Svma;

use crate::binary::{BinaryReadRequest, BinarySymbols, SymbolKey};
use crate::dwarf::{DebugDetail, EntryName, PageCache, SourceFrame};
use crate::files::BinaryFiles;
use crate::language::Language;
use crate::names::{BinaryId, CodeFrame, Lookup, SymbolName, SymbolizerStats, UnnamedReason};
use bounded::ByteBoundedLru;
use tables::{FILE_BYTES, SymbolTableCache};
use units::{FileUnitCache, UnitCache};

/// The memory of a cached name in addition to its two strings, and of the functions at an address in addition to their
/// paths.
const NAME_BYTES: usize = 160;
const FRAME_BYTES: usize = 64;

const _: () = assert!(size_of::<CodeFrame>() <= FRAME_BYTES);

/// The share of all time (one part in this many) for reading evicted tables again: where the tables in use don't fit,
/// rereading would otherwise take all of it.
const REREADING_SHARE: u32 = 50;
/// The same for parts of tables that don't fit as a whole, beyond an initial allowance.
const PARTS_SHARE: u32 = 50;
const PARTS_AT_ONCE: Duration = Duration::from_secs(2);
/// The share of all time (one part in this many) for lines and inlined calls, beyond an initial allowance: malicious
/// files would otherwise take all of it.
const LINES_SHARE: u32 = 4;
const LINES_AT_ONCE: Duration = Duration::from_secs(5);

/// The most addresses that are looked up in debug information together.
const RUN_MAX: usize = 255;

/// The details wanted, and the limits of their cost.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymbolizerOptions {
    /// The limit of memory held, in bytes.
    pub budget_bytes: usize,
    /// Whether source files and lines are wanted.
    pub lines: bool,
    /// Whether inlined calls are wanted.
    pub inlines: bool,
    /// Whether finding lines, and names in large files, has no time limit.
    pub has_no_time_limit: bool,
}

/// Resolves addresses of many files to names in bounded memory.
///
/// Where lines or inlined calls are wanted, a quarter of the budget holds tables of units of debug information and an
/// eighth pages of it. Three quarters of the rest hold symbol tables, the remainder names; each evicts its least
/// recently used entries. One table never takes more than a third of the tables' part, so that two large files used in
/// turn don't evict each other: for a file that doesn't fit, only the parts in use are held. Where parts or evicted
/// tables are wanted again and again, most of these look-ups give no name, so that reading takes a bounded share of
/// time.
#[derive(Debug)]
pub struct Symbolizer {
    options: SymbolizerOptions,
    tables: SymbolTableCache,
    units: UnitCache,
    pages: PageCache,
    /// Keyed by the symbols that cover an address.
    names: ByteBoundedLru<(BinaryId, SymbolKey), SymbolName>,
    frames: ByteBoundedLru<(BinaryId, Svma), Arc<[CodeFrame]>>,
    /// Names of inlined functions: they recur at other addresses, and demangling takes time.
    inlined: HashMap<Arc<str>, SymbolName>,
    paths: HashSet<Arc<str>>,
    /// The bytes of `inlined` and of the paths, and the limit for each.
    inlined_bytes: usize,
    paths_bytes: usize,
    shared_budget_bytes: usize,
    started: Instant,
    /// Time spent reading evicted tables again.
    rereading: Duration,
    /// Time spent reading parts of tables.
    parts_time: Duration,
    /// Time spent on lines and inlined calls.
    lines_time: Duration,
    has_stopped_reading: bool,
    stats: SymbolizerStats,
}

/// The parts of a symbolizer's budget.
struct Budget {
    tables_bytes: usize,
    units_bytes: usize,
    pages_bytes: usize,
    names_bytes: usize,
    frames_bytes: usize,
    /// Of inlined functions, and as much again of paths.
    shared_bytes: usize,
}

impl Budget {
    fn divide(options: &SymbolizerOptions) -> Self {
        let SymbolizerOptions { budget_bytes, lines, inlines, .. } = *options;
        let (units_bytes, pages_bytes) =
            if lines || inlines { (budget_bytes / 4, budget_bytes / 8) } else { (0, 0) };
        let left_bytes = budget_bytes - units_bytes - pages_bytes;
        let names_bytes = left_bytes / 4;
        Self {
            tables_bytes: left_bytes - names_bytes,
            units_bytes,
            pages_bytes,
            names_bytes: names_bytes / 4,
            frames_bytes: names_bytes / 2,
            shared_bytes: names_bytes / 8,
        }
    }
}

impl Symbolizer {
    /// Creates an empty symbolizer.
    #[must_use]
    pub fn new(options: SymbolizerOptions) -> Self {
        let budget = Budget::divide(&options);
        Self {
            options,
            tables: SymbolTableCache::new(budget.tables_bytes),
            units: UnitCache::new(budget.units_bytes),
            pages: PageCache::new(budget.pages_bytes),
            names: ByteBoundedLru::new(budget.names_bytes),
            frames: ByteBoundedLru::new(budget.frames_bytes),
            inlined: HashMap::new(),
            paths: HashSet::new(),
            inlined_bytes: 0,
            paths_bytes: 0,
            shared_budget_bytes: budget.shared_bytes,
            started: Instant::now(),
            rereading: Duration::ZERO,
            parts_time: Duration::ZERO,
            lines_time: Duration::ZERO,
            has_stopped_reading: false,
            stats: SymbolizerStats::default(),
        }
    }

    /// The limit of memory held.
    #[must_use]
    pub fn budget_bytes(&self) -> usize {
        self.options.budget_bytes
    }

    /// Sets the limit of memory held. What no longer fits is evicted.
    pub fn set_budget_bytes(&mut self, budget_bytes: usize) {
        self.options.budget_bytes = budget_bytes;
        let budget = Budget::divide(&self.options);
        self.tables.set_budget(budget.tables_bytes);
        self.units.0.set_budget(budget.units_bytes);
        self.pages.set_budget(budget.pages_bytes);
        self.names.set_budget(budget.names_bytes);
        self.frames.set_budget(budget.frames_bytes);
        self.shared_budget_bytes = budget.shared_bytes;
        if self.inlined_bytes > self.shared_budget_bytes {
            self.inlined.clear();
            self.inlined_bytes = 0;
        }
        if self.paths_bytes > self.shared_budget_bytes {
            self.paths.clear();
            self.paths_bytes = 0;
        }
    }

    /// The functions at an address of a file. `files` opens the file if its table isn't held; a failure is remembered
    /// until it is evicted or [forgotten](Self::forget).
    pub fn name(&mut self, file: BinaryId, files: impl BinaryFiles, svma: Svma) -> Lookup {
        let mut found = None;
        self.name_all(file, files, &[svma], |_, lookup| found = Some(lookup));
        found.unwrap_or(Lookup::Unnamed { why: UnnamedReason::NoRoom, language: Language::Unknown })
    }

    /// Passes the functions at each of these addresses of a file to `take`, with the number of the address. The addresses are in
    /// order: so each part of the file's symbols, and of its debug information, is read once for all of them.
    pub fn name_all(
        &mut self,
        file: BinaryId,
        files: impl BinaryFiles,
        svmas: &[Svma],
        mut take: impl FnMut(usize, Lookup),
    ) {
        let mut at = 0;
        while let Some(svma) = svmas.get(at).copied() {
            if let Some(frames) = self.frames.get(&(file, svma)).map(Arc::clone) {
                self.pass(at, Lookup::Named(frames), &mut take);
                at += 1;
                continue;
            }
            let next = svmas.get(at + 1..).unwrap_or_default();
            if !(self.ensure_loaded(file, &files) && self.ensure_loaded_around(file, svma, next)) {
                let lookup = Lookup::Unnamed { why: UnnamedReason::NoRoom, language: Language::Unknown };
                self.pass(at, lookup, &mut take);
                at += 1;
                continue;
            }
            let run = 1 + next.iter().take(RUN_MAX).take_while(|next| self.is_ready(file, **next)).count();
            let run = svmas.get(at..at + run).unwrap_or_default();
            let sources = self.sources(file, &files, run);
            for (svma, sources) in run.iter().zip(sources) {
                let lookup = self.find(file, *svma, sources);
                self.pass(at, lookup, &mut take);
                at += 1;
            }
        }
    }

    fn pass(&mut self, number: usize, lookup: Lookup, take: &mut impl FnMut(usize, Lookup)) {
        self.stats.name_lookups.count(&lookup);
        take(number, lookup);
    }

    /// Whether all is loaded for an address that has no name yet.
    fn is_ready(&self, file: BinaryId, svma: Svma) -> bool {
        let is_loaded = match self.tables.files.peek(&file) {
            Some(Ok(table)) => table.has_part(svma),
            Some(Err(_)) => true,
            None => false,
        };
        is_loaded && !self.frames.contains(&(file, svma))
    }

    /// The functions at addresses by Go's own table, or by debug information: an item for each address.
    fn sources(&mut self, file: BinaryId, files: &impl BinaryFiles, svmas: &[Svma]) -> Vec<Vec<SourceFrame>> {
        let wanted = DebugDetail { lines: self.options.lines, inlines: self.options.inlines };
        let table = self.tables.files.get(&file).and_then(|table| table.as_ref().ok());
        let go = table.and_then(BinarySymbols::go);
        let by_go = |svma: &Svma| go.map_or_else(Vec::new, |go| go.frames(svma.0, wanted));
        let mut sources: Vec<Vec<SourceFrame>> = svmas.iter().map(by_go).collect();
        let Some(debug) = table.and_then(BinarySymbols::debug) else { return sources };
        let (left, numbers): (Vec<Svma>, Vec<usize>) = svmas
            .iter()
            .zip(0..)
            .filter(|(_, number)| sources.get(*number).is_some_and(Vec::is_empty))
            .map(|(svma, number)| (*svma, number))
            .unzip();
        let began = Instant::now();
        let (spent, started) = (self.lines_time, self.started);
        let (has_no_limit, has_stopped) = (self.options.has_no_time_limit, self.has_stopped_reading);
        let has_time = || {
            let limit = LINES_AT_ONCE + (began - started) / LINES_SHARE;
            !has_stopped && (has_no_limit || spent + began.elapsed() < limit)
        };
        let mut units = FileUnitCache { file, units: &mut self.units, cut: 0 };
        let found = debug.frames(&left, wanted, files, &self.pages, &mut units, has_time);
        self.stats.files_without_lines += u64::from(units.cut > 0);
        self.stats.line_lookups_left_out += (left.len() - found.len()) as u64;
        self.lines_time += began.elapsed();
        for (number, found) in numbers.into_iter().zip(found) {
            if let Some(sources) = sources.get_mut(number) {
                *sources = found;
            }
        }
        sources
    }

    /// Drops everything held about a file, so that the next look-up opens it again.
    pub fn forget(&mut self, file: BinaryId) {
        self.tables.forget(file);
        self.units.0.retain(|key| key.0 != file);
        self.names.retain(|key| key.0 != file);
        self.frames.retain(|key| key.0 != file);
    }

    /// Stops reading files: from here on look-ups are answered from what is held, or with [`UnnamedReason::NoRoom`].
    pub fn stop_reading(&mut self) {
        self.has_stopped_reading = true;
    }

    /// The statistics so far.
    #[must_use]
    pub fn stats(&self) -> SymbolizerStats {
        SymbolizerStats { symbol_tables_evictions: self.tables.evictions, ..self.stats }
    }

    /// Memory held, in bytes, computed as for the budget.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.tables.bytes
            + self.units.0.bytes
            + self.pages.held_bytes()
            + self.names.bytes
            + self.frames.bytes
            + self.paths_bytes
            + self.inlined_bytes
    }

    /// Combines what a file's symbols say of an address with its functions by other sources.
    fn find(&mut self, file: BinaryId, svma: Svma, sources: Vec<SourceFrame>) -> Lookup {
        let unnamed = |why, language| Lookup::Unnamed { why, language };
        let table = match self.tables.files.get(&file) {
            Some(Ok(table)) => table,
            Some(Err(why)) => return unnamed(*why, Language::Unknown),
            // Only a table larger than the whole budget can be missing at this point.
            None => return unnamed(UnnamedReason::NoSymbols, Language::Unknown),
        };
        let language = table.language_of(svma);
        let symbol = match table.find(svma) {
            None => None,
            Some(found) => {
                let key = (file, found.symbols());
                match self.names.get(&key) {
                    Some(name) => Some(name.clone()),
                    None => match found.name() {
                        Err(_) => return unnamed(UnnamedReason::Broken, language),
                        Ok(None) => None,
                        Ok(Some(symbol)) => {
                            self.stats.names_shortened += u64::from(symbol.is_name_cut);
                            let name = SymbolName::new(symbol.name, symbol.language);
                            self.names.put(key, name.clone(), name_bytes(&name));
                            Some(name)
                        }
                    },
                }
            }
        };

        let is_empty = table.is_empty();
        match self.named(symbol, sources, language) {
            Some(frames) => {
                let bytes = frames.len() * FRAME_BYTES + FRAME_BYTES;
                self.frames.put((file, svma), Arc::clone(&frames), bytes);
                Lookup::Named(frames)
            }
            None if is_empty => unnamed(UnnamedReason::NoSymbols, language),
            None => unnamed(UnnamedReason::NotCovered, language),
        }
    }

    /// Combines symbols and debug information: the function itself takes its name from the symbol.
    fn named(
        &mut self,
        symbol: Option<SymbolName>,
        sources: Vec<SourceFrame>,
        language: Language,
    ) -> Option<Arc<[CodeFrame]>> {
        let last = sources.len().checked_sub(1);
        let mut frames = Vec::with_capacity(sources.len().max(1));
        for (index, source) in sources.into_iter().enumerate() {
            let own = symbol.as_ref().filter(|_| Some(index) == last).cloned();
            let Some(name) = own.or_else(|| self.name_of_entry(source.name?, language)) else { continue };
            let path = source.path.map(|path| self.shared_path(path));
            frames.push(CodeFrame { name, path, line: source.line, column: source.column });
        }
        if frames.is_empty() {
            frames.extend(symbol.map(|name| CodeFrame { name, path: None, line: 0, column: 0 }));
        }
        (!frames.is_empty()).then(|| frames.into())
    }

    fn name_of_entry(&mut self, entry: EntryName, of_file: Language) -> Option<SymbolName> {
        let system_name = entry.linkage.or(entry.plain)?;
        if let Some(known) = self.inlined.get(&*system_name) {
            return Some(known.clone());
        }
        let language = match Language::from_symbol(&system_name) {
            Language::Unknown => of_file,
            mangled => mangled,
        };
        let name = SymbolName::new(system_name, language);
        // A name whose mangling reveals no language takes the file's, so it can't be shared between files.
        if language != of_file {
            self.inlined_bytes += name_bytes(&name);
            if self.inlined_bytes > self.shared_budget_bytes {
                self.inlined.clear();
                self.inlined_bytes = name_bytes(&name);
            }
            self.inlined.insert(Arc::clone(&name.system_name), name.clone());
        }
        Some(name)
    }

    /// Interns a path, so that equal paths are held once.
    fn shared_path(&mut self, path: Arc<str>) -> Arc<str> {
        if let Some(known) = self.paths.get(&path) {
            return Arc::clone(known);
        }
        self.paths_bytes += path_bytes(&path);
        if self.paths_bytes > self.shared_budget_bytes {
            self.paths.clear();
            self.paths_bytes = path_bytes(&path);
        }
        self.paths.insert(Arc::clone(&path));
        path
    }

    /// Loads a file's table if it isn't held. Returns `false` if there is no time for that.
    fn ensure_loaded(&mut self, file: BinaryId, files: &impl BinaryFiles) -> bool {
        if self.tables.files.contains(&file) {
            return true;
        }
        if self.has_stopped_reading {
            return false;
        }
        let is_again = self.tables.evicted.contains(&file);
        let began = Instant::now();
        if is_again && self.rereading > (began - self.started) / REREADING_SHARE {
            return false;
        }
        self.load(file, files);
        if is_again {
            self.rereading += began.elapsed();
        }
        true
    }

    /// Loads the part of a file's table around an address if it isn't held. Returns `false` if there is no time for that.
    fn ensure_loaded_around(&mut self, file: BinaryId, svma: Svma, next: &[Svma]) -> bool {
        let Some(Ok(table)) = self.tables.files.get_mut(&file) else { return true };
        if table.has_part(svma) {
            return true;
        }
        if self.has_stopped_reading {
            return false;
        }
        let began = Instant::now();
        if !self.options.has_no_time_limit
            && self.parts_time > PARTS_AT_ONCE + (began - self.started) / PARTS_SHARE
        {
            return false;
        }
        let cut_before = table.symbols_cut();
        table.load_parts(svma, next);
        self.stats.symbols_left_out += table.symbols_cut().saturating_sub(cut_before);
        self.parts_time += began.elapsed();
        true
    }

    fn load(&mut self, file: BinaryId, files: &impl BinaryFiles) {
        let request = BinaryReadRequest {
            room_bytes: (self.tables.budget_bytes / 3).saturating_sub(FILE_BYTES),
            wanted: DebugDetail { lines: self.options.lines, inlines: self.options.inlines },
            pages: &self.pages,
        };
        let table = BinarySymbols::read(files, &request, |bytes| self.tables.make_room(FILE_BYTES + bytes));
        if let Ok(table) = &table {
            self.stats.symbol_tables_reads += 1;
            self.stats.symbols_left_out += table.symbols_cut();
            self.stats.files_without_lines += u64::from(table.is_debug_cut);
        }
        self.tables.put(file, table);
    }
}

fn path_bytes(path: &str) -> usize {
    NAME_BYTES / 4 + path.len()
}

fn name_bytes(name: &SymbolName) -> usize {
    NAME_BYTES + name.demangled.len() + name.system_name.len()
}
