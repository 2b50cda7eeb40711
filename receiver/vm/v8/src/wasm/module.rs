//! A module of WebAssembly, from the bytes that it was compiled from: how many functions it has, and their names.
//!
//! Source: WebAssembly Core Specification 3.0, sections 5.5 "Modules" and 7.4.1 "Name Section".

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;
use sidewinder_vm_runtime::recent::MemorySize;

use super::bytes::BytesReader;

/// The first bytes of a module.
pub(super) const MAGIC: [u8; 8] = *b"\0asm\x01\0\0\0";
/// Sections of a module, and parts of its names.
const CUSTOM: u8 = 0;
const IMPORTS: u8 = 2;
const FUNCTIONS: u8 = 3;
const NAMES: &[u8] = b"name";
const FUNCTION_NAMES: u8 = 1;
/// Kinds of imports.
const IMPORTED_FUNCTION: u8 = 0;
const IMPORTED_TABLE: u8 = 1;
const IMPORTED_MEMORY: u8 = 2;
const IMPORTED_GLOBAL: u8 = 3;
const IMPORTED_TAG: u8 = 4;
/// Types of references that a type of the heap follows.
const REFERENCES: [u8; 2] = [0x63, 0x64];
/// Of limits: there is a maximum; the size of pages follows.
const HAS_MAXIMUM: u8 = 1;
const HAS_PAGE_SIZE: u8 = 8;
/// How many sections, imports and functions are read; V8 allows no more imports and functions.
const SECTIONS_MAX: usize = 1 << 16;
const IMPORTS_MAX: u32 = 1_000_000;
pub(super) const FUNCTIONS_MAX: u32 = 1_000_000;
/// Of so many names, the place of the first is remembered.
const NAMES_APART: u32 = 64;
/// The longest name that is kept, in bytes.
const NAME_BYTES_MAX: u32 = 1 << 10;

/// What identifies a module, and leads to the names of its functions.
#[derive(Debug)]
pub(super) struct Module {
    bytes: ModuleBytes,
    /// Functions that it imports. Those that it declares have the numbers behind theirs.
    imported: u32,
    pub(super) declared: u32,
    /// Where names of functions are, as offsets in the bytes, with the numbers of the functions; in the order of both.
    names: Vec<(u32, u32)>,
    /// Where the last one ends.
    names_end: u32,
}

impl MemorySize for Module {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.names.capacity() * size_of::<(u32, u32)>()
    }
}

/// The bytes of a module in the memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct ModuleBytes {
    pub(super) start: Avma,
    pub(super) length: u32,
}

impl Module {
    /// # Errors
    /// When it can't be read, or is none.
    pub(super) fn read(memory: &impl ForeignMemory, bytes: ModuleBytes) -> Result<Self, FunctionError> {
        let mut reader = BytesReader::new(memory, bytes.start, 0..bytes.length);
        if reader.array()? != MAGIC {
            return Err(FunctionError::Malformed("no module of WebAssembly"));
        }
        let mut module = Self { bytes, imported: 0, declared: 0, names: Vec::new(), names_end: 0 };
        for _ in 0..SECTIONS_MAX {
            if reader.is_at_end() {
                break;
            }
            let (kind, mut section) = reader.part()?;
            match kind {
                IMPORTS => module.imported = imported_functions(&mut section)?,
                FUNCTIONS => module.declared = section.number()?,
                // What tools have appended doesn't make it another module.
                CUSTOM => drop(module.read_names(&mut section)),
                _ => {}
            }
        }
        if module.declared > FUNCTIONS_MAX {
            return Err(FunctionError::Malformed("a module of too many functions"));
        }
        Ok(module)
    }

