//! Encodes profiles with the part of a dictionary that they reach.
//!
//! A report reaches tens of thousands of stacks with tens of frames each. So nothing is looked up twice, and every table
//! is traversed in order: reached elements are marked, from samples to strings, then renumbered, then written directly as
//! bytes with the new indices.

use prost::Message;

use crate::wire::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles,
    Sample, Stack, ValueType,
};

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

/// The maximum length of a 64-bit varint.
const VARINT_LEN_MAX: usize = 10;
/// The length of the tag of a field with a number below 16.
const LENGTH_HEADER_LEN_MAX: usize = 1 + VARINT_LEN_MAX;

/// The seven tables of a dictionary, borrowed.
#[derive(Clone, Copy)]
pub(crate) struct DictionaryTables<'a> {
    pub(crate) strings: &'a [String],
    pub(crate) attributes: &'a [KeyValueAndUnit],
    pub(crate) mappings: &'a [Mapping],
    pub(crate) functions: &'a [Function],
    pub(crate) locations: &'a [Location],
    pub(crate) links: &'a [Link],
    pub(crate) stacks: &'a [Stack],
}

impl<'a> From<&'a ProfilesDictionary> for DictionaryTables<'a> {
    fn from(dictionary: &'a ProfilesDictionary) -> Self {
        Self {
            strings: &dictionary.string_table,
            attributes: &dictionary.attribute_table,
            mappings: &dictionary.mapping_table,
            functions: &dictionary.function_table,
            locations: &dictionary.location_table,
            links: &dictionary.link_table,
            stacks: &dictionary.stack_table,
        }
    }
}

/// A `Sample` message, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SampleRef<'a> {
    pub(crate) stack: i32,
    pub(crate) attributes: &'a [i32],
    pub(crate) link: i32,
    pub(crate) times_unix_ns: &'a [u64],
    pub(crate) values: &'a [i64],
}

impl<'a> From<&'a Sample> for SampleRef<'a> {
    fn from(sample: &'a Sample) -> Self {
        Self {
            stack: sample.stack_index,
            attributes: &sample.attribute_indices,
            link: sample.link_index,
            times_unix_ns: &sample.timestamps_unix_nano,
            values: &sample.values,
        }
    }
}

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

/// The elements of a table that are in the report, in the order of the table. Element 0, the zero value, is always
/// included.
struct Numbering {
    /// For each element, whether it is reached.
    is_reached: Vec<bool>,
    /// For each reached element, its index in the report; empty until all reached elements are marked.
    numbers: Vec<i32>,
}

impl Numbering {
    fn new(len: usize) -> Self {
        let mut is_reached = vec![false; len.max(1)];
        is_reached[0] = true;
        Self { is_reached, numbers: Vec::new() }
    }

    /// Marks an element as reached.
    #[inline]
    fn mark(&mut self, old: i32) {
        // A negative index is outside every table.
        if let Some(is_reached) = self.is_reached.get_mut(old as usize) {
            *is_reached = true;
        }
    }

    /// Assigns indices to the reached elements.
    fn assign(&mut self) {
        let mut next = 0;
        let number = |is_reached: &bool| {
            let number = next;
            next += i32::from(*is_reached);
            number
        };
        self.numbers = self.is_reached.iter().map(number).collect();
    }

    /// The index in the report of a reached element, 0 if there is no such element.
    #[inline]
    fn index(&self, old: i32) -> i32 {
        self.numbers.get(old as usize).copied().unwrap_or(0)
    }

    /// The elements of the table that are in the report.
    fn pick<'t, T>(&self, table: &'t [T]) -> impl Iterator<Item = &'t T> {
        table.iter().zip(&self.is_reached).filter(|(_, is_reached)| **is_reached).map(|(element, _)| element)
    }
}

/// The renumbering of all tables.
struct DictionaryNumbering {
    strings: Numbering,
    attributes: Numbering,
    mappings: Numbering,
    functions: Numbering,
    locations: Numbering,
    links: Numbering,
    stacks: Numbering,
}

impl DictionaryNumbering {
    /// Marks what profiles and samples reach. Each table is processed after all tables that refer to it.
    fn new(
        tables: DictionaryTables<'_>,
        resource_profiles: &[ResourceProfiles],
        samples: &[Vec<SampleRef<'_>>],
    ) -> Self {
        let mut numbers = Self {
            strings: Numbering::new(tables.strings.len()),
            attributes: Numbering::new(tables.attributes.len()),
            mappings: Numbering::new(tables.mappings.len()),
            functions: Numbering::new(tables.functions.len()),
            locations: Numbering::new(tables.locations.len()),
            links: Numbering::new(tables.links.len()),
            stacks: Numbering::new(tables.stacks.len()),
        };
        for profile in resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles) {
            numbers.mark_profile(profile);
        }
        for sample in samples.iter().flatten() {
            numbers.stacks.mark(sample.stack);
            numbers.links.mark(sample.link);
            sample.attributes.iter().for_each(|&attribute| numbers.attributes.mark(attribute));
        }
        numbers.stacks.assign();
        numbers.links.assign();
        for stack in numbers.stacks.pick(tables.stacks) {
            stack.location_indices.iter().for_each(|&location| numbers.locations.mark(location));
        }
        numbers.locations.assign();
        for location in numbers.locations.pick(tables.locations) {
            numbers.mappings.mark(location.mapping_index);
            location.lines.iter().for_each(|line| numbers.functions.mark(line.function_index));
            location.attribute_indices.iter().for_each(|&attribute| numbers.attributes.mark(attribute));
        }
        numbers.mappings.assign();
        numbers.functions.assign();
        for mapping in numbers.mappings.pick(tables.mappings) {
            numbers.strings.mark(mapping.filename_strindex);
            mapping.attribute_indices.iter().for_each(|&attribute| numbers.attributes.mark(attribute));
        }
        for function in numbers.functions.pick(tables.functions) {
            numbers.strings.mark(function.name_strindex);
            numbers.strings.mark(function.system_name_strindex);
            numbers.strings.mark(function.filename_strindex);
        }
        numbers.attributes.assign();
        for attribute in numbers.attributes.pick(tables.attributes) {
            numbers.strings.mark(attribute.key_strindex);
            numbers.strings.mark(attribute.unit_strindex);
        }
        numbers.strings.assign();
        numbers
    }

