//! Names of code that processes generate at run time.
//!
//! Runtimes write the names where perf(1) looks for them: in `/tmp/perf-PID.map` in the process's own root, with the PID
//! from the process's own PID namespace, or in a `jit-PID.dump` file that they map. Others keep them in memory, for
//! debuggers. [`JitSource`] says where; the sampling thread creates it while the process exists. [`JitNames`] reads the
//! names when they are looked up, which may be later.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use sidewinder_base::refusals::Refusals;
use sidewinder_bpf::monotonic_ns;
use sidewinder_process::ProcessKey;
use sidewinder_symbolize::JitMap;
use sidewinder_vm::Runtime;

use sidewinder_message::{GdbJitInterface, JitSource};

/// How long a known name is used before the source is read again. New code may have replaced old code at the same address.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// The shortest time between two attempts to open missing files and read the debugger interface in memory. These take longer
/// than checking that an open file has not grown.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(200);
/// The share of the memory for all processes that one process may use, as a divisor.
const PROCESS_SHARE: usize = 2;
/// The share of all time that may be spent reading what processes write, as a divisor, in addition to [`READING_BURST`]. It
/// bounds the cost of endless files. Each process has an equal part of it.
const READING_SHARE: u32 = 8;
const READING_BURST: Duration = Duration::from_secs(2);

/// The names of generated code, by process.
#[derive(Debug)]
pub(crate) struct JitNames {
    processes: HashMap<ProcessKey, ProcessJitState>,
    budget_bytes: usize,
    /// Functions that were omitted so far, including those of removed processes, and look-ups that failed because the time
    /// to read was used up.
    omitted: u64,
    /// The record of refused files.
    refusals: Arc<Refusals>,
    started_at: Instant,
    is_reading_stopped: bool,
}

#[derive(Debug)]
struct ProcessJitState {
    source: Arc<JitSource>,
    /// One entry for each file of the source; `None` if the file doesn't exist.
    maps: Vec<Option<JitMap>>,
    gdb_interface: GdbInterfaceState,
    /// The runtime that generates the code, once the files of the process were inspected.
    generator: Option<Option<Runtime>>,
    /// Whether walks find the functions of that runtime, once somebody has asked.
    is_walked: OnceLock<bool>,
    /// When open files were last read to their ends, in `CLOCK_MONOTONIC` nanoseconds; 0 if never.
    refreshed_at_ns: u64,
    /// When missing files and the debugger interface were last looked for, by the same clock.
    discovered_at_ns: u64,
    /// The total time spent on reading.
    reading_time: Duration,
    used_at: Instant,
}

/// The result of a look-up of generated code.
#[derive(Debug)]
pub(crate) enum JitName {
    /// The name, and the runtime that generated the code if it is known.
    Named(Arc<str>, Option<Runtime>),
    /// The process provides no name.
    Unnamed,
    /// Not all sources were read since the code ran, so a later look-up may find a name.
    NotYetRead,
}

/// The state of a process's debugger interface.
#[derive(Debug)]
enum GdbInterfaceState {
    /// Not looked for yet.
    Unknown,
    None,
    Found(GdbJitInterface),
}

impl JitNames {
    /// `budget_bytes` limits the memory for all names.
    pub(crate) fn new(budget_bytes: usize, refusals: Arc<Refusals>) -> Self {
        Self {
            processes: HashMap::new(),
            budget_bytes,
            omitted: 0,
            refusals,
            started_at: Instant::now(),
            is_reading_stopped: false,
        }
    }

