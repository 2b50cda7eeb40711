//! Decodes profiles into a small owned model, for tests and for display.
//!
//! Any bytes are accepted as input: anything that isn't a profiles message, or is inconsistent, is an error. Memory use
//! is proportional to the input, since each stack, frame and name is held once, and a message of many entries that take next to
//! nothing on the wire is refused.

mod size;

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;
pub use sidewinder_profile::{AttributeValue, Attributes};
use sidewinder_profile::{FrameType, Link, key};

use crate::read::at;
use crate::wire::{
    self, AnyValue, AnyValueKind, KeyValue, ProfilesData, ProfilesDictionary, ResourceProfiles,
};

/// The maximum size of a message.
pub const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The memory that decoding may take for each byte of a message: three times as much as messages of profilers.
const DECODED_BYTES_PER_BYTE: usize = 32;
/// The memory in bytes that decoding may take in any case.
const DECODED_BYTES_MIN: usize = 32 << 20;

/// Why bytes could not be decoded.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not a protobuf message of this type.
    #[error("not a ProfilesData message")]
    NotProfiles(#[from] prost::DecodeError),
    /// More than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes exceeds {MAX_MESSAGE_BYTES}")]
    TooLong(usize),
    /// Decoded, it would take more memory than its size allows.
    #[error(
        "a message of {bytes} bytes has so many entries that it takes more than {limit_mib} MiB, the limit for its size"
    )]
    Expands {
        /// The size of the message.
        bytes: usize,
        /// The limit for a message of this size.
        limit_mib: usize,
    },
    /// The file ends within a message or its length prefix.
    #[error("the message at byte {offset} needs {needed} bytes, but the file has only {left} left")]
    CutOff {
        /// The offset of the message or its length prefix.
        offset: usize,
        /// The number of bytes required from there.
        needed: usize,
        /// The number of bytes available.
        left: usize,
    },
    /// An index outside its table.
    #[error("index {index} lies outside of the {table} table of {len}")]
    IndexOutOfRange {
        /// The table.
        table: &'static str,
        /// The index.
        index: i32,
        /// The length of the table.
        len: usize,
    },
    /// Its profiles are of more types than are told apart.
    #[error("its profiles are of more than {0} types")]
    TooManyTypes(usize),
    /// A sample has values and timestamps, but not the same number of each.
    #[error("a sample has {values} values for {timestamps} timestamps")]
    UnequalLengths {
        /// The number of values.
        values: usize,
        /// The number of timestamps.
        timestamps: usize,
    },
}

/// A range of a file that is mapped into memory.
#[derive(Clone, PartialEq, Default, Debug)]
pub struct DecodedMapping {
    /// The address of its first byte.
    pub memory_start: u64,
    /// The address after its last byte.
    pub memory_limit: u64,
    /// The file offset of its first byte.
    pub file_offset: u64,
    /// The name of the file.
    pub filename: Arc<str>,
    /// The build IDs, and any other attributes.
    pub attributes: Attributes,
}

impl DecodedMapping {
    /// `process.executable.build_id.htlhash`.
    #[must_use]
    pub fn htlhash(&self) -> Option<&str> {
        self.attributes.get(key::BUILD_ID_HTLHASH)?.as_str()
    }

    /// `process.executable.build_id.gnu`.
    #[must_use]
    pub fn gnu_build_id(&self) -> Option<&str> {
        self.attributes.get(key::BUILD_ID_GNU)?.as_str()
    }

    /// `process.executable.build_id.go`.
    #[must_use]
    pub fn go_build_id(&self) -> Option<&str> {
        self.attributes.get(key::BUILD_ID_GO)?.as_str()
    }
}

/// A function, and a position in it.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct DecodedLine {
    /// The readable name.
    pub function: Arc<str>,
    /// The linker name.
    pub system_name: Arc<str>,
    /// The source file.
    pub filename: Arc<str>,
    /// The line, from 1; 0 if unknown.
    pub line: i64,
    /// The column, from 1; 0 if unknown.
    pub column: i64,
}

