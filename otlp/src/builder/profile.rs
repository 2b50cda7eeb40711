//! The events of one profile, before they are a message.

use std::ops::Range;

use super::ResourceIndex;
use super::dictionary::Dictionary;
use crate::kind::{Kind, Shape, TypeAndUnit};
use crate::report::new_profile_id;
use crate::table::Table;
use crate::wire::{Profile, Sample, ValueType};

/// Events of one kind and one resource in the order in which they came.
///
/// Each event is three numbers in three lists; the lists of a sample are only made in the end.
#[derive(Debug)]
pub(super) struct ProfileDraft {
    pub(super) resource: ResourceIndex,
    pub(super) kind: Kind,
    shape: Shape,
    identities: Table<Identity>,
    /// Of each event, the index of its identity.
    samples: Vec<i32>,
    times_unix_ns: Vec<u64>,
    /// Empty unless the shape has values.
    values: Vec<i64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Identity {
    stack: i32,
    attributes: i32,
    link: i32,
}

impl ProfileDraft {
    pub(super) fn new(resource: ResourceIndex, kind: Kind) -> Self {
        Self {
            resource,
            kind,
            shape: kind.row().shape,
            identities: Table::empty(),
            samples: Vec::new(),
            times_unix_ns: Vec::new(),
            values: Vec::new(),
        }
    }

    pub(super) fn events(&self) -> usize {
        self.samples.len()
    }

    pub(super) fn event(&mut self, stack: i32, attributes: i32, link: i32, time_unix_ns: u64, value: i64) {
        let identity = Identity { stack, attributes, link };
        let sample = self.identities.intern(&identity, |held| *held == identity, || identity);
        self.samples.push(sample);
        self.times_unix_ns.push(time_unix_ns);
        if self.shape == Shape::TimestampsAndValues {
            self.values.push(value);
        }
    }

    /// The message, whose indices are those of `dictionary`.
    pub(super) fn into_profile(self, dictionary: &mut Dictionary, interval_unix_ns: &Range<u64>) -> Profile {
        let row = self.kind.row();
        let mut value_type = |(kind, unit): TypeAndUnit| {
            Some(ValueType { type_strindex: dictionary.string(kind), unit_strindex: dictionary.string(unit) })
        };
        let sample_type = value_type(row.sample_type);
        let period_type = value_type(row.period_type);
        let time = self.covered_unix_ns(interval_unix_ns);
        Profile {
            sample_type,
            period_type,
            period: row.period,
            samples: self.into_samples(dictionary),
            time_unix_nano: time.start,
            duration_nano: time.end - time.start,
            profile_id: new_profile_id(),
            ..Profile::default()
        }
    }

    /// `interval_unix_ns` and the time of every event.
    fn covered_unix_ns(&self, interval_unix_ns: &Range<u64>) -> Range<u64> {
        let mut covered = interval_unix_ns.clone();
        for &time in &self.times_unix_ns {
            covered.start = covered.start.min(time);
            covered.end = covered.end.max(time.saturating_add(1));
        }
        covered
    }

    fn into_samples(self, dictionary: &Dictionary) -> Vec<Sample> {
        let mut counts = vec![0_usize; self.identities.values().len()];
        for &sample in &self.samples {
            counts[sample as usize] += 1;
        }
        let with_values = self.shape == Shape::TimestampsAndValues;
        let mut samples: Vec<Sample> = self
            .identities
            .values()
            .iter()
            .zip(&counts)
            .map(|(identity, &count)| Sample {
                stack_index: identity.stack,
                attribute_indices: dictionary.attributes_of_set(identity.attributes),
                link_index: identity.link,
                timestamps_unix_nano: Vec::with_capacity(count),
                values: Vec::with_capacity(if with_values { count } else { 0 }),
            })
            .collect();
        let by_time = (!self.times_unix_ns.is_sorted()).then(|| {
            let mut events: Vec<usize> = (0..self.samples.len()).collect();
            events.sort_by_key(|&event| self.times_unix_ns[event]);
            events
        });
        for position in 0..self.samples.len() {
            let event = by_time.as_ref().map_or(position, |events| events[position]);
            let sample = &mut samples[self.samples[event] as usize];
            sample.timestamps_unix_nano.push(self.times_unix_ns[event]);
            if with_values {
                sample.values.push(self.values[event]);
            }
        }
        samples
    }
}
