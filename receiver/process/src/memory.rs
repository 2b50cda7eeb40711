//! The memory of another process, read without stopping it.

use std::io::{self, IoSliceMut};

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid as NixPid;
use sidewinder_address::Avma;

use crate::procfs::ProcessDir;

/// Memory that may change while it is read, and in which any address may be unmapped.
pub trait ForeignMemory {
    /// Fills `to` with the memory at `at`.
    ///
    /// # Errors
    /// If any part of it can't be read; the contents of `to` are then unspecified.
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()>;

    /// The word at an address.
    ///
    /// # Errors
    /// As [`read_exact`](Self::read_exact).
    fn word(&self, at: Avma) -> io::Result<u64> {
        let mut word = [0; 8];
        self.read_exact(at, &mut word)?;
        Ok(u64::from_ne_bytes(word))
    }
}

impl ForeignMemory for &dyn ForeignMemory {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        (**self).read_exact(at, to)
    }
}

/// The memory of one process, and never of another process that reuses its PID.
///
/// Uses `process_vm_readv`, which requires `CAP_SYS_PTRACE`, or the process's own user and capabilities no larger than ours
/// (ptrace(2), "Ptrace access mode checking"); `/proc/PID/mem` would also require `CAP_DAC_READ_SEARCH`.
#[derive(Debug)]
pub struct ProcessMemory(ProcessDir);

impl ProcessMemory {
    /// The memory of a process.
    #[must_use]
    pub const fn new(process: ProcessDir) -> Self {
        Self(process)
    }

    /// The process's directory in `/proc`.
    #[must_use]
    pub const fn process(&self) -> &ProcessDir {
        &self.0
    }
}

impl ForeignMemory for ProcessMemory {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let unmapped = || io::Error::from(rustix::io::Errno::FAULT);
        let wanted = to.len();
        let remote = RemoteIoVec { base: usize::try_from(at.0).map_err(|_| unmapped())?, len: wanted };
        let pid = i32::try_from(self.0.pid().0).map_err(|_| unmapped())?;
        let read = process_vm_readv(NixPid::from_raw(pid), &mut [IoSliceMut::new(to)], &[remote])?;
        // The PID is not reused as long as the process's directory can be read.
        self.0.state().map_err(io::Error::other)?;
        if read == wanted { Ok(()) } else { Err(unmapped()) }
    }
}
