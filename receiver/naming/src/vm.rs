//! Names of the functions that language runtimes interpret or have compiled.
//!
//! The names are in the memory of the process. They are read when a stack with an unknown function arrives, not when the
//! profile is written: the process may have exited by then, or have replaced the function.
//!
//! Owner: the thread of the reporter or command that has the [`Namer`](crate::Namer). Input: stacks, and the
//! [`RuntimeSource`]s of processes. Output: functions with their lines.

mod counts;
mod key;
mod process_runtimes;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_base::foreign::{ReadFailure, ReadProgress};
use sidewinder_base::time_budget::TimeBudget;
use sidewinder_bpf::{CodeObject, RawFrame, RawFrameKind, VmFunction};
use sidewinder_message::RuntimeSource;
use sidewinder_process::{Pid, ProcessKey};
use sidewinder_vm::source_map::SourceMaps;
use sidewinder_vm::{Code, FunctionCache, FunctionError, RuntimeFunctions, SharedFunctions};
use tracing::debug;

pub use self::counts::VmNameCounts;
pub use self::counts::VmObstacle;
use self::key::FunctionKey;
use self::process_runtimes::{BATCH_MAX, FunctionsRead, ProcessRuntimes};
use crate::source_maps::{ProcessSourceMaps, SourceMapCounts, SourceMapStore};

/// How long to wait for the functions of one stack. They normally take less than a millisecond. What takes longer is used when
/// it arrives.
const READ_TIMEOUT: Duration = Duration::from_millis(250);
/// The same where look-ups may take unlimited time: longer than a reader may take for it.
const PATIENT_READ_TIMEOUT: Duration = Duration::from_secs(10);
/// The share of all time that is spent on such waits, as a divisor, and how much of it is saved.
const WAITS_SHARE: u32 = 4;
const WAITS_BURST: Duration = Duration::from_secs(1);
/// The share of the budget that is for functions which many instructions have in common, as a divisor.
const SHARED_SHARE: usize = 2;
/// How often functions are read again at once because the source maps of their scripts were missing: those of several scripts are
/// needed where functions are inlined.
const MAP_ROUNDS: usize = 4;
/// The most stacks that are remembered as having no unknown function.
const KNOWN_STACKS_MAX: usize = 16 << 10;

/// The functions of language runtimes that have been named.
#[derive(Debug)]
pub(crate) struct VmNames {
    processes: HashMap<ProcessKey, ProcessRuntimes>,
    functions: FunctionCache<FunctionKey, Code>,
    /// Those of compiled code, which take at most a share of the budget.
    shared: SharedFunctions,
    budget_bytes: usize,
    /// Those that are known from a copy without all lines, and are read once more.
    incomplete: HashSet<FunctionKey>,
    /// Stacks whose functions have all been looked up.
    known_stacks: HashSet<(ProcessKey, u64)>,
    counts: VmNameCounts,
    /// `None`: they may take unlimited time.
    waits: Option<TimeBudget>,
    /// `None`: source maps are not used.
    source_maps: Option<Arc<SourceMapStore>>,
    is_reading_stopped: bool,
}

impl VmNames {
    /// `budget_bytes` limits the memory for all names. `has_no_time_limit`: look-ups may take unlimited time. `source_maps`: the
    /// maps of scripts, if they are used; they have a budget of their own.
    pub(crate) fn new(
        budget_bytes: usize,
        has_no_time_limit: bool,
        source_maps: Option<Arc<SourceMapStore>>,
    ) -> Self {
        Self {
            processes: HashMap::new(),
            functions: FunctionCache::new(budget_bytes),
            shared: SharedFunctions::default(),
            budget_bytes,
            incomplete: HashSet::new(),
            known_stacks: HashSet::new(),
            counts: VmNameCounts::default(),
            waits: (!has_no_time_limit).then(|| TimeBudget::new(WAITS_SHARE, WAITS_BURST)),
            source_maps,
            is_reading_stopped: false,
        }
    }

