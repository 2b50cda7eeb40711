//! The virtual machines of a process, as their functions are read.

use std::sync::Arc;

use sidewinder_bpf::{VmForm, VmFunction, WalkedRuntime};
use sidewinder_process::ForeignMemory;
use sidewinder_vm::FunctionError;
use sidewinder_vm::cpython::Layout;
use sidewinder_vm::hotspot::{CodePlace, VirtualMachine};
use sidewinder_vm::{Code, v8};

use crate::foreign::ForeignProcess;

/// Where the functions of a process are described.
#[derive(Clone, Debug)]
pub(crate) enum FunctionLayout {
    CPython(Layout),
    HotSpot(Arc<VirtualMachine>),
    V8(Arc<v8::Engine>),
}

impl FunctionLayout {
    pub(super) fn runtime(&self) -> WalkedRuntime {
        match self {
            Self::CPython(_) => WalkedRuntime::CPython,
            Self::HotSpot(_) => WalkedRuntime::HotSpot,
            Self::V8(_) => WalkedRuntime::V8,
        }
    }

    /// Reads a function of this runtime.
    pub(super) fn read_code(
        &self,
        memory: &impl ForeignMemory,
        wanted: VmFunction,
    ) -> Result<Code, FunctionError> {
        let VmFunction { runtime: _, object, cookie, place, form } = wanted;
        match (self, form) {
            (Self::CPython(layout), _) => layout.read_function(memory, object, cookie).map(Code::Function),
            (Self::V8(engine), VmForm::CompiledAt { pc, is_return_address }) => {
                let cookie_mask = VmFunction::low_cookie(u32::MAX);
                let frame = v8::CompiledFrame { shared: object, cookie, cookie_mask, pc, is_return_address };
                engine.read_compiled(memory, frame)
            }
            (Self::V8(engine), VmForm::WebAssembly { pc, is_return_address }) => {
                let cookie_mask = VmFunction::low_cookie(u32::MAX);
                let frame = v8::WasmFrame { instance: object, pc, is_return_address, cookie, cookie_mask };
                engine.read_wasm(memory, frame).map(Code::Function)
            }
            (Self::V8(_), VmForm::RegularExpression) => Ok(Code::Function(v8::regular_expression())),
            (Self::V8(engine), _) => engine.read_function(memory, object, cookie).map(Code::Function),
            (Self::HotSpot(machine), VmForm::Compiled { is_return_address }) => {
                let place = CodePlace { offset: place.cast_unsigned(), is_return_address };
                machine.read_blob(memory, object, cookie, place)
            }
            (Self::HotSpot(machine), _) => machine.read_interpreted(memory, object, cookie),
        }
    }
}

/// An interpreter that a process runs, and the memory in which its functions are.
#[derive(Debug)]
pub(crate) struct InterpreterSource {
    pub(super) layout: FunctionLayout,
    pub(super) memory: ForeignProcess,
}

impl InterpreterSource {
    pub(crate) fn new(layout: FunctionLayout, memory: ForeignProcess) -> Self {
        Self { layout, memory }
    }
}
