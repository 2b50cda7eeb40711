//! The pprof format.
//!
//! Source: `proto/profile.proto` of github.com/google/pprof; the messages here only have the fields that are used.

mod message;
mod pair;

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use sidewinder_kind::{SAMPLES, unit};
use sidewinder_profile::{Index as _, Link, Mapping, MappingIndex, StringIndex, StringTable};

use self::message::{MessageWriter, field};

pub use self::pair::write_pprof_pair;
use crate::container::ProfileContainer;
use crate::escape::{escaped, escaped_or_empty};
use crate::label::frame_label;
use crate::profile::{OutcomeCount, Profile, ProfileSample, ThreadState};

/// Writes the profile, compressed.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let period_ns = profile.measure.period_ns();
    let has_time = period_ns > 0 && !profile.measure.is_duration();
    let samples = profile.samples_without_time().into_iter().map(|sample| {
        let time = has_time.then(|| saturating_i64(sample.count.saturating_mul(period_ns)));
        (sample, std::iter::once(saturating_i64(sample.count)).chain(time))
    });
    write_samples(profile, &value_types(profile), samples, out)
}

/// The type and the unit of each value that a sample of this profile has.
fn value_types(profile: &Profile) -> Vec<(&str, &str)> {
    let measure = &profile.measure;
    // Samples that are only counts, as in folded stacks, have no time.
    let is_duration = profile.measure.is_duration();
    let has_times = measure.period_ns() > 0;
    let counted = if has_times { SAMPLES.name } else { measure.name() };
    let counted = (!is_duration).then_some((counted, measure.unit()));
    counted.into_iter().chain(has_times.then_some((measure.name(), unit::NANOSECONDS))).collect()
}

/// Writes these samples, with values of these types, instead of the profile's own. They are written one by one, after what they
/// refer to; only the strings come last.
fn write_samples<V: IntoIterator<Item = i64>>(
    profile: &Profile,
    value_types: &[(&str, &str)],
    samples: impl Iterator<Item = (ProfileSample, V)>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut out = MessageWriter::new(out);
    let mut strings = ProfileStrings::default();
    out.write(&head(profile, value_types, &mut strings))?;
    for mapping in mappings(profile, &mut strings) {
        out.write_field(field::MAPPING, &mapping)?;
    }
    let location_ids = write_frames(profile, &mut strings, &mut out)?;
    let keys = LabelKeys::new(&mut strings);
    for (sample, values) in samples {
        let value = values.into_iter().collect();
        out.write_field(
            field::SAMPLE,
            &to_sample(profile, &location_ids, sample, value, &keys, &mut strings),
        )?;
    }
    let comment = |outcome: &OutcomeCount| format!("{}: {}", escaped(&outcome.name), outcome.count);
    let comment = profile.outcomes.iter().map(|outcome| strings.index(&comment(outcome))).collect();
    out.write(&proto::Profile { comment, ..proto::Profile::default() })?;
    for string in strings.all() {
        out.write_bytes(field::STRING, string.as_bytes())?;
    }
    out.finish()
}

/// What is not in tables.
fn head(profile: &Profile, value_types: &[(&str, &str)], strings: &mut ProfileStrings) -> proto::Profile {
    let is_duration = profile.measure.is_duration();
    let sample_type: Vec<_> = value_types.iter().map(|(name, unit)| strings.value_type(name, unit)).collect();
    let has_time = profile.measure.period_ns() > 0 && !is_duration;
    let time = has_time.then(|| strings.value_type(profile.measure.name(), unit::NANOSECONDS));
    let period = profile.measure.event_period();
    let between_events =
        period.map(|period| strings.value_type(&period.value_type.name, &period.value_type.unit));
    proto::Profile {
        sample_type,
        period_type: between_events.or(time),
        period: match period {
            Some(period) => saturating_i64(period.amount),
            None if is_duration => 0,
            None => saturating_i64(profile.measure.period_ns()),
        },
        time_nanos: profile
            .start
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| saturating_i64(since.as_nanos())),
        duration_nanos: saturating_i64(profile.duration.as_nanos()),
        ..proto::Profile::default()
    }
}

/// The mappings, each with its index as its ID.
fn mappings(profile: &Profile, strings: &mut ProfileStrings) -> Vec<proto::Mapping> {
    let dictionary = &profile.dictionary;
    let mapping = |(mapping, id): (&Mapping, u64)| proto::Mapping {
        id,
        filename: strings.index(&escaped(dictionary.string(mapping.filename))),
        build_id: strings.index(dictionary.build_ids(mapping).gnu.unwrap_or_default()),
        // Addresses are those of the file, so all of it is mapped at its own addresses.
        memory_start: 0,
        memory_limit: u64::MAX,
        has_functions: true,
    };
    // The first is none.
    let mut mappings: Vec<_> = dictionary.mappings().iter().zip(0..).skip(1).map(mapping).collect();
    // pprof defines the first mapping as the main binary. IDs don't change: readers look mappings up by ID.
    if let Some(main) = main_mapping(profile) {
        mappings.get_mut(..main.position()).into_iter().for_each(|mappings| mappings.rotate_right(1));
    }
    mappings
}

