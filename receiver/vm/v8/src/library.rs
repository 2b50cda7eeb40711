//! What an ELF file says of the V8 that it contains.

use std::io;

use sidewinder_address::{Avma, FileOffset, Svma};
use sidewinder_process::tls::{ElfFile, ElfSymbol};
use sidewinder_process::{ExecutableMapping, ForeignMemory, ReadAt};
use sidewinder_vm_runtime::FileRange;

use super::bytecodes::BytecodeSizes;
use super::code_layout::{CODE_NAMES, CodeLayout};
use super::constants::{Constants, MAJOR, MINOR, OFFSET_MAX};
use super::layout::{ObjectLayout, WasmLayout};
use super::lines::PositionForm;

/// A constant that each version has: the size of a reference in an object.
const TAGGED_SIZE: &[u8] = b"v8dbg_TaggedSize";
/// Constants that are the same in all supported versions: strings and frames have one layout. References of 4 bytes, as in
/// Chrome, are not supported.
const EXPECTED: [(&[u8], i32); 13] = [
    (TAGGED_SIZE, 8),
    (b"v8dbg_SmiShiftSize", 31),
    (b"v8dbg_HeapObjectTag", 1),
    (b"v8dbg_off_fp_context", -8),
    (b"v8dbg_off_fp_function", -16),
    (b"v8dbg_FirstNonstringType", 0x80),
    (b"v8dbg_StringRepresentationMask", 7),
    (b"v8dbg_StringEncodingMask", 8),
    (b"v8dbg_OneByteStringTag", 8),
    (b"v8dbg_class_String__length__int32_t", 12),
    (b"v8dbg_class_SeqOneByteString__chars__char", 16),
    (b"v8dbg_class_FixedArrayBase__length__SMI", 8),
    (b"v8dbg_class_FixedArray__data__uintptr_t", 16),
];
/// Constants that each supported version has: the first of these that there is. In the order of [`Constants::layout`].
const FIELDS: [&[&[u8]]; 16] = [
    &[b"v8dbg_class_Map__instance_type__uint16_t"],
    &[b"v8dbg_class_JSFunction__shared__SharedFunctionInfo"],
    &[
        b"v8dbg_class_SharedFunctionInfo__script__Tagged_HeapObject_",
        b"v8dbg_class_SharedFunctionInfo__script_or_debug_info__HeapObject",
    ],
    &[b"v8dbg_class_SharedFunctionInfo__length__uint16_t"],
    &[b"v8dbg_class_SharedFunctionInfo__flags__int"],
    &[b"v8dbg_class_Script__line_ends__Object"],
    &[b"v8dbg_type_Script__SCRIPT_TYPE"],
    &[b"v8dbg_type_SharedFunctionInfo__SHARED_FUNCTION_INFO_TYPE"],
    &[b"v8dbg_type_ScopeInfo__SCOPE_INFO_TYPE"],
    &[b"v8dbg_type_BytecodeArray__BYTECODE_ARRAY_TYPE"],
    &[b"v8dbg_type_FixedArray__FIXED_ARRAY_TYPE"],
    &[b"v8dbg_type_ByteArray__BYTE_ARRAY_TYPE"],
    &[
        b"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_NameOrScopeInfoT_",
        b"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Tagged_Object_",
        b"v8dbg_class_SharedFunctionInfo__name_or_scope_info__Object",
    ],
    &[b"v8dbg_class_Script__source__Object"],
    &[b"v8dbg_class_Script__name__Object"],
    &[b"v8dbg_scopeinfo_idx_first_vars"],
];
/// Constants that not all versions have.
const FUNCTION: &[u8] = b"v8dbg_type_JSFunction__JS_FUNCTION_TYPE";
const FIRST_FUNCTION: &[u8] = b"v8dbg_FirstJSFunctionType";
const LAST_FUNCTION: &[u8] = b"v8dbg_LastJSFunctionType";
const TRUSTED_BYTES: &[u8] = b"v8dbg_type_TrustedByteArray__TRUSTED_BYTE_ARRAY_TYPE";
const BYTECODES: &[u8] = b"v8dbg_class_BytecodeArray__data__uintptr_t";
const WRAPPER: &[u8] = b"v8dbg_class_BytecodeArray__wrapper__Tagged_BytecodeWrapper_";
const WASM_FRAME: &[u8] = b"v8dbg_frametype_WasmFrame";
const WASM_TO_JS_FRAME: &[u8] = b"v8dbg_frametype_WasmToJsFrame";
const REGEXP_FRAME: &[u8] = b"v8dbg_frametype_IrregexpFrame";
const WASM_MODULE: &[u8] = b"v8dbg_type_WasmModuleObject__WASM_MODULE_OBJECT_TYPE";
const NATIVE_MODULES: [&[u8]; 2] = [
    b"v8dbg_class_Script__wasm_managed_native_module__Tagged_Object_",
    b"v8dbg_class_Script__wasm_managed_native_module__Object",
];
const OPTIONAL: [&[u8]; 14] = [
    FUNCTION,
    FIRST_FUNCTION,
    LAST_FUNCTION,
    TRUSTED_BYTES,
    BYTECODES,
    WRAPPER,
    MAJOR,
    MINOR,
    WASM_FRAME,
    WASM_TO_JS_FRAME,
    REGEXP_FRAME,
    WASM_MODULE,
    NATIVE_MODULES[0],
    NATIVE_MODULES[1],
];
/// Of the interpreter's entry: a second one, for profilers of V8's own, follows the first.
const ENTRY: &[u8] = b"Builtins_InterpreterEntryTrampoline";
/// The first builtin, the first handler of a bytecode, and those of which one is the last builtin.
const FIRST_BUILTIN: &[u8] = b"Builtins_DeoptimizationEntry_Eager";
const FIRST_HANDLER: &[u8] = b"Builtins_WideHandler";
const LAST_HANDLERS: [&[u8]; 2] =
    [b"Builtins_AbortExtraWideHandler", b"Builtins_IncBlockCounterExtraWideHandler"];
