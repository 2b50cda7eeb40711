//! Reads the symbols of a file in batches, in the order of their names.
//!
//! The largest libraries have tens of MiB of symbols and names, of which a few matter, so none is kept. `object` would
//! read each name on its own and keep them all.

use object::elf::{SHN_XINDEX, SHT_RELA, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym64};
use object::pod::bytes_of_slice_mut;
use object::read::elf::{ElfFile64, SectionHeader as _, Sym as _};
use object::{Endianness, File, Object as _};

use crate::arch;
use crate::read::ReadFile;

/// The most symbols of one table that are read.
const MAX_SYMBOLS: usize = 1 << 20;

/// Symbols in one batch.
const BATCH_SYMBOLS: usize = 1 << 14;

/// The most dynamic relocations of one section that are read. The largest libraries have a million.
const MAX_RELOCATIONS: usize = 4 << 20;

/// Relocations in one batch.
const BATCH_RELOCATIONS: usize = 1 << 12;
/// Words of a relocation (`Elf64_Rela`).
const RELOCATION_WORDS: usize = 3;

/// Symbols with longer names are skipped: without a bound, a section without NULs would be scanned once for each
/// symbol.
const MAX_NAME_BYTES: usize = 4096;

/// Bytes of names that are read at once.
const WINDOW_BYTES: usize = 64 << 10;

/// A symbol that may denote code of its file.
pub(crate) struct SymbolCandidate<'name> {
    pub(crate) name: &'name [u8],
    pub(crate) address: u64,
    pub(crate) size: u64,
    /// Whether its type is function. Symbols of assembly often have no type.
    pub(crate) is_function: bool,
    /// Whether it is a function that the dynamic linker calls to choose another one (`STT_GNU_IFUNC`).
    pub(crate) is_resolver: bool,
}

/// Calls `visit` for symbols of `.symtab` and then `.dynsym` that are defined and may be code.
pub(crate) fn for_each_code_symbol<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    mut visit: impl FnMut(&SymbolCandidate<'_>),
) {
    let is_mapping = |name: &[u8]| {
        arch::of_machine(file.architecture()).is_some_and(|of| arch::is_mapping_symbol(of, name))
    };
    for table in [".symtab", ".dynsym"].into_iter().filter_map(|name| ElfSymbolTable::from_file(file, name)) {
        let endian = table.endian;
        table.for_each_name(
            |symbol| may_be_code(symbol, endian),
            |_, symbol, name| {
                let (address, size) = (symbol.st_value(endian), symbol.st_size(endian));
                let is_function = symbol.st_type() == STT_FUNC;
                let is_resolver = symbol.st_type() == STT_GNU_IFUNC;
                if is_function || is_resolver || !is_mapping(name) {
                    visit(&SymbolCandidate { name, address, size, is_function, is_resolver });
                }
            },
        );
    }
}

fn may_be_code(symbol: &Sym64<Endianness>, endian: Endianness) -> bool {
    let section = symbol.st_shndx(endian);
    let is_here = !section.is_special() || section == SHN_XINDEX;
    is_here && matches!(symbol.st_type(), STT_FUNC | STT_NOTYPE | STT_GNU_IFUNC)
}

/// Calls `visit` for the names of `.dynsym`, with the index of each symbol in the table, including imports.
pub(crate) fn for_each_dynamic_name<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    mut visit: impl FnMut(usize, &[u8]),
) {
    if let Some(table) = ElfSymbolTable::from_file(file, ".dynsym") {
        table.for_each_name(|_| true, |index, _, name| visit(index, name));
    }
}

/// Calls `visit` for the dynamic relocations that refer to a symbol, with the address that each changes and the index of its symbol in
/// `.dynsym`. The largest libraries have tens of MiB of relocations.
pub(crate) fn for_each_dynamic_relocation<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    mut visit: impl FnMut(u64, usize),
) {
    let File::Elf64(elf) = file else { return };
    let (endian, data, sections) = (elf.endian(), elf.data(), elf.elf_section_table());
    let Some((symbols, _)) = sections.section_by_name(endian, b".dynsym") else { return };
    let mut batch: Vec<u64> = Vec::new();
    for section in sections.iter() {
        if section.sh_type(endian) != SHT_RELA || section.link(endian) != symbols {
            continue;
        }
        let SectionRange { offset, bytes } = extent(elf, section.sh_offset(endian), section.sh_size(endian));
        let words = usize::try_from(bytes / 8).unwrap_or(usize::MAX).min(MAX_RELOCATIONS * RELOCATION_WORDS);
        for first in (0..words).step_by(BATCH_RELOCATIONS * RELOCATION_WORDS) {
            batch.resize((BATCH_RELOCATIONS * RELOCATION_WORDS).min(words - first), 0);
            let Some(()) =
                data.read_into(offset.saturating_add(8 * first as u64), bytes_of_slice_mut(&mut batch))
            else {
                return;
            };
            // `r_offset`, `r_info` and `r_addend`, little-endian on all supported machines.
            for [at, info, _] in batch.as_chunks::<RELOCATION_WORDS>().0 {
                match u64::from_le(*info) >> 32 {
                    0 => {}
                    symbol => visit(u64::from_le(*at), symbol as usize),
                }
            }
        }
    }
}

