//! Why a probe is not attached, and what the user can do about it.

use sidewinder_bpf::{TracepointError, UserProbeError};
use sidewinder_process::Pid;
use thiserror::Error;

use crate::user_probe::PlaceError;

/// Why a probe is not attached.
#[derive(Debug, Error)]
pub enum ProbeError {
    #[error("no profiled process has the file")]
    NoFile,
    #[error("the file of process {pid} can't be opened")]
    Open { pid: Pid, source: sidewinder_process::OpenError },
    #[error("the file of process {pid} has no matching place")]
    Place { pid: Pid, source: PlaceError },
    #[error("can't attach it to the file of process {pid}")]
    Attach { pid: Pid, source: UserProbeError },
    #[error("can't attach it to the tracepoint")]
    Tracepoint(#[source] TracepointError),
}

impl ProbeError {
    /// What the user can do about it.
    pub(crate) fn next_step(&self) -> &'static str {
        match self {
            Self::NoFile => {
                "give the path as the profiled process sees it: `ls -l /proc/PID/root/PATH`, /proc/PID/maps"
            }
            Self::Open { .. } => {
                "look with `ls -l /proc/PID/root/PATH` what is there, and whether sidewinder may read it"
            }
            Self::Place { source: PlaceError::Value(_), .. } => {
                "omit value=, or use another argument: `readelf -n FILE` lists those of static probes"
            }
            Self::Place { .. } => {
                "`nm -C FILE`, `nm -D FILE` or `readelf -n FILE` list what can be probed; a stripped file has few names"
            }
            Self::Attach { source, .. } if source.is_permission_denied() => {
                "run as root, or with CAP_BPF and CAP_PERFMON; `sidewinder check` says what is missing"
            }
            Self::Tracepoint(TracepointError::Missing { .. }) => {
                "`bpftool btf dump file /sys/kernel/btf/vmlinux | grep btf_trace_` or `perf list tracepoint` list what there is"
            }
            Self::Tracepoint(TracepointError::NoNumber { .. } | TracepointError::UnknownArguments(_)) => {
                "leave out value= to count hits, or use an argument that is a number"
            }
            Self::Tracepoint(source) if source.is_permission_denied() => {
                "run as root, or with CAP_BPF and CAP_PERFMON; `sidewinder check` says what is missing"
            }
            Self::Tracepoint(_) => "`sidewinder check` says whether this kernel has programs at tracepoints",
            Self::Attach { .. } => "`sidewinder check` says whether this kernel can place probes in programs",
        }
    }

    /// A file that is missing says less than one that has no such function.
    pub(super) const fn is_missing_file(&self) -> bool {
        matches!(self, Self::NoFile | Self::Open { source: sidewinder_process::OpenError::NotFound, .. })
    }
}
