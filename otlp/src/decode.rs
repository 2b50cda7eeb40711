//! Decodes profiles into a small owned model, for tests and for display.
//!
//! Any bytes are accepted as input: anything that isn't a profiles message, or is inconsistent, is an error. Memory use
//! is proportional to the input, since each stack, frame and name is held once, and a message of many entries that take next to
//! nothing on the wire is refused.

use std::collections::HashMap;
use std::sync::Arc;

use prost::Message;
use sidewinder_profile::Link;
pub use sidewinder_profile::{AttributeValue, Attributes};

pub use crate::decoded::{
    DecodedEvent, DecodedFrame, DecodedLine, DecodedMapping, DecodedProfile, DecodedSample,
};
pub use crate::message::{DecodeError, MAX_MESSAGE_BYTES, file_messages, is_collector_file};
use crate::message::{at, check_sizes};
use crate::wire::{
    self, AnyValue, AnyValueKind, KeyValue, ProfilesData, ProfilesDictionary, ResourceProfiles,
};

/// Decodes one `ProfilesData` or `ExportProfilesServiceRequest` message.
///
/// # Errors
///
/// If the message is too large, of another type, or inconsistent.
pub fn decode_profiles_data(bytes: &[u8]) -> Result<Vec<DecodedProfile>, DecodeError> {
    decode_messages([bytes].into_iter().map(Ok))
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

/// Decodes all messages of a file in the format of the Collector's file exporter. Together they have the limits of one message
/// of their size.
///
/// # Errors
///
/// As [`file_messages`], before anything is decoded, and [`decode_profiles_data`].
pub fn decode_collector_file(bytes: &[u8]) -> Result<Vec<DecodedProfile>, DecodeError> {
    decode_messages(file_messages(bytes))
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