/// A section, by its offset in the file and its length, cut at the end of the file.
#[derive(Clone, Copy)]
struct SectionRange {
    offset: u64,
    bytes: u64,
}

/// A symbol table and its names.
struct ElfSymbolTable<R> {
    data: R,
    endian: Endianness,
    symbols: SectionRange,
    names: SectionRange,
}

impl<'data, R: ReadFile<'data>> ElfSymbolTable<R> {
    /// Finds the table by the section's name: readers may hide section types from `object`, which would read a whole
    /// `.symtab`.
    fn from_file(file: &File<'data, R>, name: &str) -> Option<Self> {
        let File::Elf64(elf) = file else { return None };
        let (endian, data, sections) = (elf.endian(), elf.data(), elf.elf_section_table());
        let (_, section) = sections.section_by_name(endian, name.as_bytes())?;
        let symbols = extent(elf, section.sh_offset(endian), section.sh_size(endian));
        let strings = sections.section(section.link(endian)).ok()?;
        let names = extent(elf, strings.sh_offset(endian), strings.sh_size(endian));
        Some(Self { data, endian, symbols, names })
    }

    /// Calls `visit` for the symbols that are wanted, with their indices in the table and their names.
    fn for_each_name(
        &self,
        wanted: impl Fn(&Sym64<Endianness>) -> bool,
        mut visit: impl FnMut(usize, &Sym64<Endianness>, &[u8]),
    ) {
        let symbol_bytes = size_of::<Sym64<Endianness>>();
        let count = usize::try_from(self.symbols.bytes).unwrap_or(usize::MAX) / symbol_bytes;
        let (mut batch, mut order, mut window) = (Vec::new(), Vec::new(), Vec::new());
        for first in (0..count.min(MAX_SYMBOLS)).step_by(BATCH_SYMBOLS) {
            batch.resize(BATCH_SYMBOLS.min(count - first), Sym64::default());
            let offset = self.symbols.offset.saturating_add((first * symbol_bytes) as u64);
            let Some(()) = self.data.read_into(offset, bytes_of_slice_mut(&mut batch)) else { return };
            order.clear();
            order.extend((0..batch.len()).filter(|index| batch.get(*index).is_some_and(&wanted)));
            order.sort_by_key(|index| batch.get(*index).map(|symbol| symbol.st_name(self.endian)));
            self.for_each_in_order(&batch, &order, &mut window, |index, symbol, name| {
                visit(first + index, symbol, name);
            });
        }
    }

    /// Calls `visit` for symbols of a batch, given by `order` in the order of their names.
    fn for_each_in_order(
        &self,
        batch: &[Sym64<Endianness>],
        mut order: &[usize],
        window: &mut Vec<u8>,
        mut visit: impl FnMut(usize, &Sym64<Endianness>, &[u8]),
    ) {
        let place = |index: &usize| Some(u64::from(batch.get(*index)?.st_name(self.endian)));
        while let Some(start) = order.first().and_then(place) {
            let Some(()) = self.read_names(start, window) else { return };
            // A name may begin in the last byte of a window, so more than a window is read.
            let within = |index: &usize| place(index).is_some_and(|at| at - start < WINDOW_BYTES as u64);
            let (here, rest) = order.split_at(order.partition_point(within));
            for index in here {
                let name = place(index).and_then(|at| up_to_nul(window.get((at - start) as usize..)?));
                if let Some((symbol, name)) = batch.get(*index).zip(name) {
                    visit(*index, symbol, name);
                }
            }
            order = rest;
        }
    }

    /// Reads the names from this offset, as far as they reach.
    fn read_names(&self, start: u64, window: &mut Vec<u8>) -> Option<()> {
        let bytes = self.names.bytes.checked_sub(start)?.min((WINDOW_BYTES + MAX_NAME_BYTES) as u64);
        window.resize(usize::try_from(bytes).ok()?, 0);
        self.data.read_into(self.names.offset.checked_add(start)?, window)
    }
}

fn extent<'data, R: ReadFile<'data>>(
    elf: &ElfFile64<'data, Endianness, R>,
    offset: u64,
    bytes: u64,
) -> SectionRange {
    let file_bytes = elf.data().len().unwrap_or(0);
    SectionRange { offset, bytes: bytes.min(file_bytes.saturating_sub(offset)) }
}

/// The bytes before the first NUL, if it comes within [`MAX_NAME_BYTES`].
fn up_to_nul(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().take(MAX_NAME_BYTES).position(|byte| *byte == 0)?;
    bytes.get(..end)
}
