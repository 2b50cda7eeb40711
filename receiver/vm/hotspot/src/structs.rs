//! The tables in which HotSpot describes itself (`vmStructs.cpp`): fields, sizes of types, and constants, by name.

use std::collections::HashMap;
use std::io;

use sidewinder_address::{Avma, Svma};
use sidewinder_process::tls::ElfFile;
use sidewinder_process::{ForeignMemory, ReadAt};
use sidewinder_vm_runtime::chunks::Chunks;

/// Entries of one table that are read. JDK 17 has 788.
const ENTRIES_MAX: usize = 4096;
/// The longest entry, in bytes. They have up to 48.
const ENTRY_BYTES_MAX: u64 = 128;
/// The longest name that is compared, in bytes.
const NAME_BYTES_MAX: usize = 96;

/// The exported variables: the tables, the distance between entries, and where an entry has what.
const SYMBOLS: [&[u8]; 15] = [
    b"gHotSpotVMStructs",
    b"gHotSpotVMStructEntryArrayStride",
    b"gHotSpotVMStructEntryTypeNameOffset",
    b"gHotSpotVMStructEntryFieldNameOffset",
    b"gHotSpotVMStructEntryTypeStringOffset",
    b"gHotSpotVMStructEntryIsStaticOffset",
    b"gHotSpotVMStructEntryOffsetOffset",
    b"gHotSpotVMStructEntryAddressOffset",
    b"gHotSpotVMTypes",
    b"gHotSpotVMTypeEntryArrayStride",
    b"gHotSpotVMTypeEntryTypeNameOffset",
    b"gHotSpotVMTypeEntrySizeOffset",
    b"gHotSpotVMIntConstants",
    b"gHotSpotVMIntConstantEntryArrayStride",
    b"gHotSpotVMIntConstantEntryValueOffset",
];

/// Where a library has its tables.
#[derive(Clone, Debug)]
pub(super) struct Tables([Svma; SYMBOLS.len()]);

impl Tables {
    /// The tables of a file; `None` if it does not export them.
    pub(super) fn read(file: &impl ReadAt, elf: &ElfFile) -> io::Result<Option<Self>> {
        let Some(symbols) = elf.exported(file, SYMBOLS)? else { return Ok(None) };
        let addresses: Option<Vec<Svma>> =
            symbols.into_iter().map(|symbol| symbol.map(|symbol| symbol.address)).collect();
        Ok(addresses.and_then(|addresses| addresses.try_into().ok()).map(Self))
    }
}

/// What the tables say of the names that are asked for.
#[derive(Debug, Default)]
pub(super) struct Structs {
    /// Offsets of fields, and addresses of variables, by `Type::field`.
    fields: HashMap<&'static str, Field>,
    sizes: HashMap<&'static str, u64>,
    constants: HashMap<&'static str, u32>,
}

#[derive(Clone, Copy, Debug)]
struct Field {
    /// The address of a variable, or an offset.
    value: u64,
    /// Whether its type is an integer of two bytes.
    is_short: bool,
}

/// The names to look for.
pub(super) struct Names {
    pub(super) fields: &'static [&'static str],
    pub(super) sizes: &'static [&'static str],
    pub(super) constants: &'static [&'static str],
}

impl Structs {
    /// Reads the tables in a process in which their file is loaded with the given bias.
    ///
    /// # Errors
    /// If they can't be read, or are malformed.
    pub(super) fn read(
        tables: &Tables,
        bias: u64,
        memory: &impl ForeignMemory,
        names: &Names,
    ) -> io::Result<Self> {
        let reader = Chunks::new(memory);
        let mut variables = [0; SYMBOLS.len()];
        for (variable, address) in variables.iter_mut().zip(&tables.0) {
            *variable = reader.word(Avma(address.0.wrapping_add(bias)))?;
        }
        let [structs, stride, type_at, field_at, kind_at, static_at, offset_at, address_at, rest @ ..] =
            variables;
        let [types, type_stride, type_name_at, size_at, constants, constant_stride, value_at] = rest;
        let word = |entry: u64, at: u64| reader.word(Avma(entry.wrapping_add(at)));
        let mut found = Self::default();
        for entry in TableEntries::new(&reader, structs, stride, type_at) {
            let (entry, type_name) = entry?;
            let field_name = text(&reader, word(entry, field_at)?)?;
            let name = [&type_name[..], b"::", &field_name].concat();
            let Some(name) = find_name(names.fields, &name) else { continue };
            let is_static = word(entry, static_at)? as u32 != 0;
            let value = word(entry, if is_static { address_at } else { offset_at })?;
            let kind = text(&reader, word(entry, kind_at)?)?;
            found.fields.insert(name, Field { value, is_short: kind == b"int16_t" });
        }
        for entry in TableEntries::new(&reader, types, type_stride, type_name_at) {
            let (entry, name) = entry?;
            let Some(name) = find_name(names.sizes, &name) else { continue };
            found.sizes.insert(name, word(entry, size_at)?);
        }
        for entry in TableEntries::new(&reader, constants, constant_stride, 0) {
            let (entry, name) = entry?;
            let Some(name) = find_name(names.constants, &name) else { continue };
            found.constants.insert(name, word(entry, value_at)? as u32);
        }
        Ok(found)
    }

    /// The address of a variable, or the offset of a field.
    pub(super) fn field(&self, name: &str) -> Option<u64> {
        self.fields.get(name).map(|field| field.value)
    }

    /// Whether a field is an integer of two bytes.
    pub(super) fn is_short(&self, name: &str) -> bool {
        self.fields.get(name).is_some_and(|field| field.is_short)
    }

