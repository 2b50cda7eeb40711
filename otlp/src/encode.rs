//! Encodes profiles with the part of a dictionary that they reach.
//!
//! A report reaches tens of thousands of stacks with tens of frames each. So nothing is looked up twice, and every table
//! is traversed in order: reached elements are marked, from samples to strings, then renumbered, then written directly as
//! bytes with the new indices.

mod input;
mod numbering;
mod protobuf;

pub(crate) use input::{DictionaryTables, SampleRef};

use numbering::DictionaryNumbering;
use protobuf::{
    append, put_bytes, put_length_delimited, put_length_header, put_list, put_message, put_number,
};

use crate::wire::{Function, KeyValueAndUnit, Line, Location, Profile, ResourceProfiles, Stack, ValueType};

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

/// Encodes a `ProfilesData` message with `resource_profiles` and the elements of `tables` that they reach. The profiles
/// have no samples yet: `samples` has those of each profile, in the order of profiles.
///
/// An index outside its table becomes 0, "not set". If `tables` have no duplicate values, neither has the result.
pub(crate) fn encode(
    tables: DictionaryTables<'_>,
    resource_profiles: Vec<ResourceProfiles>,
    samples: &[Vec<SampleRef<'_>>],
) -> Vec<u8> {
    let numbers = DictionaryNumbering::new(tables, &resource_profiles, samples);
    let mut message = Vec::with_capacity(numbers.estimated_len(tables, samples));
    let mut samples = samples.iter();
    for resource in resource_profiles {
        put_length_delimited(&mut message, RESOURCE_PROFILES, |to| {
            numbers.put_resource_profiles(to, resource, &mut samples);
        });
    }
    put_length_delimited(&mut message, DICTIONARY, |to| numbers.put_dictionary(to, tables));
    message
}

impl DictionaryNumbering {
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
                type_strindex: self.strings.index(value_type.type_strindex),
                unit_strindex: self.strings.index(value_type.unit_strindex),
            };
        }
        self.renumber_attributes(&mut profile.attribute_indices);
        append(to, &profile);
        // Buffers, reused for each sample.
        let (mut content, mut list) = (Vec::new(), Vec::new());
        for sample in samples {
            content.clear();
            put_number(&mut content, STACK_INDEX, self.stacks.index(sample.stack) as u64);
            let attributes = sample.attributes.iter().map(|&old| self.attributes.index(old) as u64);
            put_list(&mut content, ATTRIBUTE_INDICES, &mut list, attributes);
            put_number(&mut content, LINK_INDEX, self.links.index(sample.link) as u64);
            put_list(&mut content, VALUES, &mut list, sample.values.iter().map(|&value| value as u64));
            if !sample.times_unix_ns.is_empty() {
                put_length_header(&mut content, TIMESTAMPS_UNIX_NANO, size_of_val(sample.times_unix_ns));
                sample.times_unix_ns.iter().for_each(|time| content.extend_from_slice(&time.to_le_bytes()));
            }
            put_bytes(to, SAMPLES, &content);
        }
    }

    /// Writes the content of the `ProfilesDictionary` message.
    fn put_dictionary(&self, to: &mut Vec<u8>, tables: DictionaryTables<'_>) {
        for mapping in self.mappings.pick(tables.mappings) {
            let mut mapping = mapping.clone();
            mapping.filename_strindex = self.strings.index(mapping.filename_strindex);
            self.renumber_attributes(&mut mapping.attribute_indices);
            put_message(to, MAPPING_TABLE, &mapping);
        }
        self.put_locations(to, tables.locations);
        self.put_functions(to, tables.functions);
        for link in self.links.pick(tables.links) {
            put_message(to, LINK_TABLE, link);
        }
        for string in self.strings.pick(tables.strings) {
            put_bytes(to, STRING_TABLE, string.as_bytes());
        }
        for attribute in self.attributes.pick(tables.attributes) {
            let attribute = KeyValueAndUnit {
                key_strindex: self.strings.index(attribute.key_strindex),
                value: attribute.value.clone(),
                unit_strindex: self.strings.index(attribute.unit_strindex),
            };
            put_message(to, ATTRIBUTE_TABLE, &attribute);
        }
        self.put_stacks(to, tables.stacks);
    }

    fn put_locations(&self, to: &mut Vec<u8>, table: &[Location]) {
        // Buffers, reused for each element.
        let (mut content, mut list) = (Vec::new(), Vec::new());
        for location in self.locations.pick(table) {
            content.clear();
            put_number(&mut content, MAPPING_INDEX, self.mappings.index(location.mapping_index) as u64);
            put_number(&mut content, ADDRESS, location.address);
            for line in &location.lines {
                let line = Line { function_index: self.functions.index(line.function_index), ..*line };
                put_message(&mut content, LINES, &line);
            }
            let attributes = location.attribute_indices.iter().map(|&old| self.attributes.index(old) as u64);
            put_list(&mut content, LOCATION_ATTRIBUTE_INDICES, &mut list, attributes);
            put_bytes(to, LOCATION_TABLE, &content);
        }
    }

    fn put_functions(&self, to: &mut Vec<u8>, table: &[Function]) {
        let mut content = Vec::new();
        for function in self.functions.pick(table) {
            content.clear();
            put_number(&mut content, NAME_STRINDEX, self.strings.index(function.name_strindex) as u64);
            let system_name = self.strings.index(function.system_name_strindex);
            put_number(&mut content, SYSTEM_NAME_STRINDEX, system_name as u64);
            put_number(
                &mut content,
                FILENAME_STRINDEX,
                self.strings.index(function.filename_strindex) as u64,
            );
            put_number(&mut content, START_LINE, function.start_line as u64);
            put_bytes(to, FUNCTION_TABLE, &content);
        }
    }

    fn put_stacks(&self, to: &mut Vec<u8>, table: &[Stack]) {
        let (mut content, mut list) = (Vec::new(), Vec::new());
        for stack in self.stacks.pick(table) {
            content.clear();
            let locations = stack.location_indices.iter().map(|&old| self.locations.index(old) as u64);
            put_list(&mut content, LOCATION_INDICES, &mut list, locations);
            put_bytes(to, STACK_TABLE, &content);
        }
    }

    fn renumber_attributes(&self, indices: &mut [i32]) {
        for index in indices {
            *index = self.attributes.index(*index);
        }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;
    use crate::wire::{ProfilesData, ProfilesDictionary, Sample, ScopeProfiles};

    /// A profile without samples.
    fn profile() -> Vec<ResourceProfiles> {
        let scope_profiles = vec![ScopeProfiles { profiles: vec![Profile::default()], ..Default::default() }];
        vec![ResourceProfiles { scope_profiles, ..ResourceProfiles::default() }]
    }

    fn dictionary() -> ProfilesDictionary {
        let location = |address| Location { address, ..Location::default() };
        let stack = |location_indices: &[i32]| Stack { location_indices: location_indices.to_vec() };
        ProfilesDictionary {
            string_table: vec![String::new(), "unused".to_owned()],
            location_table: (0..300).map(location).collect(),
            stack_table: vec![
                stack(&[]),
                stack(&[7]),
                stack(&(100..300).collect::<Vec<_>>()),
                stack(&[900, 299]),
            ],
            ..ProfilesDictionary::default()
        }
    }

    fn encoded(stack_index: i32) -> ProfilesDictionary {
        let sample =
            SampleRef { stack: stack_index, attributes: &[], link: 0, times_unix_ns: &[], values: &[] };
        let bytes = encode((&dictionary()).into(), profile(), &[vec![sample]]);
        ProfilesData::decode(&*bytes).unwrap().dictionary.unwrap()
    }

    #[test]
    fn only_what_is_reached_is_encoded() {
        let dictionary = encoded(1);
        assert_eq!(dictionary.string_table, [""]);
        assert_eq!(dictionary.location_table.iter().map(|l| l.address).collect::<Vec<_>>(), [0, 7]);
        assert_eq!(dictionary.stack_table[1].location_indices, [1]);
    }

    #[test]
    fn a_long_stack_keeps_its_order() {
        let dictionary = encoded(2);
        let addresses = dictionary.stack_table[1].location_indices.iter();
        let addresses = addresses.map(|&index| dictionary.location_table[index as usize].address);
        assert!(addresses.eq(100..300));
    }

    #[test]
    fn an_index_out_of_range_becomes_not_set() {
        let dictionary = encoded(3);
        assert_eq!(dictionary.stack_table[1].location_indices, [0, 1]);
        assert_eq!(encoded(4).stack_table.len(), 1);
        assert_eq!(encoded(-1).stack_table.len(), 1);
    }

    #[test]
    fn a_sample_is_what_its_message_would_be() {
        let tables = ProfilesDictionary {
            string_table: vec![String::new(), "key".to_owned()],
            attribute_table: vec![
                KeyValueAndUnit::default(),
                KeyValueAndUnit { key_strindex: 1, ..Default::default() },
            ],
            ..dictionary()
        };
        let (times_unix_ns, values) = ([1, u64::MAX], [0, -1, 300]);
        let sample =
            SampleRef { stack: 1, attributes: &[1], link: 7, times_unix_ns: &times_unix_ns, values: &values };
        let bytes = encode((&tables).into(), profile(), &[vec![sample]]);
        let decoded = ProfilesData::decode(&*bytes).unwrap();
        let expected = Sample {
            stack_index: 1,
            attribute_indices: vec![1],
            link_index: 0,
            values: values.to_vec(),
            timestamps_unix_nano: times_unix_ns.to_vec(),
        };
        assert_eq!(decoded.resource_profiles[0].scope_profiles[0].profiles[0].samples, [expected]);
        assert_eq!(decoded.encode_to_vec(), bytes, "in the order of fields, without anything else");
    }
}