/// One frame of a stack.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedFrame {
    /// The mapping that contains `address`, if any.
    pub mapping: Option<Arc<DecodedMapping>>,
    /// Within the mapping's memory.
    pub address: u64,
    /// The function at `address` comes last, preceded by those inlined into it.
    pub lines: Vec<DecodedLine>,
    /// The frame type, and any other attributes.
    pub attributes: Arc<Attributes>,
}

impl DecodedFrame {
    /// `profile.frame.type`, if the conventions define its value.
    #[must_use]
    pub fn frame_type(&self) -> Option<FrameType> {
        FrameType::from_wire(self.attributes.get(key::FRAME_TYPE)?.as_str()?)
    }

    /// Whether nothing proves that it is the caller of the previous frame.
    #[must_use]
    pub fn is_guessed(&self) -> bool {
        self.attributes.get(key::FRAME_GUESSED) == Some(&AttributeValue::Bool(true))
    }

    /// Whether a process generated its code, if the type doesn't say by which runtime.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        self.attributes.get(key::FRAME_GENERATED) == Some(&AttributeValue::Bool(true))
    }

    /// Whether its name is words of the profiler, and not a function's; `None` if it does not say so.
    #[must_use]
    pub fn is_marker(&self) -> Option<bool> {
        match self.attributes.get(key::FRAME_MARKER)? {
            AttributeValue::Bool(is_marker) => Some(*is_marker),
            _ => None,
        }
    }

    /// The file offset of `address`.
    #[must_use]
    pub fn file_offset(&self) -> Option<u64> {
        let mapping = self.mapping.as_ref()?;
        self.address.checked_sub(mapping.memory_start)?.checked_add(mapping.file_offset)
    }

    /// The name of the function at `address`, if it has one.
    #[must_use]
    pub fn function(&self) -> Option<&str> {
        self.lines.last().map(|line| &*line.function).filter(|name| !name.is_empty())
    }
}

/// One profile: samples of one kind for one resource.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedProfile {
    /// The resource.
    pub resource: Arc<Attributes>,
    /// The sample type, such as `samples` or `off_cpu`.
    pub sample_type: Arc<str>,
    /// The unit of the values, such as `count` or `nanoseconds`.
    pub sample_unit: Arc<str>,
    /// The period type, such as `cpu`.
    pub period_type: Arc<str>,
    /// The unit of the period, such as `nanoseconds`.
    pub period_unit: Arc<str>,
    /// The period, in the unit of the period type.
    pub period: i64,
    /// The start of the covered time.
    pub time_unix_ns: u64,
    /// The length of the covered time.
    pub duration_ns: u64,
    /// The profile ID; receivers drop profiles whose ID they have already seen.
    pub profile_id: Vec<u8>,
    /// The samples.
    pub samples: Vec<DecodedSample>,
}

/// The events of one stack, attribute set and link.
#[derive(Clone, PartialEq, Debug)]
pub struct DecodedSample {
    /// Leaf first.
    pub stack: Arc<[Arc<DecodedFrame>]>,
    /// The thread, the CPU, the outcome, and any other attributes.
    pub attributes: Arc<Attributes>,
    /// The span that was active.
    pub link: Option<Link>,
    /// One for each event. Empty if events were summed.
    pub timestamps_unix_ns: Vec<u64>,
    /// One for each event, or one for all. Empty if events are only counted.
    pub values: Vec<i64>,
}

impl DecodedSample {
    /// `thread.id`.
    #[must_use]
    pub fn thread_id(&self) -> Option<i64> {
        self.attributes.get(key::THREAD_ID)?.as_int()
    }

    /// `thread.name`.
    #[must_use]
    pub fn thread_name(&self) -> Option<&str> {
        self.attributes.get(key::THREAD_NAME)?.as_str()
    }

    /// `cpu.logical_number`.
    #[must_use]
    pub fn cpu(&self) -> Option<i64> {
        self.attributes.get(key::CPU)?.as_int()
    }

