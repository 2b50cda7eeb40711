//! Names of code that processes made while they ran.
//!
//! Runtimes write them where perf(1) looks for them: in `/tmp/perf-PID.map` of the process's own root and by its number in its
//! own PID namespace, or in a `jit-PID.dump` that they map. Others keep them in memory, for debuggers. [`JitSource`] is where,
//! and is made while the process is there; [`JitNames`] reads it when names are asked for, which may be later.

mod gdb_interface;
mod source;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::monotonic_ns;
use sidewinder_symbolize::JitMap;

use crate::refusals::Refusals;
use gdb_interface::GdbJitInterface;
use sidewinder_process::ProcessKey;
pub(crate) use source::{JitSource, Runtime};

/// How long what was read counts as new for an address that it names. Code may have taken the place of other code meanwhile.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// After how long files that were not there, and what is in memory, are looked at again, which takes longer than to see that
/// an open file has not grown.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(200);
/// Of the room for all processes, the part that one may take.
const PROCESS_SHARE: usize = 2;
/// Of all time, one part in so many may go into reading what processes write, beyond what may go at once: a file without
/// end would take all of it. Each process has an equal share of that.
const READING_SHARE: u32 = 8;
const READING_BURST: Duration = Duration::from_secs(2);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct JitNames {
    processes: HashMap<ProcessKey, ProcessJitState>,
    budget_bytes: usize,
    /// Functions left out so far, those of forgotten processes too, and look-ups for which nothing could be read in time.
    omitted: u64,
    /// Files that are not read.
    refusals: Arc<Refusals>,
    started_at: Instant,
    is_reading_stopped: bool,
}

#[derive(Debug)]
struct ProcessJitState {
    source: Arc<JitSource>,
    /// As many as the place has files; `None` for one that is not there.
    maps: Vec<Option<JitMap>>,
    gdb_interface: GdbInterfaceState,
    /// When open files were read to their ends, by `CLOCK_MONOTONIC`; 0 where they never were.
    refreshed_at_ns: u64,
    /// When all was looked for, by the same clock.
    discovered_at_ns: u64,
    /// For reading, so far.
    reading_time: Duration,
    used_at: Instant,
}

/// What is known of code that a process made.
#[derive(Debug)]
pub(crate) enum JitName {
    Named(Arc<str>, Runtime),
    /// The process says nothing of it.
    Unnamed,
    /// Not all that the process says was read since the code ran, so that there may be a name the next time.
    NotYetRead,
}

/// What a process has in its memory for debuggers.
#[derive(Debug)]
enum GdbInterfaceState {
    /// Nothing has asked for it.
    Unknown,
    None,
    Found(GdbJitInterface),
}

impl JitNames {
    /// Names that take `room_bytes` at most.
    pub(crate) fn new(room_bytes: usize, refusals: Arc<Refusals>) -> Self {
        Self {
            processes: HashMap::new(),
            budget_bytes: room_bytes,
            omitted: 0,
            refusals,
            started_at: Instant::now(),
            is_reading_stopped: false,
        }
    }

    pub(crate) fn add_process(&mut self, process: ProcessKey, place: Arc<JitSource>) {
        let known = ProcessJitState {
            source: place,
            maps: Vec::new(),
            gdb_interface: GdbInterfaceState::Unknown,
            refreshed_at_ns: 0,
            discovered_at_ns: 0,
            reading_time: self.processes.get(&process).map_or(Duration::ZERO, |known| known.reading_time),
            used_at: Instant::now(),
        };
        self.processes.insert(process, known);
    }

    pub(crate) fn remove_process(&mut self, process: ProcessKey) {
        self.processes.remove(&process);
    }

    /// Functions left out for want of room or time, and what is in no form that is known.
    pub(crate) fn omitted(&self) -> u64 {
        self.omitted
    }

    /// The function at an address of a process, where code ran at a time of `CLOCK_MONOTONIC`, and whose code it is.
    ///
    /// Runtimes name their code before they run it. So what was read after it ran tells its name, or there is none.
    pub(crate) fn lookup(&mut self, process: ProcessKey, address: u64, ran_at_ns: u64) -> JitName {
        let Some(known) = self.processes.get_mut(&process) else { return JitName::Unnamed };
        known.used_at = Instant::now();
        let is_known = known.lookup(address).is_some();
        let is_due = if is_known {
            is_older(known.refreshed_at_ns, REFRESH_INTERVAL)
        } else {
            known.refreshed_at_ns <= ran_at_ns
        };
        let may_read = !is_due || self.may_read(process);
        if is_due && may_read {
            self.refresh_process(process, address);
        }
        let Some(known) = self.processes.get(&process) else { return JitName::Unnamed };
        match known.lookup(address) {
            Some(name) => JitName::Named(Arc::from(name), known.source.runtime),
            None if !may_read => {
                self.omitted += 1;
                JitName::Unnamed
            }
            None if known.covers(ran_at_ns) => JitName::Unnamed,
            None => JitName::NotYetRead,
        }
    }

