//! The interpreters that processes run: in which of their files, and where their threads have its state.
//!
//! Owner: the sampling thread. Input: the interpreters of files, from the table builder, and the mappings of processes.
//! Output: what walks need to find the interpreters' frames, and what the reporter needs to name them.

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_bpf::{
    CODE_HEAPS_MAX, CPythonLayout, CodeHeap, FileRange as PublishedRange, HotSpotLayout, PublishedCPython,
    PublishedRuntime, PublishedV8, TlsLocation, V8Layout, cpython_groups, cpython_instruction,
};
use sidewinder_process::tls::TlsVariableError;
use sidewinder_process::{FileId, FileTable, Pid, Process, ProcessKey};
use sidewinder_vm::Interpreter;
use sidewinder_vm::cpython::{self, FileRange, Groups, InstructionForm, Layout};
use sidewinder_vm::hotspot::{MachineError, VirtualMachine};
use sidewinder_vm::v8;
use thiserror::Error;
use tracing::debug;

use super::contexts::take_completed_read;
use super::processes::ProcessTracker;
use super::variables::{published_location, thread_vector};
use crate::foreign::{ForeignProcess, ForeignReader, PendingRead, ReadProgress, ReadTarget};
use crate::vm::{FunctionLayout, InterpreterSource};

/// The first time between two attempts to locate an interpreter's state, which it creates a few milliseconds after it has
/// started. It doubles with each attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// What was found of a process's interpreter.
#[derive(Debug)]
enum Located {
    /// Where its threads have the state of CPython.
    CPython([Option<TlsLocation>; 2]),
    /// HotSpot, which needs no state of threads.
    HotSpot(Arc<VirtualMachine>),
    /// V8, whose frames are on the native stack.
    V8,
}

