//! The instructions of a function, with the lines that they are of, and how stacks are unwound there.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use sidewinder_address::Svma;
use sidewinder_base::lock::lock;
use sidewinder_debug_files::DebugRoots;
use sidewinder_render::{
    CodeBlock, FunctionAssembly, FunctionCode, InstructionCosts, Instructions, PageFunction, Profile,
    UnwindingRanges, escaped,
};
use sidewinder_symbolize::{
    BinaryId, ListedInstruction, Lookup, Symbol, SymbolLimits, SymbolTable, Symbolizer, SymbolizerOptions,
    demangle, disassemble,
};
use sidewinder_tables::read_partial_table;
use sidewinder_unwind::method::method_ranges;

use super::assembly_error::{AssemblyError, CODE_BYTES_MAX};
use super::binary::{BinaryFile, ProfiledBinary};

/// The most functions of a file that the instructions of one are listed of, if it was inlined into several.
const BLOCKS_MAX: usize = 8;
/// For symbols and debug information while a function is listed.
const SYMBOL_BUDGET_BYTES: usize = 64 << 20;

/// The instructions of a function, without costs.
#[derive(Debug)]
pub(super) struct Listing {
    /// Its costs are empty.
    assembly: FunctionAssembly,
    /// The first address after each instruction.
    ends: Vec<u64>,
    /// How many addresses with samples were in none of the instructions when they were listed.
    addresses_left_out: usize,
}

/// The instructions of a function in a profile, with what each costs. `last` is the last listing: a page that follows asks for the
/// same one again and again.
///
/// # Errors
/// If its binary is not there any more, or does not say where its functions are.
pub(super) fn assembly(
    profile: &Profile,
    function: &PageFunction,
    roots: &Arc<DebugRoots>,
    last: &Mutex<Option<Arc<Listing>>>,
) -> Result<FunctionAssembly, AssemblyError> {
    let code = FunctionCode::new(profile, function).ok_or(AssemblyError::NoSamples)?;
    let (mapping, addresses) = code.addresses().ok_or(AssemblyError::NoAddresses)?;
    let binary = ProfiledBinary::new(&profile.dictionary, mapping);
    let known = lock(last).clone().filter(|listing| listing.is_of(function, binary, &addresses));
    let listing = match known {
        Some(listing) => listing,
        None => {
            let pids = profile.threads.iter().map(|thread| thread.pid).filter(|pid| *pid > 0);
            let pids: BTreeSet<u32> = pids.collect();
            let file = BinaryFile::open(binary, pids.into_iter(), roots)?;
            let listing = Arc::new(Listing::read(function, binary, &file, &addresses)?);
            *lock(last) = Some(Arc::clone(&listing));
            listing
        }
    };
    let costs = code.costs(mapping, |address| listing.instruction_at(address));
    Ok(FunctionAssembly { costs, ..listing.assembly.clone() })
}

impl Listing {
    fn read(
        function: &PageFunction,
        binary: ProfiledBinary<'_>,
        file: &BinaryFile,
        addresses: &BTreeMap<u64, u64>,
    ) -> Result<Self, AssemblyError> {
        let symbols = Symbols::read(file)?;
        let blocks = symbols.blocks(file, addresses)?;
        let ranges: Vec<Range<Svma>> = blocks.iter().map(|block| block.range.clone()).collect();
        let table = read_partial_table(file.file(), &file.debug_file, &ranges)?;
        let is_listed =
            |start: Svma, end: Svma| ranges.iter().any(|range| start < range.end && range.start < end);
        let mut unwinding = UnwindingRanges::default();
        for range in method_ranges(&table).filter(|range| is_listed(range.start, range.end)) {
            unwinding.address.push(range.start.0);
            unwinding.method.push(range.method.to_string());
        }
        let mut lines = LineFinder::default();
        let (mut instructions, mut ends) = (Instructions::default(), Vec::new());
        for instruction in blocks.iter().flat_map(|block| &block.instructions) {
            let (line, path) = lines.find(file, instruction.start);
            instructions.address.push(instruction.start.0);
            instructions.text.push(symbols.text(instruction, &ranges));
            instructions.line.push(line);
            instructions.file.push(path);
            ends.push(instruction.end.0);
        }
        let assembly = FunctionAssembly {
            function: function.clone(),
            path: binary.path.to_owned(),
            build_id: binary.build_id.unwrap_or_default().to_owned(),
            blocks: blocks.into_iter().map(ListedBlock::into_code_block).collect(),
            files: lines.files,
            instructions,
            unwinding,
            costs: InstructionCosts::default(),
        };
        let mut listing = Self { assembly, ends, addresses_left_out: 0 };
        listing.addresses_left_out = listing.count_left_out(addresses);
        Ok(listing)
    }