/// The mapping of the main binary of a profile: the program with the most samples of processes named like its file. If no
/// process has the name of its file, the program with the most samples, and otherwise the library with the most samples.
fn main_mapping(profile: &Profile) -> Option<MappingIndex> {
    /// In descending order of significance.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
    struct MainBinaryRank {
        samples_of_processes_named_so: u64,
        is_program: bool,
        samples: u64,
    }
    let dictionary = &profile.dictionary;
    let paths: Vec<_> =
        dictionary.mappings().iter().map(|mapping| dictionary.string(mapping.filename)).collect();
    let names: Vec<_> = paths.iter().map(|path| path.rsplit('/').next().unwrap_or_default()).collect();
    let mut claims: Vec<MainBinaryRank> = names
        .iter()
        .map(|name| MainBinaryRank { is_program: !is_library(name), ..MainBinaryRank::default() })
        .collect();
    let mut seen = HashSet::new();
    for sample in &profile.samples {
        let process = profile.thread_of(sample).map_or("", |thread| &*thread.process);
        seen.clear();
        let locations = dictionary.stack(sample.stack).iter();
        seen.extend(locations.map(|location| dictionary.location(*location).mapping));
        for mapping in &seen {
            let at = mapping.position();
            let (Some(claim), Some(name)) = (claims.get_mut(at), names.get(at)) else { continue };
            claim.samples = claim.samples.saturating_add(sample.count);
            if !process.is_empty() && name.starts_with(process) {
                let of_process = &mut claim.samples_of_processes_named_so;
                *of_process = of_process.saturating_add(sample.count);
            }
        }
    }
    let files = (0..).map(MappingIndex).zip(&paths).zip(&claims).skip(1);
    let files: Vec<_> = files.filter(|((_, path), _)| !path.starts_with('[')).collect();
    // The first of equal ones.
    files.into_iter().rev().max_by_key(|(_, claim)| **claim).map(|((mapping, _), _)| mapping)
}

/// Whether a file is a library, by its name: `libc.so.6`, `libz.so`, `ld-2.31.so`.
fn is_library(name: &str) -> bool {
    name.ends_with(".so") || name.contains(".so.")
}

/// Writes a location for each frame that is in a stack, and a function for each distinct name and file. Returns the ID of each
/// location by the index of its frame; 0 if it was not written.
fn write_frames(
    profile: &Profile,
    strings: &mut ProfileStrings,
    out: &mut MessageWriter<impl Write>,
) -> io::Result<Vec<u64>> {
    let mut functions = HashMap::new();
    let mut ids = vec![0; profile.dictionary.frame_count()];
    for ((index, frame), id) in profile.stacked_frames().zip(1..) {
        let name = strings.index(&escaped(&frame_label(&frame)));
        let system_name = match frame.system_name() {
            "" => strings.index(&escaped(&frame.name())),
            system_name => strings.index(&escaped(system_name)),
        };
        let next_id = functions.len() as u64 + 1;
        let filename = strings.index(&escaped(frame.path()));
        let mapping = frame.location.mapping;
        let function_id = *functions.entry((name, system_name, filename, mapping)).or_insert(next_id);
        if function_id == next_id {
            let function = proto::Function { id: next_id, name, system_name, filename };
            out.write_field(field::FUNCTION, &function)?;
        }
        let location = proto::Location {
            id,
            mapping_id: mapping.0.into(),
            address: frame.location.address,
            line: vec![proto::Line { function_id, line: frame.line.line.into() }],
        };
        out.write_field(field::LOCATION, &location)?;
        ids.get_mut(index.position()).into_iter().for_each(|known| *known = id);
    }
    Ok(ids)
}

/// The keys of the labels of samples.
struct LabelKeys {
    texts: Vec<i64>,
    /// Of the numbers of the process and of the thread.
    numbers: [i64; 2],
}

impl LabelKeys {
    fn new(strings: &mut ProfileStrings) -> Self {
        let texts =
            ["process", "thread", "trace_id", "span_id", ThreadState::STATE_KEY, ThreadState::CAUSE_KEY];
        let texts = texts.into_iter().chain(ProfileContainer::KEYS);
        Self {
            texts: texts.map(|key| strings.index(key)).collect(),
            numbers: ["pid", "thread_id"].map(|key| strings.index(key)),
        }
    }
}

