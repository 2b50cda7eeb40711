//! Reads messages: what they say of samples is added to a dictionary.

use prost::Message as _;
use sidewinder_profile::{
    AttributeIndex, AttributeSetIndex, AttributeValue, Dictionary, FrameType, Function, FunctionIndex, Line,
    Link, LinkIndex, Location, LocationIndex, Mapping, MappingIndex, Marker, Period, SampleType, StackIndex,
    StringIndex, ValueType, key,
};

use crate::encode::SampleRef;
use crate::message::{DecodeError, at, check_sizes, file_messages};
use crate::wire::{
    self, AnyValue, AnyValueKind, KeyValue, ProfilesData, ProfilesDictionary, ResourceProfiles, strindex,
    string_index,
};

/// A profile that has been read: samples of one kind for one resource. Its indices point into the dictionary.
#[derive(Debug)]
pub struct ReadProfile {
    /// The attributes of its resource.
    pub resource: AttributeSetIndex,
    /// What its samples count. The type of the period may be empty.
    pub sample_type: SampleType,
    /// The start of the covered time.
    pub time_unix_ns: u64,
    /// The length of the covered time.
    pub duration_ns: u64,
    /// Its samples.
    pub samples: Vec<ReadSample>,
}

/// The events of one stack, attribute set and link.
#[derive(Debug)]
pub struct ReadSample {
    /// The stack.
    pub stack: StackIndex,
    /// The thread, the CPU, the outcome, and any other attributes.
    pub attributes: AttributeSetIndex,
    /// The span that was active.
    pub link: LinkIndex,
    /// One for each event. Empty if events were summed.
    pub times_unix_ns: Vec<u64>,
    /// One for each event, or one for all. Empty if events are only counted.
    pub values: Vec<i64>,
}

impl ReadSample {
    pub(crate) fn as_ref(&self) -> SampleRef<'_> {
        SampleRef {
            stack: self.stack,
            attributes: self.attributes,
            link: self.link,
            times_unix_ns: &self.times_unix_ns,
            values: &self.values,
        }
    }
}

/// Reads one `ProfilesData` or `ExportProfilesServiceRequest` message.
///
/// # Errors
///
/// If the message is too large, of another type, or inconsistent.
pub fn read_profiles_data(
    bytes: &[u8],
    dictionary: &mut Dictionary,
) -> Result<Vec<ReadProfile>, DecodeError> {
    read_messages([bytes].into_iter().map(Ok), dictionary)
}

/// Reads all messages of a file in the format of the Collector's file exporter. Together they have the limits of one message of
/// their size.
///
/// # Errors
///
/// As [`file_messages`], before anything is read, and [`read_profiles_data`].
pub fn read_collector_file(
    bytes: &[u8],
    dictionary: &mut Dictionary,
) -> Result<Vec<ReadProfile>, DecodeError> {
    read_messages(file_messages(bytes), dictionary)
}

fn read_messages<'a>(
    messages: impl Iterator<Item = Result<&'a [u8], DecodeError>> + Clone,
    dictionary: &mut Dictionary,
) -> Result<Vec<ReadProfile>, DecodeError> {
    check_sizes(messages.clone())?;
    let mut profiles = Vec::new();
    for message in messages {
        let data = ProfilesData::decode(message?)?;
        let (tables, ReadMessage { resource_profiles, samples }) = read_with_tables(data, dictionary)?;
        let mut samples = samples.into_iter();
        for ResourceProfiles { resource, scope_profiles, .. } in resource_profiles {
            let attributes = resource.map(|resource| resource.attributes).unwrap_or_default();
            let resource = tables.inline_attributes(attributes, dictionary)?;
            for profile in scope_profiles.into_iter().flat_map(|scope| scope.profiles) {
                profiles.push(ReadProfile {
                    resource,
                    sample_type: sample_type(&profile, dictionary),
                    time_unix_ns: profile.time_unix_nano,
                    duration_ns: profile.duration_nano,
                    samples: samples.next().unwrap_or_default(),
                });
            }
        }
    }
    Ok(profiles)
}

/// What the samples of a profile count. Its strings are already in the dictionary.
fn sample_type(profile: &wire::Profile, dictionary: &Dictionary) -> SampleType {
    let value_type = |of: Option<wire::ValueType>| {
        let of = of.unwrap_or_default();
        let text = |strindex| dictionary.string(string_index(strindex));
        ValueType::new(text(of.type_strindex), text(of.unit_strindex))
    };
    let amount = u64::try_from(profile.period).ok().filter(|amount| *amount > 0);
    let period = amount.map(|amount| Period { value_type: value_type(profile.period_type), amount });
    SampleType { value_type: value_type(profile.sample_type), period }
}

/// A message that has been read.
#[derive(Debug)]
pub(crate) struct ReadMessage {
    /// Its profiles without their samples. Their strings have the indices of the dictionary.
    pub(crate) resource_profiles: Vec<ResourceProfiles>,
    /// The samples of each profile, in the order of profiles.
    pub(crate) samples: Vec<Vec<ReadSample>>,
}

