//! The speedscope format: a JSON object with a profile for each thread.
//!
//! Source: `src/lib/file-format-spec.ts` of github.com/jlfwong/speedscope.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

use serde::Serialize;
use sidewinder_kind::unit;
use sidewinder_profile::{FrameIndex, SampleType};

use crate::escape::escaped;
use crate::label::frame_label;
use crate::profile::{Profile, ProfileSample, ThreadIndex};

/// Writes the profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(out, &to_file(profile)).map_err(io::Error::from)
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeFile {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    name: String,
    active_profile_index: usize,
    shared: SpeedscopeShared,
    profiles: Vec<SampledProfile>,
}

#[derive(Serialize)]
struct SpeedscopeShared {
    frames: Vec<SpeedscopeFrame>,
}

#[derive(Serialize)]
struct SpeedscopeFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampledProfile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    /// The stacks, root first, as indices in the shared frames.
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

fn to_file(profile: &Profile) -> SpeedscopeFile {
    let stacked: Vec<_> = profile.stacked_frames().collect();
    let numbers: HashMap<_, _> = stacked.iter().map(|(index, _)| *index).zip(0..).collect();
    let mut of_threads = BTreeMap::<ThreadIndex, Vec<ProfileSample>>::new();
    for sample in profile.samples_without_attributes() {
        of_threads.entry(sample.thread).or_default().push(sample);
    }
    let mut profiles: Vec<_> = of_threads
        .into_iter()
        .map(|(thread, samples)| thread_profile(profile, &numbers, thread, samples))
        .collect();
    // The busiest thread is shown first.
    profiles.sort_by_key(|sampled| std::cmp::Reverse(sampled.end_value));
    let frames = stacked.iter().map(|(_, frame)| {
        let place = if frame.path().is_empty() { frame.binary_path() } else { frame.path() };
        SpeedscopeFrame {
            name: escaped(&frame_label(frame)).into_owned(),
            file: (!place.is_empty()).then(|| escaped(place).into_owned()),
            line: (frame.line.line > 0).then_some(frame.line.line),
        }
    });
    SpeedscopeFile {
        schema: "https://www.speedscope.app/file-format-schema.json",
        exporter: concat!("sidewinder ", env!("CARGO_PKG_VERSION")),
        name: escaped(&profile.title).into_owned(),
        active_profile_index: 0,
        shared: SpeedscopeShared { frames: frames.collect() },
        profiles,
    }
}

/// The unit of the weights, among those that the format has.
fn unit_of(measure: &SampleType) -> &'static str {
    match measure.unit() {
        _ if measure.period_ns() > 0 => unit::NANOSECONDS,
        unit::BYTES => unit::BYTES,
        _ => "none",
    }
}

/// The stacks of a thread in order of time. `numbers` are the indices of the shared frames.
fn thread_profile(
    profile: &Profile,
    numbers: &HashMap<FrameIndex, u32>,
    thread: ThreadIndex,
    samples: Vec<ProfileSample>,
) -> SampledProfile {
    let stack = |sample: &ProfileSample| -> Vec<u32> {
        let stack = profile.dictionary.frames_of(sample.stack);
        stack.rev().filter_map(|frame| numbers.get(&frame).copied()).collect()
    };
    let period_ns = profile.measure.period_ns().max(1);
    let weights: Vec<_> = samples.iter().map(|sample| sample.count.saturating_mul(period_ns)).collect();
    SampledProfile {
        r#type: "sampled",
        name: profile.thread_name(thread),
        unit: unit_of(&profile.measure),
        start_value: 0,
        end_value: weights.iter().fold(0, |sum, weight| sum.saturating_add(*weight)),
        samples: samples.iter().map(stack).collect(),
        weights,
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::{Kind, SampledProbe};

    use super::*;
    use crate::profile::tests::sample;

    #[test]
    fn a_thread_has_its_stacks_one_after_the_other() {
        let file = serde_json::to_value(to_file(&sample())).unwrap();
        assert_eq!(
            file["shared"]["frames"][4],
            serde_json::json!({"name": "write_it", "file": "/usr/bin/app"})
        );
        let [only] = file["profiles"].as_array().unwrap().as_slice() else { panic!("{file}") };
        assert_eq!(only["name"], "app 7 / worker 8");
        assert_eq!(only["samples"], serde_json::json!([[0], [0, 1], [0, 2], [0, 1, 2], [0, 4, 3]]));
        assert_eq!(only["endValue"], 140_000_000);
    }

    #[test]
    fn weights_have_the_unit_of_the_profile() {
        let unit_of_kind = |kind| unit_of(&SampleType::from_kind(kind));
        assert_eq!(unit_of_kind(Kind::Cpu { samples_per_second: 97 }), "nanoseconds");
        assert_eq!(unit_of_kind(Kind::OffCpu), "nanoseconds");
        assert_eq!(unit_of_kind(Kind::LockContentions), "none");
        assert_eq!(unit_of_kind(Kind::Probe(SampledProbe::new("written", Some("bytes")))), "bytes");
    }
}
