//! The Firefox Profiler's format: processed profile JSON, written with samply's library.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryPairHandle, CpuDelta, Frame as FirefoxFrame, FrameFlags, FrameInfo,
    Profile as FirefoxProfile, ReferenceTimestamp, SamplingInterval, StackHandle, ThreadHandle, Timestamp,
};

use sidewinder_profile::{Frame, FrameIndex};

use crate::category::FrameCategory;
use crate::escape::escaped;
use crate::label::frame_label;
use crate::profile::{Profile, ProfileSample, ProfileThread, ThreadIndex};

/// Writes the profile.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer(out, &convert(profile)).map_err(io::Error::from)
}

fn convert(profile: &Profile) -> FirefoxProfile {
    let period_ns = profile.measure.period_ns().max(1);
    let mut firefox = FirefoxProfile::new(
        &escaped(&profile.title),
        ReferenceTimestamp::from_system_time(profile.start),
        SamplingInterval::from_nanos(period_ns),
    );
    firefox.set_os_name("Linux");
    firefox.set_symbolicated(true);
    let categories = FrameCategory::ALL
        .map(|kind| CategoryPairHandle::from(firefox.add_category(kind.label(), colour(kind))));
    let frames = profile.stacked_frames();
    let infos: HashMap<_, _> =
        frames.map(|(index, frame)| (index, frame_info(&mut firefox, &frame, &categories))).collect();
    let mut of_threads = BTreeMap::<ThreadIndex, Vec<ProfileSample>>::new();
    let samples = profile.samples_without_attributes().into_iter();
    for sample in samples.filter(|sample| profile.thread_of(sample).is_some()) {
        of_threads.entry(sample.thread).or_default().push(sample);
    }
    let mut processes = BTreeMap::new();
    for (index, samples) in of_threads {
        let Some(thread) = profile.threads.get(index.0 as usize) else { continue };
        let process = *processes.entry((thread.pid, &thread.process)).or_insert_with(|| {
            firefox.add_process(
                &escaped(&thread.process),
                thread.pid,
                Timestamp::from_nanos_since_reference(0),
            )
        });
        let is_main = thread.tid == thread.pid;
        let start = Timestamp::from_nanos_since_reference(0);
        let handle = firefox.add_thread(process, thread.tid, start, is_main);
        firefox.set_thread_name(handle, &escaped(thread_name(thread)));
        add_samples(&mut firefox, handle, profile, &samples, &infos);
    }
    firefox
}

fn add_samples(
    firefox: &mut FirefoxProfile,
    thread: ThreadHandle,
    profile: &Profile,
    samples: &[ProfileSample],
    infos: &HashMap<FrameIndex, FrameInfo>,
) {
    for sample in samples {
        let mut stack: Option<StackHandle> = None;
        let frames = profile.dictionary.frames_of(sample.stack);
        for info in frames.rev().filter_map(|frame| infos.get(&frame)) {
            let frame = firefox.intern_frame(thread, info.clone());
            stack = Some(firefox.intern_stack(thread, stack, frame));
        }
        let at = u64::try_from(Duration::as_nanos(&profile.slice)).unwrap_or(u64::MAX);
        let time = Timestamp::from_nanos_since_reference(at.saturating_mul(u64::from(sample.slice)));
        let cpu = CpuDelta::from_nanos(sample.count.saturating_mul(profile.measure.period_ns()));
        firefox.add_sample(thread, time, stack, cpu, i32::try_from(sample.count).unwrap_or(i32::MAX));
    }
}

/// A frame, whose name is looked at once, however many stacks have it.
fn frame_info(
    firefox: &mut FirefoxProfile,
    frame: &Frame<'_>,
    categories: &[CategoryPairHandle; FrameCategory::ALL.len()],
) -> FrameInfo {
    let label = firefox.intern_string(&escaped(&frame_label(frame)));
    let [other, ..] = *categories;
    let of_kind =
        FrameCategory::ALL.iter().zip(categories).find(|(kind, _)| **kind == FrameCategory::of(frame));
    let category_pair = of_kind.map_or(other, |(_, category)| *category);
    FrameInfo { frame: FirefoxFrame::Label(label), category_pair, flags: FrameFlags::empty() }
}

fn thread_name(thread: &ProfileThread) -> &str {
    if thread.name.is_empty() { &thread.process } else { &thread.name }
}

/// The nearest of the Firefox Profiler's colours.
const fn colour(kind: FrameCategory) -> CategoryColor {
    match kind {
        FrameCategory::Native => CategoryColor::Yellow,
        FrameCategory::Rust => CategoryColor::Orange,
        FrameCategory::Go => CategoryColor::LightBlue,
        FrameCategory::Python => CategoryColor::Brown,
        FrameCategory::Jit => CategoryColor::Green,
        FrameCategory::Kernel => CategoryColor::Purple,
        FrameCategory::Lock => CategoryColor::Magenta,
        FrameCategory::Marker => CategoryColor::Gray,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::sample;

    #[test]
    fn every_event_is_a_sample_of_its_thread() {
        let json = serde_json::to_value(convert(&sample())).unwrap();
        let [thread] = json["threads"].as_array().unwrap().as_slice() else { panic!("{json}") };
        assert_eq!(thread["name"], "worker");
        let weights = thread["samples"]["weight"].as_array().unwrap();
        assert_eq!(weights.iter().map(|weight| weight.as_u64().unwrap()).sum::<u64>(), 14);
    }
}
