//! The interpreters that processes run: in which of their files, and where their threads have its state.
//!
//! Owner: the sampling thread. Input: the interpreters of files, from the table builder, and the mappings of processes.
//! Output: what walks need to find the interpreters' frames, and what the reporter needs to name them.

mod published;

use std::collections::HashMap;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::FileOffset;
use sidewinder_bpf::{PublishedRuntime, PublishedTlsLocation, can_look_up_loop};
use sidewinder_process::tls::TlsVariableError;
use sidewinder_process::{FileId, FileTable, Process, ProcessKey};
use sidewinder_vm::hotspot::{MachineError, VirtualMachine};
use sidewinder_vm::{FileRange, Interpreter, PthreadLayout, v8};
use thiserror::Error;
use tracing::debug;

use self::published::{published_cpython, published_hotspot, published_ranges, published_v8};
use super::contexts::take_completed_read;
use super::processes::ProcessTracker;
use super::variables::{published_location, thread_vector};
use crate::foreign::{ForeignProcess, ForeignReader, PendingRead, ReadProgress, ReadTarget};
use crate::vm::{FunctionLayout, InterpreterSource};

/// The first time between two attempts to locate an interpreter's state, which it creates a few milliseconds after it has
/// started. It doubles with each attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);
const RETRY_INTERVAL_MAX: Duration = Duration::from_secs(30);

/// What a place in CPython's loop says of the frames of an activation that executes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VmLoop {
    /// They are those that the thread's state leads to.
    Linked,
    /// The thread's state leads to its caller's.
    Unlinked,
    /// The thread's state may lead to none.
    Unwritten,
}

/// Code of a virtual machine whose frames are not in snapshots of stacks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum VmCode {
    /// A place in CPython's loop.
    CPythonLoop(VmLoop),
    /// Code with which V8 interprets a function. Each activation has one native frame.
    V8,
}

/// What was found of a process's interpreter.
#[derive(Debug)]
enum Located {
    /// Where its threads have the state of CPython.
    CPython([Option<PublishedTlsLocation>; 2]),
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
pub(crate) struct InterpreterTracker {
    by_file: HashMap<FileId, FileInterpreter>,
    /// Files of C libraries, where their layouts have to be read.
    c_libraries: HashMap<FileId, PthreadLayout>,
    processes: HashMap<ProcessMachine, ProcessInterpreter>,
    reads: Vec<(ProcessMachine, PendingRead<LocateResult>)>,
    refused: u64,
}

/// A virtual machine of a process: one with a loop or one without, of each of which walks know one.
type ProcessMachine = (ProcessKey, MachineClass);

/// How walks find the frames of a virtual machine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum MachineClass {
    /// CPython and V8: where a native frame is in the loop.
    Loop,
    /// HotSpot: where code is in its code cache.
    CodeCache,
}

impl MachineClass {
    const ALL: [Self; 2] = [Self::Loop, Self::CodeCache];

    fn of(interpreter: &Interpreter) -> Self {
        match interpreter {
            Interpreter::CPython(_) | Interpreter::V8(_) => Self::Loop,
            Interpreter::HotSpot(_) => Self::CodeCache,
        }
    }
}

#[derive(Debug)]
struct FileInterpreter {
    interpreter: Arc<Interpreter>,
    /// Where threads had CPython's state in the process that was located last.
    usual_state: Option<[Option<PublishedTlsLocation>; 2]>,
}

#[derive(Debug)]
struct ProcessInterpreter {
    file: FileId,
    bias: u64,
    interpreter: Arc<Interpreter>,
    /// How the process's C library lays out threads, once that was read.
    pthread: Option<PthreadLayout>,
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

impl InterpreterTracker {
    /// Adds the interpreter that a file contains. Returns whether walks can find its frames.
    pub(super) fn add_file(&mut self, file: FileId, interpreter: Arc<Interpreter>) -> bool {
        let is_supported = match &*interpreter {
            Interpreter::CPython(cpython) => can_look_up_loop(&published_ranges(&cpython.loops)),
            Interpreter::HotSpot(_) => true,
            Interpreter::V8(library) => can_look_up_loop(&published_ranges(&library.loops)),
        };
        if is_supported {
            self.by_file.insert(file, FileInterpreter { interpreter, usual_state: None });
        } else {
            self.refused += 1;
        }
        is_supported
    }

