//! The result of a probe, as `check` shows it.

use sidewinder_bpf::{Probe, Support};

/// The result of a probe.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ProbeStatus {
    Ok,
    /// Profiling works without this feature.
    Limited,
    /// Profiling does not work without this feature.
    Missing,
}

impl ProbeStatus {
    pub(super) fn from_probe(probe: &Probe) -> Self {
        match (&probe.support, probe.required) {
            (Support::Yes, _) => Self::Ok,
            (Support::No { .. }, false) => Self::Limited,
            (Support::No { .. }, true) => Self::Missing,
        }
    }

    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Limited => "limited",
            Self::Missing => "missing",
        }
    }

    /// The parameter of the terminal's sequence that selects a colour (ECMA-48, SGR): green, yellow, red.
    pub(super) const fn colour_code(self) -> u8 {
        match self {
            Self::Ok => 32,
            Self::Limited => 33,
            Self::Missing => 31,
        }
    }
}
