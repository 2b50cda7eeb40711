//! Two profiles of the same events in one message.

use std::collections::BTreeMap;
use std::io::{self, Write};

use super::{saturating_i64, value_types, write_samples};
use crate::merge::merge;
use crate::profile::{Profile, ProfileSample};

/// Writes two profiles of the same events as one, compressed, whose samples have a value of each: as Go's runtime writes how often
/// and for how long its program waited. The period is that of the first.
///
/// # Errors
/// Any I/O error of `out`.
pub fn write_pprof_pair(first: &Profile, second: &Profile, out: &mut impl Write) -> io::Result<()> {
    let both = merge(first, second);
    let mut values = BTreeMap::<ProfileSample, [u64; 2]>::new();
    for sample in &both.samples {
        let of_sample = values.entry(ProfileSample { slice: 0, count: 0, ..*sample }).or_default();
        if let Some(value) = of_sample.get_mut(sample.slice as usize) {
            *value = value.saturating_add(sample.count);
        }
    }
    let samples = values.into_iter().map(|(sample, values)| (sample, values.map(saturating_i64)));
    let tables = Profile { title: String::new(), duration: first.duration, start: first.start, ..both };
    let tables = Profile { outcomes: first.outcomes.clone(), measure: first.measure.clone(), ..tables };
    let types = [value_types(first), value_types(second)].concat();
    write_samples(&tables, &types, samples, out)
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sidewinder_kind::Kind;

    use super::*;
    use crate::pprof::proto;
    use sidewinder_profile::SampleType;

    #[test]
    fn two_profiles_of_the_same_events_are_one_with_two_values() {
        let sample = crate::profile::tests::sample();
        let of = |kind, factor| {
            let mut profile = Profile { measure: SampleType::from_kind(kind), ..sample.clone() };
            profile.samples.iter_mut().for_each(|sample| sample.count *= factor);
            profile
        };
        let (contentions, mut delay) = (of(Kind::LockContentions, 1), of(Kind::LockDelay, 1000));
        // A part of a wait that was found in progress counts as none.
        delay.samples.push(ProfileSample { stack: delay.samples[0].stack, ..delay.samples[1] });
        let mut out = Vec::new();
        write_pprof_pair(&contentions, &delay, &mut out).unwrap();
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&out[..]), &mut bytes).unwrap();
        let message = proto::Profile::decode(&bytes[..]).unwrap();
        let text = |index: i64| &*message.string_table[index as usize];
        let types: Vec<_> = message.sample_type.iter().map(|of| (text(of.r#type), text(of.unit))).collect();
        assert_eq!(types, [("contentions", "count"), ("delay", "nanoseconds")]);
        assert_eq!(message.period_type.map(|of| text(of.r#type)), Some("contentions"));
        assert_eq!(message.sample.len(), 5, "a stack has one sample");
        let sum = |at: usize| message.sample.iter().map(|sample| sample.value[at]).sum::<i64>();
        assert_eq!((sum(0), sum(1)), (14, 14_000 + 4_000));
    }
}
