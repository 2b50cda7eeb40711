//! The methods of a process, and the other code of its virtual machine.

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

use super::lines::line_table;
use super::machine::{BLOB_BYTES_MAX, VirtualMachine, at};
use crate::cpython::{Function, FunctionError, Lines, hash};

/// The longest name of a class, of a method, or of its parameters that is read, in bytes.
const SYMBOL_BYTES_MAX: usize = 1 << 10;
/// The longest table of lines that is read, in bytes. Lines behind it are unknown.
const LINE_TABLE_BYTES_MAX: usize = 64 << 10;
/// The largest object header that is read, in bytes.
const OBJECT_BYTES_MAX: u16 = 256;
/// The longest name of a stub, in bytes.
const STUB_NAME_BYTES_MAX: usize = 64;
/// The names of blobs that are methods.
const METHOD_BLOBS: [&str; 2] = ["nmethod", "native nmethod"];
/// The cookie of the interpreter's own code.
const INTERPRETER_COOKIE: u32 = 1;

impl VirtualMachine {
    /// Reads the code at an address, if it has the given cookie: a method, by the address of its `Method` or of the blob of
    /// its machine code, or another blob.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub fn read_function(
        &self,
        memory: &impl ForeignMemory,
        object: Avma,
        cookie: u32,
    ) -> Result<Function, FunctionError> {
        if (object, cookie) == (self.interpreter.0, INTERPRETER_COOKIE) {
            return Ok(stub("Interpreter"));
        }
        let is_code = |heap: &super::CodeHeap| object.0.wrapping_sub(heap.start.0) < heap.bytes;
        if self.heaps.iter().any(is_code) {
            self.read_blob(memory, object, cookie)
        } else {
            self.read_interpreted(memory, object, cookie)
        }
    }

    fn read_blob(
        &self,
        memory: &impl ForeignMemory,
        blob: Avma,
        expected: u32,
    ) -> Result<Function, FunctionError> {
        let layout = &self.blob;
        let header = read_object(memory, blob, BLOB_BYTES_MAX)?;
        let identity = |header: &[u8]| -> Result<u32, FunctionError> {
            let size = u64::from(u32::from_le_bytes(field(header, layout.size)?));
            let mut words = vec![pointer(header, layout.name)?.0, size];
            if size >= u64::from(BLOB_BYTES_MAX) {
                words.push(u32::from_le_bytes(field(header, layout.compile_id)?).into());
                words.push(pointer(header, layout.method)?.0);
            }
            Ok(hash(words.into_iter()))
        };
        if identity(&header)? != expected {
            return Err(FunctionError::Replaced);
        }
        let name = read_c_string(memory, pointer(&header, layout.name)?)?;
        if !METHOD_BLOBS.contains(&&*name) {
            return Ok(stub(&name));
        }
        let function = self.read_method(memory, pointer(&header, layout.method)?);
        // A method that has code is not freed: what was read is its own if the code is still there.
        if identity(&read_object(memory, blob, BLOB_BYTES_MAX)?)? != expected {
            return Err(FunctionError::Replaced);
        }
        // Which line an instruction belongs to is in the compiler's own tables.
        function.map(|function| Function::new(function.name, function.path, function.first_line, None))
    }

    fn read_interpreted(
        &self,
        memory: &impl ForeignMemory,
        method: Avma,
        expected: u32,
    ) -> Result<Function, FunctionError> {
        let is_same = || -> Result<bool, FunctionError> {
            let const_method = memory.word(at(method, self.method.const_method)?)?;
            Ok(hash(std::iter::once(const_method)) == expected)
        };
        if !is_same()? {
            return Err(FunctionError::Replaced);
        }
        let function = self.read_method(memory, method);
        if is_same()? { function } else { Err(FunctionError::Replaced) }
    }

    fn read_method(&self, memory: &impl ForeignMemory, method: Avma) -> Result<Function, FunctionError> {
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
        let source = match u16_field(&pool, layout.source_file)? {
            0 => String::new(),
            index => symbol(index)?,
        };
        let lines = self.read_lines(memory, const_method, &header)?;
        let first_line = lines.iter().map(|(_, line)| *line).min().unwrap_or(0);
        Ok(Function::new(
            display_name(&class, &name, &signature).into(),
            display_path(&class, &source).into(),
            first_line,
            Some(Lines::from_rows(lines)),
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

/// Code of the virtual machine that is no method.
fn stub(name: &str) -> Function {
    let name: Box<str> = format!("[jvm: {name}]").into();
    Function::new(name.clone(), name, 0, None)
}

/// `java.util.HashMap.get(Object)`.
fn display_name(class: &str, method: &str, signature: &str) -> String {
    format!("{}.{method}({})", display_class(class), parameters(signature).join(", "))
}

/// The name of a class as in the language. That of a hidden class ends with an address, which is left out.
fn display_class(class: &str) -> String {
    let end = class.find("/0x").or_else(|| class.find("+0x")).unwrap_or(class.len());
    class.get(..end).unwrap_or(class).replace('/', ".")
}

/// The path of a source file, as tools that build programs lay them out: below the folders of its package.
fn display_path(class: &str, source: &str) -> String {
    let class = class.split("/0x").next().unwrap_or(class);
    match class.rsplit_once('/') {
        Some((package, _)) if !source.is_empty() && !source.contains('/') => format!("{package}/{source}"),
        _ => source.to_owned(),
    }
}

/// The types of the parameters in a method descriptor (JVM specification, section 4.3.3), classes without their package.
fn parameters(signature: &str) -> Vec<String> {
    let inner =
        signature.strip_prefix('(').and_then(|rest| rest.split_once(')')).map_or("", |(inner, _)| inner);
    let (mut types, mut characters, mut dimensions) = (Vec::new(), inner.chars(), 0);
    while let Some(character) = characters.next() {
        let name = match character {
            '[' => {
                dimensions += 1;
                continue;
            }
            'L' => {
                let class: String = characters.by_ref().take_while(|character| *character != ';').collect();
                class.rsplit('/').next().unwrap_or_default().to_owned()
            }
            'B' => "byte".to_owned(),
            'C' => "char".to_owned(),
            'D' => "double".to_owned(),
            'F' => "float".to_owned(),
            'I' => "int".to_owned(),
            'J' => "long".to_owned(),
            'S' => "short".to_owned(),
            'Z' => "boolean".to_owned(),
            other => other.to_string(),
        };
        types.push(name + &"[]".repeat(dimensions));
        dimensions = 0;
    }
    types
}

fn read_object(memory: &impl ForeignMemory, at: Avma, bytes: u16) -> Result<Vec<u8>, FunctionError> {
    let mut object = vec![0; bytes.min(OBJECT_BYTES_MAX.max(BLOB_BYTES_MAX)).into()];
    memory.read_exact(at, &mut object)?;
    Ok(object)
}

fn read_c_string(memory: &impl ForeignMemory, at: Avma) -> Result<String, FunctionError> {
    let mut text = Vec::new();
    for number in 0..STUB_NAME_BYTES_MAX as u64 / 8 {
        let address = at.checked_add(8 * number).ok_or(FunctionError::Malformed("not an address"))?;
        let word = memory.word(address)?.to_le_bytes();
        let end = word.iter().position(|byte| *byte == 0);
        text.extend(&word[..end.unwrap_or(word.len())]);
        if end.is_some() {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn field<const BYTES: usize>(object: &[u8], at: u16) -> Result<[u8; BYTES], FunctionError> {
    let found = object.get(usize::from(at)..).and_then(|rest| rest.first_chunk());
    found.copied().ok_or(FunctionError::Malformed("a field behind its object"))
}

fn u16_field(object: &[u8], at: u16) -> Result<u16, FunctionError> {
    field(object, at).map(u16::from_le_bytes)
}

fn pointer(object: &[u8], at: u16) -> Result<Avma, FunctionError> {
    field(object, at).map(|word| Avma(u64::from_le_bytes(word)))
}

#[cfg(test)]
mod tests {
    use std::io;

    use proptest::prelude::*;

    use super::super::{BlobLayout, CodeHeap, MethodLayout};
    use super::*;

    #[test]
    fn names_are_those_of_the_language() {
        let name = |class, method, signature| display_name(class, method, signature);
        assert_eq!(
            name("java/util/HashMap", "get", "(Ljava/lang/Object;)Ljava/lang/Object;"),
            "java.util.HashMap.get(Object)"
        );
        assert_eq!(name("Main", "main", "([Ljava/lang/String;)V"), "Main.main(String[])");
        assert_eq!(name("a/B", "<init>", "(I[[JZ)V"), "a.B.<init>(int, long[][], boolean)");
        assert_eq!(name("a/B$$Lambda$14/0x0000000800c03000", "run", "()V"), "a.B$$Lambda$14.run()");
        assert_eq!(name("a/B", "odd", "not a descriptor"), "a.B.odd()");
    }

    #[test]
    fn paths_are_below_the_package() {
        assert_eq!(display_path("java/util/HashMap$Node", "HashMap.java"), "java/util/HashMap.java");
        assert_eq!(display_path("a/B$$Lambda$14/0x0000000800c03000", "B.java"), "a/B.java");
        assert_eq!(display_path("Main", "Main.java"), "Main.java");
        assert_eq!(display_path("java/util/HashMap", ""), "");
    }

    /// The memory at the lowest addresses; higher ones are the same again.
    struct Bytes(Vec<u8>);

    impl ForeignMemory for Bytes {
        fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
            let from = usize::from(at.0 as u16);
            let bytes = self.0.get(from..).and_then(|rest| rest.get(..to.len()));
            to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
            Ok(())
        }
    }

    /// With the layout of 17.0.15, and a code cache at the lower half of the lowest addresses.
    fn machine(version: u8) -> VirtualMachine {
        VirtualMachine {
            version: (version, 0),
            heaps: vec![CodeHeap { start: Avma(0), bytes: 0x800, segments: Avma(0x8000) }],
            segment_shift: 7,
            interpreter: (Avma(0x400), 0x100),
            call_stub_return: Avma(0x10),
            blob: BlobLayout {
                header_bytes: 16,
                name: 96,
                size: 12,
                frame_size: 28,
                frame_complete: 20,
                frame_complete_is_short: false,
                code: 32,
                method: 112,
                compile_id: 304,
                deopt_handlers: [128, 136],
                has_offsets: false,
            },
            method: MethodLayout {
                const_method: 8,
                const_method_bytes: 48,
                constants: 8,
                const_method_words: 24,
                flags: 28,
                has_lines: 1,
                code_bytes: 32,
                name: 34,
                signature: 36,
                pool_bytes: 72,
                pool_holder: 24,
                pool_length: 60,
                source_file: 54,
                class_name: 24,
                symbol_length: 4,
                symbol_body: 6,
            },
        }
    }

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
    fn a_method_is_read_with_its_lines() {
        let cookie = hash(std::iter::once(0x1100));
        let memory = Bytes(memory());
        let function = machine(17).read_function(&memory, Avma(0x1000), cookie).unwrap();
        assert_eq!(
            (&*function.name, &*function.path, function.first_line),
            ("a.Main.run(int)", "a/Main.java", 7)
        );
        assert_eq!([0, 2, 3].map(|place| function.line_at(place)), [Some(7), Some(7), Some(9)]);
        let other = machine(17).read_function(&memory, Avma(0x1000), cookie ^ 1);
        assert!(matches!(other, Err(FunctionError::Replaced)));
    }

    proptest! {
        #[test]
        fn any_memory_has_a_result(
            changes in prop::collection::vec((0x1000_usize..0x1600, any::<u8>()), 0..20),
            object in prop::sample::select(vec![0x1000_u64, 0x100, 0x400]),
            version in prop::sample::select(vec![17_u8, 25]),
        ) {
            let mut memory = memory();
            changes.into_iter().for_each(|(at, byte)| memory[at] = byte);
            let memory = Bytes(memory);
            let cookie = hash(std::iter::once(memory.word(Avma(object + 8)).unwrap()));
            if let Ok(function) = machine(version).read_function(&memory, Avma(object), cookie) {
                prop_assert!(function.heap_bytes() <= 1 << 18);
            }
        }
    }
}
