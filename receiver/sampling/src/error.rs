//! The errors that prevent sampling from starting, and what to do about each.

use sidewinder_base::exit::{ExitCause, Failure};
use sidewinder_bpf::LoadError;
use sidewinder_process::{PodBoundsError, ProcfsError};
use thiserror::Error;

use super::control::ProbeError;

/// Why sampling can't start.
#[derive(Debug, Error)]
pub enum SamplingError {
    /// The eBPF programs can't be loaded or attached.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// `/proc` can't be listed.
    #[error("can't read the running processes")]
    Scan(#[source] ProcfsError),
    /// Nothing tells where our pod ends.
    #[error(transparent)]
    NoPod(#[from] PodBoundsError),
    /// A process of the scope is not there.
    #[error("no process {0}: it has ended, or is not in this PID namespace")]
    NoProcess(u32),
    /// The kernel doesn't permit the rate.
    #[error(
        "{wanted} samples a second are more than this machine allows: kernel.perf_event_max_sample_rate is {allowed}"
    )]
    Rate {
        /// Samples a second on each CPU.
        wanted: u32,
        /// What `kernel.perf_event_max_sample_rate` says.
        allowed: u32,
    },
    /// A thread can't be started.
    #[error("can't start a thread")]
    Thread(#[source] std::io::Error),
    /// A probe that the user requires is attached nowhere.
    #[error("can't place the probe {probe}")]
    Probe {
        /// As the user gave it.
        probe: String,
        /// Why.
        source: ProbeError,
    },
    /// The memory for tables is less than one table takes.
    #[error("a budget of {0} bytes has no room for any unwind table")]
    Budget(u64),
}

impl From<SamplingError> for Failure {
    fn from(error: SamplingError) -> Self {
        let (cause, next_step) = match &error {
            SamplingError::Load(load) => (ExitCause::Privilege, Some(load.next_step())),
            SamplingError::NoPod(_) => (ExitCause::Privilege, None),
            SamplingError::NoProcess(_) => (
                ExitCause::Runtime,
                Some("find it with `pgrep -a NAME`, in sidewinder's PID namespace; or use --comm NAME"),
            ),
            SamplingError::Probe { source, .. } => (ExitCause::Runtime, Some(source.next_step())),
            SamplingError::Rate { .. } => {
                (ExitCause::Usage, Some("use a lower rate, or raise the limit with sysctl"))
            }
            SamplingError::Scan(_) | SamplingError::Thread(_) => {
                (ExitCause::Runtime, Some("run `sidewinder check` to see what is allowed here"))
            }
            SamplingError::Budget(_) => (ExitCause::Usage, Some("raise memory_limit_mib")),
        };
        let failure = Self::new(cause, "can't sample").with_source(error);
        match next_step {
            Some(next_step) => failure.with_next_step(next_step),
            None => failure,
        }
    }
}
