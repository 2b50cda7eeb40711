//! The errors that prevent sampling from starting.

use sidewinder_bpf::LoadError;
use sidewinder_process::{PodBoundsError, ProcfsError};
use thiserror::Error;

use super::control::ProbeError;

/// Why sampling can't start.
#[derive(Debug, Error)]
pub(crate) enum SamplingError {
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("can't read the running processes")]
    Scan(#[source] ProcfsError),
    #[error(transparent)]
    NoPod(#[from] PodBoundsError),
    #[error("no process {0}: it has ended, or is not in this PID namespace")]
    NoProcess(u32),
    #[error(
        "{wanted} samples a second are more than this machine allows: kernel.perf_event_max_sample_rate is {allowed}"
    )]
    Rate { wanted: u32, allowed: u32 },
    #[error("can't start a thread")]
    Thread(#[source] std::io::Error),
    #[error("can't place the probe {probe}")]
    Probe { probe: String, source: ProbeError },
    #[error("a budget of {0} bytes has no room for any unwind table")]
    Budget(u64),
}
