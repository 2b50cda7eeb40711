//! Names of the functions that virtual machines interpret.
//!
//! The names are in the memory of the process. They are read when a stack with an unknown function arrives, not when the
//! profile is written: the process may have exited by then, or have replaced the function.
//!
//! Owner: the thread of the reporter or command that has the [`Namer`](crate::naming::Namer). Input: stacks, and the
//! [`InterpreterSource`]s of processes. Output: functions with their lines.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_bpf::{CodeObject, RawFrame, RawFrameKind, VmFunction};
use sidewinder_process::{Process, ProcessKey};
use sidewinder_vm::cpython::{CodeCopy, Function, FunctionError, Interpreter};
use tracing::debug;

use crate::foreign::{ForeignProcess, ForeignReader, ReadFailure};

/// How long to wait for the functions of one stack. They normally take less than a millisecond.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// How long the memory of a process that could not be read in time is not read again.
const BACKOFF: Duration = Duration::from_secs(10);
/// The most functions that are read at once: those of one deep stack.
const BATCH_MAX: usize = 1024;
/// The most stacks that are remembered as having no unknown function.
const KNOWN_STACKS_MAX: usize = 16 << 10;
/// What an entry takes in addition to the function itself: its key, and its share of the hash map.
const ENTRY_BYTES: usize = 128;

/// The interpreter that a process runs, and the memory in which its functions are.
#[derive(Debug)]
pub(crate) struct InterpreterSource {
    interpreter: Arc<Interpreter>,
    memory: ForeignProcess,
}

impl InterpreterSource {
    /// The source of a running process; `None` if it has exited.
    pub(crate) fn from_process(
        process: &Process,
        interpreter: Arc<Interpreter>,
        reader: &ForeignReader,
    ) -> Option<Self> {
        let memory = ForeignProcess::from_pid(process.pid(), reader.clone()).ok()?;
        Some(Self { interpreter, memory })
    }

    fn read(&self, wanted: Vec<VmFunction>) -> Result<Vec<ReadFunction>, ReadFailure> {
        let layout = self.interpreter.layout;
        self.memory.read_within(READ_TIMEOUT, move |memory| {
            wanted
                .into_iter()
                .map(|wanted| (wanted, layout.read_function(memory, wanted.object, wanted.cookie)))
                .collect()
        })
    }
}

/// What was read of a function.
type ReadFunction = (VmFunction, Result<Function, FunctionError>);

/// A function of a process: the address of its object, and its cookie.
type FunctionKey = (ProcessKey, Avma, u32);

/// The functions of virtual machines that have been named.
#[derive(Debug)]
pub(crate) struct VmNames {
    processes: HashMap<ProcessKey, ProcessState>,
    /// `None`: the function can't be named.
    functions: HashMap<FunctionKey, Option<Arc<Function>>>,
    /// Those that are known from a copy without all lines, and are read once more.
    incomplete: HashSet<FunctionKey>,
    /// Stacks whose functions have all been looked up.
    known_stacks: HashSet<(ProcessKey, u64)>,
    bytes: usize,
    budget_bytes: usize,
    counts: VmNameCounts,
    is_reading_stopped: bool,
}

#[derive(Debug)]
struct ProcessState {
    source: Arc<InterpreterSource>,
    backoff_until: Option<Instant>,
}

/// How look-ups of functions ended, one for each function of a process.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct VmNameCounts {
    pub(crate) named: u64,
    /// Another function had the address when the name was read.
    pub(crate) replaced: u64,
    /// The function could not be read, or its content is invalid.
    pub(crate) unreadable: u64,
    /// Functions that were forgotten because the memory for names was used up.
    pub(crate) forgotten: u64,
}

impl std::ops::AddAssign for VmNameCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { named, replaced, unreadable, forgotten } = other;
        self.named += named;
        self.replaced += replaced;
        self.unreadable += unreadable;
        self.forgotten += forgotten;
    }
}

impl VmNames {
    /// `budget_bytes` limits the memory for all names.
    pub(crate) fn new(budget_bytes: usize) -> Self {
        Self {
            processes: HashMap::new(),
            functions: HashMap::new(),
            incomplete: HashSet::new(),
            known_stacks: HashSet::new(),
            bytes: 0,
            budget_bytes,
            counts: VmNameCounts::default(),
            is_reading_stopped: false,
        }
    }

    pub(crate) fn add_process(&mut self, process: ProcessKey, source: Arc<InterpreterSource>) {
        self.processes.insert(process, ProcessState { source, backoff_until: None });
    }

