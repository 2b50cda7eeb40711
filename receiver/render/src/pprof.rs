//! The pprof format.
//!
//! Source: `proto/profile.proto` of github.com/google/pprof; the messages here only have the fields that are used.

mod pair;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;
use sidewinder_kind::{SAMPLES, unit};

pub use self::pair::write_pprof_pair;
use crate::container::ProfileContainer;
use crate::escape::{escaped, escaped_or_empty, hex};
use crate::profile::{Profile, ProfileSample, ThreadState};

/// Writes the profile, compressed.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    write_message(&to_message(profile), out)
}

fn write_message(message: &proto::Profile, out: &mut impl Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&message.encode_to_vec())?;
    gzip.finish()?.flush()
}

fn to_message(profile: &Profile) -> proto::Profile {
    let values = |count: u64| match profile.measure.period_ns {
        _ if profile.measure.is_duration() => vec![saturating_i64(count)],
        0 => vec![saturating_i64(count)],
        period_ns => vec![saturating_i64(count), saturating_i64(count.saturating_mul(period_ns))],
    };
    let samples = profile.samples_without_time().into_iter().map(|sample| (sample, values(sample.count)));
    to_message_with(profile, samples.collect())
}

/// With these samples and their values instead of the profile's own.
fn to_message_with(profile: &Profile, samples: Vec<(ProfileSample, Vec<i64>)>) -> proto::Profile {
    let mut strings = StringTableBuilder::default();
    // Samples that are only counts, as in folded stacks, have no time.
    let is_duration = profile.measure.is_duration();
    let has_times = profile.measure.period_ns > 0;
    let counted = if has_times { SAMPLES.name } else { &profile.measure.name };
    let counted = (!is_duration).then(|| strings.value_type(counted, &profile.measure.unit));
    let time = has_times.then(|| strings.value_type(&profile.measure.name, unit::NANOSECONDS));
    let period = profile.measure.period.as_ref();
    let between_events = period.map(|period| strings.value_type(&period.name, &period.unit));
    let mut message = proto::Profile {
        sample_type: counted.into_iter().chain(time).collect(),
        period_type: between_events.or(time.filter(|_| !is_duration)),
        period: match period {
            Some(period) => saturating_i64(period.amount),
            None if is_duration => 0,
            None => saturating_i64(profile.measure.period_ns),
        },
        time_nanos: profile
            .start
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| saturating_i64(since.as_nanos())),
        duration_nanos: saturating_i64(profile.duration.as_nanos()),
        ..proto::Profile::default()
    };
    add_binaries(profile, &mut strings, &mut message);
    add_frames(profile, &mut strings, &mut message);
    add_samples(profile, samples, &mut strings, &mut message);
    for outcome in &profile.outcomes {
        message.comment.push(strings.index(&format!("{}: {}", escaped(&outcome.name), outcome.count)));
    }
    message.string_table = strings.table;
    message
}

fn add_binaries(profile: &Profile, strings: &mut StringTableBuilder, message: &mut proto::Profile) {
    message.mapping = profile
        .binaries
        .iter()
        .zip(1..)
        .map(|(binary, id)| proto::Mapping {
            id,
            filename: strings.index(&escaped(&binary.path)),
            build_id: strings.index(binary.build_id.as_deref().unwrap_or("")),
            // Addresses are those of the file, so all of it is mapped at its own addresses.
            memory_start: 0,
            memory_limit: u64::MAX,
            has_functions: true,
        })
        .collect();
    // pprof defines the first mapping as the main binary. IDs don't change: readers look mappings up by ID.
    if let Some(main) = main_binary(profile) {
        message.mapping[..=main].rotate_right(1);
    }
}

