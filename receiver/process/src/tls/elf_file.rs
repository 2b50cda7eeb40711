//! An ELF file's defined symbols, several by name in one pass, and where they are in the file.

use std::io;

use object::elf;
use object::endian::LittleEndian as LE;
use sidewinder_address::{FileOffset, Svma};

use super::elf_reader::{find_each_string, find_string, find_strings_with_prefix, for_each};
use super::symbol::{Shdr, Sym, find_section, header_of, section_range, sections, symbol_table};
use super::{Load, TlsSymbol, bias, file_offset};
use crate::mapping::ExecutableMapping;
use crate::read_at::ReadAt;

/// Symbols that share a prefix that are kept of one file.
const PREFIXED_MAX: usize = 1024;

/// The headers of a 64-bit ELF file of this architecture.
#[derive(Clone, Debug)]
pub struct ElfFile {
    sections: Vec<Shdr>,
    loads: Vec<Load>,
    /// The index of the section with the sections' names.
    section_names: usize,
    /// Exports nothing, so that all its symbols are looked at.
    is_static_program: bool,
}

/// What a file has at an address: a symbol that it defines, not a thread-local one, or a section.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElfSymbol {
    /// Its address.
    pub address: Svma,
    /// Its size, as far as the file says.
    pub bytes: u64,
}