    pub(crate) fn add_process(&mut self, process: ProcessKey, source: Arc<RuntimeSource>) {
        let runtime = source.functions.runtime();
        let maps = self.open_source_maps(process, &*source.functions);
        let state = match self.processes.entry(process) {
            Entry::Vacant(vacant) => vacant.insert(ProcessRuntimes::new(source)),
            Entry::Occupied(known) => {
                let state = known.into_mut();
                state.sources.retain(|known| known.functions.runtime() != runtime);
                state.sources.push(source);
                state
            }
        };
        if maps.is_some() {
            state.source_maps = maps;
        }
    }

    /// Has functions be those of the sources that scripts were made of, if the runtime has scripts with source maps.
    fn open_source_maps(
        &self,
        process: ProcessKey,
        functions: &dyn RuntimeFunctions,
    ) -> Option<Arc<ProcessSourceMaps>> {
        let store = self.source_maps.as_ref()?;
        let mut opened = None;
        functions.use_source_maps(&mut || {
            match ProcessSourceMaps::new(Pid(process.pid), Arc::clone(store)) {
                Ok(maps) => opened = Some(Arc::new(maps)),
                Err(error) => debug!(pid = process.pid, %error, "can't look for source maps"),
            }
            opened.clone().map(|maps| maps as Arc<dyn SourceMaps>)
        });
        opened
    }

    /// How the search for the source maps of scripts ended.
    pub(crate) fn source_map_counts(&self) -> SourceMapCounts {
        self.source_maps.as_ref().map_or_else(SourceMapCounts::default, |store| store.counts())
    }

    /// Removes a process, with the names of its functions.
    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        if self.processes.remove(&process).is_some() {
            self.functions.remove_if(|key| key.process() == process);
            self.shared.forget_unused();
            self.incomplete.retain(|key| key.process() != process);
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
        let function = object.function();
        let key = FunctionKey::new(process, function);
        let Some(state) = self.processes.get(&process) else { return false };
        let was_unnamed = match self.functions.get(&key) {
            Some(Some(_)) => return false,
            Some(None) => true,
            None => false,
        };
        let is_its_own = |source: &&Arc<RuntimeSource>| source.functions.runtime() == function.runtime;
        let Some(source) = state.sources.iter().find(is_its_own) else { return false };
        let Some(copied) = source.functions.copied(object) else { return false };
        match copied {
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
        self.read_stacks(process, std::iter::once((stack_id, frames)));
    }

    /// Reads the unknown functions of stacks of a process, each with its ID.
    pub(crate) fn read_stacks<'frames>(
        &mut self,
        process: ProcessKey,
        stacks: impl Iterator<Item = (u64, &'frames [RawFrame])>,
    ) {
        let stacks: Vec<_> = stacks.filter(|(id, _)| !self.known_stacks.contains(&(process, *id))).collect();
        if stacks.is_empty() {
            return;
        }
        self.take_pending(process);
        let (mut wanted, mut read) = (HashMap::new(), Vec::new());
        for (id, frames) in stacks {
            for frame in frames {
                if let Some(RawFrameKind::Vm(function)) = frame.kind()
                    && wanted.len() < BATCH_MAX
                    && is_wanted(&mut self.functions, &self.incomplete, &FunctionKey::new(process, function))
                {
                    wanted.insert(FunctionKey::new(process, function), function);
                }
            }
            // Those that don't fit are read with the next stacks that have them.
            if wanted.len() < BATCH_MAX || read.is_empty() {
                read.push((process, id));
            }
        }
        if !wanted.is_empty() && !self.read(process, wanted) {
            return;
        }
        if self.known_stacks.len() + read.len() > KNOWN_STACKS_MAX {
            self.known_stacks.clear();
        }
        self.known_stacks.extend(read);
    }

    /// The function of a frame, if it is known.
    pub(crate) fn lookup(&mut self, process: ProcessKey, function: VmFunction) -> Option<&Code> {
        let key = FunctionKey::new(process, function);
        if self.functions.get(&key).is_none() {
            self.take_pending(process);
        }
        self.functions.get(&key)?
    }

    /// Whether a function is going to be read.
    pub(crate) fn is_pending(&mut self, process: ProcessKey, function: VmFunction) -> bool {
        !self.is_reading_stopped
            && self.processes.contains_key(&process)
            && self.functions.get(&FunctionKey::new(process, function)).is_none()
    }

    /// Why functions of a process have no names, if they could not be read at all.
    pub(crate) fn obstacle(&self, process: ProcessKey) -> Option<VmObstacle> {
        self.processes.get(&process)?.obstacle
    }

    /// Reads functions, and adds them, with the source maps that they need. Returns false if they should be read again later.
    fn read(&mut self, process: ProcessKey, wanted: HashMap<FunctionKey, VmFunction>) -> bool {
        let mut is_complete = self.read_once(process, wanted);
        for _ in 0..MAP_ROUNDS {
            let state = self.processes.get_mut(&process);
            if !state.is_some_and(|state| std::mem::take(&mut state.has_new_maps)) {
                break;
            }
            is_complete = self.read_once(process, HashMap::new());
        }
        is_complete
    }

    fn read_once(&mut self, process: ProcessKey, wanted: HashMap<FunctionKey, VmFunction>) -> bool {
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
                state.end_backoff();
                let mut without_map = Vec::new();
                for (function, result) in read {
                    let key = FunctionKey::new(process, function);
                    if matches!(result, Err(FunctionError::SourceMapNotLoaded)) {
                        without_map.push((key, function));
                        continue;
                    }
                    self.incomplete.remove(&key);
                    // A copy, even without all lines, is better than nothing.
                    if result.is_ok() || !matches!(self.functions.get(&key), Some(Some(_))) {
                        self.add(key, result);
                    }
                }
                let is_complete = without_map.is_empty();
                if !is_complete && let Some(state) = self.processes.get_mut(&process) {
                    if let Some(maps) = &state.source_maps {
                        maps.load_missed();
                        state.has_new_maps = true;
                    }
                    state.postpone(without_map);
                }
                is_complete
            }
            Ok(None) | Err(ReadFailure::Gone) => {
                // Nothing will read them any more.
                state.obstacle = Some(VmObstacle::Ended);
                let postponed = std::mem::take(&mut state.postponed).into_keys();
                for key in wanted.iter().map(|function| FunctionKey::new(process, *function)).chain(postponed)
                {
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
                state.postpone(
                    wanted.iter().map(|function| (FunctionKey::new(process, *function), *function)),
                );
                false
            }
        }
    }