    /// An estimate of the message's size, usually a bit too large: a vector that must grow is copied many times.
    fn estimated_len(&self, tables: DictionaryTables<'_>, samples: &[Vec<SampleRef<'_>>]) -> usize {
        let of_samples = samples.iter().flatten();
        let of_samples: usize = of_samples.map(|sample| 24 + size_of_val(sample.times_unix_ns)).sum();
        let of_stacks = self.stacks.pick(tables.stacks);
        let of_stacks: usize = of_stacks.map(|stack| 8 + 3 * stack.location_indices.len()).sum();
        let of_locations = 24 * self.locations.pick(tables.locations).count();
        let of_functions = 12 * self.functions.pick(tables.functions).count();
        let of_strings: usize = self.strings.pick(tables.strings).map(|string| 4 + string.len()).sum();
        1024 + of_samples + of_stacks + of_locations + of_functions + of_strings
    }

    fn mark_profile(&mut self, profile: &Profile) {
        for value_type in [&profile.sample_type, &profile.period_type].into_iter().flatten() {
            self.strings.mark(value_type.type_strindex);
            self.strings.mark(value_type.unit_strindex);
        }
        profile.attribute_indices.iter().for_each(|&attribute| self.attributes.mark(attribute));
    }

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

fn put_message(to: &mut Vec<u8>, field: u8, message: &impl Message) {
    put_length_header(to, field, message.encoded_len());
    append(to, message);
}

fn append(to: &mut Vec<u8>, message: &impl Message) {
    // Encoding only fails for lack of capacity, and a vector grows.
    let _ = message.encode(to);
}

/// Writes the tag and length of a length-delimited field with a number below 16.
fn put_length_header(to: &mut Vec<u8>, field: u8, len: usize) {
    const LENGTH_DELIMITED: u8 = 2;
    to.push(field << 3 | LENGTH_DELIMITED);
    put_varint(to, len as u64);
}

fn put_bytes(to: &mut Vec<u8>, field: u8, content: &[u8]) {
    put_length_header(to, field, content.len());
    to.extend_from_slice(content);
}

/// Writes an integer field, unless it is zero.
fn put_number(to: &mut Vec<u8>, field: u8, number: u64) {
    if number != 0 {
        to.push(field << 3);
        put_varint(to, number);
    }
}

/// Writes a field whose length is only known after `put` has written its content. The content is moved within the buffer
/// rather than copied from another one: touching new memory costs more.
fn put_length_delimited(to: &mut Vec<u8>, field: u8, put: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.resize(start + LENGTH_HEADER_LEN_MAX, 0);
    put(to);
    let content = start + LENGTH_HEADER_LEN_MAX..to.len();
    let mut head = Vec::with_capacity(LENGTH_HEADER_LEN_MAX);
    put_length_header(&mut head, field, content.len());
    let (end, moved_to) = (start + head.len() + content.len(), start + head.len());
    to[start..moved_to].copy_from_slice(&head);
    to.copy_within(content, moved_to);
    to.truncate(end);
}

/// Writes a field with a list of integers, unless it is empty. `spare` is a reused buffer.
fn put_list(to: &mut Vec<u8>, field: u8, spare: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
    if numbers.len() == 0 {
        return;
    }
    if spare.len() < VARINT_LEN_MAX * numbers.len() {
        spare.resize(VARINT_LEN_MAX * numbers.len(), 0);
    }
    let mut len = 0;
    for number in numbers {
        len += set_varint(&mut spare[len..], number);
    }
    put_bytes(to, field, &spare[..len]);
}

/// Writes a varint to the start of `to`, which has room for [`VARINT_LEN_MAX`] bytes. Its length is unpredictable, so up
/// to three bytes are written without a branch.
#[inline]
fn set_varint(to: &mut [u8], number: u64) -> usize {
    if number >> 21 != 0 {
        let mut longer = Vec::with_capacity(VARINT_LEN_MAX);
        put_varint(&mut longer, number);
        to[..longer.len()].copy_from_slice(&longer);
        return longer.len();
    }
    let (has_second, has_third) = (u8::from(number >= 0x80), u8::from(number >= 0x4000));
    let bytes = [
        number as u8 & 0x7f | has_second << 7,
        (number >> 7) as u8 & 0x7f | has_third << 7,
        (number >> 14) as u8,
    ];
    to[..bytes.len()].copy_from_slice(&bytes);
    usize::from(1 + has_second + has_third)
}

fn put_varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{ProfilesData, ScopeProfiles};

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
    fn numbers_of_every_length_are_varints() {
        for shift in 0..64 {
            for number in [(1_u64 << shift) - 1, 1 << shift, u64::MAX >> shift] {
                let (mut ours, mut theirs, mut set) = (Vec::new(), Vec::new(), [0; VARINT_LEN_MAX]);
                put_varint(&mut ours, number);
                prost::encoding::encode_varint(number, &mut theirs);
                assert_eq!(ours, theirs);
                let len = set_varint(&mut set, number);
                assert_eq!(set[..len], theirs);
            }
        }
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