    /// Adds how a C library lays out threads.
    pub(super) fn add_c_library(&mut self, file: FileId, layout: PthreadLayout) {
        self.c_libraries.insert(file, layout);
    }

    /// The number of files with an interpreter whose loop is too scattered for walks.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets a file.
    pub(super) fn forget_file(&mut self, file: FileId) {
        self.by_file.remove(&file);
        self.c_libraries.remove(&file);
    }

    /// The code of a virtual machine at a location in a file, if it executes frames that are not in snapshots of stacks.
    pub(crate) fn code_at(&self, file: FileId, offset: FileOffset) -> Option<VmCode> {
        let contains = |range: &FileRange| range.contains(offset);
        match &*self.by_file.get(&file)?.interpreter {
            Interpreter::CPython(cpython) => cpython.loops.iter().any(contains).then(|| {
                VmCode::CPythonLoop(match (cpython.unlinked.iter().any(contains), cpython.layout.cframe) {
                    (false, _) => VmLoop::Linked,
                    (true, None) => VmLoop::Unlinked,
                    (true, Some(_)) => VmLoop::Unwritten,
                })
            }),
            Interpreter::V8(library) => library.loops.iter().any(contains).then_some(VmCode::V8),
            Interpreter::HotSpot(_) => None,
        }
    }

    /// Whether a file contains V8.
    pub(crate) fn is_v8(&self, file: FileId) -> bool {
        self.by_file.get(&file).is_some_and(|known| matches!(*known.interpreter, Interpreter::V8(_)))
    }

    /// Whether any file contains V8.
    pub(crate) fn has_v8(&self) -> bool {
        self.by_file.values().any(|known| matches!(*known.interpreter, Interpreter::V8(_)))
    }

    /// What walks need to find the frames of a process's interpreters, of those that are known. Locates an interpreter's
    /// state when the process is seen with it for the first time.
    pub(super) fn runtimes(
        &mut self,
        process: &Process,
        files: &mut FileTable,
        reader: &ForeignReader,
    ) -> Vec<&PublishedRuntime> {
        let machines = MachineClass::ALL.map(|class| (ProcessKey::from(process), class));
        for key in machines {
            match self.find_in(process, files, key.1) {
                Some((file, bias)) => {
                    let pthread = self.pthread_layout(process, files);
                    self.add_machine(key, (file, bias), pthread, process, reader);
                }
                None => drop(self.processes.remove(&key)),
            }
        }
        machines.iter().filter_map(|key| self.processes.get(key)?.runtime.as_ref()).collect()
    }

