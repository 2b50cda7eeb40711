//! Reads the pprof format, from any writer.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use prost::Message;
use sidewinder_kind::unit;

use super::error::ReadError;
use super::guess::{FrameHints, guess_category};
use crate::container::ProfileContainer;
use crate::interner::ValueInterner;
use crate::pprof::proto;
use crate::profile::{
    BinaryIndex, FrameIndex, Profile, ProfileBinary, ProfileFrame, ProfileSample, ProfileSpan, ProfileThread,
    SpanIndex, StackIndex, StateIndex, ThreadIndex, ThreadState,
};
use crate::sample_type::{EventPeriod, SampleType};

/// Reads an uncompressed message. If it has several value types, the number of samples is used if their period is a time,
/// otherwise a value that is a time, otherwise the last value, which is pprof's own default.
pub(super) fn read(title: &str, bytes: &[u8]) -> Result<Profile, ReadError> {
    let message = proto::Profile::decode(bytes)?;
    let texts = PprofStrings(&message.string_table);
    let (column, measure) = select_sample_type(&message, texts).ok_or(ReadError::NoSampleType)?;
    let mut profile = Profile::new(title.to_owned(), measure);
    profile.start = SystemTime::UNIX_EPOCH + duration_from_nanos(message.time_nanos);
    profile.duration = duration_from_nanos(message.duration_nanos);
    profile.binaries = message
        .mapping
        .iter()
        .map(|mapping| ProfileBinary {
            path: texts.get(mapping.filename).to_owned(),
            build_id: Some(texts.get(mapping.build_id).to_owned()).filter(|id| !id.is_empty()),
            htlhash: None,
        })
        .collect();
    let frames_of = add_frames(&message, texts, &mut profile);
    let (mut threads, mut spans) = (ValueInterner::default(), ValueInterner::default());
    let mut states = ValueInterner::default();
    for sample in &message.sample {
        let count = sample.value.get(column).and_then(|value| u64::try_from(*value).ok()).unwrap_or(0);
        if count == 0 {
            continue;
        }
        let frames = sample.location_id.iter().filter_map(|id| frames_of.get(id)).flatten().copied();
        profile.stacks.push(frames.collect());
        let labels = PprofLabels { labels: &sample.label, texts };
        let span = Option::zip(labels.bytes::<16>("trace_id"), labels.bytes::<8>("span_id"));
        profile.samples.push(ProfileSample {
            slice: 0,
            thread: ThreadIndex(threads.intern(ProfileThread {
                process: labels.text("process").into(),
                pid: labels.number(&["pid", "process_id"]),
                name: labels.text("thread").into(),
                tid: labels.number(&["tid", "thread_id"]),
                container: ProfileContainer::from_attributes(|key| Some(labels.text(key))),
            })),
            span: span.map(|(trace_id, span_id)| SpanIndex(spans.intern(ProfileSpan { trace_id, span_id }))),
            state: labels.state().map(|state| StateIndex(states.intern(state))),
            stack: StackIndex(profile.stacks.len() as u32 - 1),
            count,
        });
    }
    (profile.threads, profile.spans, profile.states) = (threads.values, spans.values, states.values);
    Ok(profile)
}