/// The builtins that resume an interpreted function whose compiled code was left. The deoptimizer makes frames that return to
/// their start.
const RESUMING: [&[u8]; 2] = [b"Builtins_InterpreterEnterAt", b"Builtins_BaselineOrInterpreterEnterAt"];
/// The first version of V8 whose tables of positions are [`PositionForm::Flagged`]: Node.js 24 has 13.6, 25 has 14.1.
const V8_WITH_FLAGGED_POSITIONS: u16 = 14;
/// How many types of functions there are, where that is not said.
const FUNCTION_TYPES: u16 = 17;

/// An ELF file that contains V8: `node`, `libnode.so`, or another program.
#[derive(Clone, Debug)]
pub struct Library {
    /// The version of V8, if the file says it.
    pub version: Option<(u8, u8)>,
    /// The layout of objects.
    pub layout: ObjectLayout,
    /// The code that enters interpreted functions, the handlers of bytecodes, and the code that resumes functions. Empty in
    /// stripped files: then interpreted functions are not found.
    pub loops: Vec<FileRange>,
    /// How long bytecodes are; `None` in stripped files: then code of the baseline compiler has only the first lines of functions.
    pub bytecode_sizes: Option<BytecodeSizes>,
    /// V8's own code, which includes the loops.
    pub builtins: Option<FileRange>,
    elf: ElfFile,
    /// Where the constant is.
    tagged_size: Svma,
}

impl Constants {
    /// `None`: one of the constants is missing, or has another value than is supported.
    fn layout(&self) -> Option<ObjectLayout> {
        if EXPECTED.iter().any(|(name, value)| self.get(name) != Some(*value)) {
            return None;
        }
        let first_function = self.any(&[FIRST_FUNCTION, FUNCTION])?;
        let last_function =
            self.any(&[LAST_FUNCTION]).unwrap_or_else(|| first_function.saturating_add(FUNCTION_TYPES - 1));
        let mut values = [0; 16];
        for (value, names) in values.iter_mut().zip(FIELDS) {
            *value = self.any(names)?;
        }
        let [map_type, shared, script, positions, flags, line_ends, script_type, shared_type, ..] = values;
        let [.., scope_type, bytecode_type, array_type, byte_array_type, name, source, source_name, first] =
            values;
        let trusted_bytes = self.any(&[TRUSTED_BYTES]);
        let bytecodes = self.any(&[BYTECODES]);
        // The wrapper came with the sandbox, and with another order of the fields.
        let has_wrapper = self.get(WRAPPER).is_some();
        let offsets = [map_type, shared, script, positions, flags, line_ends, name, source, source_name];
        if offsets.iter().any(|offset| *offset > OFFSET_MAX - 16) || first > 16 {
            return None;
        }
        Some(ObjectLayout {
            map_type,
            shared,
            script,
            positions,
            literal: flags + 4,
            script_id: line_ends + 8,
            script_type,
            function_types: (first_function, last_function),
            shared_type,
            scope_type,
            bytecode_type,
            array_type,
            byte_array_types: [byte_array_type, trusted_bytes.unwrap_or(byte_array_type)],
            // The first field.
            data: 8,
            name,
            source,
            source_name,
            line_offset: source_name + 8,
            line_ends,
            scope_variables: 8 + 8 * first,
            has_fixed_positions: first >= 5,
            bytecodes: bytecodes.unwrap_or(0),
            bytecode_positions: if has_wrapper { 24 } else { 32 },
            position_form: self.any(&[MAJOR]).map(|major| match major {
                ..V8_WITH_FLAGGED_POSITIONS => PositionForm::Signed,
                _ => PositionForm::Flagged,
            }),
            code: CodeLayout::from_constants(self),
            regexp_frame: self.frame_marker(REGEXP_FRAME),
            wasm: self.wasm(),
        })
    }

