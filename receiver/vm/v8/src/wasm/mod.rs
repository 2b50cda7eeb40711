//! Functions of WebAssembly: the module, and the number and the name of a function in it.
//!
//! A frame has the data of its instance. That leads to the script of its module, and to the bytes that it was compiled from, which
//! have the names.

mod bytes;
mod code;
mod instance;
mod module;
#[cfg(all(test, target_arch = "x86_64"))]
mod tests;

use std::num::NonZeroUsize;
use std::sync::Arc;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::cookie::hash;
use sidewinder_vm_runtime::recent::{MemorySize, Recent};
use sidewinder_vm_runtime::{Function, FunctionError};

use self::code::CodeStart;
use self::instance::Instance;
use self::module::Module;
use super::layout::WasmLayout;
use super::script::PATH_BYTES_MAX;
use super::text::{Heap, Object};
use crate::arch::WasmStart;

/// The instances of a process whose modules are kept, and their memory.
const INSTANCES_MAX: NonZeroUsize = NonZeroUsize::new(64).unwrap();
const BYTES_MAX: usize = 1 << 20;
/// What calls JavaScript for a function, code of V8's own.
const TO_JAVASCRIPT: &str = "(WebAssembly to JavaScript)";

/// A frame of WebAssembly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WasmFrame {
    /// The address of the data of its instance.
    pub instance: Avma,
    /// The instruction.
    pub pc: Avma,
    /// Whether that is the one behind a call that is being made.
    pub is_return_address: bool,
    /// Bits of a hash of the code in front of the instruction.
    pub cookie: u32,
    /// Which bits these are.
    pub cookie_mask: u32,
}

/// The modules that were needed last, by the data of their instances.
#[derive(Debug)]
pub(super) struct Modules(Recent<Object, KnownInstance>);

#[derive(Debug)]
struct KnownInstance {
    instance: Instance,
    module: Module,
    path: Arc<str>,
}

impl MemorySize for KnownInstance {
    fn bytes(&self) -> usize {
        size_of::<Self>() + self.module.bytes() + self.path.len()
    }
}

impl Default for Modules {
    fn default() -> Self {
        Self(Recent::new(INSTANCES_MAX, BYTES_MAX))
    }
}

impl Modules {
    /// The function of a frame.
    ///
    /// # Errors
    /// See [`FunctionError`].
    pub(super) fn read_function(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &WasmLayout,
        frame: WasmFrame,
    ) -> Result<Function, FunctionError> {
        check_code(heap.memory, frame)?;
        let start = CodeStart::find(heap.memory, frame.pc.0.saturating_sub(frame.is_return_address.into()))?;
        let function = match start.start {
            WasmStart::Frame(kind) if kind == layout.to_javascript_frame => {
                Function::new(TO_JAVASCRIPT.into(), TO_JAVASCRIPT.into(), 0, None)
            }
            WasmStart::Frame(kind) if kind != layout.function_frame => {
                return Err(FunctionError::Malformed("a frame of another kind"));
            }
            WasmStart::Frame(_) | WasmStart::Numbered(_) => self.read_declared(heap, layout, frame, start)?,
        };
        // Other code may have been put there meanwhile.
        check_code(heap.memory, frame)?;
        Ok(function)
    }

    fn read_declared(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &WasmLayout,
        frame: WasmFrame,
        start: CodeStart,
    ) -> Result<Function, FunctionError> {
        let known = self.read_instance(heap, layout, frame)?;
        let declared = known.module.declared;
        let in_table = |table: &Avma| start.number_in(heap.memory, *table, declared).ok().flatten();
        let number = match start.start {
            WasmStart::Numbered(number) => Some(number),
            WasmStart::Frame(_) => {
                known.instance.tables.iter().find_map(in_table).or_else(|| start.counted_number(heap.memory))
            }
        };
        let number =
            number.and_then(|number| known.module.function(number)).ok_or(FunctionError::Replaced)?;
        let name = known.module.name(heap.memory, number)?;
        let name = name.unwrap_or_else(|| format!("wasm-function[{number}]"));
        Ok(Function::new(name.into(), Arc::clone(&known.path), 0, None))
    }

    fn read_instance(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &WasmLayout,
        frame: WasmFrame,
    ) -> Result<Arc<KnownInstance>, FunctionError> {
        let data = Object::at(frame.instance);
        if let Some(known) = self.0.get(&data)
            && known.instance.is_current(heap, data, frame.pc)?
        {
            return Ok(known);
        }
        let instance = Instance::find(heap, layout, data, frame.pc)?;
        let module = Module::read(heap.memory, instance.module)?;
        let name = heap.value(instance.script, heap.layout.source_name)?.object()?;
        let path = heap.text(name, PATH_BYTES_MAX)?.into();
        Ok(self.0.add(data, KnownInstance { instance, module, path }))
    }
}

/// Whether the code in front of the instruction is the one that was executed.
fn check_code(memory: &impl ForeignMemory, frame: WasmFrame) -> Result<(), FunctionError> {
    let before = frame.pc.0.checked_sub(size_of::<u64>() as u64).ok_or(FunctionError::Replaced)?;
    let code = memory.word(Avma(before))?;
    let is_same = hash([code].into_iter()) & frame.cookie_mask == frame.cookie;
    if is_same { Ok(()) } else { Err(FunctionError::Replaced) }
}