    pub(crate) fn add_process(&mut self, process: ProcessKey, source: Arc<JitSource>) {
        let state = ProcessJitState {
            source,
            maps: Vec::new(),
            gdb_interface: GdbInterfaceState::Unknown,
            generator: None,
            is_walked: OnceLock::new(),
            refreshed_at_ns: 0,
            discovered_at_ns: 0,
            reading_time: self.processes.get(&process).map_or(Duration::ZERO, |state| state.reading_time),
            used_at: Instant::now(),
        };
        self.processes.insert(process, state);
    }

    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        self.processes.remove(&process);
    }

    /// Functions omitted because of the memory budget or the time limit, and entries in an unknown format.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// The name of the function at an address of a process, and its runtime. `ran_at_ns` is when the code ran, in
    /// `CLOCK_MONOTONIC` nanoseconds.
    ///
    /// Runtimes publish the name of code before they run it. So a source that was read after the code ran has its name, or
    /// there is none.
    pub(crate) fn lookup(&mut self, process: ProcessKey, address: u64, ran_at_ns: u64) -> JitName {
        let Some(state) = self.processes.get_mut(&process) else { return JitName::Unnamed };
        state.used_at = Instant::now();
        let is_known = state.lookup(address).is_some();
        let is_due = if is_known {
            is_older(state.refreshed_at_ns, REFRESH_INTERVAL)
        } else {
            state.refreshed_at_ns <= ran_at_ns
        };
        let may_read = !is_due || self.may_read(process);
        if is_due && may_read {
            self.refresh_process(process, address);
        }
        let Some(state) = self.processes.get(&process) else { return JitName::Unnamed };
        match state.lookup(address) {
            Some(name) => JitName::Named(Arc::from(name), state.generator.flatten()),
            None if !may_read => {
                self.omitted += 1;
                JitName::Unnamed
            }
            None if state.covers(ran_at_ns) => JitName::Unnamed,
            None => JitName::NotYetRead,
        }
    }

    /// The runtime that generates the code of a process, if that is known, and whether the process provides any names. `None`:
    /// the process has no source.
    pub(crate) fn generator(&self, process: ProcessKey) -> Option<(Option<Runtime>, bool)> {
        self.processes.get(&process).map(|state| (state.generator.flatten(), state.heap_bytes() > 0))
    }

    /// Whether walks find the functions of the runtime that generates the code of a process, once its files have been read.
    pub(crate) fn is_walked(&self, process: ProcessKey) -> bool {
        self.processes.get(&process).is_some_and(|state| {
            let is_walked = |runtime| *state.is_walked.get_or_init(|| state.source.is_walked(runtime));
            state.generator.flatten().is_some_and(is_walked)
        })
    }

    /// Stops reading. Later look-ups use what has been read so far.
    pub(crate) fn stop_reading(&mut self) {
        self.is_reading_stopped = true;
    }

    /// Whether a process has time left for reading.
    fn may_read(&self, process: ProcessKey) -> bool {
        if self.is_reading_stopped {
            return false;
        }
        let time = READING_BURST + self.started_at.elapsed() / READING_SHARE;
        let processes = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        self.processes.get(&process).is_some_and(|state| state.reading_time <= time / processes)
    }

    /// Reads what a process has written since the last time, to look up an address.
    fn refresh_process(&mut self, process: ProcessKey, address: u64) {
        let start = Instant::now();
        self.evict_least_recent();
        let process_bytes = self.budget_bytes / PROCESS_SHARE;
        let Some(state) = self.processes.get_mut(&process) else { return };
        self.omitted += state.refresh(process_bytes, address, &self.refusals);
        state.reading_time += start.elapsed();
    }

    /// Frees the names of the least recently used processes until another process fits.
    fn evict_least_recent(&mut self) {
        while self.processes.values().map(ProcessJitState::heap_bytes).sum::<usize>()
            > self.budget_bytes - self.budget_bytes / PROCESS_SHARE
        {
            let non_empty = self.processes.values_mut().filter(|state| state.heap_bytes() > 0);
            let Some(oldest) = non_empty.min_by_key(|state| state.used_at) else { break };
            oldest.maps.clear();
            oldest.gdb_interface = GdbInterfaceState::Unknown;
            oldest.refreshed_at_ns = 0;
            oldest.discovered_at_ns = 0;
        }
    }
}

impl ProcessJitState {
    /// Whether the sources read so far cover all code that ran at a time. A missing file, as for most programs, is assumed
    /// never to appear.
    fn covers(&self, ran_at_ns: u64) -> bool {
        self.refreshed_at_ns > ran_at_ns
            && (matches!(self.gdb_interface, GdbInterfaceState::None) || self.discovered_at_ns > ran_at_ns)
    }

    fn lookup(&self, address: u64) -> Option<&str> {
        let in_maps = self.maps.iter().flatten().find_map(|map| map.lookup(address));
        in_maps.or_else(|| match &self.gdb_interface {
            GdbInterfaceState::Found(interface) => interface.lookup(address),
            GdbInterfaceState::Unknown | GdbInterfaceState::None => None,
        })
    }

    fn heap_bytes(&self) -> usize {
        let interface_bytes = match &self.gdb_interface {
            GdbInterfaceState::Found(interface) => interface.heap_bytes(),
            GdbInterfaceState::Unknown | GdbInterfaceState::None => 0,
        };
        interface_bytes + self.maps.iter().flatten().map(JitMap::heap_bytes).sum::<usize>()
    }

    fn omitted(&self) -> u64 {
        let interface_omitted = match &self.gdb_interface {
            GdbInterfaceState::Found(interface) => interface.omitted(),
            GdbInterfaceState::Unknown | GdbInterfaceState::None => 0,
        };
        interface_omitted + self.maps.iter().flatten().map(JitMap::cut).sum::<u64>()
    }

    /// Reads what has been written since the last time, and returns how many functions were omitted.
    fn refresh(&mut self, budget_bytes: usize, address: u64, refusals: &Refusals) -> u64 {
        let now_ns = monotonic_ns();
        let before = self.omitted();
        let is_discovery_due = is_older(self.discovered_at_ns, DISCOVERY_INTERVAL);
        if is_discovery_due {
            self.discovered_at_ns = now_ns;
            // A file may appear late: some runtimes write it when they exit.
            self.source.open(&mut self.maps, budget_bytes, refusals);
            self.generator.get_or_insert_with(|| self.source.find_generator());
        }
        let mut is_all_read = true;
        for map in self.maps.iter_mut().flatten() {
            // A file that can no longer be read keeps its names.
            is_all_read &= map.refresh().unwrap_or(true);
        }
        if is_all_read {
            self.refreshed_at_ns = now_ns;
        }
        if is_discovery_due {
            self.discover_gdb_interface(budget_bytes, address);
        }
        self.omitted().saturating_sub(before)
    }

    fn discover_gdb_interface(&mut self, budget_bytes: usize, address: u64) {
        // Looking for the interface takes time, and most runtimes that write files don't have it.
        if matches!(self.gdb_interface, GdbInterfaceState::Unknown) && self.lookup(address).is_none() {
            self.gdb_interface = match self.source.gdb_interface(budget_bytes) {
                Some(interface) => GdbInterfaceState::Found(interface),
                None => GdbInterfaceState::None,
            };
        }
        if let GdbInterfaceState::Found(interface) = &mut self.gdb_interface {
            interface.refresh(self.source.memory());
        }
    }
}

/// Whether a time of `CLOCK_MONOTONIC` is at least `age` ago.
fn is_older(at_ns: u64, age: Duration) -> bool {
    Duration::from_nanos(monotonic_ns().saturating_sub(at_ns)) >= age
}