    /// Whether this is the listing of a function that has samples at these addresses.
    fn is_of(
        &self,
        function: &PageFunction,
        binary: ProfiledBinary<'_>,
        addresses: &BTreeMap<u64, u64>,
    ) -> bool {
        let FunctionAssembly { function: listed, path, build_id, .. } = &self.assembly;
        listed == function
            && *path == binary.path
            && *build_id == binary.build_id.unwrap_or_default()
            && self.count_left_out(addresses) <= self.addresses_left_out
    }

    fn count_left_out(&self, addresses: &BTreeMap<u64, u64>) -> usize {
        addresses.keys().filter(|address| self.instruction_at(**address).is_none()).count()
    }

    /// The index of the instruction that contains an address.
    fn instruction_at(&self, address: u64) -> Option<u32> {
        let starts = &self.assembly.instructions.address;
        let at = starts.partition_point(|start| *start <= address).checked_sub(1)?;
        self.ends.get(at).filter(|end| address < **end).and_then(|_| u32::try_from(at).ok())
    }
}

/// A function of a file, with its instructions.
struct ListedBlock {
    symbol: String,
    range: Range<Svma>,
    instructions: Vec<ListedInstruction>,
}

impl ListedBlock {
    fn into_code_block(self) -> CodeBlock {
        let Range { start, end } = self.range;
        CodeBlock { symbol: escaped(&demangle(&self.symbol)).into_owned(), start: start.0, end: end.0 }
    }
}

/// The symbols of a file, those of its debug file first: that has all of them.
struct Symbols(Vec<SymbolTable>);

impl Symbols {
    fn read(file: &BinaryFile) -> Result<Self, AssemblyError> {
        let debug = file
            .companions
            .debug_image()
            .and_then(|image| SymbolTable::read(image, SymbolLimits::default()).ok());
        let own = SymbolTable::read(file.image(), SymbolLimits::default())?;
        Ok(Self(debug.into_iter().chain([own]).collect()))
    }

    fn find(&self, svma: Svma) -> Option<Symbol> {
        self.0.iter().find_map(|table| table.lookup(svma).ok().flatten())
    }

    /// The functions that contain these addresses, in the order of their starts: of many, those with the most events.
    fn blocks(
        &self,
        file: &BinaryFile,
        addresses: &BTreeMap<u64, u64>,
    ) -> Result<Vec<ListedBlock>, AssemblyError> {
        let mut found = BTreeMap::<Svma, (Symbol, u64)>::new();
        for (address, events) in addresses {
            let Some(symbol) = self.find(Svma(*address)) else { continue };
            let (_, sum) = found.entry(symbol.start).or_insert((symbol, 0));
            *sum = sum.saturating_add(*events);
        }
        let mut found: Vec<_> = found.into_values().collect();
        found.sort_by_key(|(symbol, events)| (std::cmp::Reverse(*events), symbol.start));
        let (mut blocks, mut left_bytes) = (Vec::new(), CODE_BYTES_MAX);
        for (symbol, _) in found.into_iter().take(BLOCKS_MAX) {
            if symbol.size > left_bytes {
                // The hottest one is what was asked for; the others are left out.
                if blocks.is_empty() {
                    return Err(AssemblyError::TooLarge { bytes: symbol.size });
                }
                continue;
            }
            let Some(block) = self.block(file, symbol) else { continue };
            left_bytes = left_bytes.saturating_sub(block.range.end.0 - block.range.start.0);
            blocks.push(block);
        }
        blocks.sort_by_key(|block| block.range.start);
        if blocks.is_empty() { Err(AssemblyError::NoSymbol) } else { Ok(blocks) }
    }