/// Which value of a sample is used, and its measure.
fn select_sample_type(message: &proto::Profile, texts: PprofStrings<'_>) -> Option<(usize, SampleType)> {
    let is_in = |kind: &proto::ValueType, unit: &str| texts.get(kind.unit) == unit;
    let period = message.period_type.as_ref().filter(|kind| is_in(kind, unit::NANOSECONDS));
    let period_ns = u64::try_from(message.period).ok().filter(|period| *period > 0);
    let find = |wanted: &str| message.sample_type.iter().position(|kind| is_in(kind, wanted));
    if let (Some(kind), Some(period_ns), Some(column)) = (period, period_ns, find(unit::COUNT)) {
        return Some((column, SampleType::at_rate(texts.get(kind.r#type).to_owned(), period_ns)));
    }
    let column = find(unit::NANOSECONDS).or_else(|| message.sample_type.len().checked_sub(1))?;
    let value_type = message.sample_type.get(column)?;
    let [name, unit] = [value_type.r#type, value_type.unit].map(|text| texts.get(text).to_owned());
    let period = Option::zip(message.period_type.as_ref(), period_ns).map(|(kind, amount)| EventPeriod {
        name: texts.get(kind.r#type).to_owned(),
        unit: texts.get(kind.unit).to_owned(),
        amount,
    });
    Some((column, SampleType::of_values(name, unit, period)))
}

/// The frames of each location, leaf first: inlined ones first, as in the format.
fn add_frames(
    message: &proto::Profile,
    texts: PprofStrings<'_>,
    profile: &mut Profile,
) -> HashMap<u64, Vec<FrameIndex>> {
    let functions: HashMap<_, _> = message.function.iter().map(|function| (function.id, function)).collect();
    let binaries: HashMap<_, _> = message.mapping.iter().zip(0..).map(|(it, at)| (it.id, at)).collect();
    let mut frames_of = HashMap::new();
    for location in &message.location {
        let binary = binaries.get(&location.mapping_id).copied().map(BinaryIndex);
        let known = binary.and_then(|at| profile.binaries.get(at.0 as usize));
        let path = known.map_or("", |binary| &binary.path);
        let file = known.map_or("", ProfileBinary::file_name);
        let frame = |label: &str, system_name: &str, source: &str, line: i64| {
            let (name, is_guessed) = ProfileFrame::parse_label(label);
            ProfileFrame {
                is_guessed,
                name: name.to_owned(),
                // Without a symbol, the place in the file stands for the name, as our own files have it.
                is_named: !is_offset_in(name, file),
                system_name: if system_name == name { String::new() } else { system_name.to_owned() },
                binary,
                kind: guess_category(FrameHints {
                    name,
                    source,
                    binary: path,
                    has_address: location.address != 0,
                }),
                address: location.address,
                path: source.to_owned(),
                line: u32::try_from(line).unwrap_or(0),
            }
        };
        let mut frames: Vec<_> = location
            .line
            .iter()
            .filter_map(|line| Some((line, functions.get(&line.function_id)?)))
            .map(|(line, function)| {
                let [name, system, source] =
                    [function.name, function.system_name, function.filename].map(|at| texts.get(at));
                frame(if name.is_empty() { system } else { name }, system, source, line.line)
            })
            .collect();
        if frames.is_empty() {
            let name = format!("{file}+{:#x}", location.address);
            frames.push(ProfileFrame { is_named: false, ..frame(&name, "", "", 0) });
        }
        let first = profile.frames.len() as u32;
        frames_of.insert(location.id, (first..first + frames.len() as u32).map(FrameIndex).collect());
        profile.frames.append(&mut frames);
    }
    frames_of
}

/// Whether a name is that of a file and an offset in it.
fn is_offset_in(name: &str, file: &str) -> bool {
    let offset = name.strip_prefix(file).and_then(|rest| rest.strip_prefix("+0x"));
    !file.is_empty() && offset.is_some_and(|offset| u64::from_str_radix(offset, 16).is_ok())
}

fn duration_from_nanos(count: i64) -> Duration {
    Duration::from_nanos(u64::try_from(count).unwrap_or(0))
}

/// The string table. Invalid indices give an empty string.
#[derive(Clone, Copy)]
struct PprofStrings<'a>(&'a [String]);

impl<'a> PprofStrings<'a> {
    fn get(self, index: i64) -> &'a str {
        usize::try_from(index).ok().and_then(|index| self.0.get(index)).map_or("", String::as_str)
    }
}

/// The labels of a sample, by key.
struct PprofLabels<'a> {
    labels: &'a [proto::Label],
    texts: PprofStrings<'a>,
}

impl<'a> PprofLabels<'a> {
    fn find(&self, key: &str) -> Option<&'a proto::Label> {
        self.labels.iter().find(|label| self.texts.get(label.key) == key)
    }

    fn text(&self, key: &str) -> &'a str {
        self.find(key).map_or("", |label| self.texts.get(label.str))
    }

    fn number(&self, keys: &[&str]) -> u32 {
        let label = keys.iter().find_map(|key| self.find(key));
        label.and_then(|label| u32::try_from(label.num).ok()).unwrap_or(0)
    }

    /// What the thread did or waited for.
    fn state(&self) -> Option<ThreadState> {
        let state = self.text(ThreadState::STATE_KEY);
        let cause = self.text(ThreadState::CAUSE_KEY);
        (!state.is_empty()).then(|| ThreadState { state: state.into(), cause: cause.into() })
    }

    /// An ID in hexadecimal digits.
    fn bytes<const LENGTH: usize>(&self, key: &str) -> Option<[u8; LENGTH]> {
        let text = self.text(key);
        let mut bytes = [0; LENGTH];
        if text.len() != 2 * LENGTH || !text.is_ascii() {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(bytes)
    }
}
