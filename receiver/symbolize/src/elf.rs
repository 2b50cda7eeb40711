//! The parts of an ELF file that hold symbols, read piece by piece.
//!
//! Source: System V ABI, "Sections" and "Symbol Table". Both classes and byte orders are read.

use std::io;
use std::ops::Range;

use object::Endianness;
use object::elf::{
    ELFCLASS32, ELFCLASS64, FileHeader32, FileHeader64, SHF_ALLOC, SHF_COMPRESSED, SHF_EXECINSTR, SHN_UNDEF,
    SHN_XINDEX, SHT_DYNSYM, SHT_NOBITS, SHT_RELA, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, STT_FUNC, STT_GNU_IFUNC,
    STT_NOTYPE, Sym64,
};
use object::pod::{self, Pod};
use object::read::elf::{FileHeader, SectionHeader, Sym};

use crate::alias::Binding;
use crate::error::SymbolTableError;
use crate::image::Image;

/// The most section headers that are read; more are ignored. Real files have tens, `-ffunction-sections` objects
/// thousands.
const SECTIONS_LIMIT: u64 = 65_536;
/// The most bytes of section names that are read, enough for the names of any linked file.
const SECTION_NAMES_LIMIT_BYTES: u64 = 64 * 1024;
/// The most sections that are kept by name; a binary with all of DWARF has thirty.
const NAMED_SECTIONS_LIMIT: usize = 64;
/// The longest name of these sections.
const SECTION_NAME_LIMIT_BYTES: usize = 32;
/// The prefixes of the names of sections that are kept.
const DEBUG_SECTION_PREFIXES: [&str; 9] = [
    ".debug_",
    ".gnu_debugdata",
    ".plt",
    ".gopclntab",
    ".data.rel.ro.gopclntab",
    ".go.",
    ".note.go.buildid",
    ".note.stapsdt",
    ".stapsdt.base",
];
/// The sections written by the Go linker.
const GO_SECTIONS: [&str; 3] = [".gopclntab", ".data.rel.ro.gopclntab", ".note.go.buildid"];
/// Records read at once.
const CHUNK_RECORDS: usize = 1024;

/// The locations of a file's code, its symbols and their names.
#[derive(Clone, Debug)]
pub(crate) struct ElfLayout {
    form: ElfFormat,
    /// Stated addresses of executable sections, sorted by start, none empty.
    pub(crate) code: Vec<Range<u64>>,
    /// `.symtab`: every symbol, unless the file was stripped.
    pub(crate) symtab: Option<TableLayout>,
    /// `.dynsym`: the symbols that the dynamic linker needs.
    pub(crate) dynsym: Option<TableLayout>,
    /// Relocations that may name symbols of [`dynsym`](Self::dynsym).
    pub(crate) relocations: Vec<Range<u64>>,
    /// Other sections with information about code, in the file's order.
    named: Vec<NamedSection>,
    /// The parts of the file that are loaded into memory: the address of each, and its range in the file.
    loaded: Vec<(u64, Range<u64>)>,
    /// Whether the Go linker's sections are present.
    pub(crate) is_go: bool,
    /// The architecture of the code, as `e_machine`.
    pub(crate) machine: u16,
}

/// A section that is found by its name.
#[derive(Clone, Debug)]
pub(crate) struct NamedSection {
    pub(crate) name: Box<str>,
    pub(crate) svma: u64,
    /// The range in the file; empty if the section has no bytes there.
    pub(crate) bytes: Range<u64>,
    /// Whether these bytes begin with a compression header (`SHF_COMPRESSED`).
    pub(crate) is_compressed: bool,
    /// Bytes of one entry, 0 if the file doesn't state it.
    pub(crate) entry_bytes: u64,
}

/// The location in the file of one symbol table and its names.
#[derive(Clone, Debug)]
pub(crate) struct TableLayout {
    offset: u64,
    /// Records that the header claims and that fit in the file.
    pub(crate) count: u64,
    pub(crate) strings: Range<u64>,
}

/// A defined symbol that may name code.
pub(crate) struct CodeSymbol {
    /// Offset of the name within the table's strings.
    pub(crate) name: u32,
    pub(crate) svma: u64,
    /// In bytes; 0 if the table doesn't state it.
    pub(crate) size: u64,
    pub(crate) binding: Binding,
    /// Whether it is the function that chooses the real one when the file is loaded (`STT_GNU_IFUNC`).
    pub(crate) is_resolver: bool,
}