    /// The size of a type, in bytes.
    pub(super) fn size(&self, name: &str) -> Option<u64> {
        self.sizes.get(name).copied()
    }

    /// The value of a constant.
    pub(super) fn constant(&self, name: &str) -> Option<u32> {
        self.constants.get(name).copied()
    }
}

fn find_name(names: &'static [&'static str], name: &[u8]) -> Option<&'static str> {
    names.iter().find(|known| known.as_bytes() == name).copied()
}

/// The entries of a table, with their address and the name that each has at an offset. The last one has no name.
struct TableEntries<'a, 'm, M: ForeignMemory> {
    reader: &'a Chunks<'m, M>,
    next: u64,
    stride: u64,
    name_at: u64,
    left: usize,
}

impl<'a, 'm, M: ForeignMemory> TableEntries<'a, 'm, M> {
    fn new(reader: &'a Chunks<'m, M>, table: u64, stride: u64, name_at: u64) -> Self {
        Self { reader, next: table, stride, name_at, left: ENTRIES_MAX }
    }

    fn read(&self) -> io::Result<Option<(u64, Vec<u8>)>> {
        if self.stride == 0 || self.stride > ENTRY_BYTES_MAX || self.name_at >= self.stride {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "not a table of HotSpot's fields"));
        }
        let name = self.reader.word(Avma(self.next.wrapping_add(self.name_at)))?;
        if name == 0 {
            return Ok(None);
        }
        Ok(Some((self.next, text(self.reader, name)?)))
    }
}

impl<M: ForeignMemory> Iterator for TableEntries<'_, '_, M> {
    type Item = io::Result<(u64, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let entry = self.read().transpose();
        self.next = self.next.wrapping_add(self.stride);
        if matches!(entry, Some(Err(_))) {
            self.left = 0;
        }
        entry
    }
}

/// The text up to its NUL, cut after [`NAME_BYTES_MAX`]. Empty for a null pointer.
fn text(memory: &Chunks<'_, impl ForeignMemory>, at: u64) -> io::Result<Vec<u8>> {
    if at == 0 { Ok(Vec::new()) } else { memory.text(Avma(at), NAME_BYTES_MAX) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Memory from address 0 on.
    struct Bytes(Vec<u8>);

    impl ForeignMemory for Bytes {
        fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
            let from = usize::try_from(at.0).ok();
            let bytes = from.and_then(|from| self.0.get(from..)?.get(..to.len()));
            to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
            Ok(())
        }
    }

    const NAMES: Names =
        Names { fields: &["Type::_field", "Type::_short"], sizes: &["Type"], constants: &["Constant"] };
    /// Where the tables, and after them the names, are in `memory`.
    const TABLES: [u64; 3] = [0x200, 0x400, 0x600];
    const TEXT: u64 = 0x800;
    const BYTES: usize = 0x1000;

    /// The variables at 0, as `SYMBOLS` lists them; tables with one entry for each name, and one with another name.
    fn memory() -> Vec<u8> {
        let mut bytes = vec![0; BYTES];
        let mut text_at = TEXT;
        let mut put = |at: u64, word: u64| bytes[at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        let variables = [TABLES[0], 48, 0, 8, 16, 24, 32, 40, TABLES[1], 40, 0, 32, TABLES[2], 16, 8];
        variables.iter().zip(0..).for_each(|(word, number)| put(8 * number, *word));
        let mut texts = Vec::new();
        let mut text = |text: &'static str| {
            texts.push((text_at, text));
            text_at += text.len() as u64 + 1;
            texts.last().map_or(0, |(at, _)| *at)
        };
        let fields =
            [("_field", "int", 0, 24, 0), ("_other", "int", 0, 8, 0), ("_short", "int16_t", 1, 0, 0x7000)];
        for ((field, kind, is_static, offset, address), number) in fields.into_iter().zip(0..) {
            let entry = [text("Type"), text(field), text(kind), is_static, offset, address];
            entry.iter().zip(0..).for_each(|(word, place)| put(TABLES[0] + 48 * number + 8 * place, *word));
        }
        put(TABLES[1], text("Type"));
        put(TABLES[1] + 32, 88);
        put(TABLES[2], text("Constant"));
        put(TABLES[2] + 8, 7);
        for (at, text) in texts {
            bytes[at as usize..][..text.len()].copy_from_slice(text.as_bytes());
        }
        bytes
    }

    fn tables() -> Tables {
        Tables(std::array::from_fn(|number| Svma(8 * number as u64)))
    }

    #[test]
    fn what_is_named_is_found_and_nothing_else() {
        let found = Structs::read(&tables(), 0, &Bytes(memory()), &NAMES).unwrap();
        assert_eq!(found.field("Type::_field"), Some(24));
        assert_eq!(found.field("Type::_short"), Some(0x7000));
        assert!(found.is_short("Type::_short") && !found.is_short("Type::_field"));
        assert_eq!((found.field("Type::_other"), found.size("Type")), (None, Some(88)));
        assert_eq!(found.constant("Constant"), Some(7));
    }

    #[test]
    fn a_table_without_an_end_is_left() {
        let mut memory = memory();
        // Each entry is the first one: the memory ends, or the entries that are read do.
        memory[8..16].copy_from_slice(&0_u64.to_le_bytes());
        assert!(Structs::read(&tables(), 0, &Bytes(memory), &NAMES).is_err());
    }

    proptest! {
        #[test]
        fn any_memory_has_a_result(changes in prop::collection::vec((0..BYTES, any::<u8>()), 0..40)) {
            let mut memory = memory();
            changes.into_iter().for_each(|(at, byte)| memory[at] = byte);
            let _ = Structs::read(&tables(), 0, &Bytes(memory), &NAMES);
        }
    }
}
