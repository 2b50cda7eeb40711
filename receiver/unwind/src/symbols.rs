//! Symbols of a file, with names that cost no reading each.
//!
//! Names are cut out of their whole section: `object` would ask its reader for each alone, and where that reads
//! a file, the names of a large library would take longer than its rows.

use object::elf::{FileHeader64, SHN_XINDEX, STT_FUNC, STT_NOTYPE, Sym64};
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _, SymbolTable};
use object::{Endianness, File, ReadRef};

/// The most symbols of one table that are looked at.
const MAX_SYMBOLS: usize = 1 << 20;

/// Symbols with longer names are left out: without a bound, a section without any end of a name would be read
/// once for each symbol.
const MAX_NAME_BYTES: usize = 4096;

/// A symbol that may be code of its file.
pub(crate) struct Symbol<'data> {
    pub(crate) name: &'data [u8],
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Whether it says that it is a function. Assembly often says nothing.
    pub(crate) is_function: bool,
}

/// What `.symtab` and then `.dynsym` define and may be code.
pub(crate) fn code_symbols<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
) -> impl Iterator<Item = Symbol<'data>> {
    let tables = elf64(file).map(|elf| {
        [elf.elf_symbol_table(), elf.elf_dynamic_symbol_table()].map(|table| Table::of(elf, table))
    });
    tables.into_iter().flatten().flat_map(|table| {
        let symbols = table.symbols.iter().take(MAX_SYMBOLS);
        symbols.filter_map(move |symbol| table.code_symbol(symbol))
    })
}

/// The names of `.dynsym`, each at the place that its symbol has in the table, those of imports too.
pub(crate) fn dynamic_names<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
) -> impl Iterator<Item = Option<&'data [u8]>> {
    let table = elf64(file).map(|elf| Table::of(elf, elf.elf_dynamic_symbol_table()));
    table.into_iter().flat_map(|table| {
        let symbols = table.symbols.iter().take(MAX_SYMBOLS);
        symbols.map(move |symbol| table.name(symbol))
    })
}

fn elf64<'file, 'data, R: ReadRef<'data>>(
    file: &'file File<'data, R>,
) -> Option<&'file ElfFile64<'data, Endianness, R>> {
    match file {
        File::Elf64(elf) => Some(elf),
        _ => None,
    }
}

/// A symbol table, and the section of its names: empty where that can't be read.
struct Table<'data> {
    endian: Endianness,
    symbols: &'data [Sym64<Endianness>],
    names: &'data [u8],
}

impl<'data> Table<'data> {
    fn of<R: ReadRef<'data>>(
        elf: &ElfFile64<'data, Endianness, R>,
        table: &SymbolTable<'data, FileHeader64<Endianness>, R>,
    ) -> Self {
        let endian = elf.endian();
        let section = elf.elf_section_table().section(table.string_section());
        let names = section.ok().and_then(|section| section.data(endian, elf.data()).ok());
        Self { endian, symbols: table.symbols(), names: names.unwrap_or_default() }
    }

    fn name(&self, symbol: &Sym64<Endianness>) -> Option<&'data [u8]> {
        let name = self.names.get(symbol.st_name(self.endian) as usize..)?;
        let end = name.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0)?;
        name.get(..end)
    }

    fn code_symbol(&self, symbol: &Sym64<Endianness>) -> Option<Symbol<'data>> {
        let section = symbol.st_shndx(self.endian);
        let is_here = !section.is_special() || section == SHN_XINDEX;
        let kind = symbol.st_type();
        if !is_here || !matches!(kind, STT_FUNC | STT_NOTYPE) {
            return None;
        }
        Some(Symbol {
            name: self.name(symbol)?,
            address: symbol.st_value(self.endian),
            size: symbol.st_size(self.endian),
            is_function: kind == STT_FUNC,
        })
    }
}