    /// Why the stack is incomplete; `None` if it is complete.
    #[must_use]
    pub fn outcome(&self) -> Option<&str> {
        self.attributes.get(key::STACK_OUTCOME)?.as_str()
    }
}

/// One event with all its attributes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct DecodedEvent<'a> {
    /// The profile that it is in.
    pub profile: &'a DecodedProfile,
    /// The sample that it is in.
    pub sample: &'a DecodedSample,
    /// Its time.
    pub time_unix_ns: u64,
    /// Its value; 1 if events are only counted. Of a sample without timestamps: that of all its events.
    pub value: i64,
}

impl DecodedProfile {
    /// The events of all samples. A sample without timestamps is one event, at the start of the profile.
    pub fn events(&self) -> impl Iterator<Item = DecodedEvent<'_>> {
        self.samples.iter().flat_map(move |sample| {
            let event = move |time_unix_ns, at| {
                let value = sample.values.get(at).copied().unwrap_or(1);
                DecodedEvent { profile: self, sample, time_unix_ns, value }
            };
            let times = sample.timestamps_unix_ns.iter().enumerate();
            let sum = sample.timestamps_unix_ns.is_empty().then(|| event(self.time_unix_ns, 0));
            times.map(move |(at, &time_unix_ns)| event(time_unix_ns, at)).chain(sum)
        })
    }
}

/// Decodes one `ProfilesData` or `ExportProfilesServiceRequest` message.
///
/// # Errors
///
/// If the message is too large, of another type, or inconsistent.
pub fn decode_profiles_data(bytes: &[u8]) -> Result<Vec<DecodedProfile>, DecodeError> {
    decode_messages([bytes].into_iter().map(Ok))
}

/// Refuses messages of one document that are too large or expand to too much. They share the limits of one.
pub(crate) fn check_sizes<'a>(
    messages: impl Iterator<Item = Result<&'a [u8], DecodeError>>,
) -> Result<(), DecodeError> {
    let (mut bytes, mut decoded_bytes) = (0_usize, 0_usize);
    for message in messages {
        let message = message?;
        bytes = bytes.saturating_add(message.len());
        if bytes > MAX_MESSAGE_BYTES {
            return Err(DecodeError::TooLong(bytes));
        }
        decoded_bytes = decoded_bytes.saturating_add(size::decoded_bytes(message));
    }
    let limit_bytes = DECODED_BYTES_MIN.saturating_add(bytes.saturating_mul(DECODED_BYTES_PER_BYTE));
    if decoded_bytes > limit_bytes {
        return Err(DecodeError::Expands { bytes, limit_mib: limit_bytes >> 20 });
    }
    Ok(())
}

/// Decodes the messages of one document.
fn decode_messages<'a>(
    messages: impl Iterator<Item = Result<&'a [u8], DecodeError>> + Clone,
) -> Result<Vec<DecodedProfile>, DecodeError> {
    check_sizes(messages.clone())?;
    let mut profiles = Vec::new();
    for message in messages {
        let data = ProfilesData::decode(message?)?;
        let mut tables = DecodedDictionary::new(data.dictionary.unwrap_or_default())?;
        for ResourceProfiles { resource, scope_profiles, .. } in data.resource_profiles {
            let attributes = resource.map(|resource| resource.attributes).unwrap_or_default();
            let resource = Arc::new(tables.inline_attributes(attributes)?);
            for profile in scope_profiles.into_iter().flat_map(|scope| scope.profiles) {
                profiles.push(tables.profile(&resource, profile)?);
            }
        }
    }
    Ok(profiles)
}

/// Whether a file is in the format of the Collector's file exporter, rather than one message: that begins with the number of a
/// field, which is at least 1, and the other with the highest byte of a length, which is less than 8 for up to 128 MiB.
#[must_use]
pub fn is_collector_file(bytes: &[u8]) -> bool {
    const FIELD_SHIFT: u32 = 3;
    bytes.first().is_some_and(|first| first >> FIELD_SHIFT == 0)
}

