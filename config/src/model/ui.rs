//! The page that follows what is profiled.

use std::time::Duration;

use super::{ListenAddress, UiMemoryMib};

/// `service::ui`.
#[derive(Clone, PartialEq, Debug)]
pub struct Ui {
    /// Whether there is the page.
    pub enabled: bool,
    /// Where to listen.
    pub endpoint: ListenAddress,
    /// How long samples are held for it; more than zero.
    pub window: Duration,
    /// What they may take beside the receivers' budgets, for each receiver.
    pub memory_limit_mib: UiMemoryMib,
}

impl Default for Ui {
    /// None, so that no port is opened unasked.
    fn default() -> Self {
        Self {
            enabled: false,
            endpoint: ListenAddress::localhost(7_878),
            window: Duration::from_secs(600),
            memory_limit_mib: UiMemoryMib::default(),
        }
    }
}
