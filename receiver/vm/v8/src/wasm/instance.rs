//! An instance of a module of WebAssembly: where its table of jumps is, and of which module it is.
//!
//! V8 says the types of objects, and few of their fields: others are found by the types of what they refer to.

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::module::{MAGIC, ModuleBytes};
use crate::arch::WASM_ALIGNMENT;
use crate::layout::WasmLayout;
use crate::text::{Heap, Object, TaggedWord};

/// How much of an object is looked at, in bytes: of the data of an instance, and of others. Objects of V8 may end earlier, but
/// not its heap.
const DATA_BYTES: usize = 0x200;
const OBJECT_BYTES: usize = 0x100;
const OBJECT_BYTES_MIN: usize = 0x20;
/// How much of a `NativeModule`, in bytes.
const NATIVE_MODULE_BYTES: usize = 0x200;
/// In a `Foreign`, the address of what it manages; in that, the place of the `shared_ptr`.
const FOREIGN_ADDRESS: u64 = 8;
const MANAGED_POINTER: u64 = 24;
/// How far jumps reach.
const JUMP_BYTES_MAX: u64 = 1 << 31;
/// Words that are taken for the address of a table of jumps, and references that are followed, before the right one.
const TABLES_MAX: usize = 4;
const OBJECTS_MAX: usize = 64;
/// The most bytes that a module has.
const MODULE_BYTES_MAX: u64 = 1 << 30;

/// An instance.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Instance {
    /// The `Script` of its module.
    pub(super) script: Object,
    pub(super) module: ModuleBytes,
    /// Where its table of jumps may be.
    pub(super) tables: Vec<Avma>,
    /// Where its module refers to what has the address and the length of the module's bytes.
    owner: Avma,
}

impl Instance {
    /// The instance with this data. `pc`: an instruction of its code.
    ///
    /// # Errors
    /// When it is none, or can't be read.
    pub(super) fn find(
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &WasmLayout,
        data: Object,
        pc: Avma,
    ) -> Result<Self, FunctionError> {
        let words = Words::of_object(heap, data, DATA_BYTES)?;
        let module = match words.object_of_type(heap, layout.module_type) {
            Some(module) => module,
            // Since V8 12, the data refers to its instance, which refers back.
            None => (words.objects().take(OBJECTS_MAX))
                .filter_map(|object| Words::of_object(heap, object, OBJECT_BYTES).ok())
                .filter(|words| words.objects().any(|object| object == data))
                .find_map(|words| words.object_of_type(heap, layout.module_type))
                .ok_or(FunctionError::Replaced)?,
        };
        let script =
            Words::of_object(heap, module, OBJECT_BYTES)?.object_of_type(heap, heap.layout.script_type);
        let script = script.ok_or(FunctionError::Malformed("a module without a script"))?;
        let managed = heap.value(script, layout.native_module)?.object()?;
        let pointer = Avma(heap.memory.word(managed.address(FOREIGN_ADDRESS)?)?);
        let pointer =
            pointer.checked_add(MANAGED_POINTER).ok_or(FunctionError::Malformed("not an address"))?;
        let native = Avma(heap.memory.word(Avma(heap.memory.word(pointer)?))?);
        let (owner, module) = find_bytes(heap.memory, native)?;
        Ok(Self { script, module, tables: words.tables(pc), owner })
    }

    /// Whether the data of the instance, and its module, are still those that were found.
    pub(super) fn is_current(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        data: Object,
        pc: Avma,
    ) -> Result<bool, FunctionError> {
        Ok(bytes_owned_at(heap.memory, self.owner)? == Some(self.module)
            && Words::of_object(heap, data, DATA_BYTES)?.tables(pc) == self.tables)
    }
}

/// Where a `NativeModule` has the bytes that it was compiled from, and these.
fn find_bytes(memory: &impl ForeignMemory, native: Avma) -> Result<(Avma, ModuleBytes), FunctionError> {
    let mut content = [0; NATIVE_MODULE_BYTES];
    memory.read_exact(native, &mut content)?;
    let places = (native.0..).step_by(8).take(NATIVE_MODULE_BYTES / 8).map(Avma);
    let mut found = places.filter_map(|at| Some((at, bytes_owned_at(memory, at).ok()??)));
    found.next().ok_or(FunctionError::Malformed("a module without its bytes"))
}

/// The bytes of a module that are owned by what the word at an address refers to; `None`: it refers to something else.
fn bytes_owned_at(memory: &impl ForeignMemory, at: Avma) -> Result<Option<ModuleBytes>, FunctionError> {
    let owner = Avma(memory.word(at)?);
    let mut parts = [0; 16];
    memory.read_exact(owner, &mut parts)?;
    let ([start, length], _) = parts.as_chunks() else { return Ok(None) };
    let (start, length) = (Avma(u64::from_le_bytes(*start)), u64::from_le_bytes(*length));
    if !(MAGIC.len() as u64..=MODULE_BYTES_MAX).contains(&length) {
        return Ok(None);
    }
    let mut magic = [0; MAGIC.len()];
    memory.read_exact(start, &mut magic)?;
    Ok((magic == MAGIC).then_some(ModuleBytes { start, length: length as u32 }))
}

/// The words of an object.
struct Words(Vec<u64>);

impl Words {
    /// Its first bytes; less where nothing is mapped behind it.
    fn of_object(
        heap: &Heap<'_, impl ForeignMemory>,
        object: Object,
        bytes_max: usize,
    ) -> Result<Self, FunctionError> {
        let mut bytes = vec![0; bytes_max];
        let at = object.address(0)?;
        while let Err(error) = heap.memory.read_exact(at, &mut bytes) {
            if bytes.len() <= OBJECT_BYTES_MIN {
                return Err(error.into());
            }
            bytes.truncate(bytes.len() / 2);
        }
        Ok(Self(bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }

    /// What its fields refer to.
    fn objects(&self) -> impl Iterator<Item = Object> {
        self.0.iter().skip(1).filter_map(|word| TaggedWord::from_word(*word).object().ok())
    }

    /// The first object of a type that a field refers to.
    fn object_of_type(&self, heap: &Heap<'_, impl ForeignMemory>, wanted: u16) -> Option<Object> {
        self.objects().find(|object| heap.type_of(*object).is_ok_and(|kind| kind == wanted))
    }

    /// Where a table of jumps to code around an instruction may be.
    fn tables(&self, pc: Avma) -> Vec<Avma> {
        let is_near =
            |word: u64| word.abs_diff(pc.0) <= JUMP_BYTES_MAX && word.is_multiple_of(WASM_ALIGNMENT as u64);
        let mut tables: Vec<Avma> = self.0.iter().copied().filter(|word| is_near(*word)).map(Avma).collect();
        tables.dedup();
        tables.truncate(TABLES_MAX);
        tables
    }
}