    /// Removes a process, with the names of its functions.
    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        if self.processes.remove(&process).is_some() {
            let gone = self.functions.extract_if(|(key, ..), _| *key == process);
            self.bytes -= gone.map(|(_, function)| entry_bytes(function.as_ref())).sum::<usize>();
            self.incomplete.retain(|(key, ..)| *key != process);
            self.known_stacks.retain(|(key, _)| *key != process);
        }
    }

    /// Stops reading. Later look-ups find what has been read so far.
    pub(crate) fn stop_reading(&mut self) {
        self.is_reading_stopped = true;
    }

    pub(crate) fn counts(&self) -> VmNameCounts {
        self.counts
    }

    /// Adds a function from a copy of its code object, unless it is known. Returns whether it was not found before.
    pub(crate) fn add_copy(&mut self, process: ProcessKey, object: &CodeObject) -> bool {
        let key = (process, object.address, object.cookie);
        let known = self.functions.get(&key);
        let Some(state) = self.processes.get(&process) else { return false };
        if known.is_some_and(Option::is_some) {
            return false;
        }
        let was_unnamed = known.is_some();
        let CodeObject { identity, name, path, lines, .. } = object;
        match state.source.interpreter.layout.copied_function(CodeCopy { identity, name, path, lines }, key.2)
        {
            Ok(function) => {
                if !function.has_lines() {
                    self.incomplete.insert(key);
                }
                self.add(key, Ok(function));
                was_unnamed
            }
            Err(error) => {
                debug!(pid = process.pid, %error, "can't use the copy of a function");
                false
            }
        }
    }

    /// Reads the unknown functions of a stack, identified by its ID.
    pub(crate) fn read_stack(&mut self, process: ProcessKey, stack_id: u64, frames: &[RawFrame]) {
        if self.known_stacks.contains(&(process, stack_id)) {
            return;
        }
        let mut wanted = HashMap::new();
        for frame in frames {
            if let Some(RawFrameKind::CPython(function)) = frame.kind()
                && self.is_wanted(key(process, function))
                && wanted.len() < BATCH_MAX
            {
                wanted.insert(key(process, function), function);
            }
        }
        if !wanted.is_empty() && !self.read(process, wanted.into_values().collect()) {
            return;
        }
        if self.known_stacks.len() >= KNOWN_STACKS_MAX {
            self.known_stacks.clear();
        }
        self.known_stacks.insert((process, stack_id));
    }

    fn is_wanted(&self, key: FunctionKey) -> bool {
        !self.functions.contains_key(&key) || self.incomplete.contains(&key)
    }

    /// The function of a frame, if it is known.
    pub(crate) fn lookup(&self, process: ProcessKey, function: VmFunction) -> Option<&Arc<Function>> {
        self.functions.get(&key(process, function))?.as_ref()
    }

    /// Reads functions, and adds them. Returns false if they should be read again later.
    fn read(&mut self, process: ProcessKey, wanted: Vec<VmFunction>) -> bool {
        let Some(state) = self.processes.get_mut(&process) else { return false };
        let now = Instant::now();
        if self.is_reading_stopped || state.backoff_until.is_some_and(|until| now < until) {
            return false;
        }
        let count = wanted.len() as u64;
        match state.source.read(wanted) {
            Ok(read) => {
                for (function, result) in read {
                    // A copy without all lines is better than nothing.
                    if !self.incomplete.remove(&key(process, function)) || result.is_ok() {
                        self.add(key(process, function), result);
                    }
                }
                true
            }
            Err(failure) => {
                debug!(pid = process.pid, %failure, functions = count, "can't read names of functions");
                if failure == ReadFailure::Gone {
                    self.counts.unreadable += count;
                }
                state.backoff_until = Some(now + BACKOFF);
                false
            }
        }
    }

    fn add(&mut self, key: FunctionKey, result: Result<Function, FunctionError>) {
        let function = match result {
            Ok(function) => {
                self.counts.named += 1;
                Some(Arc::new(function))
            }
            Err(FunctionError::Replaced) => {
                self.counts.replaced += 1;
                None
            }
            Err(error) => {
                debug!(pid = key.0.pid, %error, "can't read the name of a function");
                self.counts.unreadable += 1;
                None
            }
        };
        let bytes = entry_bytes(function.as_ref());
        if self.bytes + bytes > self.budget_bytes {
            // The functions that still run are read again.
            self.counts.forgotten += self.functions.len() as u64;
            self.functions.clear();
            self.incomplete.clear();
            self.known_stacks.clear();
            self.bytes = 0;
        }
        self.bytes += bytes;
        if let Some(previous) = self.functions.insert(key, function) {
            self.bytes -= entry_bytes(previous.as_ref());
        }
    }
}

fn key(process: ProcessKey, function: VmFunction) -> FunctionKey {
    (process, function.object, function.cookie)
}

fn entry_bytes(function: Option<&Arc<Function>>) -> usize {
    ENTRY_BYTES + function.map_or(0, |function| function.heap_bytes())
}