#[derive(Clone, Copy, Debug)]
struct ElfFormat {
    is_64: bool,
    endian: Endianness,
}

/// The fields of a section header that are kept while the others are read.
struct SectionInfo {
    name: u32,
    link: u32,
    is_code: bool,
    is_loaded: bool,
    is_compressed: bool,
    kind: SectionType,
    svma: u64,
    offset: u64,
    size: u64,
    entry_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SectionType {
    Symtab,
    Dynsym,
    Relocations,
    NoBits,
    Other,
}

impl ElfLayout {
    pub(crate) fn read(image: &Image) -> Result<Self, SymbolTableError> {
        let mut ident = [0; 16];
        image.read_exact_at(0, &mut ident).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => SymbolTableError::NotElf,
            _ => SymbolTableError::Read { what: "ELF header", offset: 0, source: error },
        })?;
        let [0x7f, b'E', b'L', b'F', class, order, ..] = ident else { return Err(SymbolTableError::NotElf) };
        let endian = match order {
            1 => Endianness::Little,
            2 => Endianness::Big,
            _ => return Err(SymbolTableError::NotElf),
        };
        if class == ELFCLASS64.0 {
            Self::read_as::<FileHeader64<Endianness>>(image, ElfFormat { is_64: true, endian })
        } else if class == ELFCLASS32.0 {
            Self::read_as::<FileHeader32<Endianness>>(image, ElfFormat { is_64: false, endian })
        } else {
            Err(SymbolTableError::NotElf)
        }
    }

    fn read_as<H: FileHeader<Endian = Endianness>>(
        image: &Image,
        form: ElfFormat,
    ) -> Result<Self, SymbolTableError> {
        let endian = form.endian;
        let file_bytes = image.len().map_err(|source| SymbolTableError::Read {
            what: "file length",
            offset: 0,
            source,
        })?;
        let header: H = read_one(image, "ELF header", 0)?;
        let table_offset: u64 = header.e_shoff(endian).into();
        if table_offset == 0 {
            return Err(SymbolTableError::NoSections);
        }
        // Counts that don't fit in the header are in the otherwise unused first section header.
        let first: H::SectionHeader = read_one(image, "first section header", table_offset)?;
        let count = match header.e_shnum(endian) {
            0 => first.sh_size(endian).into(),
            count => u64::from(count),
        };
        let names_index = match header.e_shstrndx(endian) {
            SHN_XINDEX => first.sh_link(endian),
            index => u32::from(index.0),
        };

        let mut sections = Vec::new();
        for_each::<H::SectionHeader>(
            image,
            "section headers",
            table_offset,
            count.min(SECTIONS_LIMIT),
            |header| sections.push(SectionInfo::new(header, endian)),
        )?;
        let strings_of = |index: u32| -> Option<Range<u64>> {
            let section = sections.get(index as usize)?;
            let end = section.offset.checked_add(section.size)?.min(file_bytes);
            (section.offset < end).then_some(section.offset..end)
        };
        let table_of = |kind: SectionType| -> Option<TableLayout> {
            let section = sections.iter().find(|section| section.kind == kind)?;
            let room = file_bytes.checked_sub(section.offset)?;
            let count = section.size.min(room) / size_of::<H::Sym>() as u64;
            Some(TableLayout { offset: section.offset, count, strings: strings_of(section.link)? })
        };

        let mut code: Vec<_> = sections
            .iter()
            .filter(|section| section.is_code)
            .filter_map(|section| Some(section.svma..section.svma.checked_add(section.size)?))
            .filter(|range| !range.is_empty())
            .collect();
        code.sort_unstable_by_key(|range| range.start);
        let named = strings_of(names_index)
            .map_or(Ok(Vec::new()), |names| named_sections(image, names, &sections, file_bytes))?;
        let dynamic_index = sections.iter().position(|section| section.kind == SectionType::Dynsym);
        let relocations = sections
            .iter()
            .filter(|section| section.kind == SectionType::Relocations)
            .filter(|section| dynamic_index == Some(section.link as usize))
            .map(|section| section.offset..section.offset.saturating_add(section.size).min(file_bytes))
            .filter(|range| !range.is_empty())
            .collect();
        let loaded = sections
            .iter()
            .filter(|section| section.is_loaded && section.kind != SectionType::NoBits)
            .map(|section| {
                let end = section.offset.saturating_add(section.size).min(file_bytes);
                (section.svma, section.offset..end.max(section.offset))
            })
            .take(NAMED_SECTIONS_LIMIT)
            .collect();
        Ok(Self {
            form,
            code,
            loaded,
            symtab: table_of(SectionType::Symtab),
            dynsym: table_of(SectionType::Dynsym),
            relocations,
            is_go: named.iter().any(|section| GO_SECTIONS.contains(&&*section.name)),
            named,
            machine: header.e_machine(endian).0,
        })
    }

    /// The section with this name, if it is one of those with information about code.
    pub(crate) fn section(&self, name: &str) -> Option<&NamedSection> {
        self.named.iter().find(|section| &*section.name == name)
    }

    /// The range in the file from an address to the end of its section.
    pub(crate) fn in_file(&self, svma: u64) -> Option<Range<u64>> {
        self.loaded.iter().find_map(|(start, bytes)| {
            let at = bytes.start.checked_add(svma.checked_sub(*start)?)?;
            (at < bytes.end).then_some(at..bytes.end)
        })
    }

    /// The parts of the file that are loaded as data or code.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &(u64, Range<u64>)> {
        self.loaded.iter()
    }

    /// Whether the file is 64-bit and little-endian.
    pub(crate) fn is_little_endian_64(&self) -> bool {
        self.form.is_64 && self.form.endian == Endianness::Little
    }

    /// The byte order.
    pub(crate) fn endian(&self) -> Endianness {
        self.form.endian
    }

    /// The executable section that contains an address.
    pub(crate) fn code_section(&self, svma: u64) -> Option<&Range<u64>> {
        let after = self.code.partition_point(|range| range.start <= svma);
        self.code.get(after.checked_sub(1)?).filter(|range| range.contains(&svma))
    }

    /// The offset, in the strings of a table of 64-bit symbols, of the name of the symbol with this index.
    pub(crate) fn name_of(image: &Image, table: &TableLayout, index: u32) -> Option<u32> {
        let offset = table.offset.checked_add(u64::from(index) * size_of::<Sym64<Endianness>>() as u64)?;
        let mut name = [0; 4];
        (u64::from(index) < table.count).then_some(())?;
        image.read_exact_at(offset, &mut name).ok()?;
        Some(u32::from_le_bytes(name)).filter(|name| *name != 0)
    }

    /// Calls `visit` with every symbol of a table that is defined, named and may be code, in the table's order. Reads at
    /// most `limit` symbols, and returns how many more there are.
    pub(crate) fn for_each_symbol(
        &self,
        image: &Image,
        table: &TableLayout,
        limit: u64,
        visit: impl FnMut(CodeSymbol),
    ) -> Result<u64, SymbolTableError> {
        let count = table.count.min(limit);
        if self.form.is_64 {
            self.for_each_symbol_as::<FileHeader64<Endianness>>(image, table.offset, count, visit)?;
        } else {
            self.for_each_symbol_as::<FileHeader32<Endianness>>(image, table.offset, count, visit)?;
        }
        Ok(table.count - count)
    }

    fn for_each_symbol_as<H: FileHeader<Endian = Endianness>>(
        &self,
        image: &Image,
        offset: u64,
        count: u64,
        mut visit: impl FnMut(CodeSymbol),
    ) -> Result<(), SymbolTableError> {
        for_each::<H::Sym>(image, "symbols", offset, count, |symbol| {
            if let Some(symbol) = code_symbol(symbol, self.form.endian) {
                visit(symbol);
            }
        })
    }
}

