//! Names of the functions that virtual machines interpret.
//!
//! The names are in the memory of the process. They are read when a stack with an unknown function arrives, not when the
//! profile is written: the process may have exited by then, or have replaced the function.
//!
//! Owner: the thread of the reporter or command that has the [`Namer`](crate::naming::Namer). Input: stacks, and the
//! [`InterpreterSource`]s of processes. Output: functions with their lines.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_address::Avma;
use sidewinder_bpf::{CodeObject, RawFrame, RawFrameKind, VmFunction};
use sidewinder_process::{Process, ProcessKey};
use sidewinder_vm::cpython::{CodeCopy, Function, FunctionCache, FunctionError, Interpreter};
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
    functions: FunctionCache<FunctionKey>,
    /// Those that are known from a copy without all lines, and are read once more.
    incomplete: HashSet<FunctionKey>,
    /// Stacks whose functions have all been looked up.
    known_stacks: HashSet<(ProcessKey, u64)>,
    counts: VmNameCounts,
    is_reading_stopped: bool,
}

#[derive(Debug)]
struct ProcessState {
    source: Arc<InterpreterSource>,
    backoff_until: Option<Instant>,
    obstacle: Option<VmObstacle>,
}

/// Why functions of a process have no names.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum VmObstacle {
    /// We may not read its memory.
    Denied,
    /// It had ended before its functions were read.
    Ended,
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
            functions: FunctionCache::new(budget_bytes),
            incomplete: HashSet::new(),
            known_stacks: HashSet::new(),
            counts: VmNameCounts::default(),
            is_reading_stopped: false,
        }
    }

    pub(crate) fn add_process(&mut self, process: ProcessKey, source: Arc<InterpreterSource>) {
        self.processes.insert(process, ProcessState { source, backoff_until: None, obstacle: None });
    }

    /// Removes a process, with the names of its functions.
    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        if self.processes.remove(&process).is_some() {
            self.functions.remove_if(|(key, ..)| *key == process);
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
        let Some(state) = self.processes.get(&process) else { return false };
        let was_unnamed = match self.functions.get(&key) {
            Some(Some(_)) => return false,
            Some(None) => true,
            None => false,
        };
        let CodeObject { head, identity, name, path, lines, .. } = object;
        let copy = CodeCopy { head, identity, name, path, lines };
        match state.source.interpreter.layout.copied_function(copy, key.2) {
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
                && wanted.len() < BATCH_MAX
                && self.is_wanted(key(process, function))
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

    fn is_wanted(&mut self, key: FunctionKey) -> bool {
        self.functions.get(&key).is_none() || self.incomplete.contains(&key)
    }

    /// The function of a frame, if it is known.
    pub(crate) fn lookup(&mut self, process: ProcessKey, function: VmFunction) -> Option<&Arc<Function>> {
        self.functions.get(&key(process, function))?
    }

    /// Why functions of a process have no names, if they could not be read at all.
    pub(crate) fn obstacle(&self, process: ProcessKey) -> Option<VmObstacle> {
        self.processes.get(&process)?.obstacle
    }

    /// Reads functions, and adds them. Returns false if they should be read again later.
    fn read(&mut self, process: ProcessKey, wanted: Vec<VmFunction>) -> bool {
        let Some(state) = self.processes.get_mut(&process) else { return false };
        let now = Instant::now();
        if self.is_reading_stopped || state.backoff_until.is_some_and(|until| now < until) {
            return false;
        }
        let keys: Vec<FunctionKey> = wanted.iter().map(|function| key(process, *function)).collect();
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
            Err(ReadFailure::Gone) => {
                // Nothing will read them any more.
                state.obstacle = Some(VmObstacle::Ended);
                for key in keys {
                    // A copy without all lines is better than nothing.
                    if !self.incomplete.remove(&key) {
                        self.counts.unreadable += 1;
                        self.insert(key, None);
                    }
                }
                true
            }
            Err(failure) => {
                debug!(pid = process.pid, %failure, functions = keys.len(), "can't read names of functions");
                state.backoff_until = Some(now + BACKOFF);
                false
            }
        }
    }

    fn add(&mut self, key: FunctionKey, result: Result<Function, FunctionError>) {
        let function = match result {
            Ok(function) => {
                self.counts.named += 1;
                Some(function)
            }
            Err(FunctionError::Replaced) => {
                self.counts.replaced += 1;
                None
            }
            Err(error) => {
                debug!(pid = key.0.pid, %error, "can't read the name of a function");
                if let FunctionError::Unreadable(error) = &error
                    && error.kind() == io::ErrorKind::PermissionDenied
                    && let Some(state) = self.processes.get_mut(&key.0)
                {
                    state.obstacle = Some(VmObstacle::Denied);
                }
                self.counts.unreadable += 1;
                None
            }
        };
        self.insert(key, function);
    }

    fn insert(&mut self, key: FunctionKey, function: Option<Function>) {
        let forgotten = self.functions.insert(key, function);
        if forgotten > 0 {
            // Of those, the ones that still run are read again.
            self.counts.forgotten += forgotten as u64;
            self.incomplete.clear();
            self.known_stacks.clear();
        }
    }
}

