//! The process that is read.

use sidewinder_process::{Pid, ProcRoot, ProcessDir, ProcfsError};

/// Identifies a process, even if its PID is reused. An exec doesn't change it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReadTarget {
    /// The process's ID in our PID namespace.
    pub pid: Pid,
    /// The start time from `/proc/PID/stat`, in clock ticks.
    pub start_ticks: u64,
}

impl ReadTarget {
    /// The process that has this PID now. Reading `stat` never blocks, since it shows no memory.
    pub fn from_pid(pid: Pid) -> Result<Self, ProcfsError> {
        Self::from_dir(&ProcessDir::open(&ProcRoot::default(), pid)?)
    }

    /// The process of this directory.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] if the process has exited.
    pub fn from_dir(process: &ProcessDir) -> Result<Self, ProcfsError> {
        Ok(Self { pid: process.pid(), start_ticks: process.state()?.start_ticks })
    }

    /// When it started, in `CLOCK_BOOTTIME` nanoseconds, rounded down to a clock tick.
    pub fn start_ns(self) -> u64 {
        self.start_ticks.saturating_mul(1_000_000_000 / rustix::param::clock_ticks_per_second().max(1))
    }

    /// Opens its directory in `/proc`.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] if the process has exited.
    pub fn open_dir(self) -> Result<ProcessDir, ProcfsError> {
        let directory = ProcessDir::open(&ProcRoot::default(), self.pid)?;
        let is_same = directory.state()?.start_ticks == self.start_ticks;
        if is_same { Ok(directory) } else { Err(ProcfsError::Gone { pid: self.pid }) }
    }

    /// Whether the process has exited or is exiting, as far as its leader shows: then its memory reads as if it had none.
    pub fn is_exiting(self) -> bool {
        match self.open_dir().and_then(|directory| directory.state()) {
            Ok(state) => state.leader_exiting,
            Err(error) => matches!(error, ProcfsError::Gone { .. }),
        }
    }
}
