//! An encoded report, and splitting it to a size that a receiver accepts.

use std::ops::{Add, AddAssign, Sub};

use bytes::Bytes;
use prost::Message;

use crate::encode::{DictionaryTables, SampleRef, encode};
use crate::wire::{Profile, ProfilesData, ProfilesDictionary, ResourceProfiles, Sample};

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
    /// Encodes profiles with the indices of `tables`, as [`encode`] does.
    pub(crate) fn encode(
        tables: DictionaryTables<'_>,
        resource_profiles: Vec<ResourceProfiles>,
        samples: &[Vec<SampleRef<'_>>],
    ) -> Self {
        let events = |sample: &SampleRef<'_>| sample.times_unix_ns.len().max(sample.values.len()) as u64;
        let tally = Tally {
            events: samples.iter().flatten().map(events).sum(),
            samples: samples.iter().map(|samples| samples.len() as u64).sum(),
        };
        let bytes = encode(tables, resource_profiles, samples).into();
        Self { bytes, tally, profiles: samples.len() as u64 }
    }

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

    /// Splits the report into reports of at most `max_bytes` each: between resources first, then between samples, then
    /// between the timestamps of one sample.
    pub(crate) fn split(self, max_bytes: usize) -> Split {
        if self.bytes.len() <= max_bytes {
            return Split { reports: vec![self], too_large: Tally::default() };
        }
        let mut split = Split { reports: Vec::new(), too_large: Tally::default() };
        // The message was encoded by this crate, so it can be decoded.
        match ProfilesData::decode(self.bytes.clone()) {
            Ok(data) => {
                let dictionary = data.dictionary.unwrap_or_default();
                split.cut(&dictionary, data.resource_profiles, max_bytes);
            }
            Err(_) => split.too_large += self.tally,
        }
        split
    }
}

/// The parts of a report.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) reports: Vec<Report>,
    /// Events that are dropped because their stack and attributes alone exceed the limit.
    pub(crate) too_large: Tally,
}

impl Split {
    fn cut(&mut self, dictionary: &ProfilesDictionary, whole: Vec<ResourceProfiles>, max_bytes: usize) {
        for half in halves(whole).into_iter().filter(|half| !half.is_empty()) {
            let samples: Vec<Vec<_>> = profiles_of(&half)
                .map(|profile| profile.samples.iter().map(SampleRef::from).collect())
                .collect();
            let report = Report::encode(dictionary.into(), without_samples(&half), &samples);
            if report.bytes.len() <= max_bytes {
                self.reports.push(report);
            } else if report.tally.events <= 1 {
                self.too_large += report.tally;
            } else {
                self.cut(dictionary, half, max_bytes);
            }
        }
    }
}

fn without_samples(list: &[ResourceProfiles]) -> Vec<ResourceProfiles> {
    let mut list = list.to_vec();
    for profile in list.iter_mut().flat_map(|r| &mut r.scope_profiles).flat_map(|s| &mut s.profiles) {
        profile.samples.clear();
    }
    list
}

fn profiles_of(resource_profiles: &[ResourceProfiles]) -> impl Iterator<Item = &Profile> {
    resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles)
}

fn observations(sample: &Sample) -> usize {
    sample.timestamps_unix_nano.len().max(sample.values.len())
}

/// Splits the events of a sample into two lists. With only one event, one list is empty.
fn halves(mut whole: Vec<ResourceProfiles>) -> [Vec<ResourceProfiles>; 2] {
    if whole.len() > 1 {
        let second = whole.split_off(whole.len() / 2);
        return [whole, second];
    }
    let mut second = whole.clone();
    let count: usize = profiles_of(&whole).map(|profile| profile.samples.len()).sum();
    if count > 1 {
        keep_samples(&mut whole, 0, count / 2);
        keep_samples(&mut second, count / 2, count);
    } else {
        let events: usize = profiles_of(&whole).flat_map(|profile| &profile.samples).map(observations).sum();
        keep_events(&mut whole, 0, events / 2);
        keep_events(&mut second, events / 2, events);
    }
    [whole, second]
}

