//! Encodes profiles with the part of a dictionary that they reach.
//!
//! A report reaches tens of thousands of stacks with tens of frames each. So nothing is looked up twice, and every table
//! is traversed in order: reached elements are marked, from samples to strings, then renumbered, then written directly as
//! bytes with the new indices.

mod numbering;
mod protobuf;
mod sample;

use sidewinder_profile::{AttributeSetIndex, Dictionary, LinkIndex};

pub(crate) use sample::SampleRef;

use numbering::DictionaryNumbering;
use protobuf::{
    append, put_bytes, put_length_delimited, put_length_header, put_list, put_message, put_number,
};

use crate::attribute::to_wire;
use crate::wire::{KeyValueAndUnit, Line, Link, Mapping, Profile, ResourceProfiles, ValueType, string_index};

/// The fields of `ProfilesData`.
const RESOURCE_PROFILES: u8 = 1;
const DICTIONARY: u8 = 2;
/// The field of `ResourceProfiles`.
const SCOPE_PROFILES: u8 = 2;
/// The field of `ScopeProfiles`.
const PROFILES: u8 = 2;
/// The field of `Profile`.
const SAMPLES: u8 = 2;
/// The fields of `Sample`.
const STACK_INDEX: u8 = 1;
const ATTRIBUTE_INDICES: u8 = 2;
const LINK_INDEX: u8 = 3;
const VALUES: u8 = 4;
const TIMESTAMPS_UNIX_NANO: u8 = 5;
/// The fields of `ProfilesDictionary`.
const MAPPING_TABLE: u8 = 1;
const LOCATION_TABLE: u8 = 2;
const FUNCTION_TABLE: u8 = 3;
const LINK_TABLE: u8 = 4;
const STRING_TABLE: u8 = 5;
const ATTRIBUTE_TABLE: u8 = 6;
const STACK_TABLE: u8 = 7;
/// The fields of `Location`.
const MAPPING_INDEX: u8 = 1;
const ADDRESS: u8 = 2;
const LINES: u8 = 3;
const LOCATION_ATTRIBUTE_INDICES: u8 = 4;
/// The fields of `Function`.
const NAME_STRINDEX: u8 = 1;
const SYSTEM_NAME_STRINDEX: u8 = 2;
const FILENAME_STRINDEX: u8 = 3;
const START_LINE: u8 = 4;
/// The field of `Stack`.
const LOCATION_INDICES: u8 = 1;

