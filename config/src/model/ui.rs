//! The live page.

use std::time::Duration;

use super::{ListenAddress, UiMemoryMib};

/// `service::ui`.
#[derive(Clone, PartialEq, Debug)]
pub struct Ui {
    /// Whether the page is served.
    pub enabled: bool,
    /// The address to listen on.
    pub endpoint: ListenAddress,
    /// How long samples are kept for it; more than zero.
    pub window: Duration,
    /// The memory limit of these samples per receiver, in addition to the receiver's own limit.
    pub memory_limit_mib: UiMemoryMib,
}

impl Default for Ui {
    /// Disabled, so that no port is opened unless configured.
    fn default() -> Self {
        Self {
            enabled: false,
            endpoint: ListenAddress::localhost(7_878),
            window: Duration::from_secs(600),
            memory_limit_mib: UiMemoryMib::default(),
        }
    }
}