/// Keeps the samples from index `start` to before `end`, counted over all profiles. The profile that was split gets a new
/// id, since receivers drop the second of two profiles with the same id.
fn keep_samples(list: &mut Vec<ResourceProfiles>, start: usize, end: usize) {
    let mut position = 0;
    for profile in list.iter_mut().flat_map(|r| &mut r.scope_profiles).flat_map(|s| &mut s.profiles) {
        let before = profile.samples.len();
        profile.samples.retain(|_| {
            let kept = (start..end).contains(&position);
            position += 1;
            kept
        });
        if profile.samples.len() < before {
            profile.profile_id = piece_profile_id(&profile.profile_id, start, end);
        }
    }
    drop_empty(list);
}

/// Like [`keep_samples`], for the events of a single sample.
fn keep_events(list: &mut Vec<ResourceProfiles>, start: usize, end: usize) {
    fn keep<T: Copy>(list: &mut Vec<T>, start: usize, end: usize) {
        *list = list.get(start..end.min(list.len())).unwrap_or_default().to_vec();
    }
    for profile in list.iter_mut().flat_map(|r| &mut r.scope_profiles).flat_map(|s| &mut s.profiles) {
        profile.profile_id = piece_profile_id(&profile.profile_id, start, end);
        for sample in &mut profile.samples {
            keep(&mut sample.timestamps_unix_nano, start, end);
            keep(&mut sample.values, start, end);
        }
        profile.samples.retain(|sample| observations(sample) > 0);
    }
    drop_empty(list);
}

fn drop_empty(list: &mut Vec<ResourceProfiles>) {
    for resource in &mut *list {
        for scope in &mut resource.scope_profiles {
            scope.profiles.retain(|profile| !profile.samples.is_empty());
        }
        resource.scope_profiles.retain(|scope| !scope.profiles.is_empty());
    }
    list.retain(|resource| !resource.scope_profiles.is_empty());
}

/// The id of a part of a profile. It is always the same for the same part, so that receivers recognize a report that is
/// sent and split again after a restart.
fn piece_profile_id(whole: &[u8], start: usize, end: usize) -> Vec<u8> {
    // The finalizer of splitmix64, applied to each half.
    let mix = |seed: u64| {
        let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        seed ^ (seed >> 31)
    };
    let (high, low) = whole.split_at(whole.len() / 2);
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let high = mix(number(high) ^ mix(start as u64 + 1));
    let low = mix(number(low) ^ mix(high ^ mix(end as u64 + 1)));
    (u128::from(high) << 64 | u128::from(low)).max(1).to_be_bytes().to_vec()
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
    use crate::builder::{Function, Line, SampleAttributes, SampleIdentity, StackFrame};
    use crate::{FrameType, ReportBuilder, ReportOptions, Value, conformance, decode, key};

    const START: u64 = 1_700_000_000_000_000_000;

    /// `events` events at each of `stacks` stacks of each of `resources` resources.
    fn report(resources: usize, stacks: usize, events: usize) -> Report {
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        for resource in 0..resources {
            let resource = builder.resource(&[(key::SERVICE_NAME, Value::Str(&format!("s{resource}")))]);
            for stack in 0..stacks {
                let name = format!("function number {stack}");
                let function = builder.function(&Function { name: &name, ..Function::default() });
                let lines = [Line::new(function)];
                let frame_type = FrameType::Native;
                let address = stack as u64;
                let leaf = builder.location(&StackFrame {
                    mapping: None,
                    address,
                    frame_type,
                    is_guessed: false,
                    is_marker: None,
                    lines: &lines,
                });
                let identity = SampleIdentity {
                    resource,
                    kind: Kind::OffCpu,
                    stack: builder.stack(&[leaf]),
                    attributes: builder.attributes(&SampleAttributes::default()),
                    link: None,
                };
                for event in 0..events as u64 {
                    builder.event(&identity, START + event, event as i64);
                }
            }
        }
        builder.finish(START..START + 1).unwrap()
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
            assert_eq!(events(&split.reports, max_bytes), events(&[whole], usize::MAX));
        }
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