/// Encodes a `ProfilesData` message with `resource_profiles` and the elements of `dictionary` that they reach. The profiles
/// have no samples yet: `samples` has those of each profile, in the order of profiles.
pub(crate) fn encode(
    dictionary: &Dictionary,
    resource_profiles: Vec<ResourceProfiles>,
    samples: &[Vec<SampleRef<'_>>],
) -> Vec<u8> {
    let numbers = DictionaryNumbering::new(dictionary, &resource_profiles, samples);
    let mut message = Vec::with_capacity(numbers.estimated_len(samples));
    let mut samples = samples.iter();
    for resource in resource_profiles {
        put_length_delimited(&mut message, RESOURCE_PROFILES, |to| {
            numbers.put_resource_profiles(to, resource, &mut samples);
        });
    }
    put_length_delimited(&mut message, DICTIONARY, |to| numbers.put_dictionary(to));
    message
}

impl DictionaryNumbering<'_> {
    /// Writes the profiles of a resource, each with its samples from the iterator.
    fn put_resource_profiles<'s>(
        &self,
        to: &mut Vec<u8>,
        mut resource: ResourceProfiles,
        samples: &mut impl Iterator<Item = &'s Vec<SampleRef<'s>>>,
    ) {
        let scopes = std::mem::take(&mut resource.scope_profiles);
        append(to, &resource);
        for mut scope in scopes {
            let profiles = std::mem::take(&mut scope.profiles);
            put_length_delimited(to, SCOPE_PROFILES, |to| {
                append(to, &scope);
                for (profile, samples) in profiles.into_iter().zip(&mut *samples) {
                    put_length_delimited(to, PROFILES, |to| self.put_profile(to, profile, samples));
                }
            });
        }
    }

    fn put_profile(&self, to: &mut Vec<u8>, mut profile: Profile, samples: &[SampleRef<'_>]) {
        for value_type in [&mut profile.sample_type, &mut profile.period_type].into_iter().flatten() {
            *value_type = ValueType {
                type_strindex: self.strings.index(string_index(value_type.type_strindex)) as i32,
                unit_strindex: self.strings.index(string_index(value_type.unit_strindex)) as i32,
            };
        }
        append(to, &profile);
        // Buffers, reused for each sample.
        let (mut content, mut list) = (Vec::new(), Vec::new());
        for sample in samples {
            content.clear();
            put_number(&mut content, STACK_INDEX, self.stacks.index(sample.stack));
            put_list(&mut content, ATTRIBUTE_INDICES, &mut list, self.attribute_set(sample.attributes));
            put_number(&mut content, LINK_INDEX, self.links.index(sample.link));
            put_list(&mut content, VALUES, &mut list, sample.values.iter().map(|&value| value as u64));
            if !sample.times_unix_ns.is_empty() {
                put_length_header(&mut content, TIMESTAMPS_UNIX_NANO, size_of_val(sample.times_unix_ns));
                sample.times_unix_ns.iter().for_each(|time| content.extend_from_slice(&time.to_le_bytes()));
            }
            put_bytes(to, SAMPLES, &content);
        }
    }

    /// Writes the content of the `ProfilesDictionary` message.
    fn put_dictionary(&self, to: &mut Vec<u8>) {
        for mapping in self.mappings.reached() {
            let mapping = self.dictionary.mapping(mapping);
            let message = Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename_strindex: self.strings.index(mapping.filename) as i32,
                attribute_indices: self.attribute_set(mapping.attributes).map(|index| index as i32).collect(),
            };
            put_message(to, MAPPING_TABLE, &message);
        }
        self.put_locations(to);
        self.put_functions(to);
        for link in self.links.reached::<LinkIndex>() {
            let link = Some(self.dictionary.link(link)).filter(sidewinder_profile::Link::is_valid);
            let message =
                link.map(|link| Link { trace_id: link.trace_id.into(), span_id: link.span_id.into() });
            put_message(to, LINK_TABLE, &message.unwrap_or_default());
        }
        for string in self.strings.reached() {
            put_bytes(to, STRING_TABLE, self.dictionary.string(string).as_bytes());
        }
        for attribute in self.attributes.reached() {
            let attribute = self.dictionary.attribute(attribute);
            let key_strindex = self.strings.index(attribute.key) as i32;
            // The first one is the zero value.
            let value = if key_strindex == 0 { None } else { to_wire(&attribute.value) };
            put_message(to, ATTRIBUTE_TABLE, &KeyValueAndUnit { key_strindex, value, unit_strindex: 0 });
        }
        self.put_stacks(to);
    }

    fn put_locations(&self, to: &mut Vec<u8>) {
        // Buffers, reused for each element.
        let (mut content, mut list) = (Vec::new(), Vec::new());
        for index in self.locations.reached() {
            let location = self.dictionary.location(index);
            content.clear();
            put_number(
                &mut content,
                MAPPING_INDEX,
                self.mappings.index(self.dictionary.written_mapping(&location)),
            );
            put_number(&mut content, ADDRESS, location.address);
            for line in self.dictionary.written_lines(&location) {
                let function_index = self.functions.index(line.function) as i32;
                let line = Line { function_index, line: line.line.into(), column: line.column.into() };
                put_message(&mut content, LINES, &line);
            }
            let attributes = self.attribute_set(self.dictionary.attributes_of_location(index));
            put_list(&mut content, LOCATION_ATTRIBUTE_INDICES, &mut list, attributes);
            put_bytes(to, LOCATION_TABLE, &content);
        }
    }

    fn put_functions(&self, to: &mut Vec<u8>) {
        let mut content = Vec::new();
        for function in self.functions.reached() {
            let function = self.dictionary.function(function);
            content.clear();
            put_number(&mut content, NAME_STRINDEX, self.strings.index(function.name));
            put_number(&mut content, SYSTEM_NAME_STRINDEX, self.strings.index(function.system_name));
            put_number(&mut content, FILENAME_STRINDEX, self.strings.index(function.filename));
            put_number(&mut content, START_LINE, function.start_line.into());
            put_bytes(to, FUNCTION_TABLE, &content);
        }
    }

    fn put_stacks(&self, to: &mut Vec<u8>) {
        let (mut content, mut list) = (Vec::new(), Vec::new());
        for stack in self.stacks.reached() {
            content.clear();
            let locations = self.dictionary.stack(stack).iter();
            let locations = locations.map(|location| self.locations.index(*location));
            put_list(&mut content, LOCATION_INDICES, &mut list, locations);
            put_bytes(to, STACK_TABLE, &content);
        }
    }

    /// The attributes of a set in the report.
    fn attribute_set(&self, set: AttributeSetIndex) -> impl ExactSizeIterator<Item = u64> {
        self.dictionary.attribute_set(set).iter().map(|attribute| self.attributes.index(*attribute))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;
    use sidewinder_profile::{Location, LocationIndex, StackIndex, Value};

    use super::*;
    use crate::wire::{ProfilesData, ProfilesDictionary, Sample, ScopeProfiles};

    /// A profile without samples.
    fn profile() -> Vec<ResourceProfiles> {
        let scope_profiles = vec![ScopeProfiles { profiles: vec![Profile::default()], ..Default::default() }];
        vec![ResourceProfiles { scope_profiles, ..ResourceProfiles::default() }]
    }

    /// Three stacks: of one location, of two hundred, and one with a location that does not exist.
    fn dictionary() -> (Dictionary, [StackIndex; 3]) {
        let mut dictionary = Dictionary::default();
        dictionary.add_string("unused");
        let mut location = |address| dictionary.add_location(&Location { address, ..Location::default() });
        let locations: Vec<_> = (1..300).map(&mut location).collect();
        let stacks: [&[LocationIndex]; 3] =
            [&locations[6..7], &locations[99..], &[LocationIndex(900), locations[298]]];
        let stacks = stacks.map(|stack| dictionary.add_stack(stack));
        (dictionary, stacks)
    }

    fn encoded(dictionary: &Dictionary, stack: StackIndex) -> ProfilesDictionary {
        let sample = SampleRef {
            stack,
            attributes: AttributeSetIndex::default(),
            link: LinkIndex::default(),
            times_unix_ns: &[],
            values: &[],
        };
        let bytes = encode(dictionary, profile(), &[vec![sample]]);
        ProfilesData::decode(&*bytes).unwrap().dictionary.unwrap()
    }

    #[test]
    fn only_what_is_reached_is_encoded() {
        let (dictionary, [stack, ..]) = dictionary();
        let dictionary = encoded(&dictionary, stack);
        assert_eq!(dictionary.string_table, ["", "profile.frame.type"]);
        assert_eq!(dictionary.location_table.iter().map(|l| l.address).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(dictionary.stack_table[1].location_indices, [1]);
    }

    #[test]
    fn a_long_stack_keeps_its_order() {
        let (dictionary, [_, stack, _]) = dictionary();
        let dictionary = encoded(&dictionary, stack);
        let addresses = dictionary.stack_table[1].location_indices.iter();
        let addresses = addresses.map(|&index| dictionary.location_table[index as usize].address);
        assert!(addresses.eq(100..300));
    }

    #[test]
    fn an_index_out_of_range_becomes_not_set() {
        let (dictionary, [.., stack]) = dictionary();
        assert_eq!(encoded(&dictionary, stack).stack_table[1].location_indices, [0, 1]);
        assert_eq!(encoded(&dictionary, StackIndex(9)).stack_table.len(), 1);
    }

    #[test]
    fn a_sample_is_what_its_message_would_be() {
        let (mut dictionary, [stack, ..]) = dictionary();
        let attributes = dictionary.add_attributes([("key", Value::Int(1))]);
        let (times_unix_ns, values) = ([1, u64::MAX], [0, -1, 300]);
        let sample = SampleRef {
            stack,
            attributes,
            link: LinkIndex(7),
            times_unix_ns: &times_unix_ns,
            values: &values,
        };
        let bytes = encode(&dictionary, profile(), &[vec![sample]]);
        let decoded = ProfilesData::decode(&*bytes).unwrap();
        let expected = Sample {
            stack_index: 1,
            attribute_indices: vec![2],
            link_index: 0,
            values: values.to_vec(),
            timestamps_unix_nano: times_unix_ns.to_vec(),
        };
        assert_eq!(decoded.resource_profiles[0].scope_profiles[0].profiles[0].samples, [expected]);
        assert_eq!(decoded.encode_to_vec(), bytes, "in the order of fields, without anything else");
    }
}
