//! CPython, as a [`LanguageRuntime`].

use std::io;
use std::sync::Arc;

use sidewinder_address::{Avma, FileOffset};
use sidewinder_bpf::{CodeObject, PublishedRuntime, TlsVector, VmFunction, WalkedRuntime};
use sidewinder_process::tls::TlsVariableError;
use sidewinder_process::{ExecutableMapping, FileId, ForeignMemory};
use sidewinder_vm_runtime::file_range::can_be_looked_up;
use sidewinder_vm_runtime::{
    Code, FileRange, Finding, Function, FunctionError, GroupLink, Inspection, LanguageRuntime, LocateError,
    LocatedRuntime, LoopCode, RuntimeFunctions, TargetProcess, published_location,
};

use super::function::CodeCopy;
use super::interpreter::Interpreter;
use super::layout::Layout;
use super::published::published;

/// How often a name is tried to be read for an inspection: a thread that runs may leave its function meanwhile.
const ATTEMPTS: u32 = 8;

impl LanguageRuntime for Interpreter {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::CPython
    }

    fn version(&self) -> Option<String> {
        Some(self.version.to_string())
    }

    fn bias_of(&self, mapping: &ExecutableMapping) -> Option<u64> {
        self.bias_of(mapping)
    }

    fn can_be_walked(&self) -> bool {
        can_be_looked_up(&self.loops)
    }

    fn loop_code_at(&self, at: FileOffset) -> Option<LoopCode> {
        let contains = |range: &FileRange| range.contains(at);
        self.loops.iter().any(contains).then(|| {
            LoopCode::Group(match (self.unlinked.iter().any(contains), self.layout.cframe) {
                (false, _) => GroupLink::Linked,
                (true, None) => GroupLink::Unlinked,
                (true, Some(_)) => GroupLink::Unwritten,
            })
        })
    }

    /// Threads have their state where they had it in other processes, most likely. Walks check which thread's state they have
    /// found, so they notice if it isn't there.
    fn unlocated(&self, _: FileId, usual: Option<&PublishedRuntime>) -> LocatedRuntime {
        LocatedRuntime { published: usual.cloned(), functions: Some(Arc::new(self.layout)) }
    }

    fn locate(
        &self,
        file: FileId,
        process: &TargetProcess<'_>,
        vector: TlsVector,
    ) -> Result<LocatedRuntime, LocateError> {
        let TargetProcess { memory, bias, pthread } = process;
        // The first is right in subinterpreters too, and null while the thread doesn't hold the interpreter's lock.
        let attached = self.locate_attached_thread_state(*bias, memory).ok();
        let any = self.locate_thread_state(*bias, memory, *pthread)?;
        let location = |at| published_location(at, vector);
        let state = [attached.and_then(location), location(any)];
        Ok(LocatedRuntime { published: Some(published(file, self, state)), functions: None })
    }

    /// Its threads' states are located, and one name is read.
    fn inspect(&self, process: &TargetProcess<'_>) -> io::Result<Inspection> {
        let not_initialized = || {
            let why = "the interpreter is not initialized yet, or not any more";
            Ok(Inspection::limited(why, "try it again while Python code runs"))
        };
        let TargetProcess { memory, bias, pthread } = process;
        let location = match self.locate_thread_state(*bias, memory, *pthread) {
            Ok(location) => location,
            Err(TlsVariableError::NotYet) => return not_initialized(),
            Err(TlsVariableError::Unreadable(error)) => return Err(error),
        };
        let states = self.thread_states(*bias, memory)?;
        if states.is_empty() {
            return not_initialized();
        }
        let is_found = states
            .iter()
            .filter_map(|state| self.is_state_at(location, *state, memory, *pthread).ok().flatten())
            .reduce(|one, other| one || other);
        let innermost = |state: &Avma| self.layout.innermost_function(*state, memory).ok().flatten();
        let function = (0..ATTEMPTS).find_map(|_| states.iter().find_map(innermost));
        // `None`: that was not compared.
        let (frames, next) = match is_found {
            Some(false) => (
                Finding::limited("no thread's state is where it is expected"),
                Some("report this build of CPython as a bug"),
            ),
            _ => (Finding::ok(format!("found the state of {} threads", states.len())), None),
        };
        let names = match function {
            Some(function) => {
                format!("read {} ({}:{})", function.name(), function.path(), function.first_line)
            }
            None => "its memory can be read, but no thread runs a function now".to_owned(),
        };
        Ok(Inspection { version: None, frames, names: Finding::ok(names), next })
    }
}

impl RuntimeFunctions for Layout {
    fn runtime(&self) -> WalkedRuntime {
        WalkedRuntime::CPython
    }

    fn read(&self, memory: &dyn ForeignMemory, wanted: VmFunction) -> Result<Code, FunctionError> {
        self.read_function(&memory, wanted.object, wanted.cookie).map(Code::Function)
    }

    fn copied(&self, object: &CodeObject) -> Option<Result<Function, FunctionError>> {
        let CodeObject { head, identity, name, path, lines, .. } = object;
        let copy = CodeCopy { head, identity, name, path, lines };
        Some(self.copied_function(copy, object.cookie))
    }
}