fn key(process: ProcessKey, function: VmFunction) -> FunctionKey {
    (process, function.object, function.cookie)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::process::{Child, Command, Stdio};

    use sidewinder_bpf::Opener;
    use sidewinder_process::Pid;

    use super::*;

    const PYTHON: &str = "/usr/bin/python3";

    struct Target(Child);

    impl Target {
        /// A process that waits, whatever it runs.
        fn start() -> Self {
            Self(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
        }

        fn key(&self) -> ProcessKey {
            ProcessKey { pid: self.0.id(), instance: 1 }
        }

        fn end(&mut self) {
            drop(self.0.stdin.take());
            self.0.wait().unwrap();
        }
    }

    impl Drop for Target {
        fn drop(&mut self) {
            self.end();
        }
    }

    fn function(number: u64) -> VmFunction {
        VmFunction { object: Avma(number << 12), cookie: 1, place: 0 }
    }

    fn stack(functions: std::ops::Range<u64>) -> Vec<RawFrame> {
        functions
            .map(|number| RawFrame::new(RawFrameKind::CPython(function(number)), 0, false, false))
            .collect()
    }

    /// Names with a process; `None` if there is no CPython here.
    fn names_of(target: &Target, budget_bytes: usize) -> Option<VmNames> {
        let file = File::open(PYTHON).ok()?;
        let Some(interpreter) = Interpreter::read(&file).unwrap() else {
            eprintln!("SKIPPED: {PYTHON} does not contain its interpreter");
            return None;
        };
        let reader = ForeignReader::start(&Opener::start().unwrap(), None).unwrap();
        let memory = ForeignProcess::from_pid(Pid(target.0.id()), reader).unwrap();
        let source = InterpreterSource { interpreter: Arc::new(interpreter), memory };
        let mut names = VmNames::new(budget_bytes);
        names.add_process(target.key(), Arc::new(source));
        Some(names)
    }

    #[test]
    fn functions_of_a_process_that_has_ended_are_counted_once() {
        let mut target = Target::start();
        let Some(mut names) = names_of(&target, 1 << 20) else { return };
        target.end();
        // Stacks that share functions.
        for (stack_id, frames) in [stack(1..11), stack(5..21)].into_iter().enumerate() {
            for _ in 0..3 {
                names.read_stack(target.key(), stack_id as u64, &frames);
            }
        }
        assert_eq!(names.counts(), VmNameCounts { unreadable: 20, ..VmNameCounts::default() });
        assert_eq!(names.obstacle(target.key()), Some(VmObstacle::Ended));
        assert!(names.lookup(target.key(), function(1)).is_none());
        names.remove_process(target.key());
        assert!(names.functions.is_empty() && names.functions.bytes() == 0);
    }

    #[test]
    fn functions_that_cant_be_read_are_counted_once_and_forgotten_in_order() {
        let target = Target::start();
        let entry_bytes = FunctionCache::<FunctionKey>::entry_bytes(None);
        let Some(mut names) = names_of(&target, 16 * entry_bytes) else { return };
        for number in 0..20 {
            names.read_stack(target.key(), number, &stack(number + 1..number + 2));
        }
        // For the 17th and the 20th, an eighth of the budget was freed, and room for it.
        let counts = VmNameCounts { unreadable: 20, forgotten: 6, ..VmNameCounts::default() };
        assert_eq!((names.counts(), names.obstacle(target.key())), (counts, None));
        assert!(names.functions.get(&key(target.key(), function(20))).is_some());
        assert!(names.functions.get(&key(target.key(), function(1))).is_none());
    }
}