/// The index of the main binary of a profile: the program with the most samples of processes named like its file. If no
/// process has the name of its file, the program with the most samples, and otherwise the library with the most samples.
fn main_binary(profile: &Profile) -> Option<usize> {
    /// In descending order of significance.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    struct MainBinaryRank {
        samples_of_processes_named_so: u64,
        is_program: bool,
        samples: u64,
    }
    let names: Vec<String> = profile.binaries.iter().map(|binary| binary.file_name().to_owned()).collect();
    let mut claims: Vec<MainBinaryRank> = names
        .iter()
        .map(|name| MainBinaryRank { is_program: !is_library(name), ..MainBinaryRank::default() })
        .collect();
    let mut seen = HashSet::new();
    for sample in &profile.samples {
        let process = profile.thread_of(sample).map_or("", |thread| &*thread.process);
        seen.clear();
        seen.extend(profile.frames_of(sample.stack).filter_map(|frame| frame.binary));
        for binary in &seen {
            let at = binary.0 as usize;
            let (Some(claim), Some(name)) = (claims.get_mut(at), names.get(at)) else { continue };
            claim.samples = claim.samples.saturating_add(sample.count);
            if !process.is_empty() && name.starts_with(process) {
                let of_process = &mut claim.samples_of_processes_named_so;
                *of_process = of_process.saturating_add(sample.count);
            }
        }
    }
    let is_file = |at: &usize| !profile.binaries[*at].path.starts_with('[');
    // The first of equal ones.
    (0..claims.len()).rev().filter(is_file).max_by_key(|at| claims[*at])
}

/// Whether a file is a library, by its name: `libc.so.6`, `libz.so`, `ld-2.31.so`.
fn is_library(name: &str) -> bool {
    name.ends_with(".so") || name.contains(".so.")
}

/// Creates a location for each frame, with the frame's index plus 1 as its ID, and a function for each distinct name and
/// file.
fn add_frames(profile: &Profile, strings: &mut StringTableBuilder, message: &mut proto::Profile) {
    let mut functions = HashMap::new();
    for (frame, id) in profile.frames.iter().zip(1..) {
        let name = strings.index(&escaped(&frame.label()));
        let system_name = match &*frame.system_name {
            "" => strings.index(&escaped(&frame.name)),
            system_name => strings.index(&escaped(system_name)),
        };
        let next_id = functions.len() as u64 + 1;
        let filename = strings.index(&escaped(&frame.path));
        let function_id =
            *functions.entry((name, system_name, filename, frame.binary)).or_insert_with(|| {
                message.function.push(proto::Function { id: next_id, name, system_name, filename });
                next_id
            });
        let is_known = |binary: &u32| (*binary as usize) < profile.binaries.len();
        let binary = frame.binary.map(|binary| binary.0).filter(is_known);
        message.location.push(proto::Location {
            id,
            mapping_id: binary.map_or(0, |binary| u64::from(binary) + 1),
            address: frame.address,
            line: vec![proto::Line { function_id, line: frame.line.into() }],
        });
    }
}