impl SectionInfo {
    fn new<S: SectionHeader>(header: &S, endian: S::Endian) -> Self {
        let flags = header.sh_flags(endian);
        Self {
            name: header.sh_name(endian),
            link: header.sh_link(endian),
            is_code: flags.contains(SHF_ALLOC) && flags.contains(SHF_EXECINSTR),
            is_loaded: flags.contains(SHF_ALLOC),
            is_compressed: flags.contains(SHF_COMPRESSED),
            kind: match header.sh_type(endian) {
                SHT_SYMTAB => SectionType::Symtab,
                SHT_DYNSYM => SectionType::Dynsym,
                SHT_RELA => SectionType::Relocations,
                SHT_NOBITS => SectionType::NoBits,
                _ => SectionType::Other,
            },
            svma: header.sh_addr(endian).into(),
            offset: header.sh_offset(endian).into(),
            size: header.sh_size(endian).into(),
            entry_bytes: header.sh_entsize(endian).into(),
        }
    }
}

/// Functions of any binding, and untyped symbols that others can link against: assembly often leaves the type out. A
/// local untyped symbol is a label inside a function.
fn code_symbol<S: Sym>(symbol: &S, endian: S::Endian) -> Option<CodeSymbol> {
    let is_code = match symbol.st_type() {
        STT_FUNC | STT_GNU_IFUNC => true,
        STT_NOTYPE => symbol.st_bind() != STB_LOCAL,
        _ => false,
    };
    let section = symbol.st_shndx(endian);
    let is_defined = section != SHN_UNDEF && (!section.is_special() || section == SHN_XINDEX);
    let name = symbol.st_name(endian);
    (is_code && is_defined && name != 0).then(|| CodeSymbol {
        name,
        svma: symbol.st_value(endian).into(),
        size: symbol.st_size(endian).into(),
        binding: match symbol.st_bind() {
            STB_LOCAL => Binding::Local,
            STB_GLOBAL => Binding::Global,
            // GNU_UNIQUE is global in a process; it can be overridden like a weak symbol.
            _ => Binding::Weak,
        },
        is_resolver: symbol.st_type() == STT_GNU_IFUNC,
    })
}