    /// The instructions of a function. Without a size it ends where another one begins.
    fn block(&self, file: &BinaryFile, symbol: Symbol) -> Option<ListedBlock> {
        const UNSIZED_BYTES: [usize; 3] = [4096, 512, 64];
        let code = match usize::try_from(symbol.size).ok()? {
            0 => UNSIZED_BYTES.iter().find_map(|bytes| file.code(symbol.start, *bytes))?,
            size => file.code(symbol.start, size)?,
        };
        let mut instructions = disassemble(&code, symbol.start);
        if symbol.size == 0 {
            let is_other = |one: &ListedInstruction| {
                self.find(one.start).is_none_or(|other| other.start != symbol.start)
            };
            let end = instructions.iter().position(is_other).unwrap_or(instructions.len());
            instructions.truncate(end);
        }
        let end = instructions.last()?.end;
        Some(ListedBlock { symbol: symbol.name, range: symbol.start..end, instructions })
    }

    /// The text of an instruction, with the name of what it refers to, unless that is in the listed code itself.
    fn text(&self, instruction: &ListedInstruction, listed: &[Range<Svma>]) -> String {
        let target = instruction.target.filter(|target| !listed.iter().any(|range| range.contains(target)));
        let symbol = target.and_then(|target| Some((target, self.find(target)?)));
        let Some((target, symbol)) = symbol else { return instruction.text.clone() };
        let name = demangle(&symbol.name).into_owned();
        let name = escaped(&name);
        match target.0 - symbol.start.0 {
            0 => format!("{} <{name}>", instruction.text),
            offset => format!("{} <{name}+{offset:#x}>", instruction.text),
        }
    }
}

/// Finds the lines of instructions.
struct LineFinder {
    symbolizer: Symbolizer,
    /// Those found so far.
    files: Vec<String>,
}

impl Default for LineFinder {
    fn default() -> Self {
        let symbolizer = Symbolizer::new(SymbolizerOptions {
            budget_bytes: SYMBOL_BUDGET_BYTES,
            lines: true,
            inlines: true,
            has_no_time_limit: true,
        });
        Self { symbolizer, files: Vec::new() }
    }
}

