//! The events of one profile, before encoding.

use std::ops::Range;

use sidewinder_kind::SampleShape;
use sidewinder_profile::{
    AttributeSetIndex, Dictionary, Index, LinkIndex, SampleType, StackIndex, Table, index_types,
};

use super::input::ProfileTypeIndex;
use crate::encode::SampleRef;
use crate::report::new_profile_id;
use crate::wire::{Profile, ValueType, strindex};

index_types! {
    /// The index of a profile under construction.
    pub(super) AccumulatorIndex,
    /// The index of a sample in its profile.
    pub(super) SampleKeyIndex,
}

/// Events of one type and one resource, in order of arrival.
///
/// Each event is an element in each of three lists, which are grouped by sample only at the end.
#[derive(Debug)]
pub(super) struct ProfileAccumulator {
    pub(super) resource: AttributeSetIndex,
    pub(super) profile_type: ProfileTypeIndex,
    shape: SampleShape,
    identities: Table<SampleKeyIndex, SampleKey>,
    /// For each event, the index of its identity.
    samples: Vec<SampleKeyIndex>,
    times_unix_ns: Vec<u64>,
    /// Empty unless the shape has values.
    values: Vec<i64>,
    /// From the first event to just after the last; empty if there are none.
    covered_unix_ns: Range<u64>,
    /// Whether the events arrived in order of time.
    is_sorted: bool,
}

/// What the events of one sample have in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct SampleKey {
    pub(super) stack: StackIndex,
    pub(super) attributes: AttributeSetIndex,
    pub(super) link: LinkIndex,
}

impl ProfileAccumulator {
    pub(super) fn new(
        resource: AttributeSetIndex,
        profile_type: ProfileTypeIndex,
        shape: SampleShape,
    ) -> Self {
        Self {
            resource,
            profile_type,
            shape,
            identities: Table::default(),
            samples: Vec::new(),
            times_unix_ns: Vec::new(),
            values: Vec::new(),
            covered_unix_ns: Range { start: u64::MAX, end: 0 },
            is_sorted: true,
        }
    }

    pub(super) fn events(&self) -> usize {
        self.samples.len()
    }

    /// Adds an event and returns the index of its sample. `guess` is tried first.
    pub(super) fn event(
        &mut self,
        identity: SampleKey,
        guess: SampleKeyIndex,
        time_unix_ns: u64,
        value: i64,
    ) -> SampleKeyIndex {
        // Most events of a stack are from one thread.
        let sample = match self.identities.get(guess) {
            Some(guessed) if *guessed == identity => guess,
            _ => self.identities.intern(identity),
        };
        self.samples.push(sample);
        self.is_sorted &= time_unix_ns.saturating_add(1) >= self.covered_unix_ns.end;
        self.covered_unix_ns.start = self.covered_unix_ns.start.min(time_unix_ns);
        self.covered_unix_ns.end = self.covered_unix_ns.end.max(time_unix_ns.saturating_add(1));
        self.times_unix_ns.push(time_unix_ns);
        if self.shape != SampleShape::Timestamps {
            self.values.push(value);
        }
        sample
    }

    /// The message without its samples, with the indices of `dictionary`.
    pub(super) fn profile(
        &self,
        sample_type: &SampleType,
        dictionary: &mut Dictionary,
        interval_unix_ns: &Range<u64>,
    ) -> Profile {
        let mut value_type = |of: &sidewinder_profile::ValueType| ValueType {
            type_strindex: strindex(dictionary.add_string(&of.name)),
            unit_strindex: strindex(dictionary.add_string(&of.unit)),
        };
        // Both strings are empty if events have no period.
        let period_type = sample_type.period.as_ref().map(|period| value_type(&period.value_type));
        let period_type = period_type.unwrap_or_default();
        let period =
            sample_type.period.as_ref().map_or(0, |period| i64::try_from(period.amount).unwrap_or(i64::MAX));
        let sample_type = value_type(&sample_type.value_type);
        let start_unix_ns = interval_unix_ns.start.min(self.covered_unix_ns.start);
        let end_unix_ns = interval_unix_ns.end.max(self.covered_unix_ns.end);
        Profile {
            sample_type: Some(sample_type),
            period_type: Some(period_type),
            period,
            time_unix_nano: start_unix_ns,
            duration_nano: end_unix_ns - start_unix_ns,
            profile_id: new_profile_id(),
            ..Profile::default()
        }
    }

    /// The events grouped by sample, in order of time within each, or as their sum.
    pub(super) fn into_columns(self) -> ColumnarSamples {
        let identities = self.identities.into_values();
        // First each sample's number of events, then the position for its next one, and finally its end.
        let mut ends = vec![0_usize; identities.len()];
        for &sample in &self.samples {
            ends[sample.position()] += 1;
        }
        let mut start = 0;
        for end in &mut ends {
            start += std::mem::replace(end, start);
        }
        let by_time = (!self.is_sorted).then(|| {
            let mut events: Vec<usize> = (0..self.samples.len()).collect();
            events.sort_by_key(|&event| self.times_unix_ns[event]);
            events
        });
        let mut times_unix_ns = vec![0; self.times_unix_ns.len()];
        let mut values = vec![0; self.values.len()];
        for position in 0..self.samples.len() {
            let event = by_time.as_ref().map_or(position, |events| events[position]);
            let place = &mut ends[self.samples[event].position()];
            times_unix_ns[*place] = self.times_unix_ns[event];
            if let Some(value) = values.get_mut(*place) {
                *value = self.values[event];
            }
            *place += 1;
        }
        if self.shape == SampleShape::Values {
            times_unix_ns.clear();
            let mut start = 0;
            let sum = |end: &usize| values.get(std::mem::replace(&mut start, *end)..*end).map(saturating_sum);
            values = ends.iter().filter_map(sum).collect();
            ends = (1..=values.len()).collect();
        }
        ColumnarSamples { identities, ends, times_unix_ns, values }
    }
}

fn saturating_sum(values: &[i64]) -> i64 {
    values.iter().fold(0, |sum, value| sum.saturating_add(*value))
}

/// The events of a profile, grouped by sample.
#[derive(Debug)]
pub(super) struct ColumnarSamples {
    identities: Vec<SampleKey>,
    /// The end of each sample's events in the lists below, which is also the start of the next sample's.
    ends: Vec<usize>,
    /// Empty unless the kind's shape has timestamps.
    times_unix_ns: Vec<u64>,
    /// Empty unless the shape has values.
    values: Vec<i64>,
}

impl ColumnarSamples {
    /// The samples.
    pub(super) fn samples(&self) -> Vec<SampleRef<'_>> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        let samples = self.identities.iter().zip(starts.zip(&self.ends));
        samples
            .map(|(identity, (start, &end))| SampleRef {
                stack: identity.stack,
                attributes: identity.attributes,
                link: identity.link,
                times_unix_ns: self.times_unix_ns.get(start..end).unwrap_or_default(),
                values: self.values.get(start..end).unwrap_or_default(),
            })
            .collect()
    }
}
