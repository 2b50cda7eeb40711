//! How the memory of other processes is read: by eBPF programs where the kernel has what they need, else by
//! `process_vm_readv(2)`, which requires more privileges.
//!
//! Only the reader threads use this: both ways may block without limit.

use std::io;
use std::sync::Arc;

use sidewinder_address::Avma;
use sidewinder_bpf::{ForeignMemoryPrograms, LoadError, Opener, PodCgroup, ReadableProcess};
use sidewinder_process::context::find_context_mappings;
use sidewinder_process::{ForeignMemory, ProcessMemory, ProcfsError};
use tracing::debug;

use super::target::ReadTarget;
use crate::causes::error_chain;

/// Opens the memory of processes.
#[derive(Clone, Default, Debug)]
pub struct MemoryAccess {
    /// `None`: only by the system call.
    programs: Option<Arc<ForeignMemoryPrograms>>,
}

impl MemoryAccess {
    /// Loads the programs through the opener, unless the kernel refuses them. With a pod, they read only processes in its
    /// cgroup.
    pub fn new(opener: &Opener, pod: Option<PodCgroup>) -> Self {
        let loaded = opener.load_foreign_memory(pod).inspect_err(|error: &LoadError| {
            debug!("memory is read by process_vm_readv, not by eBPF programs: {}", error_chain(error));
        });
        Self { programs: loaded.ok() }
    }

    /// The memory of a process.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] if the process has exited.
    pub fn open(&self, target: ReadTarget) -> Result<TargetMemory, ProcfsError> {
        let directory = target.open_dir()?;
        let Some(programs) = &self.programs else {
            return Ok(TargetMemory::SystemCall(ProcessMemory::new(directory)));
        };
        match ReadableProcess::link(programs, target.pid.0, target.start_ns()) {
            Ok(process) => Ok(TargetMemory::Programs(process, ProcessMemory::new(directory))),
            Err(error) => {
                debug!(pid = target.pid.0, %error, "a process can't be read by eBPF programs");
                Ok(TargetMemory::SystemCall(ProcessMemory::new(directory)))
            }
        }
    }

    /// The kernel memory of the programs' maps, in bytes.
    pub fn map_bytes(&self) -> u64 {
        if self.programs.is_some() { ForeignMemoryPrograms::MAP_BYTES as u64 } else { 0 }
    }
}

/// The memory of one process, and never of another one that reuses its PID.
#[derive(Debug)]
pub enum TargetMemory {
    /// Read by programs, except for memory that they leave to the system call.
    Programs(ReadableProcess, ProcessMemory),
    /// Read by `process_vm_readv(2)`.
    SystemCall(ProcessMemory),
}

impl TargetMemory {
    /// The mappings that the process has named as its context.
    ///
    /// # Errors
    /// If the process has exited, or we may not read its mappings.
    pub fn context_mappings(&self) -> io::Result<Vec<Avma>> {
        match self {
            Self::Programs(process, _) => Ok(process.contexts()?.into_iter().map(Avma).collect()),
            Self::SystemCall(memory) => {
                find_context_mappings(memory.process().file("maps").map_err(io::Error::other)?)
            }
        }
    }
}

impl ForeignMemory for TargetMemory {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Programs(process, memory) => match process.read_exact(at.0, to) {
                // No privilege is missing if the system call may not read it either.
                Err(error) if ReadableProcess::is_remote(&error) => {
                    memory.read_exact(at, to).map_err(|_| error)
                }
                result => result,
            },
            Self::SystemCall(memory) => memory.read_exact(at, to),
        }
    }
}
