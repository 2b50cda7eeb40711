//! Reads the symbol and the relocations of a thread-local variable from an ELF file.

use std::io;
use std::ops::Range;

use object::elf;
use object::endian::LittleEndian as LE;
use sidewinder_address::Svma;

use super::elf_reader::{find_string, for_each, read_one};
use super::{LOADS_MAX, Load, SLOTS_MAX, TlsGotEntry, TlsImage, TlsSymbol};
use crate::arch;
use crate::read_at::ReadAt;

type Ehdr = elf::FileHeader64<LE>;
type Phdr = elf::ProgramHeader64<LE>;
pub(super) type Shdr = elf::SectionHeader64<LE>;
pub(super) type Sym = elf::Sym64<LE>;
type Rela = elf::Rela64<LE>;
type Dynamic = elf::Dyn64<LE>;

pub(super) const DYNAMIC: &[elf::SectionType] = &[elf::SHT_DYNSYM];
const EITHER: &[elf::SectionType] = &[elf::SHT_DYNSYM, elf::SHT_SYMTAB];

/// Headers of either kind that are read.
const HEADERS_MAX: u16 = 1024;

impl TlsSymbol {
    /// Reads what the file contains on the variable `name`; `None` if it contains nothing. Uses the dynamic symbols or, in a
    /// program that has none, all symbols.
    ///
    /// # Errors
    /// Any I/O error of the file. A file that is not a 64-bit ELF file of this architecture contains nothing.
    pub fn read(file: &impl ReadAt, name: &[u8]) -> io::Result<Option<Self>> {
        Self::read_of(file, name, |is_static| if is_static { EITHER } else { DYNAMIC })
    }

    /// As [`read`](Self::read), but uses all symbols of any file.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_any(file: &impl ReadAt, name: &[u8]) -> io::Result<Option<Self>> {
        Self::read_of(file, name, |_| EITHER)
    }

    fn read_of(
        file: &impl ReadAt,
        name: &[u8],
        kinds: impl FnOnce(bool) -> &'static [elf::SectionType],
    ) -> io::Result<Option<Self>> {
        let Some(header) = header_of(file)? else { return Ok(None) };
        let sections = sections(file, &header)?;
        let (mut symbol, is_static) = Self::from_segments(file, &header)?;
        // A static program exports nothing, whatever options its linker has.
        for kind in kinds(is_static) {
            let Some(symbols) = sections.iter().position(|section| section.sh_type.get(LE) == *kind) else {
                continue;
            };
            let numbers = symbol.read_symbols(file, &sections, symbols, name)?;
            if numbers.is_empty() {
                continue;
            }
            let is_of_symbols = |section: &&Shdr| {
                section.sh_type.get(LE) == elf::SHT_RELA
                    && usize::try_from(section.sh_link.get(LE)) == Ok(symbols)
            };
            for section in sections.iter().filter(is_of_symbols) {
                symbol.read_relocations(file, section_range(section), &numbers)?;
            }
            return Ok(Some(symbol));
        }
        Ok(None)
    }

    /// Reads the segments, without symbols. Also returns whether the file is a static program.
    pub(super) fn from_segments(file: &impl ReadAt, header: &Ehdr) -> io::Result<(Self, bool)> {
        let count = header.e_phnum.get(LE).min(HEADERS_MAX);
        let start = header.e_phoff.get(LE);
        let end = start.saturating_add(u64::from(count) * size_of::<Phdr>() as u64);
        let mut symbol =
            Self { value: None, image: None, is_program: false, slots: Vec::new(), loads: Vec::new() };
        let (mut has_interpreter, mut dynamic) = (false, None);
        for_each(file, start..end, |_, segment: &Phdr| {
            let (address, bytes) = (segment.p_vaddr.get(LE), segment.p_memsz.get(LE));
            let file_offset = segment.p_offset.get(LE);
            match segment.p_type.get(LE) {
                elf::PT_LOAD if symbol.loads.len() < LOADS_MAX => {
                    symbol.loads.push(Load { file_offset, address, bytes: segment.p_filesz.get(LE) });
                }
                elf::PT_TLS => {
                    symbol.image = Some(TlsImage { address, bytes, align: segment.p_align.get(LE) });
                }
                elf::PT_INTERP => has_interpreter = true,
                elf::PT_DYNAMIC => {
                    dynamic = Some(file_offset..file_offset.saturating_add(segment.p_filesz.get(LE)));
                }
                _ => {}
            }
            true
        })?;
        let (mut is_pie, mut has_name) = (false, false);
        for_each(file, dynamic.unwrap_or(0..0), |_, entry: &Dynamic| {
            match entry.d_tag.get(LE) {
                elf::DT_FLAGS_1 => is_pie = entry.d_val.get(LE) & elf::DF_1_PIE.0 != 0,
                elf::DT_SONAME => has_name = true,
                _ => {}
            }
            entry.d_tag.get(LE) != elf::DT_NULL
        })?;
        // Linkers mark position-independent programs since binutils 2.26. libc has an interpreter, but also a name.
        let is_fixed = header.e_type.get(LE) == elf::ET_EXEC;
        symbol.is_program = is_fixed || is_pie || has_interpreter && !has_name;
        let is_static = symbol.is_program && !has_interpreter;
        Ok((symbol, is_static))
    }

    /// Stores the value of the symbol with this name, and returns the indices of all symbols with this name.
    fn read_symbols(
        &mut self,
        file: &impl ReadAt,
        sections: &[Shdr],
        symbols: usize,
        name: &[u8],
    ) -> io::Result<Vec<u32>> {
        let table = &sections[symbols];
        let Some(strings) = sections.get(table.sh_link.get(LE) as usize) else { return Ok(Vec::new()) };
        let names = find_string(file, section_range(strings), name)?;
        let mut numbers = Vec::new();
        if names.is_empty() {
            return Ok(numbers);
        }
        for_each(file, section_range(table), |number, symbol: &Sym| {
            let is_it = symbol.st_type() == elf::STT_TLS && names.contains(&symbol.st_name.get(LE).into());
            if is_it && numbers.len() < SLOTS_MAX {
                numbers.extend(u32::try_from(number));
                if symbol.st_shndx.get(LE) != elf::SHN_UNDEF {
                    self.value = Some(symbol.st_value.get(LE));
                }
            }
            true
        })?;
        Ok(numbers)
    }

    fn read_relocations(&mut self, file: &impl ReadAt, table: Range<u64>, numbers: &[u32]) -> io::Result<()> {
        for_each(file, table, |_, relocation: &Rela| {
            let at = Svma(relocation.r_offset.get(LE));
            let (number, kind) = (relocation.r_sym(LE, false), relocation.r_type(LE, false));
            let is_of_symbol = numbers.contains(&number);
            // A linker that knows that the definition is in this file names no symbol: the relocation may refer to any
            // offset in the block, and the distance to the variable is the difference of both offsets.
            let distance = match self.value {
                _ if is_of_symbol => Some(0),
                Some(value) if number == 0 => {
                    i64::try_from(value).ok().and_then(|value| value.checked_sub(relocation.r_addend.get(LE)))
                }
                _ => None,
            };
            let slot = match (kind, distance) {
                (arch::TPOFF, Some(distance)) => TlsGotEntry::Offset(at, distance),
                (arch::TLSDESC, Some(distance)) => TlsGotEntry::Descriptor(at, distance),
                (arch::DTPMOD, Some(_)) if is_of_symbol => TlsGotEntry::Module(at, 0),
                (arch::DTPMOD, Some(_)) => match self.value {
                    Some(value) => TlsGotEntry::OwnModule(at, value),
                    None => return true,
                },
                _ => return true,
            };
            self.slots.push(slot);
            self.slots.len() < SLOTS_MAX
        })
    }
}

