//! V8, as a [`LanguageRuntime`].

use std::io;
use std::sync::Arc;

use sidewinder_address::FileOffset;
use sidewinder_bpf::{PublishedRuntime, TlsVector, VmForm, VmFunction, WalkedRuntime};
use sidewinder_process::{ExecutableMapping, FileId, ForeignMemory};
use sidewinder_vm_runtime::file_range::can_be_looked_up;
use sidewinder_vm_runtime::source_map::SourceMaps;
use sidewinder_vm_runtime::{
    Code, Finding, FunctionError, Inspection, LanguageRuntime, LocateError, LocatedRuntime, LoopCode,
    RuntimeFunctions, TargetProcess,
};

use super::function::{CompiledFrame, Engine, regular_expression};
use super::library::Library;
use super::published::published;
use super::wasm::WasmFrame;

impl LanguageRuntime for Library {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::V8
    }

    fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        self.bias_of(mapping)
    }

    fn can_be_walked(&self) -> bool {
        can_be_looked_up(&self.loops)
    }

    fn loop_code_at(&self, at: FileOffset) -> Option<LoopCode> {
        self.loops.iter().any(|range| range.contains(at)).then_some(LoopCode::OneFunction)
    }

    fn generates_functions(&self) -> bool {
        true
    }

    fn unlocated(&self, file: FileId, _: Option<&PublishedRuntime>) -> LocatedRuntime {
        let engine = Engine::new(self.layout, self.bytecode_sizes.clone());
        LocatedRuntime { published: Some(published(file, self)), functions: Some(Arc::new(engine)) }
    }

    /// Its frames are on the native stack, and lead to their functions.
    fn is_located_by_file(&self) -> bool {
        true
    }

    fn locate(
        &self,
        file: FileId,
        _: &TargetProcess<'_>,
        _: TlsVector,
    ) -> Result<LocatedRuntime, LocateError> {
        Ok(self.unlocated(file, None))
    }

    fn frames_by_file(&self) -> Option<Finding> {
        Some(self.frames().0)
    }

    fn inspect(&self, process: &TargetProcess<'_>) -> io::Result<Inspection> {
        let (names, names_next) = match self.is_in(process.bias, &process.memory)? {
            true => (Finding::ok("its memory can be read"), None),
            false => (Finding::limited("its memory differs from its file"), Some("report this as a bug")),
        };
        let (frames, frames_next) = self.frames();
        Ok(Inspection { version: None, frames, names, next: names_next.or(frames_next) })
    }
}

impl Library {
    /// Whether frames can be found, with the next step.
    fn frames(&self) -> (Finding, Option<&'static str>) {
        if self.loops.is_empty() {
            let text =
                "only compiled functions: the file has no symbol table, which says where the interpreter is";
            let next = "use an unstripped build, such as nodejs.org's";
            (Finding::limited(text), Some(next))
        } else {
            (Finding::ok("each function has its frame on the native stack"), None)
        }
    }
}

impl RuntimeFunctions for Engine {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::V8
    }

    fn read(&self, memory: &dyn ForeignMemory, wanted: VmFunction) -> Result<Code, FunctionError> {
        let VmFunction { object, cookie, form, .. } = wanted;
        let cookie_mask = VmFunction::low_cookie(u32::MAX);
        match form {
            VmForm::CompiledAt { pc, is_return_address } => {
                let frame = CompiledFrame { shared: object, cookie, cookie_mask, pc, is_return_address };
                self.read_compiled(&memory, frame)
            }
            VmForm::WebAssembly { pc, is_return_address } => {
                let frame = WasmFrame { instance: object, pc, is_return_address, cookie, cookie_mask };
                self.read_wasm(&memory, frame).map(Code::Function)
            }
            VmForm::RegularExpression => Ok(Code::Function(regular_expression())),
            _ => self.read_function(&memory, object, cookie).map(Code::Function),
        }
    }

    fn use_source_maps(&self, open: &mut dyn FnMut() -> Option<Arc<dyn SourceMaps>>) {
        if let Some(maps) = open() {
            self.set_source_maps(maps);
        }
    }
}