/// Why an interpreter was not found.
#[derive(Debug, Error)]
enum LocateError {
    #[error(transparent)]
    CPython(#[from] TlsVariableError),
    #[error(transparent)]
    HotSpot(#[from] MachineError),
}

impl LocateError {
    fn unreadable(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::HotSpot(MachineError::Unreadable(io::Error::other(error)))
    }

    /// Whether we may not read the process's memory.
    fn is_denied(&self) -> bool {
        match self {
            Self::CPython(TlsVariableError::Unreadable(error))
            | Self::HotSpot(MachineError::Unreadable(error)) => {
                error.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

type LocateResult = Result<Located, LocateError>;

/// The interpreters of files and processes.
#[derive(Debug, Default)]
pub(crate) struct Interpreters {
    by_file: HashMap<FileId, FileInterpreter>,
    processes: HashMap<ProcessKey, ProcessInterpreter>,
    reads: Vec<(ProcessKey, PendingRead<LocateResult>)>,
    refused: u64,
}

#[derive(Debug)]
struct FileInterpreter {
    interpreter: Arc<Interpreter>,
    /// Where threads had CPython's state in the process that was located last.
    usual_state: Option<[Option<TlsLocation>; 2]>,
}

#[derive(Debug)]
struct ProcessInterpreter {
    file: FileId,
    bias: u64,
    interpreter: Arc<Interpreter>,
    /// With the state where it usually is, until that has been located. Walks check which thread's state they have found, so
    /// they notice if it isn't there.
    runtime: Option<PublishedRuntime>,
    /// Until there is a source.
    memory: Option<ForeignProcess>,
    source: Option<Arc<InterpreterSource>>,
    is_announced: bool,
    /// Whether the state could not be located because we may not read the process's memory.
    is_denied: bool,
    /// When to locate the state again.
    retry: Option<Instant>,
    retry_interval: Duration,
}

impl Interpreters {
    /// Adds the interpreter that a file contains. Returns whether walks can find its frames.
    pub(super) fn add_file(&mut self, file: FileId, interpreter: Arc<Interpreter>) -> bool {
        let is_supported = match &*interpreter {
            Interpreter::CPython(cpython) => {
                PublishedCPython::can_have_loop(&published_ranges(&cpython.loops))
            }
            Interpreter::HotSpot(_) => true,
            Interpreter::V8(library) => PublishedCPython::can_have_loop(&published_ranges(&library.loops)),
        };
        if is_supported {
            self.by_file.insert(file, FileInterpreter { interpreter, usual_state: None });
        } else {
            self.refused += 1;
        }
        is_supported
    }

    /// The number of files with an interpreter whose loop is too scattered for walks.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets a file.
    pub(super) fn forget_file(&mut self, file: FileId) {
        self.by_file.remove(&file);
    }

    /// Whether a location is in the loop of a file's CPython, whose frames are not in snapshots of stacks.
    pub(crate) fn is_loop(&self, file: FileId, offset: FileOffset) -> bool {
        let Some(known) = self.by_file.get(&file) else { return false };
        let Interpreter::CPython(cpython) = &*known.interpreter else { return false };
        cpython.loops.iter().any(|range| offset.0.wrapping_sub(range.start.0) < range.bytes)
    }

    /// What walks need to find the frames of a process's interpreter, once that is known. Locates the interpreter's state
    /// when the process is seen with it for the first time.
    pub(super) fn runtime(
        &mut self,
        process: &Process,
        files: &mut FileTable,
        reader: &ForeignReader,
    ) -> Option<&PublishedRuntime> {
        let key = ProcessKey::from(process);
        let Some((file, bias)) = self.find_in(process, files) else {
            self.processes.remove(&key);
            return None;
        };
        let is_known = self.processes.get(&key).is_some_and(|known| known.file == file && known.bias == bias);
        if !is_known {
            let FileInterpreter { interpreter, usual_state } = self.by_file.get(&file)?;
            let memory = ForeignProcess::from_pid(process.pid(), reader.clone()).ok();
            let (runtime, memory, source) = match &**interpreter {
                Interpreter::CPython(cpython) => {
                    let layout = FunctionLayout::CPython(cpython.layout);
                    let source = memory.map(|memory| InterpreterSource::new(layout, memory));
                    (usual_state.map(|state| published_cpython(file, cpython, state)), None, source)
                }
                Interpreter::HotSpot(_) => (None, memory, None),
                Interpreter::V8(library) => {
                    let layout = FunctionLayout::V8(Arc::new(v8::Engine::new(library.layout)));
                    let source = memory.map(|memory| InterpreterSource::new(layout, memory));
                    (Some(published_v8(file, library)), None, source)
                }
            };
            let interpreter = Arc::clone(interpreter);
            let is_located = matches!(*interpreter, Interpreter::V8(_));
            self.processes.insert(
                key,
                ProcessInterpreter {
                    file,
                    bias,
                    interpreter,
                    runtime,
                    memory,
                    source: source.map(Arc::new),
                    is_announced: false,
                    is_denied: false,
                    retry: None,
                    retry_interval: RETRY_INTERVAL,
                },
            );
            if !is_located {
                self.locate(key, process, reader);
            }
        }
        self.processes.get(&key)?.runtime.as_ref()
    }

    /// The file of a process that contains an interpreter, and its load bias.
    fn find_in(&self, process: &Process, files: &mut FileTable) -> Option<(FileId, u64)> {
        if self.by_file.is_empty() {
            return None;
        }
        process.mappings().find_map(|mapping| {
            let file = files.identify(process, mapping)?.id;
            Some((file, self.by_file.get(&file)?.interpreter.bias_of(mapping)?))
        })
    }

    /// Starts to read where the threads of a process have the state, and waits briefly for the result. Returns whether the
    /// runtime has changed.
    fn locate(&mut self, key: ProcessKey, process: &Process, reader: &ForeignReader) -> bool {
        let Some(known) = self.processes.get(&key) else { return false };
        let (interpreter, bias) = (Arc::clone(&known.interpreter), known.bias);
        let vector = thread_vector(process);
        let Ok(target) = ReadTarget::from_pid(Pid(key.pid)) else { return false };
        let memory = reader.memory().clone();
        let read = move || {
            let memory = memory.open(target).map_err(LocateError::unreadable)?;
            let interpreter = match &*interpreter {
                Interpreter::CPython(cpython) => cpython,
                Interpreter::HotSpot(library) => {
                    return Ok(Located::HotSpot(Arc::new(library.locate(bias, &memory)?)));
                }
                Interpreter::V8(_) => return Ok(Located::V8),
            };
            // The first is right in subinterpreters too, and null while the thread doesn't hold the interpreter's lock.
            let attached = interpreter.locate_attached_thread_state(bias, &memory).ok();
            let any = interpreter.locate_thread_state(bias, &memory)?;
            let published = |at| published_location(at, vector);
            Ok(Located::CPython([attached.and_then(published), published(any)]))
        };
        match reader.submit_and_wait(target, read) {
            Ok(ReadProgress::Done(located)) => return self.set_located(key, located),
            Ok(ReadProgress::Pending(pending)) => self.reads.push((key, pending)),
            Err(failure) => self.retry_later(key, &failure),
        }
        false
    }

    /// Takes the locations that have been read, and starts the attempts that are due. Returns the processes to publish
    /// again.
    pub(super) fn update(&mut self, processes: &ProcessTracker) -> Vec<ProcessKey> {
        let mut changed = Vec::new();
        while let Some((key, located)) = take_completed_read(&mut self.reads) {
            match located {
                Ok(located) => changed.extend(self.set_located(key, located).then_some(key)),
                Err(failure) => self.retry_later(key, &failure),
            }
        }
        let now = Instant::now();
        let due: Vec<_> = self
            .processes
            .iter_mut()
            .filter_map(|(key, known)| known.retry.take_if(|retry| *retry <= now).map(|_| *key))
            .collect();
        for key in due {
            let Some(process) = processes.running(key) else { continue };
            changed.extend(self.locate(key, process, processes.reader()).then_some(key));
        }
        changed
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.reads.is_empty()
    }

    /// Whether an attempt to locate a state is due within `within`.
    pub(super) fn has_retry_within(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        self.processes.values().any(|known| known.retry.is_some_and(|retry| retry <= until))
    }

    /// Records where the state is. Returns whether the runtime has changed.
    fn set_located(&mut self, key: ProcessKey, located: LocateResult) -> bool {
        let Some(known) = self.processes.get_mut(&key) else { return false };
        match located {
            Ok(located) => {
                let located = match (located, &*known.interpreter) {
                    (Located::CPython(state), Interpreter::CPython(cpython)) => {
                        if let Some(file) = self.by_file.get_mut(&known.file) {
                            file.usual_state = Some(state);
                        }
                        Some(published_cpython(known.file, cpython, state))
                    }
                    (Located::HotSpot(machine), _) => {
                        let published = published_hotspot(&machine);
                        if let Some(memory) = known.memory.take() {
                            let layout = FunctionLayout::HotSpot(machine);
                            known.source = Some(Arc::new(InterpreterSource::new(layout, memory)));
                        }
                        Some(published)
                    }
                    (Located::V8, _) => return false,
                    (Located::CPython(_), Interpreter::HotSpot(_) | Interpreter::V8(_)) => None,
                };
                let has_changed = known.runtime != located;
                known.runtime = located;
                known.is_denied = false;
                has_changed
            }
            Err(error) => {
                known.is_denied = error.is_denied();
                self.retry_later(key, &error);
                false
            }
        }
    }

    fn retry_later(&mut self, key: ProcessKey, reason: &impl Error) {
        debug!(pid = key.pid, %reason, "the interpreter's state is not known yet");
        if let Some(known) = self.processes.get_mut(&key) {
            known.retry = Some(Instant::now() + known.retry_interval);
            known.retry_interval = (2 * known.retry_interval).min(RETRY_INTERVAL_MAX);
        }
    }

    /// What the reporter needs to name a process's functions, when called for the first time.
    pub(super) fn take_unannounced(&mut self, key: ProcessKey) -> Option<Arc<InterpreterSource>> {
        let known = self.processes.get_mut(&key).filter(|known| !known.is_announced)?;
        let source = known.source.clone()?;
        known.is_announced = true;
        Some(source)
    }

    /// The processes whose state could not be located because we may not read their memory.
    pub(super) fn denied(&self) -> Vec<ProcessKey> {
        self.processes.iter().filter(|(_, known)| known.is_denied).map(|(key, _)| *key).collect()
    }

    /// Forgets processes that no more samples can arrive from.
    pub(super) fn forget_exited(&mut self, processes: &ProcessTracker) {
        self.processes.retain(|key, _| processes.running_or_exited(*key).is_some());
    }
}

fn published_ranges(ranges: &[FileRange]) -> Vec<(FileOffset, u64)> {
    ranges.iter().map(|range| (range.start, range.bytes)).collect()
}

fn published_cpython(
    file: FileId,
    interpreter: &cpython::Interpreter,
    state: [Option<TlsLocation>; 2],
) -> PublishedRuntime {
    PublishedRuntime::CPython(PublishedCPython {
        file: file.0,
        loop_ranges: published_ranges(&interpreter.loops),
        unlinked_ranges: published_ranges(&interpreter.unlinked),
        state,
        cpython: published_layout(interpreter.layout),
    })
}

fn published_hotspot(machine: &VirtualMachine) -> PublishedRuntime {
    let mut heaps = [CodeHeap::default(); CODE_HEAPS_MAX];
    for (to, heap) in heaps.iter_mut().zip(&machine.heaps) {
        *to = CodeHeap { start: heap.start.0, bytes: heap.bytes, segments: heap.segments.0 };
    }
    let code_start = machine.heaps.iter().map(|heap| heap.start.0).min().unwrap_or(0);
    let code_end =
        machine.heaps.iter().map(|heap| heap.start.0.saturating_add(heap.bytes)).max().unwrap_or(0);
    let blob = machine.blob;
    PublishedRuntime::HotSpot(HotSpotLayout {
        heaps,
        code_start,
        code_bytes: code_end - code_start,
        call_stub_return: machine.call_stub_return.0,
        interpreter: machine.interpreter.0.0,
        interpreter_bytes: machine.interpreter.1,
        name: blob.name,
        size: blob.size,
        frame_size: blob.frame_size,
        frame_complete: blob.frame_complete,
        code: blob.code,
        method: blob.method,
        compile_id: blob.compile_id,
        deopt_handlers: blob.deopt_handlers,
        original_pc: blob.original_pc,
        const_method: machine.method.const_method,
        bytecodes: machine.method.const_method_bytes,
        segment_shift: machine.segment_shift,
        block_header_bytes: blob.header_bytes,
        has_offsets: blob.has_offsets.into(),
        frame_complete_is_short: blob.frame_complete_is_short.into(),
        frames_have_mirror: (machine.version.0 >= 9).into(),
        reserved: [0; 7],
    })
}

fn published_v8(file: FileId, library: &v8::Library) -> PublishedRuntime {
    let layout = library.layout;
    let builtins = library.builtins.and_then(|range| {
        Some(PublishedRange { start: range.start.0.try_into().ok()?, bytes: range.bytes.try_into().ok()? })
    });
    PublishedRuntime::V8(PublishedV8 {
        file: file.0,
        loop_ranges: published_ranges(&library.loops),
        layout: V8Layout {
            builtins: builtins.unwrap_or_default(),
            map_type: layout.map_type,
            shared: layout.shared,
            script: layout.script,
            positions: layout.positions,
            literal: layout.literal,
            script_id: layout.script_id,
            script_type: layout.script_type,
            first_function_type: layout.function_types.0,
            last_function_type: layout.function_types.1,
            reserved: [0; 3],
        },
    })
}

fn published_layout(layout: Layout) -> CPythonLayout {
    let (identity, identity_bytes) = layout.identity;
    let [name, path, lines] = layout.pointers();
    CPythonLayout {
        thread_id: layout.thread_id,
        cframe: layout.cframe.unwrap_or(0),
        current_frame: layout.current_frame,
        previous: layout.previous,
        code: layout.code,
        instruction: layout.instruction,
        owner: layout.owner,
        frame_bytes: layout.frame_bytes,
        bytecode: layout.bytecode,
        identity,
        identity_bytes,
        name,
        path,
        lines,
        groups: match layout.groups {
            Groups::OneFrame => cpython_groups::ONE_FRAME,
            Groups::LastIsEntry => cpython_groups::LAST_IS_ENTRY,
            Groups::EndsAtShim => cpython_groups::ENDS_AT_SHIM,
        } as u8,
        instruction_form: match layout.instruction_form {
            InstructionForm::ByteIndex => cpython_instruction::INDEX,
            InstructionForm::UnitIndex => cpython_instruction::INDEX_BY_2,
            InstructionForm::Pointer => cpython_instruction::POINTER,
        } as u8,
        identity_has_texts: layout.identity_has_texts.into(),
        reserved: 0,
    }
}
