//! Reads the mappings of one process. This may block for as long as the process likes: the holder of its `mmap_lock` blocks
//! `/proc/PID/maps`.

use crate::clock::monotonic_ns;
use crate::id::Pid;
use crate::mapping_set::{MappingMemory, MappingSet};
use crate::maps::read_executable_mappings;
use crate::pod::PodBounds;
use crate::procfs::{ProcRoot, ProcessDir, ProcessState, ProcfsError};

/// Reads processes for a [`crate::Registry`], on any thread.
#[derive(Clone, Debug)]
pub struct Scanner {
    pub(crate) proc_root: ProcRoot,
    /// The pod to which processes must belong to be read.
    pub(crate) pod: Option<PodBounds>,
    /// For mappings.
    pub(crate) memory: MappingMemory,
}

/// The data that was read of a process.
#[derive(Clone, Debug)]
pub struct ScanResult {
    /// When the read started, by `CLOCK_MONOTONIC`: later changes must come as events.
    pub(crate) read_from_ns: u64,
    pub(crate) state: ProcessState,
    /// When the state was read, by `CLOCK_MONOTONIC`: threads that ended earlier may be missing from it.
    pub(crate) state_read_ns: u64,
    /// `None`: they are another user's, and can't be read.
    pub(crate) mappings: Option<MappingSet>,
    pub(crate) malformed_lines: u64,
}

impl Scanner {
    /// When a process started, in clock ticks after boot. Never blocks.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] for a process that has ended or is outside of the pod.
    pub fn start_ticks(&self, pid: Pid) -> Result<u64, ProcfsError> {
        Ok(self.open(pid)?.state()?.start_ticks)
    }

    /// Reads a process.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] for a process that has ended or is outside of the pod.
    pub fn scan(&self, pid: Pid) -> Result<ScanResult, ProcfsError> {
        let directory = self.open(pid)?;
        let read_from_ns = monotonic_ns();
        let state = directory.state()?;
        let state_read_ns = monotonic_ns();
        if state.has_ended() {
            return Err(ProcfsError::Gone { pid });
        }
        let directory = directory.with_memory(&state);
        let scanned = ScanResult { read_from_ns, state, state_read_ns, mappings: None, malformed_lines: 0 };
        let maps = match directory.file("maps") {
            Err(ProcfsError::Permission { .. }) => return Ok(scanned),
            maps => maps?,
        };
        let mut mappings = MappingSet::new(self.memory.clone());
        let summary = read_executable_mappings(maps, |mapping| mappings.insert(mapping))
            .map_err(|source| ProcfsError::reading(pid, "maps", source))?;
        Ok(ScanResult { mappings: Some(mappings), malformed_lines: summary.malformed, ..scanned })
    }

    fn open(&self, pid: Pid) -> Result<ProcessDir, ProcfsError> {
        let directory = ProcessDir::open(&self.proc_root, pid)?;
        match &self.pod {
            Some(pod) if !pod.contain(&directory.read("cgroup")?) => Err(ProcfsError::Gone { pid }),
            _ => Ok(directory),
        }
    }
}
