//! Object files that a process keeps in its memory to describe generated code to debuggers.
//!
//! Source: "JIT Compilation Interface", GDB's manual. The addresses of sections are those of the code; symbols are
//! relative to their section if the file is relocatable (System V ABI, "Symbol Table"), as those of LLVM and LuaJIT
//! are.

use object::Endianness;
use object::elf::{FileHeader64, STT_FUNC};
use object::read::elf::ElfFile64;
use object::read::{Object as _, ObjectKind, ObjectSection as _, ObjectSymbol as _};

use super::code_map::CodeMap;

/// The functions in these files for one process.
#[derive(Debug)]
pub struct JitSymbols {
    code: CodeMap,
    /// Files that can't be parsed.
    malformed: u64,
}

/// A function, as recorded in a file.
struct ElfFunction<'a> {
    start: u64,
    /// 0 means up to the next function.
    bytes: u64,
    section_end: u64,
    name: &'a [u8],
}

impl JitSymbols {
    /// An empty map. Names take at most `room_bytes`.
    #[must_use]
    pub fn new(room_bytes: usize) -> Self {
        Self { code: CodeMap::new(room_bytes), malformed: 0 }
    }

    /// Removes all functions.
    pub fn clear(&mut self) {
        self.code.clear();
    }

    /// Adds the functions of a file, replacing whatever their ranges contained.
    pub fn add(&mut self, file: &[u8]) {
        let Ok(file) = ElfFile64::<Endianness>::parse(file) else {
            self.malformed += 1;
            return;
        };
        let mut functions: Vec<ElfFunction<'_>> =
            file.symbols().filter_map(|symbol| function(&file, &symbol)).collect();
        // A function without a size extends to the next one, or to the end of its section.
        functions.sort_by_key(|function| (function.bytes > 0, function.start));
        for function in functions {
            let bytes = match function.bytes {
                0 => function.section_end - function.start,
                stated => stated.min(function.section_end - function.start),
            };
            self.code.insert(function.start, bytes, function.name);
        }
    }

    /// The function that contains an address.
    #[must_use]
    pub fn lookup(&self, address: u64) -> Option<&str> {
        self.code.lookup(address)
    }

    /// Functions left out for lack of memory, and files that can't be parsed.
    #[must_use]
    pub fn cut(&self) -> u64 {
        self.code.cut + self.malformed
    }

    /// Memory held, in bytes.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.code.heap_bytes()
    }
}

type JitElfFile<'a> = ElfFile64<'a, Endianness>;
type JitElfSymbol<'a, 'file> = object::read::elf::ElfSymbol<'a, 'file, FileHeader64<Endianness>>;

fn function<'a>(file: &JitElfFile<'a>, symbol: &JitElfSymbol<'a, '_>) -> Option<ElfFunction<'a>> {
    let name = symbol.name_bytes().ok().filter(|name| !name.is_empty())?;
    let section = file.section_by_index(symbol.section_index()?).ok()?;
    let base = if file.kind() == ObjectKind::Relocatable { section.address() } else { 0 };
    let start = base.checked_add(symbol.address())?;
    let section_end = section.address().checked_add(section.size())?;
    let is_function = symbol.elf_symbol().st_type() == STT_FUNC;
    let is_it = is_function && (section.address()..section_end).contains(&start);
    is_it.then_some(ElfFunction { start, bytes: symbol.size(), section_end, name })
}
