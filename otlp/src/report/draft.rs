//! A report before it is encoded, and splitting it.

use std::ops::Range;

use sidewinder_profile::Dictionary;

use super::{Report, Tally};
use crate::encode::{SampleRef, encode};
use crate::wire::{Profile, ResourceProfiles};

/// A report before it is encoded.
#[derive(Debug)]
pub(crate) struct ReportDraft<'a> {
    dictionary: &'a Dictionary,
    /// Profiles without their samples. At least one is left in each resource and scope.
    resource_profiles: Vec<ResourceProfiles>,
    /// Those of each profile, in the order of profiles.
    samples: Vec<Vec<SampleRef<'a>>>,
}

impl<'a> ReportDraft<'a> {
    pub(crate) fn new(
        dictionary: &'a Dictionary,
        resource_profiles: Vec<ResourceProfiles>,
        samples: Vec<Vec<SampleRef<'a>>>,
    ) -> Self {
        Self { dictionary, resource_profiles, samples }
    }

    /// Encodes it in reports of at most `max_bytes` each: it is split between resources first, then between samples, then between
    /// the events of one sample. A report of one event may be larger.
    pub(crate) fn encode_within(self, max_bytes: usize) -> Vec<Report> {
        let mut reports = Vec::new();
        let mut drafts = vec![self];
        while let Some(draft) = drafts.pop() {
            let report = draft.encode();
            if report.bytes.len() <= max_bytes || report.tally.events <= 1 {
                reports.push(report);
            } else {
                let [first, second] = draft.halves();
                drafts.extend([second, first]);
            }
        }
        reports
    }

    fn encode(&self) -> Report {
        let tally = Tally {
            events: self.samples.iter().map(|samples| events(samples) as u64).sum(),
            samples: self.samples.iter().map(|samples| samples.len() as u64).sum(),
        };
        let bytes = encode(self.dictionary, self.resource_profiles.clone(), &self.samples).into();
        Report { bytes, tally, profiles: self.samples.len() as u64 }
    }

    /// Two halves of at least two events.
    fn halves(mut self) -> [Self; 2] {
        if self.resource_profiles.len() > 1 {
            let second = self.resource_profiles.split_off(self.resource_profiles.len() / 2);
            let samples = self.samples.split_off(profiles_mut(&mut self.resource_profiles).count());
            let second = Self { dictionary: self.dictionary, resource_profiles: second, samples };
            return [self, second];
        }
        let count: usize = self.samples.iter().map(Vec::len).sum();
        if count > 1 {
            return [0..count / 2, count / 2..count].map(|range| self.samples_in(range));
        }
        let count: usize = self.samples.iter().map(|samples| events(samples)).sum();
        [0..count / 2, count / 2..count].map(|range| self.events_in(range))
    }

    /// The samples in a range, counted over all profiles.
    fn samples_in(&self, range: Range<usize>) -> Self {
        let mut start = 0;
        let in_range = |samples: &Vec<SampleRef<'a>>| {
            let of_profile = range.start.saturating_sub(start)..range.end.saturating_sub(start);
            start += samples.len();
            part(samples, of_profile).to_vec()
        };
        self.with_samples(self.samples.iter().map(in_range).collect(), &range)
    }

    /// The events in a range of the only sample.
    fn events_in(&self, range: Range<usize>) -> Self {
        let in_range = |sample: &SampleRef<'a>| SampleRef {
            times_unix_ns: part(sample.times_unix_ns, range.clone()),
            values: part(sample.values, range.clone()),
            ..*sample
        };
        let samples = self.samples.iter().map(|samples| samples.iter().map(in_range).collect());
        self.with_samples(samples.collect(), &range)
    }

    /// A part of the samples, which are those in `range`. Profiles without any are left out. A profile that was split gets another
    /// ID, since receivers drop the second of two profiles with the same ID.
    fn with_samples(&self, mut samples: Vec<Vec<SampleRef<'a>>>, range: &Range<usize>) -> Self {
        let mut resource_profiles = self.resource_profiles.clone();
        let whole = self.samples.iter().map(|samples| events(samples));
        let parts = samples.iter().map(|samples| events(samples));
        for (profile, (whole, part)) in profiles_mut(&mut resource_profiles).zip(whole.zip(parts)) {
            if part < whole {
                profile.profile_id = piece_profile_id(&profile.profile_id, range);
            }
        }
        let mut has_samples = samples.iter().map(|samples| !samples.is_empty());
        let mut is_kept = |_: &Profile| has_samples.next().unwrap_or(false);
        for resource in &mut resource_profiles {
            resource.scope_profiles.iter_mut().for_each(|scope| scope.profiles.retain(&mut is_kept));
            resource.scope_profiles.retain(|scope| !scope.profiles.is_empty());
        }
        resource_profiles.retain(|resource| !resource.scope_profiles.is_empty());
        samples.retain(|samples| !samples.is_empty());
        Self { dictionary: self.dictionary, resource_profiles, samples }
    }
}

/// The elements in a range, as far as there are any.
fn part<T>(list: &[T], range: Range<usize>) -> &[T] {
    list.get(range.start.min(list.len())..range.end.min(list.len())).unwrap_or_default()
}

fn events(samples: &[SampleRef<'_>]) -> usize {
    samples.iter().map(|sample| sample.times_unix_ns.len().max(sample.values.len())).sum()
}

/// The ID of a part of a profile. It is always the same for the same part, so that receivers recognize a report that is
/// sent and split again after a restart.
fn piece_profile_id(whole: &[u8], range: &Range<usize>) -> Vec<u8> {
    // The finalizer of splitmix64, applied to each half.
    let mix = |seed: u64| {
        let seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        seed ^ (seed >> 31)
    };
    let (high, low) = whole.split_at(whole.len() / 2);
    let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let high = mix(number(high) ^ mix(range.start as u64 + 1));
    let low = mix(number(low) ^ mix(high ^ mix(range.end as u64 + 1)));
    (u128::from(high) << 64 | u128::from(low)).max(1).to_be_bytes().to_vec()
}

fn profiles_mut(resource_profiles: &mut [ResourceProfiles]) -> impl Iterator<Item = &mut Profile> {
    resource_profiles.iter_mut().flat_map(|r| &mut r.scope_profiles).flat_map(|s| &mut s.profiles)
}
