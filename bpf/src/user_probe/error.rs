use std::io;

use thiserror::Error;

use crate::intf;

/// Where the kernel describes its events for probes of programs.
pub(super) const UPROBE_EVENTS: &str = "/sys/bus/event_source/devices/uprobe";

/// Why a probe could not be attached.
#[derive(Debug, Error)]
pub enum UserProbeError {
    /// The kernel has no such events.
    #[error("this kernel can't place probes in programs: {UPROBE_EVENTS} is missing (CONFIG_UPROBE_EVENTS)")]
    Unsupported(#[source] io::Error),
    /// The kernel refused the link or the perf event.
    #[error("the kernel refused the probe")]
    Refused(#[source] io::Error),
    /// The thread that keeps the privileges has ended.
    #[error("can't reach the thread that opens events")]
    Opener(#[source] io::Error),
    /// The program was not loaded, or could not be attached.
    #[error("the kernel refused to attach the program of the probe")]
    Attach(#[source] Option<libbpf_rs::Error>),
    /// All sites are in use.
    #[error("one run can probe at most {} places in programs", intf::SW_PROBE_SITES_MAX)]
    TooManySites,
    /// Programs can't tell probes apart.
    #[error(
        "this kernel supports only one probe, in one place: eBPF programs can tell probes apart from Linux 5.15 on"
    )]
    NoCookies,
}

impl UserProbeError {
    /// Whether a privilege is missing.
    #[must_use]
    pub fn is_permission_denied(&self) -> bool {
        match self {
            Self::Refused(source) => source.kind() == io::ErrorKind::PermissionDenied,
            Self::Attach(Some(source)) => source.kind() == libbpf_rs::ErrorKind::PermissionDenied,
            _ => false,
        }
    }
}