    /// What frames of a type have in the place of a function's context: twice its number.
    fn frame_marker(&self, name: &[u8]) -> Option<u16> {
        self.any(&[name])?.checked_mul(2)
    }

    /// `None`: a constant is missing.
    fn wasm(&self) -> Option<WasmLayout> {
        Some(WasmLayout {
            function_frame: self.frame_marker(WASM_FRAME)?,
            to_javascript_frame: self.frame_marker(WASM_TO_JS_FRAME)?,
            module_type: self.any(&[WASM_MODULE])?,
            native_module: self.any(&NATIVE_MODULES)?,
        })
    }
}

/// All constants that are read.
fn constant_names() -> Vec<&'static [u8]> {
    let expected = EXPECTED.iter().map(|(name, _)| *name);
    expected.chain(FIELDS.into_iter().flatten().copied()).chain(OPTIONAL).chain(CODE_NAMES).collect()
}

impl Library {
    /// Reads a file; `None` if it contains no V8, or one that is not supported.
    ///
    /// Costs one pass over the names of its dynamic symbols, if it contains none.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt) -> io::Result<Option<Self>> {
        let Some(elf) = ElfFile::read(file)? else { return Ok(None) };
        let Some([Some(tagged_size)]) = elf.exported(file, [TAGGED_SIZE])? else { return Ok(None) };
        let constants = Constants::read(file, &elf, &constant_names())?;
        let Some(layout) = constants.layout() else { return Ok(None) };
        let number = |name| constants.get(name).and_then(|value| u8::try_from(value).ok());
        let version = number(MAJOR).zip(number(MINOR));
        let (loops, builtins) = find_code(file, &elf)?;
        let bytecode_sizes = BytecodeSizes::read(file, &elf)?;
        let tagged_size = tagged_size.address;
        Ok(Some(Self { version, layout, loops, bytecode_sizes, builtins, elf, tagged_size }))
    }

    /// Whether the memory of a process in which this file is loaded with the given bias has what the file has.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn is_in(&self, bias: u64, memory: &impl ForeignMemory) -> io::Result<bool> {
        let mut value = [0; size_of::<i32>()];
        memory.read_exact(Avma(self.tagged_size.0.wrapping_add(bias)), &mut value)?;
        Ok(EXPECTED.contains(&(TAGGED_SIZE, i32::from_le_bytes(value))))
    }

    /// The load bias of this file, given one of its mappings: the difference to the addresses in the file.
    #[must_use]
    pub fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        self.elf.bias_of(mapping)
    }
}

/// The ranges of the interpreter, its entry first, and that of all builtins; nothing in a stripped file.
fn find_code(file: &impl ReadAt, elf: &ElfFile) -> io::Result<(Vec<FileRange>, Option<FileRange>)> {
    let find = |prefix: &[u8]| elf.functions_with_prefix(file, prefix);
    let start = |symbols: &[ElfSymbol]| symbols.iter().map(|symbol| symbol.address.0).min();
    let end = |symbols: &[ElfSymbol]| {
        symbols.iter().filter_map(|symbol| symbol.address.0.checked_add(symbol.bytes)).max()
    };
    let entries = find(ENTRY)?;
    let mut last = find(LAST_HANDLERS[0])?;
    last.extend(find(LAST_HANDLERS[1])?);
    let range = |start: Option<u64>, end: Option<u64>| -> Option<FileRange> {
        let bytes = end?.checked_sub(start?).filter(|bytes| (1..u64::from(u32::MAX)).contains(bytes))?;
        let start: FileOffset = elf.file_offset_of(Svma(start?))?;
        Some(FileRange { start, bytes })
    };
    let entry = range(start(&entries), end(&entries));
    let handlers = range(start(&find(FIRST_HANDLER)?), end(&last));
    let builtins = range(start(&find(FIRST_BUILTIN)?), end(&last));
    let mut resuming = Vec::new();
    for prefix in RESUMING {
        let symbols = find(prefix)?;
        // Return addresses are looked up by the byte before them, which is padding here.
        resuming.extend(range(start(&symbols).and_then(|start| start.checked_sub(1)), end(&symbols)));
    }
    let is_inside = |range: &FileRange, all: &FileRange| {
        range.start >= all.start && range.start.0 - all.start.0 + range.bytes <= all.bytes
    };
    Ok(match (entry, handlers, builtins) {
        (Some(entry), Some(handlers), Some(all))
            if is_inside(&entry, &all) && is_inside(&handlers, &all) && entry.start < handlers.start =>
        {
            resuming.retain(|range| is_inside(range, &all));
            resuming.splice(..0, [entry, handlers]);
            (resuming, Some(all))
        }
        _ => (Vec::new(), None),
    })
}