impl ElfFile {
    /// Reads the headers; `None` if it is not a 64-bit ELF file of this architecture.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt) -> io::Result<Option<Self>> {
        let Some(header) = header_of(file)? else { return Ok(None) };
        let sections = sections(file, &header)?;
        let (TlsSymbol { loads, .. }, is_static_program) = TlsSymbol::from_segments(file, &header)?;
        let section_names = header.e_shstrndx.get(LE).0.into();
        Ok(Some(Self { sections, loads, section_names, is_static_program }))
    }

    /// The load bias, given one of the file's mappings: the difference to the addresses in the file.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        bias(&self.loads, mapping)
    }

    /// The place in the file of what is at an address, if the file has it.
    #[must_use]
    pub fn file_offset_of(&self, address: Svma) -> Option<FileOffset> {
        file_offset(&self.loads, address)
    }

    /// Reads what is at an address: `bytes` bytes, or fewer if the file has no more.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn content(&self, file: &impl ReadAt, address: Svma, bytes: usize) -> io::Result<Vec<u8>> {
        let Some(offset) = self.file_offset_of(address) else { return Ok(Vec::new()) };
        let mut content = vec![0; bytes];
        let read = file.read_up_to(&mut content, offset.0)?;
        content.truncate(read);
        Ok(content)
    }

    /// The symbols with these names, in their order, among the dynamic ones or, in a static program, among all; `None` if
    /// the first is not defined, which is as cheap to find out as it can be.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn exported<const NAMES: usize>(
        &self,
        file: &impl ReadAt,
        names: [&[u8]; NAMES],
    ) -> io::Result<Option<[Option<ElfSymbol>; NAMES]>> {
        let Some((_, strings)) = self.exports_table() else { return Ok(None) };
        let Some(first) = names.first() else { return Ok(None) };
        if find_string(file, section_range(strings), first)?.is_empty() {
            return Ok(None);
        }
        let found = self.exported_each(file, &names)?;
        let found: Option<[Option<ElfSymbol>; NAMES]> = found.try_into().ok();
        Ok(found.filter(|found| found.first().is_some_and(Option::is_some)))
    }

    /// Each of the symbols with these names, in their order, among the same symbols as [`exported`](Self::exported) looks at.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn exported_each(&self, file: &impl ReadAt, names: &[&[u8]]) -> io::Result<Vec<Option<ElfSymbol>>> {
        let mut found = vec![None; names.len()];
        let Some((table, strings)) = self.exports_table() else { return Ok(found) };
        let offsets = find_each_string(file, section_range(strings), names)?;
        if offsets.iter().all(Vec::is_empty) {
            return Ok(found);
        }
        for_each(file, section_range(table), |_, symbol: &Sym| {
            if let Some(defined) = defined(symbol) {
                let at = u64::from(symbol.st_name.get(LE));
                let number = offsets.iter().position(|offsets| offsets.contains(&at));
                if let Some(slot) = number.and_then(|number| found.get_mut(number)) {
                    *slot = slot.or(Some(defined));
                }
            }
            true
        })?;
        Ok(found)
    }

    /// The table of the symbols that the file exports, and the section with their names.
    fn exports_table(&self) -> Option<(&Shdr, &Shdr)> {
        let kind = if self.is_static_program { elf::SHT_SYMTAB } else { elf::SHT_DYNSYM };
        symbol_table(&self.sections, kind)
    }

    /// Whether its dynamic linking refers to a string, such as the name of a library that it needs, or to one that starts with
    /// it.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn mentions(&self, file: &impl ReadAt, prefix: &[u8]) -> io::Result<bool> {
        let Some((_, strings)) = symbol_table(&self.sections, elf::SHT_DYNSYM) else { return Ok(false) };
        let range = section_range(strings);
        // A string starts behind the end of another one.
        let wanted = [b"\0", prefix].concat();
        Ok(!find_strings_with_prefix(file, range, &wanted, 1)?.is_empty())
    }

    /// Reads the section with this name, and its address; `None` if there is none, or it has more than `bytes_max` bytes.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn section(
        &self,
        file: &impl ReadAt,
        name: &[u8],
        bytes_max: usize,
    ) -> io::Result<Option<(Svma, Vec<u8>)>> {
        let section = find_section(file, &self.sections, self.section_names, name)?;
        let Some(section) = section else { return Ok(None) };
        let bytes = usize::try_from(section.sh_size.get(LE)).ok().filter(|bytes| *bytes <= bytes_max);
        let Some(bytes) = bytes else { return Ok(None) };
        let mut data = vec![0; bytes];
        let read = file.read_up_to(&mut data, section.sh_offset.get(LE))?;
        data.truncate(read);
        Ok(Some((Svma(section.sh_addr.get(LE)), data)))
    }

    /// The sections of code, by their addresses.
    pub fn code_sections(&self) -> impl Iterator<Item = ElfSymbol> + '_ {
        let is_code = |section: &&Shdr| section.sh_flags.get(LE).contains(elf::SHF_EXECINSTR);
        let range = |section: &Shdr| ElfSymbol {
            address: Svma(section.sh_addr.get(LE)),
            bytes: section.sh_size.get(LE),
        };
        self.sections.iter().filter(is_code).map(range)
    }

    /// The functions whose names start with `prefix`, among all symbols: none in a stripped file.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn functions_with_prefix(&self, file: &impl ReadAt, prefix: &[u8]) -> io::Result<Vec<ElfSymbol>> {
        self.symbols_with_prefix(file, prefix, elf::STT_FUNC)
    }

    /// The data objects whose names start with `prefix`, among all symbols: none in a stripped file.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn data_with_prefix(&self, file: &impl ReadAt, prefix: &[u8]) -> io::Result<Vec<ElfSymbol>> {
        self.symbols_with_prefix(file, prefix, elf::STT_OBJECT)
    }

    fn symbols_with_prefix(
        &self,
        file: &impl ReadAt,
        prefix: &[u8],
        kind: elf::SymbolType,
    ) -> io::Result<Vec<ElfSymbol>> {
        let Some((table, strings)) = symbol_table(&self.sections, elf::SHT_SYMTAB) else {
            return Ok(Vec::new());
        };
        let offsets = find_strings_with_prefix(file, section_range(strings), prefix, PREFIXED_MAX)?;
        let mut found = Vec::new();
        if offsets.is_empty() {
            return Ok(found);
        }
        for_each(file, section_range(table), |_, symbol: &Sym| {
            let is_it =
                symbol.st_type() == kind && offsets.binary_search(&symbol.st_name.get(LE).into()).is_ok();
            found.extend(defined(symbol).filter(|_| is_it));
            found.len() < PREFIXED_MAX
        })?;
        Ok(found)
    }
}

/// The symbol, if it is defined in the file and has an address.
fn defined(symbol: &Sym) -> Option<ElfSymbol> {
    let section = symbol.st_shndx.get(LE);
    let has_address =
        section != elf::SHN_UNDEF && section != elf::SHN_ABS && symbol.st_type() != elf::STT_TLS;
    has_address.then(|| ElfSymbol { address: Svma(symbol.st_value.get(LE)), bytes: symbol.st_size.get(LE) })
}