impl LineFinder {
    /// The line of an instruction, of the innermost of the calls that are inlined there, and the index of its file in `files`
    /// plus one; zeros if they are unknown.
    fn find(&mut self, file: &BinaryFile, svma: Svma) -> (u32, u32) {
        let Lookup::Named(frames) = self.symbolizer.name(BinaryId(0), file, svma) else { return (0, 0) };
        let Some(frame) = frames.first().filter(|frame| frame.line > 0) else { return (0, 0) };
        let Some(path) = &frame.path else { return (0, 0) };
        let path = escaped(path);
        let known = self.files.iter().position(|file| *file == path);
        let at = known.unwrap_or_else(|| {
            self.files.push(path.into_owned());
            self.files.len() - 1
        });
        (frame.line, u32::try_from(at).map_or(0, |at| at + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use object::{Object as _, ObjectSymbol as _};
    use sidewinder_kind::Kind;
    use sidewinder_process::read_htlhash;
    use sidewinder_profile::{BuildIds, Dictionary, LinkIndex, Location, Mapping, SourceLine};
    use sidewinder_render::{ProfileSample, ProfileThread, SampleType, StatedAttributes, ThreadIndex};

    use super::*;

    /// Three samples at the beginning of a function of our C library, and its path and build ID.
    struct Malloc {
        address: u64,
        path: String,
        build_id: Option<String>,
        htlhash: Option<String>,
    }

    impl Malloc {
        fn find() -> Self {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let path = maps
                .lines()
                .find_map(|line| line.split(' ').next_back().filter(|path| path.contains("libc.so")));
            let path = path.unwrap().to_owned();
            let bytes = std::fs::read(&path).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            let malloc = file.dynamic_symbols().find(|symbol| symbol.name() == Ok("malloc")).unwrap();
            let build_id = file.build_id().unwrap().map(hex::encode);
            Self { address: malloc.address(), path, build_id, htlhash: None }
        }

        fn profile(&self) -> Profile {
            let mut dictionary = Dictionary::default();
            let build_ids =
                BuildIds { gnu: self.build_id.as_deref(), htlhash: self.htlhash.as_deref(), go: None };
            let filename = dictionary.add_string(&self.path);
            let attributes = dictionary.add_build_ids(&build_ids);
            let mapping = dictionary.add_mapping(Mapping { filename, attributes, ..Mapping::default() });
            let lines = [dictionary.add_line(&SourceLine { function: "malloc", ..SourceLine::default() })];
            let location = Location { mapping, address: self.address, lines: &lines, ..Location::default() };
            let location = dictionary.add_location(&location);
            let thread = ProfileThread {
                process: "test".into(),
                pid: std::process::id(),
                name: "test".into(),
                tid: 1,
                container: "".into(),
            };
            let sample = ProfileSample {
                slice: 7,
                thread: ThreadIndex(0),
                span: LinkIndex::default(),
                state: None,
                stated: StatedAttributes::default(),
                stack: dictionary.add_stack(&[location]),
                count: 3,
            };
            let measure = SampleType::from_kind(Kind::Cpu { samples_per_second: 97 });
            Profile {
                dictionary,
                threads: vec![thread],
                samples: vec![sample],
                ..Profile::new("test".to_owned(), measure)
            }
        }

        fn list(&self) -> Result<FunctionAssembly, AssemblyError> {
            let function = PageFunction::new("malloc", self.path.rsplit('/').next().unwrap());
            assembly(&self.profile(), &function, &Arc::new(DebugRoots::default()), &Mutex::default())
        }
    }

    #[test]
    fn a_function_is_listed_from_the_binary_that_was_profiled() {
        let mut malloc = Malloc::find();
        let (listed, address) = (malloc.list().unwrap(), malloc.address);
        let [block] = &*listed.blocks else { panic!("{:?}", listed.blocks) };
        assert_eq!((block.start, listed.instructions.address[0]), (address, address));
        assert!(listed.instructions.address.is_sorted_by(|one, next| one < next));
        assert!(listed.instructions.address.last().is_some_and(|last| *last < block.end));
        assert!(listed.unwinding.address.first().is_some_and(|first| *first <= address));
        let costs = &listed.costs;
        assert_eq!((&*costs.slice, &*costs.instruction), (&[7][..], &[0][..]));
        assert_eq!((&*costs.own, &*costs.total), (&[3][..], &[3][..]));

        malloc.build_id = Some("00".repeat(20));
        assert!(matches!(malloc.list(), Err(AssemblyError::AnotherBuild { .. })));
        malloc.build_id = None;
        assert!(matches!(malloc.list(), Err(AssemblyError::NoBuildId)));
        let path = &malloc.path;
        let (file, size_bytes) = (File::open(path).unwrap(), std::fs::metadata(path).unwrap().len());
        malloc.htlhash = Some(read_htlhash(&file, size_bytes).unwrap().to_string());
        assert_eq!(malloc.list().unwrap().costs, listed.costs, "known by its hash");
        malloc.htlhash = Some("00".repeat(16));
        assert!(matches!(malloc.list(), Err(AssemblyError::AnotherBuild { .. })));
        malloc.address = 0;
        assert!(matches!(malloc.list(), Err(AssemblyError::NoAddresses)));
    }

    #[test]
    fn what_is_no_file_and_what_is_no_function_have_a_reason() {
        let mut malloc = Malloc { address: 1, ..Malloc::find() };
        assert!(matches!(malloc.list(), Err(AssemblyError::NoSymbol)));
        malloc.path = "/no/such/libc.so.6".to_owned();
        assert!(matches!(malloc.list(), Err(AssemblyError::NotOpened { .. })));
        malloc.path = "[vdso]".to_owned();
        assert!(matches!(malloc.list(), Err(AssemblyError::NoFile(_))));
    }
}