/// The sections whose names mark them as having information about code.
fn named_sections(
    image: &Image,
    names: Range<u64>,
    sections: &[SectionInfo],
    file_bytes: u64,
) -> Result<Vec<NamedSection>, SymbolTableError> {
    let mut blob = vec![0; (names.end - names.start).min(SECTION_NAMES_LIMIT_BYTES) as usize];
    image.read_exact_at(names.start, &mut blob).map_err(|source| SymbolTableError::Read {
        what: "section names",
        offset: names.start,
        source,
    })?;
    let named = sections.iter().filter_map(|section| {
        let name = blob.get(section.name as usize..)?.split(|byte| *byte == 0).next()?;
        let name = str::from_utf8(name).ok().filter(|name| name.len() <= SECTION_NAME_LIMIT_BYTES)?;
        if !DEBUG_SECTION_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            return None;
        }
        let end = match section.kind {
            SectionType::NoBits => section.offset,
            _ => section.offset.saturating_add(section.size).min(file_bytes),
        };
        Some(NamedSection {
            name: name.into(),
            svma: section.svma,
            bytes: section.offset..end.max(section.offset),
            is_compressed: section.is_compressed,
            entry_bytes: section.entry_bytes,
        })
    });
    Ok(named.take(NAMED_SECTIONS_LIMIT).collect())
}

fn read_one<T: Pod>(image: &Image, what: &'static str, offset: u64) -> Result<T, SymbolTableError> {
    let mut found = None;
    for_each::<T>(image, what, offset, 1, |record| found = Some(*record))?;
    found.ok_or(SymbolTableError::Read { what, offset, source: io::ErrorKind::UnexpectedEof.into() })
}

fn for_each<T: Pod>(
    image: &Image,
    what: &'static str,
    offset: u64,
    count: u64,
    mut visit: impl FnMut(&T),
) -> Result<(), SymbolTableError> {
    let record_bytes = size_of::<T>();
    let mut buffer = vec![0; record_bytes * (count.min(CHUNK_RECORDS as u64) as usize)];
    let mut at = offset;
    let mut left = count;
    while left > 0 {
        let records = left.min(CHUNK_RECORDS as u64) as usize;
        let overflow =
            || SymbolTableError::Read { what, offset: at, source: io::ErrorKind::UnexpectedEof.into() };
        let chunk = buffer.get_mut(..records * record_bytes).ok_or_else(overflow)?;
        image.read_exact_at(at, chunk).map_err(|source| SymbolTableError::Read {
            what,
            offset: at,
            source,
        })?;
        let (chunk, _) = pod::slice_from_bytes::<T>(chunk, records).map_err(|()| overflow())?;
        chunk.iter().for_each(&mut visit);
        at = at.checked_add((records * record_bytes) as u64).ok_or_else(overflow)?;
        left -= records as u64;
    }
    Ok(())
}
