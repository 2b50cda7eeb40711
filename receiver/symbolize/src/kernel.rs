//! Functions of the running kernel, its modules and its BPF programs.
//!
//! Source: `/proc/kallsyms`, a line per symbol: address, type, name and, in brackets, the module.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};

use sidewinder_address::Avma;

use crate::alias::{Binding, preference};

/// The kernel's list of its symbols.
const PATH: &str = "/proc/kallsyms";
/// Symbols kept. A large kernel with all of its modules has a quarter of a million.
const SYMBOLS_LIMIT: usize = 1 << 20;
/// Bytes of names kept.
const NAMES_LIMIT_BYTES: usize = 64 << 20;
/// The longest line that is read; the kernel's names end at 512 bytes.
const LINE_LIMIT_BYTES: u64 = 1024;
/// The extent of a symbol that no other follows. The list has no sizes.
const REACH_LIMIT_BYTES: u64 = 1 << 20;

/// The result of reading the kernel's symbols.
#[derive(Debug)]
pub enum KernelSymbols {
    /// Addresses are visible.
    Known(KernelTable),
    /// Every address reads as zero: `kernel.kptr_restrict`, or a missing `CAP_SYSLOG`, hides them.
    Hidden,
    /// The list cannot be read.
    Unreadable(io::Error),
}

/// The result of looking up an address in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KernelName<'a> {
    /// The function that contains it.
    Function {
        /// The symbol's name.
        name: &'a str,
        /// The module that it belongs to, `bpf` for BPF programs, `None` for the kernel's own.
        module: Option<&'a str>,
        /// Where the function starts.
        start: Avma,
    },
    /// The table has no function at the address.
    Unknown,
    /// Addresses are hidden, so every kernel frame has the same name.
    Hidden,
}

impl KernelName<'_> {
    /// Shown when there is no name.
    pub const UNNAMED: &'static str = "[k]";
}

impl<'a> KernelName<'a> {
    /// The text to show: the function's name, or [`Self::UNNAMED`].
    #[must_use]
    pub fn display_name(self) -> &'a str {
        match self {
            Self::Function { name, .. } => name,
            Self::Unknown | Self::Hidden => Self::UNNAMED,
        }
    }
}

impl KernelSymbols {
    /// Reads the running kernel's list, which takes tens of milliseconds. Modules and BPF programs come and go,
    /// so it may be worth reading again when an address turns out to be unknown.
    #[must_use]
    pub fn read() -> Self {
        File::open(PATH)
            .and_then(KernelTable::parse)
            .map_or_else(Self::Unreadable, |table| table.map_or(Self::Hidden, Self::Known))
    }

    /// The function that contains an address.
    #[must_use]
    pub fn lookup(&self, address: Avma) -> KernelName<'_> {
        match self {
            Self::Known(table) => table.lookup(address),
            Self::Hidden | Self::Unreadable(_) => KernelName::Hidden,
        }
    }
}

/// A function of the kernel, in the form in which its messages print an address (`%pS`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelFunction<'a> {
    /// The symbol's name.
    pub name: &'a str,
    /// The module that it belongs to, `None` for the kernel's own.
    pub module: Option<&'a str>,
    /// Its start.
    pub start: Avma,
    /// Its end.
    pub end: Avma,
}

impl<'a> KernelFunction<'a> {
    /// Parses `name+0xOFFSET/0xSIZE [module]`; `None` for an address without a function, which is printed as a number.
    #[must_use]
    pub fn parse(address: Avma, text: &'a str) -> Option<Self> {
        let (symbol, module) = match text.strip_suffix(']').and_then(|text| text.split_once(" [")) {
            Some((symbol, module)) => (symbol, Some(module)),
            None => (text, None),
        };
        let (name, place) = symbol.rsplit_once('+')?;
        let (offset, size) = place.split_once('/')?;
        let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
        let start = address.0.checked_sub(number(offset)?)?;
        Some(Self { name, module, start: Avma(start), end: Avma(start.checked_add(number(size)?)?) })
    }
}

/// The kernel's functions by address.
#[derive(Default, Debug)]
pub struct KernelTable {
    /// Sorted by start, one for each start.
    entries: Box<[KernelSymbolEntry]>,
    /// All names, one after the other.
    names: Box<str>,
    modules: Box<[Box<str>]>,
    cut: u64,
}

#[derive(Clone, Copy, Debug)]
struct KernelSymbolEntry {
    start: u64,
    name_offset: u32,
    name_bytes: u16,
    /// Index into the modules, counted from 1; 0 for the kernel itself.
    module: u16,
}

