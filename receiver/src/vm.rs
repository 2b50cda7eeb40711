//! Names of the functions that virtual machines interpret.
//!
//! The names are in the memory of the process. They are read when a stack with an unknown function arrives, not when the
//! profile is written: the process may have exited by then, or have replaced the function.
//!
//! Owner: the thread of the reporter or command that has the [`Namer`](crate::naming::Namer). Input: stacks, and the
//! [`InterpreterSource`]s of processes. Output: functions with their lines.

mod source;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::{CodeObject, RawFrame, RawFrameKind, VmForm, VmFunction, VmMachine};
use sidewinder_process::ProcessKey;
use sidewinder_vm::cpython::{CodeCopy, FunctionCache, FunctionError};
use sidewinder_vm::{Code, SharedFunctions};
use tracing::debug;

pub(crate) use self::source::{FunctionLayout, InterpreterSource};
use crate::foreign::{PendingRead, ReadFailure, ReadProgress};
use crate::time_budget::TimeBudget;

/// How long to wait for the functions of one stack. They normally take less than a millisecond. What takes longer is used when
/// it arrives.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// The same where look-ups may take unlimited time: longer than a reader may take for it.
const PATIENT_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The share of all time that is spent on such waits, as a divisor, and how much of it is saved.
const WAITS_SHARE: u32 = 4;
const WAITS_BURST: Duration = Duration::from_secs(1);
/// How long the memory of a process is not read again after a failure: the first time, and at most. It doubles each time.
const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);
/// The most functions of a stack that are read at once: those of a deep one. With them, as many that waited for it.
const BATCH_MAX: usize = 1024;
/// The share of the budget that is for functions which many instructions have in common, as a divisor.
const SHARED_SHARE: usize = 2;
/// The most stacks that are remembered as having no unknown function.
const KNOWN_STACKS_MAX: usize = 16 << 10;

/// What was read of functions; `None`: their process had ended.
type FunctionsRead = Option<Vec<(VmFunction, Result<Code, FunctionError>)>>;

/// A function of a process. Its place is 0, unless the function depends on that, as it does in machine code.
type FunctionKey = (ProcessKey, VmFunction);

/// The functions of virtual machines that have been named.
#[derive(Debug)]
pub(crate) struct VmNames {
    processes: HashMap<ProcessKey, ProcessRuntimes>,
    functions: FunctionCache<FunctionKey, Code>,
    /// Those of compiled code, which take a share of the budget of their own.
    shared: SharedFunctions,
    shared_budget_bytes: usize,
    /// Those that are known from a copy without all lines, and are read once more.
    incomplete: HashSet<FunctionKey>,
    /// Stacks whose functions have all been looked up.
    known_stacks: HashSet<(ProcessKey, u64)>,
    counts: VmNameCounts,
    /// `None`: they may take unlimited time.
    waits: Option<TimeBudget>,
    is_reading_stopped: bool,
}

#[derive(Debug)]
struct ProcessRuntimes {
    /// Of each of its interpreters. They have the same memory.
    sources: Vec<Arc<InterpreterSource>>,
    /// The read that takes longer than was waited for it, with the functions that it reads.
    pending: Option<(PendingRead<FunctionsRead>, Vec<VmFunction>)>,
    /// Functions of stacks that came during a read, or during a backoff.
    postponed: HashMap<FunctionKey, VmFunction>,
    /// Until when the memory is not read again, and for how long after the next failure.
    backoff_until: Option<Instant>,
    next_backoff: Duration,
    obstacle: Option<VmObstacle>,
}

impl ProcessRuntimes {
    fn new(source: Arc<InterpreterSource>) -> Self {
        Self {
            sources: vec![source],
            pending: None,
            postponed: HashMap::new(),
            backoff_until: None,
            next_backoff: BACKOFF_FIRST,
            obstacle: None,
        }
    }

    fn start_read(
        &self,
        timeout: Duration,
        wanted: Vec<VmFunction>,
    ) -> Result<ReadProgress<FunctionsRead>, ReadFailure> {
        let Some(first) = self.sources.first() else { return Err(ReadFailure::Gone) };
        let layouts: Vec<_> = self.sources.iter().map(|source| source.layout.clone()).collect();
        first.memory.start_read(timeout, move |memory| {
            let read = |wanted: VmFunction| {
                let layout = layouts.iter().find(|layout| layout.machine() == wanted.machine)?;
                Some((wanted, layout.read_code(memory, wanted)))
            };
            wanted.into_iter().filter_map(read).collect()
        })
    }

    /// Adds functions to the next read, as far as there is room. Others are wanted again by the next stacks that have them.
    fn postpone(&mut self, wanted: impl IntoIterator<Item = (FunctionKey, VmFunction)>) {
        let room = BATCH_MAX.saturating_sub(self.postponed.len());
        self.postponed.extend(wanted.into_iter().take(room));
    }

