//! Reading what one process maps, which may take as long as the process likes: who holds its `mmap_lock` withholds
//! `/proc/PID/maps`.

use crate::clock::monotonic_ns;
use crate::id::Pid;
use crate::mapping::ExecutableMapping;
use crate::maps::read_executable_mappings;
use crate::pod::PodBounds;
use crate::procfs::{ProcRoot, ProcessDir, ProcessState, ProcfsError};

/// Reads processes for a [`crate::Registry`], on any thread.
#[derive(Clone, Debug)]
pub struct Scanner {
    pub(crate) proc_root: ProcRoot,
    /// The pod outside of which no process is read.
    pub(crate) pod: Option<PodBounds>,
    pub(crate) mappings_max: usize,
}

/// What was read of a process.
#[derive(Clone, Debug)]
pub struct ScanResult {
    /// When reading began, by `CLOCK_MONOTONIC`: whatever happens from then on must come as events.
    pub(crate) read_from_ns: u64,
    pub(crate) state: ProcessState,
    /// When the state had been read, by `CLOCK_MONOTONIC`: it may lack the threads that ended before.
    pub(crate) state_read_ns: u64,
    pub(crate) mappings: Vec<ExecutableMapping>,
    pub(crate) left_out: u64,
    pub(crate) malformed_lines: u64,
    /// Whether `/proc` won't tell the mappings.
    pub(crate) is_unreadable: bool,
}

impl Scanner {
    /// When a process started, in clock ticks after boot. Waits for nobody.
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
        let mut scanned = ScanResult {
            read_from_ns,
            state,
            state_read_ns,
            mappings: Vec::new(),
            left_out: 0,
            malformed_lines: 0,
            is_unreadable: false,
        };
        let maps = match directory.file("maps") {
            Err(ProcfsError::Permission { .. }) => return Ok(ScanResult { is_unreadable: true, ..scanned }),
            maps => maps?,
        };
        let summary = read_executable_mappings(maps, |mapping| {
            if scanned.mappings.len() < self.mappings_max {
                scanned.mappings.push(mapping);
            } else {
                scanned.left_out += 1;
            }
        })
        .map_err(|source| ProcfsError::reading(pid, "maps", source))?;
        Ok(ScanResult { malformed_lines: summary.malformed, ..scanned })
    }

    fn open(&self, pid: Pid) -> Result<ProcessDir, ProcfsError> {
        let directory = ProcessDir::open(&self.proc_root, pid)?;
        match &self.pod {
            Some(pod) if !pod.contain(&directory.read("cgroup")?) => Err(ProcfsError::Gone { pid }),
            _ => Ok(directory),
        }
    }
}
