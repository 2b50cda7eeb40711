//! An encoded report, and how it is cut to the size that a receiver takes.

use std::ops::{Add, AddAssign, Sub};

use bytes::Bytes;
use prost::Message;

use crate::compact::compact;
use crate::wire::{Profile, ProfilesData, ProfilesDictionary, ResourceProfiles};

/// A number of events, in the two units that receivers count in.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Tally {
    /// Interrupts or other occurrences: one timestamp each on the wire.
    pub events: u64,
    /// `Sample` messages: all events of one stack, attribute set and link.
    pub samples: u64,
}

impl Add for Tally {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { events: self.events + other.events, samples: self.samples + other.samples }
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

/// One encoded `ProfilesData`, which is an `ExportProfilesServiceRequest` byte for byte.
///
/// It is encoded once: whatever is sent again is identical.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    bytes: Bytes,
    tally: Tally,
    profiles: u64,
}

impl Report {
    pub(crate) fn encode(data: &ProfilesData) -> Self {
        let mut tally = Tally::default();
        let mut profiles = 0;
        for profile in profiles_of(data) {
            profiles += 1;
            tally.samples += profile.samples.len() as u64;
            tally.events += profile.samples.iter().map(|s| observations(s) as u64).sum::<u64>();
        }
        Self { bytes: data.encode_to_vec().into(), tally, profiles }
    }

    /// The encoded message.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn shared_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// How many events and samples it holds.
    #[must_use]
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// How many `Profile` messages it holds: the unit in which receivers reject.
    #[must_use]
    pub fn profiles(&self) -> u64 {
        self.profiles
    }

    /// Cuts the report into reports of at most `max_bytes` each: between resources first, then
    /// between samples, then between the timestamps of one sample.
    pub(crate) fn split(self, max_bytes: usize) -> Split {
        if self.bytes.len() <= max_bytes {
            return Split { reports: vec![self], too_large: Tally::default() };
        }
        let mut split = Split { reports: Vec::new(), too_large: Tally::default() };
        // What this crate has encoded, it decodes.
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

/// A report in pieces.
#[derive(Debug)]
pub(crate) struct Split {
    pub(crate) reports: Vec<Report>,
    /// Events whose stack and attributes alone exceed the limit.
    pub(crate) too_large: Tally,
}

impl Split {
    fn cut(&mut self, dictionary: &ProfilesDictionary, whole: Vec<ResourceProfiles>, max_bytes: usize) {
        for half in halves(whole) {
            let report = Report::encode(&compact(dictionary.into(), half.clone()));
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

fn profiles_of(data: &ProfilesData) -> impl Iterator<Item = &Profile> {
    data.resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles)
}

fn observations(sample: &crate::wire::Sample) -> usize {
    sample.timestamps_unix_nano.len().max(sample.values.len())
}

/// Two lists, neither of them empty unless there is one event only.
fn halves(mut whole: Vec<ResourceProfiles>) -> [Vec<ResourceProfiles>; 2] {
    if whole.len() > 1 {
        let second = whole.split_off(whole.len() / 2);
        return [whole, second];
    }
    let mut second = whole.clone();
    let samples = || whole.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles);
    let count: usize = samples().map(|profile| profile.samples.len()).sum();
    if count > 1 {
        keep_samples(&mut whole, 0, count / 2);
        keep_samples(&mut second, count / 2, count);
    } else {
        let events: usize = samples().flat_map(|profile| &profile.samples).map(observations).sum();
        keep_events(&mut whole, 0, events / 2);
        keep_events(&mut second, events / 2, events);
    }
    [whole, second]
}

/// Keeps the samples from the `start`th to before the `end`th of all, and gives the profile that
/// they were cut from a new identity: receivers drop the second of two profiles of one identity.
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
            profile.profile_id = new_profile_id();
        }
    }
    drop_empty(list);
}

/// As [`keep_samples`], for the events of a single sample.
fn keep_events(list: &mut Vec<ResourceProfiles>, start: usize, end: usize) {
    fn keep<T: Copy>(list: &mut Vec<T>, start: usize, end: usize) {
        *list = list.get(start..end.min(list.len())).unwrap_or_default().to_vec();
    }
    for profile in list.iter_mut().flat_map(|r| &mut r.scope_profiles).flat_map(|s| &mut s.profiles) {
        profile.profile_id = new_profile_id();
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

/// 16 random bytes, not all zero.
pub(crate) fn new_profile_id() -> Vec<u8> {
    rand::random::<u128>().max(1).to_be_bytes().to_vec()
}