fn to_sample(
    profile: &Profile,
    location_ids: &[u64],
    sample: ProfileSample,
    value: Vec<i64>,
    keys: &LabelKeys,
    strings: &mut ProfileStrings,
) -> proto::Sample {
    let thread = profile.thread_of(&sample);
    let span = Some(profile.dictionary.link(sample.span)).filter(Link::is_valid);
    let state = sample.state.and_then(|state| profile.states.get(state.0 as usize));
    let values = [
        thread.map(|thread| escaped_or_empty(&thread.process)),
        thread.map(|thread| escaped_or_empty(&thread.name)),
        span.map(|span| hex::encode(span.trace_id).into()),
        span.map(|span| hex::encode(span.span_id).into()),
        state.map(|state| escaped_or_empty(&state.state)),
        state.map(|state| escaped_or_empty(&state.cause)),
    ];
    let container =
        thread.map_or_else(|| [""; 6], |thread| thread.container.attributes().map(|(_, text)| text));
    let values = values.into_iter().chain(container.map(|text| Some(escaped_or_empty(text))));
    let labels = keys.texts.iter().copied().zip(values).filter_map(|(key, value)| {
        let value = value.filter(|value: &Cow<'_, str>| !value.is_empty())?;
        Some(proto::Label { key, str: strings.index(&value), num: 0 })
    });
    let mut label: Vec<_> = labels.collect();
    let numbers = thread.map_or([0, 0], |thread| [thread.pid, thread.tid]);
    let numbers = keys.numbers.into_iter().zip(numbers).filter(|(_, number)| *number > 0);
    label.extend(numbers.map(|(key, number)| proto::Label { key, str: 0, num: number.into() }));
    let frames = profile.dictionary.frames_of(sample.stack);
    proto::Sample {
        location_id: frames.filter_map(|frame| location_ids.get(frame.position()).copied()).collect(),
        value,
        label,
    }
}

/// The format's counts are signed; a value that does not fit becomes the largest one.
fn saturating_i64(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// The string table; its first entry is empty by definition.
#[derive(Default)]
struct ProfileStrings(StringTable<StringIndex>);

impl ProfileStrings {
    fn index(&mut self, string: &str) -> i64 {
        self.0.intern(string).0.into()
    }

    fn value_type(&mut self, kind: &str, unit: &str) -> proto::ValueType {
        proto::ValueType { r#type: self.index(kind), unit: self.index(unit) }
    }

    fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter()
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
    use crate::profile::tests::{TestFrame, sample_frames};
    use sidewinder_kind::{Kind, SampledProbe};

    use super::*;
    use crate::profile::{ProfileThread, ThreadIndex};
    use sidewinder_profile::SampleType;

    fn written(profile: &Profile) -> proto::Profile {
        let (mut out, mut message) = (Vec::new(), Vec::new());
        write(profile, &mut out).unwrap();
        io::Read::read_to_end(&mut flate2::read::GzDecoder::new(&*out), &mut message).unwrap();
        prost::Message::decode(&*message).unwrap()
    }

    /// A profile of processes: the name of each, the binaries on its one stack, and its number of samples.
    fn profile(binaries: &[&'static str], processes: &[(&str, &[usize], u64)]) -> Profile {
        let [model, ..] = &sample_frames()[..] else { panic!("there are frames") };
        let frames: Vec<_> = binaries.iter().map(|file| TestFrame { file, ..model.clone() }).collect();
        let stacks: Vec<_> = processes.iter().map(|(_, frames, count)| (*frames, *count)).collect();
        let mut profile = crate::profile::tests::profile(&frames, &stacks);
        // A file whose frames are in no stack is a mapping, too.
        for file in binaries {
            profile.dictionary.add_file(file);
        }
        let thread = |name: &str| ProfileThread {
            process: name.into(),
            pid: 1,
            name: "".into(),
            tid: 1,
            container: "".into(),
        };
        profile.threads = processes.iter().map(|(name, _, _)| thread(name)).collect();
        for (sample, thread) in profile.samples.iter_mut().zip(0..) {
            sample.thread = ThreadIndex(thread);
        }
        profile
    }

    #[test]
    fn values_keep_their_unit() {
        let value_types = |kind| {
            let measure = SampleType::from_kind(kind);
            let message = written(&Profile { measure, ..crate::profile::tests::sample() });
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
        let first = |processes: &[(&str, &[usize], u64)]| {
            let message = written(&profile(&binaries, processes));
            let ids: Vec<_> = message.mapping.iter().map(|mapping| mapping.id).collect();
            assert_eq!(ids.iter().copied().collect::<std::collections::BTreeSet<_>>(), (1..=4).collect());
            message.string_table[message.mapping[0].filename as usize].clone()
        };
        let all: &[usize] = &[0, 1, 2];
        assert_eq!(first(&[("bash", all, 5), ("python3", &[1, 3], 6)]), "/usr/bin/python3.11");
        assert_eq!(first(&[("bash", all, 7), ("python3", &[1, 3], 6)]), "/usr/bin/bash");
        assert_eq!(first(&[("renamed", &[1, 3], 1), ("other", &[1], 100)]), "/usr/bin/python3.11");
        assert_eq!(first(&[("renamed", &[1], 1)]), "/usr/bin/bash", "a library is none");
    }
}