impl KernelTable {
    /// Parses a list in the format of `/proc/kallsyms`: `None` if it shows no addresses. Malformed lines are counted in
    /// [`cut`](Self::cut).
    ///
    /// # Errors
    ///
    /// Errors of reading the list.
    pub fn parse(list: impl Read) -> io::Result<Option<Self>> {
        let mut lines = BufReader::with_capacity(64 * 1024, list);
        let mut build = KernelTableBuilder::default();
        let mut line = Vec::new();
        let mut is_hidden = false;
        while next_line(&mut lines, &mut line)? {
            match parse_line(&line) {
                Some(KallsymsLine { start: 0, .. }) => is_hidden = true,
                Some(line) if line.is_code() => build.add(&line),
                Some(_) => {}
                None => build.cut += 1,
            }
        }
        Ok(if build.found.is_empty() && is_hidden { None } else { Some(build.finish()) })
    }

    /// The function that contains an address: the last that starts at or before it, at most 1 MiB before.
    #[must_use]
    pub fn lookup(&self, address: Avma) -> KernelName<'_> {
        self.function(address).unwrap_or(KernelName::Unknown)
    }

    fn function(&self, address: Avma) -> Option<KernelName<'_>> {
        let after = self.entries.partition_point(|entry| entry.start <= address.0);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        if address.0 - entry.start >= REACH_LIMIT_BYTES {
            return None;
        }
        let from = entry.name_offset as usize;
        Some(KernelName::Function {
            name: self.names.get(from..from + usize::from(entry.name_bytes))?,
            module: usize::from(entry.module)
                .checked_sub(1)
                .and_then(|index| self.modules.get(index))
                .map(|name| &**name),
            start: Avma(entry.start),
        })
    }

    /// How many functions are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether no function is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Lines left out: beyond a limit, or malformed.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.cut
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        size_of_val(&*self.entries)
            + self.names.len()
            + self.modules.iter().map(|name| name.len()).sum::<usize>()
    }
}

struct KallsymsLine<'a> {
    start: u64,
    kind: u8,
    name: &'a str,
    module: Option<&'a str>,
}

impl KallsymsLine<'_> {
    /// Text, including weak text; types of data would only shorten the functions before them.
    fn is_code(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    fn binding(&self) -> Binding {
        match self.kind {
            b'T' => Binding::Global,
            b'w' | b'W' => Binding::Weak,
            _ => Binding::Local,
        }
    }
}

/// Reads a line without its newline; a line longer than the limit is left empty. `false` at the end of the list.
fn next_line(lines: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<bool> {
    line.clear();
    if lines.by_ref().take(LINE_LIMIT_BYTES).read_until(b'\n', line)? == 0 {
        return Ok(false);
    }
    if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 == LINE_LIMIT_BYTES {
        line.clear();
        lines.skip_until(b'\n')?;
    }
    Ok(true)
}

fn parse_line(line: &[u8]) -> Option<KallsymsLine<'_>> {
    let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
    let start = u64::from_str_radix(fields.next()?, 16).ok()?;
    let [kind] = *fields.next()?.as_bytes() else { return None };
    let name = fields.next()?;
    let module = match fields.next() {
        Some(module) => Some(module.strip_prefix('[')?.strip_suffix(']')?),
        None => None,
    };
    Some(KallsymsLine { start, kind, name, module })
}

#[derive(Default)]
struct KernelTableBuilder {
    found: Vec<(KernelSymbolEntry, Binding)>,
    names: String,
    modules: Vec<Box<str>>,
    cut: u64,
}

impl KernelTableBuilder {
    fn add(&mut self, line: &KallsymsLine<'_>) {
        let fits =
            self.found.len() < SYMBOLS_LIMIT && self.names.len() + line.name.len() <= NAMES_LIMIT_BYTES;
        let (true, Some(module)) = (fits, self.module(line.module)) else {
            self.cut += 1;
            return;
        };
        let entry = KernelSymbolEntry {
            start: line.start,
            // Both fit: the limits on names and lines are far below.
            name_offset: self.names.len() as u32,
            name_bytes: line.name.len() as u16,
            module,
        };
        self.names.push_str(line.name);
        self.found.push((entry, line.binding()));
    }

    /// The list keeps each module's symbols together, so the module is nearly always the last one.
    fn module(&mut self, name: Option<&str>) -> Option<u16> {
        let Some(name) = name else { return Some(0) };
        let index = match self.modules.iter().rposition(|known| &**known == name) {
            Some(index) => index,
            None if self.modules.len() < 4096 => {
                self.modules.push(name.into());
                self.modules.len() - 1
            }
            None => return None,
        };
        u16::try_from(index + 1).ok()
    }

