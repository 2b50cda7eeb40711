//! Splitting a report that is already encoded.

use prost::Message;
use sidewinder_profile::Dictionary;

use super::draft::ReportDraft;
use super::{Report, Tally};
use crate::read::{ReadMessage, ReadSample, read};
use crate::wire::ProfilesData;

/// The parts of a report.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) reports: Vec<Report>,
    /// Events that are dropped because their stack and attributes alone exceed the limit.
    pub(crate) too_large: Tally,
}

impl Report {
    /// Splits a report that a receiver refuses for its size into reports of at most `max_bytes` each.
    ///
    /// Only its bytes are left by then, perhaps on a disk, so they are read again: a report that is known to be too large is split
    /// [before it is encoded](ReportDraft::encode_within).
    pub(crate) fn split(self, max_bytes: usize) -> Split {
        if self.bytes.len() <= max_bytes {
            return Split { reports: vec![self], too_large: Tally::default() };
        }
        // The message was encoded by this crate, so it can be read.
        let Ok(message) = ProfilesData::decode(self.bytes.clone()) else {
            return Split { reports: Vec::new(), too_large: self.tally };
        };
        let mut dictionary = Dictionary::default();
        let Ok(ReadMessage { resource_profiles, samples }) = read(message, &mut dictionary) else {
            return Split { reports: Vec::new(), too_large: self.tally };
        };
        let samples =
            samples.iter().map(|samples| samples.iter().map(ReadSample::as_ref).collect()).collect();
        let pieces = ReportDraft::new(&dictionary, resource_profiles, samples).encode_within(max_bytes);
        let (reports, too_large): (Vec<_>, Vec<_>) =
            pieces.into_iter().partition(|piece| piece.bytes.len() <= max_bytes);
        let too_large = too_large.iter().fold(Tally::default(), |sum, piece| sum + piece.tally);
        Split { reports, too_large }
    }
}