    /// Remembers where the names of functions are, if this section has them.
    fn read_names(&mut self, section: &mut BytesReader<'_, impl ForeignMemory>) -> Result<(), FunctionError> {
        let length = section.number()?;
        if length as usize != NAMES.len() || section.array::<4>()? != *NAMES {
            return Ok(());
        }
        while !section.is_at_end() {
            let (kind, mut part) = section.part()?;
            if kind < FUNCTION_NAMES {
                continue;
            }
            if kind > FUNCTION_NAMES {
                break;
            }
            let count = part.number()?.min(IMPORTS_MAX + FUNCTIONS_MAX);
            for number in 0..count {
                let at = part.position();
                let function = part.number()?;
                let length = part.number()?;
                part.skip(length)?;
                if number.is_multiple_of(NAMES_APART) {
                    self.names.push((function, at));
                }
                self.names_end = part.position();
            }
        }
        Ok(())
    }

    /// The number of a function among all, given that among those which are declared.
    pub(super) fn function(&self, declared: u32) -> Option<u32> {
        (declared < self.declared).then(|| self.imported.checked_add(declared))?
    }

    /// The name of a function; `None`: the module doesn't have it.
    ///
    /// # Errors
    /// When it can't be read.
    pub(super) fn name(
        &self,
        memory: &impl ForeignMemory,
        function: u32,
    ) -> Result<Option<String>, FunctionError> {
        let behind = self.names.partition_point(|(first, _)| *first <= function);
        let Some((_, from)) = behind.checked_sub(1).and_then(|before| self.names.get(before)) else {
            return Ok(None);
        };
        let to = self.names.get(behind).map_or(self.names_end, |(_, at)| *at);
        let mut reader = BytesReader::new(memory, self.bytes.start, *from..to);
        while !reader.is_at_end() {
            let number = reader.number()?;
            let length = reader.number()?;
            if number > function {
                break;
            }
            if number == function {
                let name = reader.text(length.min(NAME_BYTES_MAX))?;
                return Ok((!name.is_empty()).then_some(name));
            }
            reader.skip(length)?;
        }
        Ok(None)
    }
}

/// How many of the imports are functions.
fn imported_functions(section: &mut BytesReader<'_, impl ForeignMemory>) -> Result<u32, FunctionError> {
    let count = section.number()?;
    if count > IMPORTS_MAX {
        return Err(FunctionError::Malformed("a module of too many imports"));
    }
    let mut functions = 0;
    for _ in 0..count {
        for _ in ["module", "name"] {
            let length = section.number()?;
            section.skip(length)?;
        }
        match section.byte()? {
            IMPORTED_FUNCTION => {
                section.number()?;
                functions += 1;
            }
            IMPORTED_TABLE => {
                skip_type(section)?;
                skip_limits(section)?;
            }
            IMPORTED_MEMORY => skip_limits(section)?,
            IMPORTED_GLOBAL => {
                skip_type(section)?;
                section.byte()?;
            }
            IMPORTED_TAG => {
                section.byte()?;
                section.number()?;
            }
            _ => return Err(FunctionError::Malformed("an import of an unknown kind")),
        }
    }
    Ok(functions)
}

fn skip_type(section: &mut BytesReader<'_, impl ForeignMemory>) -> Result<(), FunctionError> {
    if REFERENCES.contains(&section.byte()?) {
        section.skip_number()?;
    }
    Ok(())
}

