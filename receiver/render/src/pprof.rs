//! pprof's form.
//!
//! Source: `proto/profile.proto` of github.com/google/pprof; the messages here carry the fields that are used.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::{self, Write};
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use crate::escape::{hexadecimal, visible, visible_or_nothing};
use crate::profile::Profile;

/// Writes the profile, compressed.
pub(crate) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let mut gzip = GzEncoder::new(out, Compression::default());
    gzip.write_all(&message(profile).encode_to_vec())?;
    gzip.finish()?.flush()
}

fn message(profile: &Profile) -> proto::Profile {
    let mut strings = Strings::default();
    let samples = strings.value_type("samples", "count");
    let time = strings.value_type(&profile.measure.name, "nanoseconds");
    let mut message = proto::Profile {
        sample_type: vec![samples, time],
        period_type: Some(time),
        period: signed(profile.measure.period_ns),
        time_nanos: profile.start.duration_since(UNIX_EPOCH).map_or(0, |since| signed(since.as_nanos())),
        duration_nanos: signed(profile.duration.as_nanos()),
        ..proto::Profile::default()
    };
    add_binaries(profile, &mut strings, &mut message);
    add_frames(profile, &mut strings, &mut message);
    add_samples(profile, &mut strings, &mut message);
    for outcome in &profile.outcomes {
        message.comment.push(strings.index(&format!("{}: {}", visible(&outcome.name), outcome.count)));
    }
    message.string_table = strings.table;
    message
}

fn add_binaries(profile: &Profile, strings: &mut Strings, message: &mut proto::Profile) {
    message.mapping = profile
        .binaries
        .iter()
        .zip(1..)
        .map(|(binary, id)| proto::Mapping {
            id,
            filename: strings.index(&visible(&binary.path)),
            build_id: strings.index(binary.build_id.as_deref().unwrap_or("")),
            // Addresses are the file's own, so the whole of it counts as mapped where it says.
            memory_start: 0,
            memory_limit: u64::MAX,
            has_functions: true,
        })
        .collect();
}

/// A location for each frame, numbered like the frames from 1, and a function for each distinct name and file.
fn add_frames(profile: &Profile, strings: &mut Strings, message: &mut proto::Profile) {
    let mut functions = HashMap::new();
    for (frame, id) in profile.frames.iter().zip(1..) {
        let name = strings.index(&visible(&frame.name));
        let system_name = match &*frame.system_name {
            "" => name,
            system_name => strings.index(&visible(system_name)),
        };
        let next_id = functions.len() as u64 + 1;
        let filename = strings.index(&visible(&frame.path));
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

fn add_samples(profile: &Profile, strings: &mut Strings, message: &mut proto::Profile) {
    let keys = ["process", "thread", "container.id", "trace_id", "span_id"].map(|key| strings.index(key));
    let number_keys = ["pid", "thread_id"].map(|key| strings.index(key));
    for sample in profile.timeless() {
        let thread = profile.thread_of(&sample);
        let span = sample.span.and_then(|span| profile.spans.get(span.0 as usize));
        let values = [
            thread.map(|thread| visible_or_nothing(&thread.process)),
            thread.map(|thread| visible_or_nothing(&thread.name)),
            thread.map(|thread| visible_or_nothing(&thread.container)),
            span.map(|span| hexadecimal(&span.trace_id).into()),
            span.map(|span| hexadecimal(&span.span_id).into()),
        ];
        let labels = keys.into_iter().zip(values).filter_map(|(key, value)| {
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
            value: vec![signed(sample.count), signed(sample.count.saturating_mul(profile.measure.period_ns))],
            label,
        });
    }
}

/// The form counts in signed numbers; what does not fit becomes the largest.
fn signed(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// The string table; its first is empty by definition.
struct Strings {
    table: Vec<String>,
    indices: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Self { table: vec![String::new()], indices: HashMap::from([(String::new(), 0)]) }
    }
}

impl Strings {
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

/// The messages, named and numbered as in the source.
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