/// Decodes all messages of a file in the format of the Collector's file exporter. Together they have the limits of one message
/// of their size.
///
/// # Errors
///
/// As [`file_messages`], before anything is decoded, and [`decode_profiles_data`].
pub fn decode_collector_file(bytes: &[u8]) -> Result<Vec<DecodedProfile>, DecodeError> {
    decode_messages(file_messages(bytes))
}

/// Splits a file in the format of the Collector's file exporter with `format: proto` into its messages: each follows its
/// length in four bytes, big-endian.
///
/// A file that ends within a message, such as one still being written, ends with an error.
pub fn file_messages(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], DecodeError>> + Clone {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        let cut_off = |needed| DecodeError::CutOff { offset, needed, left: rest.len() };
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            let error = cut_off(4);
            offset = bytes.len();
            return Some(Err(error));
        };
        let length = u32::from_be_bytes(*length) as usize;
        let Some(message) = rest.get(..length) else {
            let error = cut_off(length.saturating_add(4));
            offset = bytes.len();
            return Some(Err(error));
        };
        offset += 4 + length;
        Some(Ok(message))
    })
}

/// The tables of a dictionary, with all references resolved.
struct DecodedDictionary {
    strings: Vec<Arc<str>>,
    attributes: Vec<(Arc<str>, AttributeValue)>,
    /// The sets of `attributes` that were asked for, by their indices: most frames and samples share theirs with others.
    attribute_sets: HashMap<Vec<i32>, Arc<Attributes>>,
    stacks: Vec<Arc<[Arc<DecodedFrame>]>>,
    links: Vec<Option<Link>>,
}

