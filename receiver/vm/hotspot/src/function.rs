//! The methods of a process.

use std::iter;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::cookie::hash;
use sidewinder_vm_runtime::{Function, FunctionError};

use super::lines::line_table;
use super::machine::{VirtualMachine, at};
use super::object::{field, pointer, read_object, u16_field};
use super::text::{display_class, display_method, display_path};

/// The longest name of a class, of a method, or of its parameters that is read, in bytes.
const SYMBOL_BYTES_MAX: usize = 1 << 10;
/// The bytes of a class's name that belong to the identity of its methods: the last ones.
const CLASS_NAME_BYTES: u16 = 64;
/// The longest table of lines that is read, in bytes. Lines behind it are unknown.
const LINE_TABLE_BYTES_MAX: usize = 64 << 10;

impl VirtualMachine {
    /// The cookie of a method that is interpreted, as walks compute it: when classes are unloaded and others loaded, methods are
    /// often at the addresses of former ones, and only the name of the class is another one.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn method_cookie(&self, memory: &impl ForeignMemory, method: Avma) -> Result<u32, FunctionError> {
        let layout = &self.method;
        let word = |object, offset| Ok::<u64, FunctionError>(memory.word(at(object, offset)?)?);
        let const_method = word(method, layout.const_method)?;
        let pool = Avma(word(Avma(const_method), layout.constants)?);
        let name = Avma(word(Avma(word(pool, layout.pool_holder)?), layout.class_name)?);
        let mut length = [0; 2];
        memory.read_exact(at(name, layout.symbol_length)?, &mut length)?;
        let length = u16::from_le_bytes(length);
        let mut text = [0; CLASS_NAME_BYTES as usize];
        let bytes = length.min(CLASS_NAME_BYTES);
        let end = at(at(name, layout.symbol_body)?, length - bytes)?;
        memory.read_exact(end, text.get_mut(..bytes.into()).unwrap_or_default())?;
        let (words, _) = text.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        let class_name = hash(iter::once(length.into()).chain(words));
        Ok(hash([const_method, class_name.into()].into_iter()))
    }

    pub(super) fn read_method(
        &self,
        memory: &impl ForeignMemory,
        method: Avma,
    ) -> Result<Function, FunctionError> {
        let layout = &self.method;
        let const_method = Avma(memory.word(at(method, layout.const_method)?)?);
        let header = read_object(memory, const_method, layout.const_method_bytes)?;
        let pool_at = pointer(&header, layout.constants)?;
        let pool = read_object(memory, pool_at, layout.pool_bytes)?;
        let symbol = |index: u16| -> Result<String, FunctionError> {
            let length = u32::from_le_bytes(field(&pool, layout.pool_length)?);
            if index == 0 || u32::from(index) >= length {
                return Err(FunctionError::Malformed("an index behind the pool of constants"));
            }
            let offset = u64::from(layout.pool_bytes) + 8 * u64::from(index);
            let entry = pool_at.checked_add(offset).ok_or(FunctionError::Malformed("not an address"))?;
            self.read_symbol(memory, Avma(memory.word(entry)?))
        };
        let holder = pointer(&pool, layout.pool_holder)?;
        let class = self.read_symbol(memory, Avma(memory.word(at(holder, layout.class_name)?)?))?;
        let name = symbol(u16_field(&header, layout.name)?)?;
        let signature = symbol(u16_field(&header, layout.signature)?)?;
        let source = if layout.class_has_source_file {
            let mut index = [0; 2];
            memory.read_exact(at(holder, layout.source_file)?, &mut index)?;
            u16::from_le_bytes(index)
        } else {
            u16_field(&pool, layout.source_file)?
        };
        let source = match source {
            0 => String::new(),
            index => symbol(index)?,
        };
        let lines = self.read_lines(memory, const_method, &header)?;
        Ok(Function::method(
            &display_class(&class),
            &display_method(&name, &signature),
            &display_path(&class, &source),
            &lines,
        ))
    }

    /// The lines of the bytecode; empty if the class file has none.
    fn read_lines(
        &self,
        memory: &impl ForeignMemory,
        const_method: Avma,
        header: &[u8],
    ) -> Result<Vec<(u32, u32)>, FunctionError> {
        let layout = &self.method;
        if u16_field(header, layout.flags)? & layout.has_lines == 0 {
            return Ok(Vec::new());
        }
        let words = u64::from(u32::from_le_bytes(field(header, layout.const_method_words)?));
        let start = u64::from(layout.const_method_bytes) + u64::from(u16_field(header, layout.code_bytes)?);
        let bytes = (8 * words).saturating_sub(start).min(LINE_TABLE_BYTES_MAX as u64);
        let from = const_method.checked_add(start).ok_or(FunctionError::Malformed("not an address"))?;
        let mut table = vec![0; bytes as usize];
        memory.read_exact(from, &mut table)?;
        Ok(line_table(&table, self.version.0))
    }

    /// A `Symbol`: modified UTF-8, which is read as UTF-8.
    fn read_symbol(&self, memory: &impl ForeignMemory, symbol: Avma) -> Result<String, FunctionError> {
        let mut length = [0; 2];
        memory.read_exact(at(symbol, self.method.symbol_length)?, &mut length)?;
        let length = usize::from(u16::from_le_bytes(length)).min(SYMBOL_BYTES_MAX);
        let mut text = vec![0; length];
        memory.read_exact(at(symbol, self.method.symbol_body)?, &mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::CodePlace;
    use super::*;
    use crate::test_support::{Bytes, machine};
    use sidewinder_vm_runtime::Code;

    /// A method at 0x1000 with its objects behind it, as HotSpot lays them out.
    fn memory() -> Vec<u8> {
        let mut bytes = vec![0; 0x4000];
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0x1008, &0x1100_u64.to_le_bytes());
        // ConstMethod: 10 words with 4 bytes of bytecode and a table of lines: 7 from 0 on, 9 from 3 on.
        put(0x1108, &0x1200_u64.to_le_bytes());
        put(0x1118, &10_u32.to_le_bytes());
        put(0x111c, &1_u16.to_le_bytes());
        put(0x1120, &4_u16.to_le_bytes());
        put(0x1122, &1_u16.to_le_bytes());
        put(0x1124, &2_u16.to_le_bytes());
        put(0x1134, &[7, 3 << 3 | 2, 0]);
        // ConstantPool, with its symbols.
        put(0x1218, &0x1300_u64.to_le_bytes());
        put(0x123c, &4_u32.to_le_bytes());
        put(0x1236, &3_u16.to_le_bytes());
        put(0x1318, &0x1400_u64.to_le_bytes());
        let texts: [&[u8]; 4] = [b"a/Main", b"run", b"(I)V", b"Main.java"];
        for (text, number) in texts.into_iter().zip(0..) {
            let symbol = 0x1400 + 0x40 * number;
            if number > 0 {
                put(0x1248 + 8 * number, &(symbol as u64).to_le_bytes());
            }
            put(symbol + 4, &(text.len() as u16).to_le_bytes());
            put(symbol + 6, text);
        }
        bytes
    }

    #[test]
    fn a_method_of_another_class_at_the_same_address_has_another_cookie() {
        let machine = machine(17);
        let mut memory = memory();
        let cookie = machine.method_cookie(&Bytes(memory.clone()), Avma(0x1000)).unwrap();
        // a/Main becomes a/Mail.
        memory[0x1400 + 6 + 5] = b'l';
        assert_ne!(machine.method_cookie(&Bytes(memory.clone()), Avma(0x1000)).unwrap(), cookie);
        let read = machine.read_interpreted(&Bytes(memory), Avma(0x1000), cookie);
        assert!(matches!(read, Err(FunctionError::Replaced)));
    }

    /// Adds an `nmethod` at 0x100: what its compiler has put into the method at 0x1000 is that method again, called at 3.
    /// Returns its cookie.
    fn add_compiled(bytes: &mut [u8], version: u8) -> u32 {
        let excluded = u8::from(version >= 20);
        let mut put = |at: usize, value: &[u8]| bytes[at..at + value.len()].copy_from_slice(value);
        put(0xf8, &[1]);
        put(0x100 + 12, &0x300_u32.to_le_bytes());
        put(0x100 + 96, &0x700_u64.to_le_bytes());
        put(0x100 + 112, &0x1000_u64.to_le_bytes());
        put(0x100 + 304, &77_u32.to_le_bytes());
        put(0x700, b"nmethod\0");
        // Metadata, scopes, and `PcDesc`s, the first and the last of which are for no instruction.
        put(0x100 + 260, &0x200_u32.to_le_bytes());
        put(0x100 + 120, &0x310_u64.to_le_bytes());
        put(0x100 + 268, &0x220_u32.to_le_bytes());
        put(0x100 + 272, &0x270_u32.to_le_bytes());
        put(0x300, &0x1000_u64.to_le_bytes());
        put(0x311, &[0, 1, 4].map(|number| number + excluded));
        put(0x314, &[1, 1, 1].map(|number| number + excluded));
        for (number, (offset, scope)) in
            [(-1, 0), (8, 1), (20, 4), (24, 1), (i32::MAX, 0)].into_iter().enumerate()
        {
            put(0x320 + 16 * number, &i32::to_le_bytes(offset));
            put(0x324 + 16 * number, &u32::to_le_bytes(scope));
        }
        hash([0x700, 0x300, 77, 0x1000].into_iter())
    }

    #[test]
    fn the_methods_of_an_instruction_are_read_with_their_lines() {
        let lines = |version: u8, offset, is_return_address| {
            let mut memory = memory();
            let cookie = add_compiled(&mut memory, version);
            let mut machine = machine(version);
            machine.version.0 = version;
            let place = CodePlace { offset, is_return_address };
            let code = machine.read_blob(&Bytes(memory), Avma(0x100), cookie, place).unwrap();
            let Code::Compiled(calls) = code else { panic!("{code:?}") };
            assert!(calls.iter().all(|call| &*call.function.name() == "a.Main.run(int)"));
            calls.iter().map(|call| call.line).collect::<Vec<_>>()
        };
        for version in [17, 25] {
            assert_eq!(lines(version, 20, true), [7, 9]);
            assert_eq!(lines(version, 8, true), [9]);
            // No call returns to it: only the method is known.
            assert_eq!(lines(version, 21, true), [0]);
            // Between 8 and 20, both have the outer method at 3; between 20 and 24 likewise.
            assert_eq!(lines(version, 12, false), [0, 9]);
            assert_eq!(lines(version, 22, false), [9]);
            assert_eq!(lines(version, 4, false), [0]);
        }
    }

    #[test]
    fn freed_and_other_code_has_no_methods() {
        let place = CodePlace { offset: 20, is_return_address: true };
        for (at, value) in [(0xf8, 0), (0x100 + 304, 78), (0x100 + 12, 1)] {
            let mut memory = memory();
            let cookie = add_compiled(&mut memory, 17);
            memory[at] = value;
            let code = machine(17).read_blob(&Bytes(memory), Avma(0x100), cookie, place);
            assert!(matches!(code, Err(FunctionError::Replaced)), "{code:?}");
        }
    }

    #[test]
    fn a_method_is_read_with_its_lines() {
        let memory = Bytes(memory());
        let cookie = machine(17).method_cookie(&memory, Avma(0x1000)).unwrap();
        let Code::Function(function) = machine(17).read_interpreted(&memory, Avma(0x1000), cookie).unwrap()
        else {
            panic!("not a function")
        };
        assert_eq!(
            (&*function.name(), function.path(), function.first_line),
            ("a.Main.run(int)", "a/Main.java", 7)
        );
        assert_eq!([0, 2, 3].map(|place| function.line_at(place)), [Some(7), Some(7), Some(9)]);
        let other = machine(17).read_interpreted(&memory, Avma(0x1000), cookie ^ 1);
        assert!(matches!(other, Err(FunctionError::Replaced)));
    }

    proptest! {
        #[test]
        fn any_memory_has_a_result(
            changes in prop::collection::vec((0x1000_usize..0x1600, any::<u8>()), 0..20),
            blob_changes in prop::collection::vec((0x110_usize..0x380, any::<u8>()), 0..20),
            (offset, is_return_address) in (0_u32..30, any::<bool>()),
            version in prop::sample::select(vec![17_u8, 25]),
        ) {
            let mut memory = memory();
            let cookie = add_compiled(&mut memory, version);
            // Not those fields by which it is known.
            let identity = [0x160..0x168, 0x170..0x178, 0x230..0x234];
            changes.into_iter().chain(blob_changes).filter(|(at, _)| !identity.iter().any(|kept| kept.contains(at)))
                .for_each(|(at, byte)| memory[at] = byte);
            let memory = Bytes(memory);
            let machine = machine(version);
            let place = CodePlace { offset, is_return_address };
            match machine.read_blob(&memory, Avma(0x100), cookie, place) {
                Ok(Code::Compiled(calls)) => prop_assert!((1..=64).contains(&calls.len())),
                other => prop_assert!(!matches!(other, Err(FunctionError::Replaced)), "{:?}", other),
            }
            if let Ok(cookie) = machine.method_cookie(&memory, Avma(0x1000))
                && let Ok(Code::Function(function)) = machine.read_interpreted(&memory, Avma(0x1000), cookie)
            {
                prop_assert!(function.heap_bytes() <= 1 << 18);
            }
        }
    }
}