    fn add(&mut self, key: FunctionKey, result: Result<Code, FunctionError>) {
        let function = match result {
            Ok(function) => {
                self.counts.named += 1;
                let is_alone = key.is_compiled() && matches!(function, Code::Function(_));
                self.counts.without_code += u64::from(is_alone);
                Some(function)
            }
            Err(FunctionError::Replaced) => {
                self.counts.replaced += 1;
                None
            }
            Err(error) => {
                debug!(pid = key.process().pid, %error, "can't read the name of a function");
                if let FunctionError::Unreadable(error) = &error
                    && error.kind() == io::ErrorKind::PermissionDenied
                    && let Some(state) = self.processes.get_mut(&key.process())
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
        let forgotten = self.functions.insert(key, function);
        self.keep_to_budget(forgotten);
    }

    /// The bytes of memory that all names take.
    pub(crate) fn held_bytes(&self) -> usize {
        self.functions.bytes() + self.shared.bytes()
    }

    /// Whether there is a process whose functions may be looked up.
    pub(crate) fn has_processes(&self) -> bool {
        !self.processes.is_empty()
    }

    /// Sets the limit of the memory for all names. Functions that no longer fit are forgotten.
    pub(crate) fn set_budget(&mut self, bytes: usize) {
        self.budget_bytes = bytes;
        self.keep_to_budget(0);
    }

    /// Forgets functions that don't fit, after `forgotten` others. What functions of compiled code have in common takes at most its
    /// share, and other functions what that leaves.
    fn keep_to_budget(&mut self, mut forgotten: usize) {
        let shared_max_bytes = self.budget_bytes / SHARED_SHARE;
        if self.shared.bytes() > shared_max_bytes {
            self.shared.forget_unused();
        }
        if self.shared.bytes() > shared_max_bytes {
            let before = self.functions.len();
            self.functions.remove_if(FunctionKey::is_compiled);
            self.shared.forget_unused();
            forgotten += before - self.functions.len();
        }
        forgotten += self.functions.set_budget(self.budget_bytes.saturating_sub(self.shared.bytes()));
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

#[cfg(test)]
mod tests;
