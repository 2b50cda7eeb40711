//! Global variables, of which a process has one: their address, and their initial value.

use std::io;

use object::elf;
use object::endian::LittleEndian as LE;
use sidewinder_address::{Avma, Svma};

use super::elf_reader::{find_string, for_each};
use super::symbol::{Sym, header_of, section_range, sections, symbol_table};
use super::{Load, TlsSymbol, bias, file_offset};
use crate::mapping::ExecutableMapping;
use crate::read_at::ReadAt;

/// A variable that is not thread-local, as the file that defines it describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GlobalVariable {
    address: Svma,
    bytes: u64,
    loads: Vec<Load>,
}

impl GlobalVariable {
    /// The variable with this name, from a file's dynamic symbols or else from all symbols; `None` if it defines none.
    ///
    /// # Errors
    /// Any I/O error of the file. A file that is not a 64-bit ELF file of this architecture defines none.
    pub fn read(file: &impl ReadAt, name: &[u8]) -> io::Result<Option<Self>> {
        match Self::read_of(file, name, elf::SHT_DYNSYM)? {
            None => Self::read_of(file, name, elf::SHT_SYMTAB),
            found => Ok(found),
        }
    }

    /// Its address in a process, given a mapping of the file.
    #[must_use]
    pub fn in_memory(&self, mapping: &ExecutableMapping) -> Option<Avma> {
        Some(Avma(self.address.0.wrapping_add(bias(&self.loads, mapping)?)))
    }

    fn read_of(file: &impl ReadAt, name: &[u8], kind: elf::SectionType) -> io::Result<Option<Self>> {
        let Some(header) = header_of(file)? else { return Ok(None) };
        let sections = sections(file, &header)?;
        let Some((table, strings)) = symbol_table(&sections, kind) else { return Ok(None) };
        let names = find_string(file, section_range(strings), name)?;
        if names.is_empty() {
            return Ok(None);
        }
        let mut found = None;
        for_each(file, section_range(table), |_, symbol: &Sym| {
            let is_it = symbol.st_type() == elf::STT_OBJECT
                && names.contains(&symbol.st_name.get(LE).into())
                && symbol.st_shndx.get(LE) != elf::SHN_UNDEF;
            found = found.or(is_it.then(|| (Svma(symbol.st_value.get(LE)), symbol.st_size.get(LE))));
            found.is_none()
        })?;
        let Some((address, bytes)) = found else { return Ok(None) };
        let (TlsSymbol { loads, .. }, _) = TlsSymbol::from_segments(file, &header)?;
        Ok(Some(Self { address, bytes, loads }))
    }
}

/// The initial value of an exported variable of four bytes; `None` if the file has none with this name.
///
/// # Errors
/// Any I/O error of the file.
pub fn read_constant(file: &impl ReadAt, name: &[u8]) -> io::Result<Option<u32>> {
    let variable = GlobalVariable::read_of(file, name, elf::SHT_DYNSYM)?;
    let mut value = [0; size_of::<u32>()];
    let is_word = |variable: &GlobalVariable| variable.bytes == value.len() as u64;
    let offset = |variable: GlobalVariable| file_offset(&variable.loads, variable.address);
    let Some(offset) = variable.filter(is_word).and_then(offset) else { return Ok(None) };
    Ok((file.read_up_to(&mut value, offset.0)? == value.len()).then(|| u32::from_le_bytes(value)))
}