pub(super) fn sections(file: &impl ReadAt, header: &Ehdr) -> io::Result<Vec<Shdr>> {
    if usize::from(header.e_shentsize.get(LE)) != size_of::<Shdr>() {
        return Ok(Vec::new());
    }
    let start = header.e_shoff.get(LE);
    let count = header.e_shnum.get(LE).min(HEADERS_MAX);
    let mut sections = Vec::with_capacity(count.into());
    let end = start.saturating_add(u64::from(count) * size_of::<Shdr>() as u64);
    for_each(file, start..end, |_, section: &Shdr| {
        sections.push(*section);
        true
    })?;
    Ok(sections)
}

pub(super) fn section_range(section: &Shdr) -> Range<u64> {
    let start = section.sh_offset.get(LE);
    start..start.saturating_add(section.sh_size.get(LE))
}

/// The table of symbols of a kind, and the section with their names.
pub(super) fn symbol_table(sections: &[Shdr], kind: elf::SectionType) -> Option<(&Shdr, &Shdr)> {
    let table = sections.iter().find(|section| section.sh_type.get(LE) == kind)?;
    Some((table, sections.get(table.sh_link.get(LE) as usize)?))
}

/// The section with this name. `names` is the index of the section with the sections' names.
pub(super) fn find_section<'sections>(
    file: &impl ReadAt,
    sections: &'sections [Shdr],
    names: usize,
    name: &[u8],
) -> io::Result<Option<&'sections Shdr>> {
    let Some(names) = sections.get(names) else { return Ok(None) };
    let found = find_string(file, section_range(names), name)?;
    Ok(sections.iter().find(|section| found.contains(&section.sh_name.get(LE).into())))
}

/// Reads the header of a 64-bit ELF file of this architecture.
pub(super) fn header_of(file: &impl ReadAt) -> io::Result<Option<Ehdr>> {
    Ok(read_one::<Ehdr>(file, 0)?.filter(|header| {
        header.e_ident.magic == elf::ELFMAG
            && header.e_ident.class == elf::ELFCLASS64
            && header.e_ident.data == elf::ELFDATA2LSB
            && header.e_machine.get(LE) == arch::MACHINE
            && usize::from(header.e_phentsize.get(LE)) == size_of::<Phdr>()
    }))
}

/// Reads the first bytes of the section with this name.
pub(crate) fn read_section(file: &impl ReadAt, name: &[u8], bytes_max: usize) -> io::Result<Option<Vec<u8>>> {
    let Some(header) = header_of(file)? else { return Ok(None) };
    let sections = sections(file, &header)?;
    let names = header.e_shstrndx.get(LE).0.into();
    let Some(section) = find_section(file, &sections, names, name)? else { return Ok(None) };
    let mut bytes = vec![0; usize::try_from(section.sh_size.get(LE)).unwrap_or(bytes_max).min(bytes_max)];
    let read = file.read_up_to(&mut bytes, section.sh_offset.get(LE))?;
    bytes.truncate(read);
    Ok(Some(bytes))
}