    /// Names from here on with what has been read so far.
    pub(crate) fn stop_reading(&mut self) {
        self.is_reading_stopped = true;
    }

    /// Whether a process's share of time is not used up.
    fn may_read(&self, process: ProcessKey) -> bool {
        if self.is_reading_stopped {
            return false;
        }
        let time = READING_BURST + self.started_at.elapsed() / READING_SHARE;
        let processes = u32::try_from(self.processes.len()).unwrap_or(u32::MAX);
        self.processes.get(&process).is_some_and(|known| known.reading_time <= time / processes)
    }

    /// Takes up what a process has written since, for the sake of an address.
    fn refresh_process(&mut self, process: ProcessKey, address: u64) {
        let began = Instant::now();
        self.evict_least_recent();
        let room_bytes = self.budget_bytes / PROCESS_SHARE;
        let Some(known) = self.processes.get_mut(&process) else { return };
        self.omitted += known.refresh(room_bytes, address, &self.refusals);
        known.reading_time += began.elapsed();
    }

    /// Forgets the names of the processes that were asked for longest ago, until another one fits.
    fn evict_least_recent(&mut self) {
        while self.processes.values().map(ProcessJitState::heap_bytes).sum::<usize>()
            > self.budget_bytes - self.budget_bytes / PROCESS_SHARE
        {
            let holding = self.processes.values_mut().filter(|known| known.heap_bytes() > 0);
            let Some(oldest) = holding.min_by_key(|known| known.used_at) else { break };
            oldest.maps.clear();
            oldest.gdb_interface = GdbInterfaceState::Unknown;
            oldest.refreshed_at_ns = 0;
            oldest.discovered_at_ns = 0;
        }
    }
}

impl ProcessJitState {
    /// Whether what was read tells of all code that ran at a time. A file that is not there, which is most programs', is
    /// taken for one that will not come.
    fn covers(&self, ran_at_ns: u64) -> bool {
        self.refreshed_at_ns > ran_at_ns
            && (matches!(self.gdb_interface, GdbInterfaceState::None) || self.discovered_at_ns > ran_at_ns)
    }

    fn lookup(&self, address: u64) -> Option<&str> {
        let written = self.maps.iter().flatten().find_map(|map| map.lookup(address));
        written.or_else(|| match &self.gdb_interface {
            GdbInterfaceState::Found(interface) => interface.lookup(address),
            GdbInterfaceState::Unknown | GdbInterfaceState::None => None,
        })
    }

    fn heap_bytes(&self) -> usize {
        let of_interface = match &self.gdb_interface {
            GdbInterfaceState::Found(interface) => interface.heap_bytes(),
            GdbInterfaceState::Unknown | GdbInterfaceState::None => 0,
        };
        of_interface + self.maps.iter().flatten().map(JitMap::heap_bytes).sum::<usize>()
    }

    fn omitted(&self) -> u64 {
        let of_interface = match &self.gdb_interface {
            GdbInterfaceState::Found(interface) => interface.omitted(),
            GdbInterfaceState::Unknown | GdbInterfaceState::None => 0,
        };
        of_interface + self.maps.iter().flatten().map(JitMap::cut).sum::<u64>()
    }

    /// Takes up what has been written since, and returns how much of it was left out.
    fn refresh(&mut self, room_bytes: usize, address: u64, refusals: &Refusals) -> u64 {
        let now_ns = monotonic_ns();
        let before = self.omitted();
        let is_seeking = is_older(self.discovered_at_ns, DISCOVERY_INTERVAL);
        if is_seeking {
            self.discovered_at_ns = now_ns;
            // A file may come late: some runtimes write it as they end.
            self.source.open(&mut self.maps, room_bytes, refusals);
        }
        let mut is_all_read = true;
        for map in self.maps.iter_mut().flatten() {
            // What can't be read any more says what it said.
            is_all_read &= map.refresh().unwrap_or(true);
        }
        if is_all_read {
            self.refreshed_at_ns = now_ns;
        }
        if is_seeking {
            self.discover_gdb_interface(room_bytes, address);
        }
        self.omitted().saturating_sub(before)
    }

    fn discover_gdb_interface(&mut self, room_bytes: usize, address: u64) {
        // Looking for it takes time, and most runtimes that write names have none in memory.
        if matches!(self.gdb_interface, GdbInterfaceState::Unknown) && self.lookup(address).is_none() {
            self.gdb_interface = match self.source.gdb_interface(room_bytes) {
                Some(interface) => GdbInterfaceState::Found(interface),
                None => GdbInterfaceState::None,
            };
        }
        if let GdbInterfaceState::Found(interface) = &mut self.gdb_interface {
            interface.refresh(self.source.memory());
        }
    }
}

/// Whether a time of `CLOCK_MONOTONIC` is at least so long ago.
fn is_older(at_ns: u64, age: Duration) -> bool {
    Duration::from_nanos(monotonic_ns().saturating_sub(at_ns)) >= age
}