    fn back_off(&mut self, now: Instant) {
        self.backoff_until = Some(now + self.next_backoff);
        self.next_backoff = (2 * self.next_backoff).min(BACKOFF_MAX);
    }
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
    /// Of those named, the ones of compiled code that was not found any more: without inlined functions, and with their first line.
    pub(crate) without_code: u64,
    /// Another function had the address when the name was read.
    pub(crate) replaced: u64,
    /// The function could not be read, or its content is invalid.
    pub(crate) unreadable: u64,
    /// Functions that were forgotten because the memory for names was used up.
    pub(crate) forgotten: u64,
}

impl std::ops::AddAssign for VmNameCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { named, without_code, replaced, unreadable, forgotten } = other;
        self.named += named;
        self.without_code += without_code;
        self.replaced += replaced;
        self.unreadable += unreadable;
        self.forgotten += forgotten;
    }
}

impl VmNames {
    /// `budget_bytes` limits the memory for all names. `has_no_time_limit`: look-ups may take unlimited time.
    pub(crate) fn new(budget_bytes: usize, has_no_time_limit: bool) -> Self {
        Self {
            processes: HashMap::new(),
            functions: FunctionCache::new(budget_bytes - budget_bytes / SHARED_SHARE),
            shared: SharedFunctions::default(),
            shared_budget_bytes: budget_bytes / SHARED_SHARE,
            incomplete: HashSet::new(),
            known_stacks: HashSet::new(),
            counts: VmNameCounts::default(),
            waits: (!has_no_time_limit).then(|| TimeBudget::new(WAITS_SHARE, WAITS_BURST)),
            is_reading_stopped: false,
        }
    }

    pub(crate) fn add_process(&mut self, process: ProcessKey, source: Arc<InterpreterSource>) {
        let machine = source.layout.machine();
        match self.processes.entry(process) {
            Entry::Vacant(vacant) => drop(vacant.insert(ProcessRuntimes::new(source))),
            Entry::Occupied(known) => {
                let sources = &mut known.into_mut().sources;
                sources.retain(|known| known.layout.machine() != machine);
                sources.push(source);
            }
        }
    }

