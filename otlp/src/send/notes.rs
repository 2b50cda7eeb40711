//! What an exporter remembers for people: the last partial success, the last failure, an outage.

use std::time::SystemTime;

/// The last answer of a receiver that it has not taken everything, or has a warning.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PartialSuccess {
    /// How many profiles it has not taken, in its own words.
    pub rejected_profiles: i64,
    /// Why, without control characters and cut to a readable length.
    pub message: String,
}

/// A time in which every attempt fails.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When the first attempt failed.
    pub since: SystemTime,
    /// How many have.
    pub attempts: u64,
    /// Why the last one has.
    pub reason: String,
}

/// What is remembered for people.
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