fn add_samples(
    profile: &Profile,
    samples: Vec<(ProfileSample, Vec<i64>)>,
    strings: &mut StringTableBuilder,
    message: &mut proto::Profile,
) {
    let keys = ["process", "thread", "trace_id", "span_id", ThreadState::STATE_KEY, ThreadState::CAUSE_KEY]
        .into_iter()
        .chain(ProfileContainer::KEYS);
    let keys: Vec<_> = keys.map(|key| strings.index(key)).collect();
    let number_keys = ["pid", "thread_id"].map(|key| strings.index(key));
    for (sample, value) in samples {
        let thread = profile.thread_of(&sample);
        let span = sample.span.and_then(|span| profile.spans.get(span.0 as usize));
        let state = sample.state.and_then(|state| profile.states.get(state.0 as usize));
        let values = [
            thread.map(|thread| escaped_or_empty(&thread.process)),
            thread.map(|thread| escaped_or_empty(&thread.name)),
            span.map(|span| hex(&span.trace_id).into()),
            span.map(|span| hex(&span.span_id).into()),
            state.map(|state| escaped_or_empty(&state.state)),
            state.map(|state| escaped_or_empty(&state.cause)),
        ];
        let container =
            thread.map_or_else(|| [""; 6], |thread| thread.container.attributes().map(|(_, text)| text));
        let values = values.into_iter().chain(container.map(|text| Some(escaped_or_empty(text))));
        let labels = keys.iter().copied().zip(values).filter_map(|(key, value)| {
            let value = value.filter(|value: &Cow<'_, str>| !value.is_empty())?;
            Some(proto::Label { key, str: strings.index(&value), num: 0 })
        });
        let mut label: Vec<_> = labels.collect();
        let numbers = thread.map_or([0, 0], |thread| [thread.pid, thread.tid]);
        let numbers = number_keys.into_iter().zip(numbers).filter(|(_, number)| *number > 0);
        label.extend(numbers.map(|(key, number)| proto::Label { key, str: 0, num: number.into() }));
        let stack = profile.stacks.get(sample.stack.0 as usize).map_or(&[][..], Vec::as_slice);
        message.sample.push(proto::Sample {
            location_id: stack
                .iter()
                .filter(|index| (index.0 as usize) < profile.frames.len())
                .map(|index| u64::from(index.0) + 1)
                .collect(),
            value,
            label,
        });
    }
}

/// The format's counts are signed; a value that does not fit becomes the largest one.
fn saturating_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// The string table; its first entry is empty by definition.
struct StringTableBuilder {
    table: Vec<String>,
    indices: HashMap<String, i64>,
}

impl Default for StringTableBuilder {
    fn default() -> Self {
        Self { table: vec![String::new()], indices: HashMap::from([(String::new(), 0)]) }
    }
}

impl StringTableBuilder {
    fn from_table(table: Vec<String>) -> Self {
        let indices = table.iter().cloned().zip(0..).collect();
        Self { table, indices }
    }

    fn index(&mut self, string: &str) -> i64 {
        if let Some(index) = self.indices.get(string) {
            return *index;
        }
        let index = self.table.len() as i64;
        self.table.push(string.to_owned());
        self.indices.insert(string.to_owned(), index);
        index
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { r#type: self.index(kind), unit: self.index(unit) }
    }
}

/// The messages, with names and field numbers as in the source.
pub(crate) mod proto {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Profile {
        #[prost(message, repeated, tag = "1")]
        pub sample_type: Vec<ValueType>,
        #[prost(message, repeated, tag = "2")]
        pub sample: Vec<Sample>,
        #[prost(message, repeated, tag = "3")]
        pub mapping: Vec<Mapping>,
        #[prost(message, repeated, tag = "4")]
        pub location: Vec<Location>,
        #[prost(message, repeated, tag = "5")]
        pub function: Vec<Function>,
        #[prost(string, repeated, tag = "6")]
        pub string_table: Vec<String>,
        #[prost(int64, tag = "9")]
        pub time_nanos: i64,
        #[prost(int64, tag = "10")]
        pub duration_nanos: i64,
        #[prost(message, optional, tag = "11")]
        pub period_type: Option<ValueType>,
        #[prost(int64, tag = "12")]
        pub period: i64,
        #[prost(int64, repeated, tag = "13")]
        pub comment: Vec<i64>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct ValueType {
        #[prost(int64, tag = "1")]
        pub r#type: i64,
        #[prost(int64, tag = "2")]
        pub unit: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Sample {
        #[prost(uint64, repeated, tag = "1")]
        pub location_id: Vec<u64>,
        #[prost(int64, repeated, tag = "2")]
        pub value: Vec<i64>,
        #[prost(message, repeated, tag = "3")]
        pub label: Vec<Label>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Label {
        #[prost(int64, tag = "1")]
        pub key: i64,
        #[prost(int64, tag = "2")]
        pub str: i64,
        #[prost(int64, tag = "3")]
        pub num: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Mapping {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub memory_start: u64,
        #[prost(uint64, tag = "3")]
        pub memory_limit: u64,
        #[prost(int64, tag = "5")]
        pub filename: i64,
        #[prost(int64, tag = "6")]
        pub build_id: i64,
        #[prost(bool, tag = "7")]
        pub has_functions: bool,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct Location {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(uint64, tag = "2")]
        pub mapping_id: u64,
        #[prost(uint64, tag = "3")]
        pub address: u64,
        #[prost(message, repeated, tag = "4")]
        pub line: Vec<Line>,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Line {
        #[prost(uint64, tag = "1")]
        pub function_id: u64,
        #[prost(int64, tag = "2")]
        pub line: i64,
    }

    #[derive(Clone, Copy, PartialEq, prost::Message)]
    pub(crate) struct Function {
        #[prost(uint64, tag = "1")]
        pub id: u64,
        #[prost(int64, tag = "2")]
        pub name: i64,
        #[prost(int64, tag = "3")]
        pub system_name: i64,
        #[prost(int64, tag = "4")]
        pub filename: i64,
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_kind::{Kind, SampledProbe};

    use super::*;
    use crate::profile::{BinaryIndex, FrameIndex, ProfileBinary, ProfileThread, StackIndex, ThreadIndex};
    use crate::sample_type::SampleType;

    /// A profile of processes: the name of each, the binaries on its one stack, and its number of samples.
    fn profile(binaries: &[&str], processes: &[(&str, &[u32], u64)]) -> Profile {
        let mut profile = crate::profile::tests::sample();
        let model = profile.frames[0].clone();
        profile.binaries = binaries
            .iter()
            .map(|path| ProfileBinary { path: (*path).to_owned(), build_id: None, htlhash: None })
            .collect();
        profile.frames = (0..binaries.len() as u32)
            .map(|at| crate::profile::ProfileFrame { binary: Some(BinaryIndex(at)), ..model.clone() })
            .collect();
        profile.stacks =
            processes.iter().map(|(_, frames, _)| frames.iter().copied().map(FrameIndex).collect()).collect();
        let thread = |name: &str| ProfileThread {
            process: name.into(),
            pid: 1,
            name: "".into(),
            tid: 1,
            container: "".into(),
        };
        profile.threads = processes.iter().map(|(name, _, _)| thread(name)).collect();
        profile.samples = (0..)
            .zip(processes)
            .map(|(at, (_, _, count))| ProfileSample {
                slice: 0,
                thread: ThreadIndex(at),
                span: None,
                state: None,
                stack: StackIndex(at),
                count: *count,
            })
            .collect();
        profile
    }

    #[test]
    fn values_keep_their_unit() {
        let value_types = |kind| {
            let measure = SampleType::from_kind(kind);
            let message = to_message(&Profile { measure, ..crate::profile::tests::sample() });
            let text = |at: i64| message.string_table[at as usize].clone();
            let types = message.sample_type.iter();
            types.map(|of| format!("{}/{}", text(of.r#type), text(of.unit))).collect::<Vec<_>>()
        };
        let cpu = Kind::Cpu { samples_per_second: 97 };
        assert_eq!(value_types(cpu), ["samples/count", "cpu/nanoseconds"]);
        assert_eq!(value_types(Kind::OffCpu), ["off_cpu/nanoseconds"]);
        let written = Kind::Probe(SampledProbe::new("written", Some("bytes")));
        assert_eq!(value_types(written), ["written/bytes"]);
    }

    #[test]
    fn the_first_mapping_is_the_program_that_most_samples_are_of() {
        let binaries = ["[kernel]", "/lib/libc.so.6", "/usr/bin/bash", "/usr/bin/python3.11"];
        let first = |processes: &[(&str, &[u32], u64)]| {
            let message = to_message(&profile(&binaries, processes));
            let ids: Vec<_> = message.mapping.iter().map(|mapping| mapping.id).collect();
            assert_eq!(ids.iter().copied().collect::<std::collections::BTreeSet<_>>(), (1..=4).collect());
            message.string_table[message.mapping[0].filename as usize].clone()
        };
        let all: &[u32] = &[0, 1, 2];
        assert_eq!(first(&[("bash", all, 5), ("python3", &[1, 3], 6)]), "/usr/bin/python3.11");
        assert_eq!(first(&[("bash", all, 7), ("python3", &[1, 3], 6)]), "/usr/bin/bash");
        assert_eq!(first(&[("renamed", &[1, 3], 1), ("other", &[1], 100)]), "/usr/bin/python3.11");
        assert_eq!(first(&[("renamed", &[1], 1)]), "/usr/bin/bash", "a library is none");
    }
}