    fn add_machine(
        &mut self,
        key: ProcessMachine,
        (file, bias): (FileId, u64),
        pthread: Option<PthreadLayout>,
        process: &Process,
        reader: &ForeignReader,
    ) {
        let known = self.processes.get_mut(&key).filter(|known| known.file == file && known.bias == bias);
        let is_known = known.is_some();
        // The C library may be read after the interpreter.
        if let Some(known) = known.filter(|known| known.pthread != pthread) {
            known.pthread = pthread;
            if matches!(*known.interpreter, Interpreter::CPython(_)) {
                self.locate(key, process, reader);
            }
        }
        if !is_known && let Some(FileInterpreter { interpreter, usual_state }) = self.by_file.get(&file) {
            let memory = ForeignProcess::from_pid(process.pid(), reader.clone()).ok();
            let (runtime, memory, source) = match &**interpreter {
                Interpreter::CPython(cpython) => {
                    let layout = FunctionLayout::CPython(cpython.layout);
                    let source = memory.map(|memory| InterpreterSource::new(layout, memory));
                    (usual_state.map(|state| published_cpython(file, cpython, state)), None, source)
                }
                Interpreter::HotSpot(_) => (None, memory, None),
                Interpreter::V8(library) => {
                    let engine = v8::Engine::new(library.layout, library.bytecode_sizes.clone());
                    let layout = FunctionLayout::V8(Arc::new(engine));
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
                    pthread,
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
    }

    /// The first file of a process that contains an interpreter of a class, and its load bias.
    fn find_in(
        &self,
        process: &Process,
        files: &mut FileTable,
        class: MachineClass,
    ) -> Option<(FileId, u64)> {
        if !self.by_file.values().any(|known| MachineClass::of(&known.interpreter) == class) {
            return None;
        }
        process.mappings().find_map(|mapping| {
            let file = files.identify(process, mapping)?.id;
            let interpreter = &self.by_file.get(&file)?.interpreter;
            let bias = interpreter.bias_of(mapping).filter(|_| MachineClass::of(interpreter) == class)?;
            Some((file, bias))
        })
    }

    /// How the C library of a process lays out threads, where that has to be read, and was.
    fn pthread_layout(&self, process: &Process, files: &mut FileTable) -> Option<PthreadLayout> {
        if self.c_libraries.is_empty() {
            return None;
        }
        let mut files = process.mappings().filter_map(|mapping| files.identify(process, mapping));
        files.find_map(|file| self.c_libraries.get(&file.id).copied())
    }

    /// Starts to read where the threads of a process have the state, and waits briefly for the result. Returns whether the
    /// runtime has changed.
    fn locate(&mut self, key: ProcessMachine, process: &Process, reader: &ForeignReader) -> bool {
        let Some(known) = self.processes.get(&key) else { return false };
        let (interpreter, bias, pthread) = (Arc::clone(&known.interpreter), known.bias, known.pthread);
        let vector = thread_vector(process);
        let Ok(target) = ReadTarget::from_pid(process.pid()) else { return false };
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
            let any = interpreter.locate_thread_state(bias, &memory, pthread)?;
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
                Ok(located) => changed.extend(self.set_located(key, located).then_some(key.0)),
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
            let Some(process) = processes.running(key.0) else { continue };
            changed.extend(self.locate(key, process, processes.reader()).then_some(key.0));
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
    fn set_located(&mut self, key: ProcessMachine, located: LocateResult) -> bool {
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

    fn retry_later(&mut self, key: ProcessMachine, reason: &impl Error) {
        debug!(pid = key.0.pid, %reason, "the interpreter's state is not known yet");
        if let Some(known) = self.processes.get_mut(&key) {
            known.retry = Some(Instant::now() + known.retry_interval);
            known.retry_interval = (2 * known.retry_interval).min(RETRY_INTERVAL_MAX);
        }
    }

    /// What the reporter needs to name a process's functions, of each interpreter once.
    pub(super) fn take_unannounced(&mut self, process: ProcessKey) -> Vec<Arc<InterpreterSource>> {
        let mut take = |class| {
            let known = self.processes.get_mut(&(process, class)).filter(|known| !known.is_announced)?;
            let source = known.source.clone()?;
            known.is_announced = true;
            Some(source)
        };
        MachineClass::ALL.into_iter().filter_map(&mut take).collect()
    }

    /// The processes whose state could not be located because we may not read their memory.
    pub(super) fn denied(&self) -> Vec<ProcessKey> {
        self.processes.iter().filter(|(_, known)| known.is_denied).map(|(key, _)| key.0).collect()
    }

    /// Forgets processes that no more samples can arrive from.
    pub(super) fn forget_exited(&mut self, processes: &ProcessTracker) {
        self.processes.retain(|(process, _), _| processes.running_or_exited(*process).is_some());
    }
}
