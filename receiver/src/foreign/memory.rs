//! How the memory of other processes is read: by eBPF programs where the kernel has what they need, else by
//! `process_vm_readv(2)`, which requires more privileges.
//!
//! Only the reader threads use this: both ways may block without limit.

use std::io;
use std::sync::{Arc, OnceLock};

use sidewinder_address::Avma;
use sidewinder_bpf::{ForeignMemoryPrograms, LoadError, Opener, PodCgroup, ReadableProcess};
use sidewinder_process::context::find_context_mappings;
use sidewinder_process::{ForeignMemory, ProcessMemory, ProcfsError};
use tracing::debug;

use super::ReadTarget;
use crate::causes::error_chain;

/// Opens the memory of processes.
#[derive(Clone, Debug)]
pub(crate) struct MemoryAccess(Arc<AccessState>);

#[derive(Debug)]
struct AccessState {
    /// `None`: only by the system call.
    opener: Option<Opener>,
    /// The pod whose processes alone may be read.
    pod: Option<PodCgroup>,
    /// Loaded at the first use; `None` if the kernel refuses them.
    programs: OnceLock<Option<Arc<ForeignMemoryPrograms>>>,
}

impl MemoryAccess {
    /// The programs are loaded through the opener. With a pod, they read only processes in its cgroup.
    pub(super) fn new(opener: Option<Opener>, pod: Option<PodCgroup>) -> Self {
        Self(Arc::new(AccessState { opener, pod, programs: OnceLock::new() }))
    }

    /// The memory of a process.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] if the process has exited.
    pub(crate) fn open(&self, target: ReadTarget) -> Result<TargetMemory, ProcfsError> {
        let directory = target.open_dir()?;
        let Some(programs) = self.programs() else {
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
    pub(crate) fn map_bytes(&self) -> u64 {
        let is_loaded = self.0.programs.get().is_some_and(Option::is_some);
        if is_loaded { ForeignMemoryPrograms::MAP_BYTES as u64 } else { 0 }
    }

    fn programs(&self) -> Option<&Arc<ForeignMemoryPrograms>> {
        let AccessState { opener, pod, programs } = &*self.0;
        let load = |opener: &Opener| {
            let loaded = opener.load_foreign_memory(*pod);
            loaded.inspect_err(|error: &LoadError| {
                debug!("memory is read by process_vm_readv, not by eBPF programs: {}", error_chain(error));
            })
        };
        programs.get_or_init(|| load(opener.as_ref()?).ok()).as_ref()
    }
}

/// The memory of one process, and never of another one that reuses its PID.
#[derive(Debug)]
pub(crate) enum TargetMemory {
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
    pub(crate) fn context_mappings(&self) -> io::Result<Vec<Avma>> {
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
