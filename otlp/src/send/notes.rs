//! Remembers what users should see of an exporter: the last partial success, the last failure, an outage.

use std::time::SystemTime;

/// The last response in which a receiver rejected profiles or gave a warning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PartialSuccess {
    /// The number of profiles that it rejected, according to the receiver.
    pub rejected_profiles: i64,
    /// The reason, without control characters, and truncated to a readable length.
    pub message: String,
}

/// A period in which all attempts failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// The time of the first failure.
    pub since: SystemTime,
    /// The number of failed attempts.
    pub attempts: u64,
    /// The cause of the last failure.
    pub reason: String,
}

/// What is remembered for users.
#[derive(Clone, Default, Debug)]
pub(super) struct ExporterStatus {
    pub(super) last_partial_success: Option<PartialSuccess>,
    pub(super) last_failure: Option<String>,
    pub(super) outage: Option<Outage>,
}

impl ExporterStatus {
    pub(super) fn record_failure(&mut self, reason: &str) {
        self.last_failure = Some(reason.to_owned());
        let began = || Outage { since: SystemTime::now(), attempts: 0, reason: String::new() };
        let outage = self.outage.get_or_insert_with(began);
        outage.attempts += 1;
        reason.clone_into(&mut outage.reason);
    }
}