/// Reads a message, and adds what it refers to.
///
/// # Errors
///
/// If it refers to what it does not have, or a sample has not as many values as timestamps.
pub(crate) fn read(message: ProfilesData, dictionary: &mut Dictionary) -> Result<ReadMessage, DecodeError> {
    Ok(read_with_tables(message, dictionary)?.1)
}

fn read_with_tables(
    message: ProfilesData,
    dictionary: &mut Dictionary,
) -> Result<(MessageTables, ReadMessage), DecodeError> {
    let tables = MessageTables::read(message.dictionary.unwrap_or_default(), dictionary)?;
    let mut resource_profiles = message.resource_profiles;
    let mut samples = Vec::new();
    let scopes = resource_profiles.iter_mut().flat_map(|resource| &mut resource.scope_profiles);
    for profile in scopes.flat_map(|scope| &mut scope.profiles) {
        for value_type in [&mut profile.sample_type, &mut profile.period_type].into_iter().flatten() {
            *value_type = tables.value_type(value_type)?;
        }
        let read = std::mem::take(&mut profile.samples).into_iter();
        samples.push(read.map(|sample| tables.sample(sample, dictionary)).collect::<Result<_, _>>()?);
    }
    Ok((tables, ReadMessage { resource_profiles, samples }))
}

/// For each element of a message's tables, its index in the dictionary.
struct MessageTables {
    strings: Vec<StringIndex>,
    /// `None`: it has no value that a dictionary holds.
    attributes: Vec<Option<AttributeIndex>>,
    stacks: Vec<StackIndex>,
    links: Vec<LinkIndex>,
}

