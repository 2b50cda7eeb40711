//! The format of a record: a mark, a header, and the encoded report.
//!
//! ```text
//!  0  mark: waiting or done                   not part of any checksum
//!  4  magic
//!  8  events, samples, profiles               of this report
//! 32  events, samples                         of all reports before
//! 48  length and CRC-32 of the report
//! 56  CRC-32 of bytes 4 to 56
//! 60  the report
//! ```
//! Numbers are little-endian.

use crate::report::{Report, Tally};

const MAGIC: u32 = u32::from_le_bytes(*b"SWQ1");
pub(super) const MARK_BYTES: usize = 4;

/// Whether a record is still to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RecordState {
    Waiting,
    Done,
}

impl RecordState {
    pub(super) const fn encoded(self) -> [u8; MARK_BYTES] {
        match self {
            Self::Waiting => *b"WAIT",
            Self::Done => *b"DONE",
        }
    }

    /// Anything other than done counts as waiting: sending twice is better than not at all.
    fn decode(bytes: [u8; MARK_BYTES]) -> Self {
        if bytes == Self::Done.encoded() { Self::Done } else { Self::Waiting }
    }
}

/// What a record's header says about its report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RecordHeader {
    pub(super) tally: Tally,
    pub(super) profiles: u64,
    /// The total of all earlier reports.
    pub(super) before: Tally,
    pub(super) length: u32,
    checksum: u32,
}

impl RecordHeader {
    pub(super) const BYTES: usize = 60;

    /// `None` if the report is larger than 4 GiB.
    pub(super) fn new(report: &Report, before: Tally) -> Option<Self> {
        let length = u32::try_from(report.as_bytes().len()).ok()?;
        let checksum = crc32fast::hash(report.as_bytes());
        Some(Self { tally: report.tally(), profiles: report.profiles(), before, length, checksum })
    }

    /// The header, and the bytes after it.
    pub(super) fn record_bytes(&self) -> u64 {
        Self::BYTES as u64 + u64::from(self.length)
    }

    pub(super) fn matches(&self, report: &[u8]) -> bool {
        report.len() == self.length as usize && crc32fast::hash(report) == self.checksum
    }

    pub(super) fn encoded(&self) -> [u8; Self::BYTES] {
        let mut bytes = Vec::with_capacity(Self::BYTES);
        bytes.extend(RecordState::Waiting.encoded());
        bytes.extend(MAGIC.to_le_bytes());
        let Self { tally, profiles, before, .. } = *self;
        for number in [tally.events, tally.samples, profiles, before.events, before.samples] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.length.to_le_bytes());
        bytes.extend(self.checksum.to_le_bytes());
        let checksum = crc32fast::hash(bytes.get(MARK_BYTES..).unwrap_or_default());
        bytes.extend(checksum.to_le_bytes());
        let mut encoded = [0; Self::BYTES];
        encoded.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        encoded
    }

    /// Parses the header at the start of `bytes`, if there is one.
    pub(super) fn decode(bytes: &[u8]) -> Option<(RecordState, Self)> {
        let bytes = bytes.first_chunk::<{ Self::BYTES }>()?;
        let (checked, checksum) = bytes.get(MARK_BYTES..)?.split_last_chunk::<4>()?;
        let mut fields = RecordFields(checked);
        if fields.u32()? != MAGIC || crc32fast::hash(checked) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let tally = Tally { events: fields.u64()?, samples: fields.u64()? };
        let profiles = fields.u64()?;
        let before = Tally { events: fields.u64()?, samples: fields.u64()? };
        let head = Self { tally, profiles, before, length: fields.u32()?, checksum: fields.u32()? };
        Some((RecordState::decode(*bytes.first_chunk()?), head))
    }
}

struct RecordFields<'a>(&'a [u8]);

impl RecordFields<'_> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*field))
    }
}