fn skip_limits(section: &mut BytesReader<'_, impl ForeignMemory>) -> Result<(), FunctionError> {
    let flags = section.byte()?;
    section.skip_number()?;
    for flag in [HAS_MAXIMUM, HAS_PAGE_SIZE] {
        if flags & flag != 0 {
            section.skip_number()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::test_support::Bytes;

    const START: u64 = 0x100;

    fn number(value: u32) -> Vec<u8> {
        match value {
            ..0x80 => vec![value as u8],
            _ => [vec![value as u8 | 0x80], number(value >> 7)].concat(),
        }
    }

    fn sized(bytes: &[u8]) -> Vec<u8> {
        [number(bytes.len() as u32), bytes.to_vec()].concat()
    }

    fn list(items: &[Vec<u8>]) -> Vec<u8> {
        [number(items.len() as u32), items.concat()].concat()
    }

    fn section(kind: u8, bytes: &[u8]) -> Vec<u8> {
        [vec![kind], sized(bytes)].concat()
    }

    /// With each kind of import, two of which are functions, and names for these functions.
    fn module(declared: u32, named: &[u32]) -> Vec<u8> {
        let import = |kind: &[u8]| [sized(b"module"), sized(b"name"), kind.to_vec()].concat();
        let imports = [
            import(&[IMPORTED_FUNCTION, 0]),
            import(&[IMPORTED_TABLE, 0x70, 1, 1, 0x80, 1]),
            import(&[IMPORTED_TABLE, 0x63, 0x80, 1, 0, 1]),
            import(&[IMPORTED_MEMORY, HAS_MAXIMUM | HAS_PAGE_SIZE | 4, 1, 2, 0]),
            import(&[IMPORTED_GLOBAL, 0x7f, 1]),
            import(&[IMPORTED_TAG, 0, 1]),
            import(&[IMPORTED_FUNCTION, 0x80, 1]),
        ];
        let named: Vec<_> = (named.iter())
            .map(|function| [number(*function), sized(format!("function {function}").as_bytes())].concat())
            .collect();
        let names = [
            sized(NAMES),
            section(0, &sized(b"a module")),
            section(FUNCTION_NAMES, &list(&named)),
            section(2, &[0]),
        ];
        [
            MAGIC.to_vec(),
            section(1, &[0]),
            section(CUSTOM, &sized(b"another")),
            section(IMPORTS, &list(&imports)),
            section(FUNCTIONS, &list(&vec![vec![0]; declared as usize])),
            section(10, &[0; 300]),
            section(CUSTOM, &names.concat()),
        ]
        .concat()
    }

    fn read(bytes: &[u8]) -> (Bytes, Result<Module, FunctionError>) {
        let length = bytes.len() as u32;
        let memory = Bytes([&[0; START as usize], bytes].concat());
        let module = Module::read(&memory, ModuleBytes { start: Avma(START), length });
        (memory, module)
    }

    #[test]
    fn functions_have_their_numbers_behind_those_imported_and_their_names() {
        // More than are remembered, and some without a name.
        let named: Vec<u32> = (0..1000).filter(|function| function % 5 != 3).collect();
        let (memory, module) = read(&module(1500, &named));
        let module = module.unwrap();
        assert_eq!(module.function(0), Some(2));
        assert_eq!(module.function(1499), Some(1501));
        assert_eq!(module.function(1500), None);
        for function in 0..1502 {
            let expected = named.contains(&function).then(|| format!("function {function}"));
            assert_eq!(module.name(&memory, function).unwrap(), expected);
        }
        assert!(module.bytes() < 1 << 10);
    }

    #[test]
    fn a_module_without_names_has_numbers_and_another_file_is_none() {
        let bytes = module(3, &[]);
        let (memory, found) = read(&bytes);
        assert_eq!(found.unwrap().name(&memory, 2).unwrap(), None);
        // Up to the names, all is needed.
        for end in [4, 8 + 5, 60] {
            assert!(read(&bytes[..end]).1.is_err(), "{end}");
        }
        assert!(read(b"\0asm\x0d\0\x01\0").1.is_err(), "a component");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_module_or_none(at in 0_usize..600, bytes in prop::collection::vec(any::<u8>(), 1..8)) {
            let mut content = module(20, &(0..22).collect::<Vec<_>>());
            for (to, from) in content.iter_mut().skip(at).zip(bytes) {
                *to = from;
            }
            if let (memory, Ok(module)) = read(&content) {
                for function in 0..40 {
                    let name = module.name(&memory, function);
                    prop_assert!(name.is_ok_and(|name| name.is_none_or(|name| name.len() <= 3 << 10)) || at > 0);
                }
            }
        }
    }
}