    fn finish(mut self) -> KernelTable {
        let name = |entry: &KernelSymbolEntry| {
            let from = entry.name_offset as usize;
            self.names.get(from..from + usize::from(entry.name_bytes)).unwrap_or_default()
        };
        self.found.sort_unstable_by(|(one, binding), (other, other_binding)| {
            one.start
                .cmp(&other.start)
                .then_with(|| preference(*binding, name(one)).cmp(&preference(*other_binding, name(other))))
        });
        self.found.dedup_by_key(|(entry, _)| entry.start);
        KernelTable {
            entries: self.found.into_iter().map(|(entry, _)| entry).collect(),
            names: self.names.into_boxed_str(),
            modules: self.modules.into_boxed_slice(),
            cut: self.cut,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIST: &str = "\
0000000000000000 A fixed_percpu_data
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t __do_sys_read
ffffffff81000100 T read_it
ffffffff81000200 D data_is_no_function
ffffffffc0201000 t helper\t[nf_tables]
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_walk\t[bpf]
";

    fn parse(list: &str) -> KernelTable {
        KernelTable::parse(list.as_bytes()).unwrap().unwrap()
    }

    fn name_and_module(table: &KernelTable, address: u64) -> Option<(&str, Option<&str>)> {
        match table.lookup(Avma(address)) {
            KernelName::Function { name, module, .. } => Some((name, module)),
            KernelName::Unknown | KernelName::Hidden => None,
        }
    }

    #[test]
    fn a_function_is_told_from_the_text_of_the_kernels_messages() {
        let parse = |text| KernelFunction::parse(Avma(0xffff_8000_0000_1010), text);
        let function = |name, module| KernelFunction {
            name,
            module,
            start: Avma(0xffff_8000_0000_1000),
            end: Avma(0xffff_8000_0000_1200),
        };
        assert_eq!(parse("vfs_read+0x10/0x200"), Some(function("vfs_read", None)));
        assert_eq!(parse("read_iter+0x10/0x200 [xfs]"), Some(function("read_iter", Some("xfs"))));
        for wrong in [
            "",
            "0xffff800000001010",
            "a+",
            "a+0x10",
            "a+10/0x200",
            "a+0x1g/0x2",
            "a+0x10/0xffffffffffffffff",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
        assert_eq!(KernelFunction::parse(Avma(1), "a+0x2/0x3"), None, "it starts below zero");
    }

    #[test]
    fn an_address_belongs_to_the_last_function_that_starts_before_it() {
        let table = parse(LIST);
        assert_eq!(name_and_module(&table, 0xffff_ffff_8100_01ff), Some(("read_it", None)));
        assert_eq!(name_and_module(&table, 0xffff_ffff_8100_0000), Some(("_stext", None)));
        assert_eq!(name_and_module(&table, 0xffff_ffff_c020_1010), Some(("helper", Some("nf_tables"))));
        let bpf = Some(("bpf_prog_6deef7357e7b4530_walk", Some("bpf")));
        assert_eq!(name_and_module(&table, 0xffff_ffff_c030_0000), bpf);
    }

    #[test]
    fn an_address_before_the_first_or_far_beyond_a_function_is_unknown() {
        let table = parse(LIST);
        assert_eq!(name_and_module(&table, 0xffff_ffff_80ff_ffff), None);
        assert_eq!(name_and_module(&table, 0xffff_ffff_9000_0000), None);
        assert_eq!(name_and_module(&table, u64::MAX), None);
    }

    #[test]
    fn a_list_of_zeros_is_hidden_not_empty() {
        let list = "0000000000000000 T _stext\n0000000000000000 t helper\t[nf_tables]\n";
        assert!(KernelTable::parse(list.as_bytes()).unwrap().is_none());
        assert_eq!(KernelSymbols::Hidden.lookup(Avma(1)).display_name(), "[k]");
    }

    #[test]
    fn lines_of_another_form_are_counted_and_left_out() {
        let long = "x".repeat(5000);
        let table = parse(&format!("ffffffff81000000 T good\nrubbish\nffffffff81000001 T {long}\n"));
        assert_eq!((table.len(), table.cut()), (1, 2));
    }

    #[test]
    fn the_running_kernel_is_known_or_hidden() {
        match KernelSymbols::read() {
            KernelSymbols::Known(table) => assert!(table.len() > 1000, "{} functions", table.len()),
            KernelSymbols::Hidden => {}
            KernelSymbols::Unreadable(error) => panic!("{PATH}: {error}"),
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(list in prop::collection::vec(any::<u8>(), 0..2000), address: u64) {
            if let Some(table) = KernelTable::parse(&*list).unwrap() {
                let _ = table.lookup(Avma(address)).display_name();
            }
        }

        #[test]
        fn any_lines_are_found_again(starts in prop::collection::btree_set(1_u64.., 1..50)) {
            let list: String = starts.iter().rev().map(|start| format!("{start:016x} t f{start:x}\n")).collect();
            let table = parse(&list);
            for start in starts {
                let name = format!("f{start:x}");
                prop_assert_eq!(name_and_module(&table, start), Some((&*name, None)));
            }
        }
    }
}