    /// Removes a process, with the names of its functions.
    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        if self.processes.remove(&process).is_some() {
            self.functions.remove_if(|(key, _)| *key == process);
            self.shared.forget_unused();
            self.incomplete.retain(|(key, _)| *key != process);
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
        let form = VmForm::Interpreted;
        // Only CPython's functions are sent.
        let machine = VmMachine::CPython;
        let (address, cookie) = (object.address, object.cookie);
        let key = (process, VmFunction { machine, object: address, cookie, place: 0, form });
        let Some(state) = self.processes.get(&process) else { return false };
        let was_unnamed = match self.functions.get(&key) {
            Some(Some(_)) => return false,
            Some(None) => true,
            None => false,
        };
        let CodeObject { head, identity, name, path, lines, .. } = object;
        let copy = CodeCopy { head, identity, name, path, lines };
        let of_cpython = |source: &&Arc<InterpreterSource>| source.layout.machine() == machine;
        let Some(source) = state.sources.iter().find(of_cpython) else { return false };
        let FunctionLayout::CPython(layout) = &source.layout else { return false };
        match layout.copied_function(copy, object.cookie) {
            Ok(function) => {
                if !function.has_lines() {
                    self.incomplete.insert(key);
                }
                self.add(key, Ok(Code::Function(function)));
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
        self.take_pending(process);
        let mut wanted = HashMap::new();
        for frame in frames {
            if let Some(RawFrameKind::Vm(function)) = frame.kind()
                && wanted.len() < BATCH_MAX
                && is_wanted(&mut self.functions, &self.incomplete, &key(process, function))
            {
                wanted.insert(key(process, function), function);
            }
        }
        if !wanted.is_empty() && !self.read(process, wanted) {
            return;
        }
        if self.known_stacks.len() >= KNOWN_STACKS_MAX {
            self.known_stacks.clear();
        }
        self.known_stacks.insert((process, stack_id));
    }

    /// The function of a frame, if it is known.
    pub(crate) fn lookup(&mut self, process: ProcessKey, function: VmFunction) -> Option<&Code> {
        let key = key(process, function);
        if self.functions.get(&key).is_none() {
            self.take_pending(process);
        }
        self.functions.get(&key)?
    }

    /// Whether a function is going to be read.
    pub(crate) fn is_pending(&mut self, process: ProcessKey, function: VmFunction) -> bool {
        !self.is_reading_stopped
            && self.processes.contains_key(&process)
            && self.functions.get(&key(process, function)).is_none()
    }

    /// Why functions of a process have no names, if they could not be read at all.
    pub(crate) fn obstacle(&self, process: ProcessKey) -> Option<VmObstacle> {
        self.processes.get(&process)?.obstacle
    }

    /// Reads functions, and adds them. Returns false if they should be read again later.
    fn read(&mut self, process: ProcessKey, wanted: HashMap<FunctionKey, VmFunction>) -> bool {
        let Some(state) = self.processes.get_mut(&process) else { return false };
        if self.is_reading_stopped {
            return false;
        }
        let now = Instant::now();
        if state.pending.is_some() || state.backoff_until.is_some_and(|until| now < until) {
            state.postpone(wanted);
            return false;
        }
        let mut batch = std::mem::take(&mut state.postponed);
        // Meanwhile others may have been read.
        batch.retain(|key, _| is_wanted(&mut self.functions, &self.incomplete, key));
        batch.extend(wanted);
        let functions: Vec<VmFunction> = batch.into_values().collect();
        let remaining = self.waits.as_ref().map(|waits| waits.remaining(now).min(READ_TIMEOUT));
        let result = state.start_read(remaining.unwrap_or(PATIENT_READ_TIMEOUT), functions.clone());
        if let Some(waits) = &mut self.waits {
            waits.spend(now.elapsed(), Instant::now());
        }
        match result {
            Ok(ReadProgress::Pending(pending)) => {
                state.pending = Some((pending, functions));
                false
            }
            Ok(ReadProgress::Done(read)) => self.add_read(process, Ok(read), &functions),
            Err(failure) => self.add_read(process, Err(failure), &functions),
        }
    }

    /// Takes the result of a read that took longer than was waited for it, if it has arrived.
    fn take_pending(&mut self, process: ProcessKey) {
        let Some(state) = self.processes.get_mut(&process) else { return };
        let Some(result) = state.pending.as_ref().and_then(|(pending, _)| pending.poll()) else { return };
        let Some((_, functions)) = state.pending.take() else { return };
        self.add_read(process, result, &functions);
    }

    /// Adds what was read of functions. Returns false if they should be read again later.
    fn add_read(
        &mut self,
        process: ProcessKey,
        result: Result<FunctionsRead, ReadFailure>,
        wanted: &[VmFunction],
    ) -> bool {
        let Some(state) = self.processes.get_mut(&process) else { return false };
        match result {
            Ok(Some(read)) => {
                (state.backoff_until, state.next_backoff) = (None, BACKOFF_FIRST);
                for (function, result) in read {
                    let key = key(process, function);
                    self.incomplete.remove(&key);
                    // A copy, even without all lines, is better than nothing.
                    if result.is_ok() || !matches!(self.functions.get(&key), Some(Some(_))) {
                        self.add(key, result);
                    }
                }
                true
            }
            Ok(None) | Err(ReadFailure::Gone) => {
                // Nothing will read them any more.
                state.obstacle = Some(VmObstacle::Ended);
                let postponed = std::mem::take(&mut state.postponed).into_keys();
                for key in wanted.iter().map(|function| key(process, *function)).chain(postponed) {
                    self.incomplete.remove(&key);
                    if self.functions.get(&key).is_none() {
                        self.counts.unreadable += 1;
                        self.insert(key, None);
                    }
                }
                true
            }
            Err(failure) => {
                debug!(pid = process.pid, %failure, functions = wanted.len(), "can't read names of functions");
                state.back_off(Instant::now());
                state.postpone(wanted.iter().map(|function| (key(process, *function), *function)));
                false
            }
        }
    }

    fn add(&mut self, key: FunctionKey, result: Result<Code, FunctionError>) {
        let function = match result {
            Ok(function) => {
                self.counts.named += 1;
                let is_alone = key.1.form.is_compiled() && matches!(function, Code::Function(_));
                self.counts.without_code += u64::from(is_alone);
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

    fn insert(&mut self, key: FunctionKey, mut function: Option<Code>) {
        if let Some(code) = &mut function {
            self.shared.share(code);
        }
        let mut forgotten = self.functions.insert(key, function);
        if self.shared.bytes() > self.shared_budget_bytes {
            self.shared.forget_unused();
        }
        if self.shared.bytes() > self.shared_budget_bytes {
            let before = self.functions.len();
            self.functions.remove_if(|(_, function)| function.form.is_compiled());
            self.shared.forget_unused();
            forgotten += before - self.functions.len();
        }
        if forgotten > 0 {
            // Of those, the ones that still run are read again.
            self.counts.forgotten += forgotten as u64;
            self.incomplete.clear();
            self.known_stacks.clear();
        }
    }
}

/// Whether a function is not known, or not with all its lines.
fn is_wanted(
    functions: &mut FunctionCache<FunctionKey, Code>,
    incomplete: &HashSet<FunctionKey>,
    key: &FunctionKey,
) -> bool {
    functions.get(key).is_none() || incomplete.contains(key)
}

fn key(process: ProcessKey, function: VmFunction) -> FunctionKey {
    let place = if function.form.is_compiled() { function.place } else { 0 };
    (process, VmFunction { place, ..function })
}

#[cfg(test)]
mod tests;
