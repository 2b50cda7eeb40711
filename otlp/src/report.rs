//! A report, before and after it is encoded, and splitting it to a size that a receiver accepts.

mod draft;
mod split;

use std::ops::{Add, AddAssign, Sub};

use bytes::Bytes;

pub(crate) use self::draft::ReportDraft;

/// A number of events, in both units that receivers count.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Interrupts or other occurrences: one timestamp each in the message.
    pub events: u64,
    /// `Sample` messages: all events of one stack, attribute set and link.
    pub samples: u64,
}

impl Add for Tally {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_add(other.events),
            samples: self.samples.saturating_add(other.samples),
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Tally {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        Self {
            events: self.events.saturating_sub(other.events),
            samples: self.samples.saturating_sub(other.samples),
        }
    }
}

/// One encoded `ProfilesData`, which has the same encoding as an `ExportProfilesServiceRequest`.
///
/// It is encoded once, so that retries are identical.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    bytes: Bytes,
    tally: Tally,
    profiles: u64,
}

impl Report {
    /// Wraps a report that was already encoded.
    pub(crate) fn from_parts(bytes: Bytes, tally: Tally, profiles: u64) -> Self {
        Self { bytes, tally, profiles }
    }

    /// The encoded message.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn shared_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The numbers of events and samples in the report.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// The number of `Profile` messages: the unit in which receivers reject.
    #[must_use]
    pub fn profiles(&self) -> u64 {
        self.profiles
    }
}

/// 16 random bytes, never all zero.
pub(crate) fn new_profile_id() -> Vec<u8> {
    rand::random::<u128>().max(1).to_be_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use sidewinder_kind::Kind;

    use super::*;
    use sidewinder_profile::{Dictionary, FrameType, Line, LinkIndex, Location, Value, key};

    use crate::builder::{SampleAttributes, SampleIdentity};
    use crate::{ReportBuilder, ReportOptions, conformance, decode};

    const START: u64 = 1_700_000_000_000_000_000;

    /// `events` events at each of `stacks` stacks of each of `resources` resources.
    fn report(resources: usize, stacks: usize, events: usize) -> Report {
        reports_within(usize::MAX, resources, stacks, events).remove(0)
    }

    /// The same in reports of at most `bytes_max`.
    fn reports_within(bytes_max: usize, resources: usize, stacks: usize, events: usize) -> Vec<Report> {
        let mut dictionary = Dictionary::default();
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        for resource in 0..resources {
            let resource =
                dictionary.add_attributes([(key::SERVICE_NAME, Value::Str(&format!("s{resource}")))]);
            for stack in 0..stacks {
                let name = format!("function number {stack}");
                let function = dictionary.add_function_named(&name);
                let lines = [Line::new(function)];
                let frame_type = FrameType::Native;
                let address = stack as u64;
                let leaf = dictionary.add_location(&Location {
                    address,
                    frame_type,
                    lines: &lines,
                    ..Location::default()
                });
                let identity = SampleIdentity {
                    resource,
                    profile_type: builder.kind(Kind::OffCpu),
                    stack: dictionary.add_stack(&[leaf]),
                    attributes: SampleAttributes::default().add_to(&mut dictionary),
                    link: LinkIndex::default(),
                };
                for event in 0..events as u64 {
                    builder.event(&identity, START + event, event as i64);
                }
            }
        }
        builder.drain(&mut dictionary, START..START + 1, bytes_max)
    }

    /// Each event as text, sorted, after checking all parts.
    fn events(reports: &[Report], max_bytes: usize) -> Vec<String> {
        let mut events = Vec::new();
        let mut ids = HashSet::new();
        for report in reports {
            assert!(report.as_bytes().len() <= max_bytes);
            assert_eq!(conformance::check(report.as_bytes()), []);
            let profiles = decode::decode_profiles_data(report.as_bytes()).unwrap();
            for profile in &profiles {
                assert!(ids.insert(profile.profile_id.clone()), "two profiles of one identity");
                events.extend(profile.events().map(|event| {
                    let name = event.sample.stack[0].function();
                    format!("{:?} {name:?} {} {}", event.profile.resource, event.time_unix_ns, event.value)
                }));
            }
        }
        events.sort();
        events
    }

    #[test]
    fn the_pieces_of_a_report_hold_each_event_once() {
        for (resources, stacks, count) in [(5, 4, 3), (1, 40, 2), (1, 1, 500)] {
            let whole = report(resources, stacks, count);
            let max_bytes = 700;
            assert!(whole.as_bytes().len() > 2 * max_bytes);
            let split = whole.clone().split(max_bytes);
            assert_eq!(split.too_large, Tally::default());
            let sum = split.reports.iter().fold(Tally::default(), |sum, piece| sum + piece.tally());
            assert_eq!(sum.events, whole.tally().events);
            let all = events(&[whole], usize::MAX);
            assert_eq!(events(&split.reports, max_bytes), all);
            let split_before_encoding = reports_within(max_bytes, resources, stacks, count);
            assert_eq!(split_before_encoding.len(), split.reports.len());
            assert_eq!(events(&split_before_encoding, max_bytes), all);
        }
    }

    /// Exporters count what they drop: the builder drops nothing.
    #[test]
    fn an_event_that_is_too_large_by_itself_is_a_report_of_its_own() {
        let reports = reports_within(100, 2, 2, 2);
        assert_eq!(reports.iter().map(|report| report.tally().events).collect::<Vec<_>>(), [1; 8]);
    }

    /// Receivers then recognize a part that is sent again, for example after a restart.
    #[test]
    fn the_same_report_is_cut_into_the_same_pieces() {
        let whole = report(3, 4, 30);
        let pieces = whole.clone().split(700).reports;
        assert!(pieces.len() > 3);
        assert_eq!(pieces, whole.split(700).reports);
    }

    #[test]
    fn a_report_that_fits_stays_as_it_is() {
        let whole = report(2, 2, 2);
        let max_bytes = whole.as_bytes().len();
        assert_eq!(whole.clone().split(max_bytes).reports, [whole]);
    }

    #[test]
    fn what_is_too_large_by_itself_is_counted() {
        for (resources, stacks, events) in [(2, 2, 2), (1, 1, 1)] {
            let split = report(resources, stacks, events).split(100);
            assert_eq!(split.reports, []);
            assert_eq!(split.too_large.events, (resources * stacks * events) as u64);
        }
    }
}