impl DecodedDictionary {
    fn new(dictionary: ProfilesDictionary) -> Result<Self, DecodeError> {
        let mut tables = Self {
            strings: dictionary.string_table.into_iter().map(Arc::from).collect(),
            attributes: Vec::new(),
            attribute_sets: HashMap::new(),
            stacks: Vec::new(),
            links: dictionary.link_table.iter().map(link).collect(),
        };
        for attribute in dictionary.attribute_table {
            let key = tables.string(attribute.key_strindex)?;
            let value = tables.value(attribute.value)?;
            tables.attributes.push((key, value));
        }
        let mappings = dictionary
            .mapping_table
            .into_iter()
            .map(|mapping| tables.mapping(mapping).map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let mut frames = Vec::with_capacity(dictionary.location_table.len());
        for location in dictionary.location_table {
            let mapping = Arc::clone(at("mapping", &mappings, location.mapping_index)?);
            let lines = location.lines.iter().map(|line| tables.line(line, &dictionary.function_table));
            frames.push(Arc::new(DecodedFrame {
                mapping: (location.mapping_index != 0).then_some(mapping),
                address: location.address,
                lines: lines.collect::<Result<_, _>>()?,
                attributes: tables.attribute_set(location.attribute_indices)?,
            }));
        }
        let stack = |stack: wire::Stack| {
            let frame = |&index: &i32| at("location", &frames, index).map(Arc::clone);
            stack.location_indices.iter().map(frame).collect::<Result<Arc<[_]>, _>>()
        };
        tables.stacks = dictionary.stack_table.into_iter().map(stack).collect::<Result<_, _>>()?;
        Ok(tables)
    }

    fn profile(
        &mut self,
        resource: &Arc<Attributes>,
        profile: wire::Profile,
    ) -> Result<DecodedProfile, DecodeError> {
        Ok(DecodedProfile {
            resource: Arc::clone(resource),
            sample_type: self.type_name(profile.sample_type)?,
            sample_unit: self.string(profile.sample_type.unwrap_or_default().unit_strindex)?,
            period_type: self.type_name(profile.period_type)?,
            period_unit: self.string(profile.period_type.unwrap_or_default().unit_strindex)?,
            period: profile.period,
            time_unix_ns: profile.time_unix_nano,
            duration_ns: profile.duration_nano,
            profile_id: profile.profile_id,
            samples: profile.samples.into_iter().map(|s| self.sample(s)).collect::<Result<_, _>>()?,
        })
    }

    fn sample(&mut self, sample: wire::Sample) -> Result<DecodedSample, DecodeError> {
        let (values, timestamps) = (sample.values.len(), sample.timestamps_unix_nano.len());
        if values != 0 && timestamps != 0 && values != timestamps {
            return Err(DecodeError::UnequalLengths { values, timestamps });
        }
        Ok(DecodedSample {
            stack: Arc::clone(at("stack", &self.stacks, sample.stack_index)?),
            attributes: self.attribute_set(sample.attribute_indices)?,
            link: *at("link", &self.links, sample.link_index)?,
            timestamps_unix_ns: sample.timestamps_unix_nano,
            values: sample.values,
        })
    }

    fn mapping(&self, mapping: wire::Mapping) -> Result<DecodedMapping, DecodeError> {
        Ok(DecodedMapping {
            memory_start: mapping.memory_start,
            memory_limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
            filename: self.string(mapping.filename_strindex)?,
            attributes: self.attributes(&mapping.attribute_indices)?,
        })
    }

    fn line(&self, line: &wire::Line, functions: &[wire::Function]) -> Result<DecodedLine, DecodeError> {
        let function = at("function", functions, line.function_index)?;
        Ok(DecodedLine {
            function: self.string(function.name_strindex)?,
            system_name: self.string(function.system_name_strindex)?,
            filename: self.string(function.filename_strindex)?,
            line: line.line,
            column: line.column,
        })
    }

    fn type_name(&self, value_type: Option<wire::ValueType>) -> Result<Arc<str>, DecodeError> {
        self.string(value_type.unwrap_or_default().type_strindex)
    }

    fn attributes(&self, indices: &[i32]) -> Result<Attributes, DecodeError> {
        indices.iter().map(|&index| at("attribute", &self.attributes, index).cloned()).collect()
    }

    fn attribute_set(&mut self, indices: Vec<i32>) -> Result<Arc<Attributes>, DecodeError> {
        if let Some(known) = self.attribute_sets.get(&indices) {
            return Ok(Arc::clone(known));
        }
        let set = Arc::new(self.attributes(&indices)?);
        self.attribute_sets.insert(indices, Arc::clone(&set));
        Ok(set)
    }

    fn inline_attributes(&self, attributes: Vec<KeyValue>) -> Result<Attributes, DecodeError> {
        let resolve = |attribute: KeyValue| {
            let key = match attribute.key_strindex {
                0 => attribute.key.into(),
                index => self.string(index)?,
            };
            Ok((key, self.value(attribute.value)?))
        };
        attributes.into_iter().map(resolve).collect()
    }

    fn value(&self, value: Option<AnyValue>) -> Result<AttributeValue, DecodeError> {
        Ok(match value.and_then(|value| value.value) {
            Some(AnyValueKind::StringValue(text)) => AttributeValue::Str(text.into()),
            Some(AnyValueKind::StringValueStrindex(index)) => AttributeValue::Str(self.string(index)?),
            Some(AnyValueKind::IntValue(number)) => AttributeValue::Int(number),
            Some(AnyValueKind::BoolValue(truth)) => AttributeValue::Bool(truth),
            Some(AnyValueKind::ArrayValue(list)) => {
                let values = list.values.into_iter().map(|value| self.value(Some(value)));
                AttributeValue::List(values.collect::<Result<_, _>>()?)
            }
            other => AttributeValue::Other(format!("{other:?}").into()),
        })
    }

    fn string(&self, index: i32) -> Result<Arc<str>, DecodeError> {
        // Index 0 is valid if there is no dictionary at all.
        if index == 0 { Ok(Arc::default()) } else { at("string", &self.strings, index).map(Arc::clone) }
    }
}

/// A link, if its ids have the right lengths.
fn link(link: &wire::Link) -> Option<Link> {
    Some(Link {
        trace_id: link.trace_id.as_slice().try_into().ok()?,
        span_id: link.span_id.as_slice().try_into().ok()?,
    })
}