impl MessageTables {
    /// Reads one table after the other, and drops each that is read.
    fn read(tables: ProfilesDictionary, dictionary: &mut Dictionary) -> Result<Self, DecodeError> {
        let strings = tables.string_table.into_iter().map(|text| dictionary.add_string(&text)).collect();
        let mut read = Self { strings, attributes: Vec::new(), stacks: Vec::new(), links: Vec::new() };
        for attribute in tables.attribute_table {
            let key = read.string(attribute.key_strindex)?;
            let value = read.value(attribute.value, dictionary)?.filter(|_| key != StringIndex::default());
            read.attributes.push(value.map(|value| dictionary.add_held_attribute(key, &value)));
        }
        let mut mappings = Vec::with_capacity(tables.mapping_table.len());
        for mapping in tables.mapping_table {
            let mapping = Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename: read.string(mapping.filename_strindex)?,
                attributes: read.attribute_set(&mapping.attribute_indices, dictionary)?,
            };
            mappings.push(dictionary.add_mapping(mapping));
        }
        let mut functions = Vec::with_capacity(tables.function_table.len());
        for function in tables.function_table {
            functions.push(dictionary.add_function(Function {
                name: read.string(function.name_strindex)?,
                system_name: read.string(function.system_name_strindex)?,
                filename: read.string(function.filename_strindex)?,
                start_line: u32::try_from(function.start_line).unwrap_or(0),
            }));
        }
        let mut locations = Vec::with_capacity(tables.location_table.len());
        for (position, location) in tables.location_table.into_iter().enumerate() {
            let index = read.location(&location, &mappings, &functions, dictionary)?;
            locations.push(if position == 0 { LocationIndex::default() } else { index });
        }
        for stack in tables.stack_table {
            let location = |index: &i32| at("location", &locations, *index).copied();
            let stack = stack.location_indices.iter().map(location).collect::<Result<Vec<_>, _>>()?;
            read.stacks.push(dictionary.add_stack(&stack));
        }
        read.links = tables.link_table.iter().map(|link| dictionary.add_link(to_link(link))).collect();
        Ok(read)
    }

    fn location(
        &self,
        location: &wire::Location,
        mappings: &[MappingIndex],
        functions: &[FunctionIndex],
        dictionary: &mut Dictionary,
    ) -> Result<LocationIndex, DecodeError> {
        let line = |line: &wire::Line| {
            Ok(Line {
                function: *at("function", functions, line.function_index)?,
                line: u32::try_from(line.line).unwrap_or(0),
                column: u32::try_from(line.column).unwrap_or(0),
            })
        };
        let lines = location.lines.iter().map(line).collect::<Result<Vec<_>, DecodeError>>()?;
        let attributes = self.attribute_set(&location.attribute_indices, dictionary)?;
        let mut read = Location {
            mapping: *at("mapping", mappings, location.mapping_index)?,
            address: location.address,
            lines: &lines,
            ..Location::default()
        };
        let mut is_marker = None;
        for (key, value) in dictionary.attributes_of(attributes) {
            match (key, value) {
                (key::FRAME_TYPE, AttributeValue::Str(name)) => {
                    read.frame_type = FrameType::from_wire(name).unwrap_or_default();
                }
                (key::FRAME_GUESSED, AttributeValue::Bool(is_guessed)) => read.is_guessed = *is_guessed,
                (key::FRAME_GENERATED, AttributeValue::Bool(is_generated)) => {
                    read.is_generated = *is_generated;
                }
                (key::FRAME_MARKER, AttributeValue::Bool(says_so)) => is_marker = Some(*says_so),
                _ => {}
            }
        }
        let is_marker = is_marker.unwrap_or_else(|| looks_like_marker(&read, dictionary));
        read.marker = is_marker.then_some(&Marker::Words);
        if read.mapping == MappingIndex::default() && read.frame_type == FrameType::Kernel {
            read.mapping = dictionary.add_file("[kernel]");
        }
        Ok(if lines.is_empty() {
            dictionary.add_unnamed_location(&read)
        } else {
            dictionary.add_location(&read)
        })
    }

    fn sample(&self, sample: wire::Sample, dictionary: &mut Dictionary) -> Result<ReadSample, DecodeError> {
        let (values, timestamps) = (sample.values.len(), sample.timestamps_unix_nano.len());
        if values != 0 && timestamps != 0 && values != timestamps {
            return Err(DecodeError::UnequalLengths { values, timestamps });
        }
        Ok(ReadSample {
            stack: *at("stack", &self.stacks, sample.stack_index)?,
            attributes: self.attribute_set(&sample.attribute_indices, dictionary)?,
            link: *at("link", &self.links, sample.link_index)?,
            times_unix_ns: sample.timestamps_unix_nano,
            values: sample.values,
        })
    }

    fn value_type(&self, value_type: &wire::ValueType) -> Result<wire::ValueType, DecodeError> {
        Ok(wire::ValueType {
            type_strindex: strindex(self.string(value_type.type_strindex)?),
            unit_strindex: strindex(self.string(value_type.unit_strindex)?),
        })
    }

    fn attribute_set(
        &self,
        indices: &[i32],
        dictionary: &mut Dictionary,
    ) -> Result<AttributeSetIndex, DecodeError> {
        let mut set = Vec::with_capacity(indices.len());
        for index in indices {
            set.extend(*at("attribute", &self.attributes, *index)?);
        }
        Ok(dictionary.add_attribute_set(set))
    }

    /// The attributes of a resource, which are inline.
    fn inline_attributes(
        &self,
        attributes: Vec<KeyValue>,
        dictionary: &mut Dictionary,
    ) -> Result<AttributeSetIndex, DecodeError> {
        let mut set = Vec::with_capacity(attributes.len());
        for KeyValue { key, key_strindex, value, .. } in attributes {
            let key = match key_strindex {
                0 => dictionary.add_string(&key),
                index => self.string(index)?,
            };
            let value = self.value(value, dictionary)?.filter(|_| key != StringIndex::default());
            set.extend(value.map(|value| dictionary.add_held_attribute(key, &value)));
        }
        Ok(dictionary.add_attribute_set(set))
    }

    /// A value; `None` if it is of a type that this project does not use.
    fn value(
        &self,
        value: Option<AnyValue>,
        dictionary: &Dictionary,
    ) -> Result<Option<AttributeValue>, DecodeError> {
        Ok(Some(match value.and_then(|value| value.value) {
            Some(AnyValueKind::StringValue(text)) => AttributeValue::Str(text.into()),
            Some(AnyValueKind::StringValueStrindex(index)) => {
                AttributeValue::Str(dictionary.string(self.string(index)?).into())
            }
            Some(AnyValueKind::IntValue(number)) => AttributeValue::Int(number),
            Some(AnyValueKind::BoolValue(truth)) => AttributeValue::Bool(truth),
            Some(AnyValueKind::ArrayValue(list)) => {
                let values = list.values.into_iter();
                let values = values.filter_map(|value| self.value(Some(value), dictionary).transpose());
                AttributeValue::List(values.collect::<Result<_, _>>()?)
            }
            _ => return Ok(None),
        }))
    }

    fn string(&self, index: i32) -> Result<StringIndex, DecodeError> {
        // Index 0 is valid if there is no dictionary at all.
        if index == 0 { Ok(StringIndex::default()) } else { at("string", &self.strings, index).copied() }
    }
}

/// Whether a name looks like a marker. Other profilers and older versions don't say so, and their markers have no file.
fn looks_like_marker(location: &Location<'_>, dictionary: &Dictionary) -> bool {
    let has_mapping = location.mapping != MappingIndex::default();
    let name = match location.lines {
        [] => dictionary.mapping(location.mapping).filename,
        [.., outermost] if !has_mapping => dictionary.function(outermost.function).name,
        _ => return false,
    };
    dictionary.string(name).starts_with('[')
}

/// A link. It is not valid if its IDs don't have the right lengths.
fn to_link(link: &wire::Link) -> Link {
    let ids = link.trace_id.as_slice().try_into().ok().zip(link.span_id.as_slice().try_into().ok());
    ids.map(|(trace_id, span_id)| Link { trace_id, span_id }).unwrap_or_default()
}
