//! Encoding: profiles with just the part of a dictionary that they reach.
//!
//! A report reaches tens of thousands of stacks, so that the tables are written straight to bytes:
//! each element once, when the first reference to it is met, behind those that it refers to.

use prost::Message;

use crate::wire::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesDictionary, ResourceProfiles,
    Sample, Stack, ValueType,
};

/// The fields of `ProfilesData`.
const RESOURCE_PROFILES: u8 = 1;
const DICTIONARY: u8 = 2;
/// The fields of `ProfilesDictionary`.
const MAPPING_TABLE: u8 = 1;
const LOCATION_TABLE: u8 = 2;
const FUNCTION_TABLE: u8 = 3;
const LINK_TABLE: u8 = 4;
const STRING_TABLE: u8 = 5;
const ATTRIBUTE_TABLE: u8 = 6;
const STACK_TABLE: u8 = 7;
/// The field of `Stack`.
const LOCATION_INDICES: u8 = 1;

/// The seven tables of a dictionary, wherever they live.
#[derive(Clone, Copy)]
pub(crate) struct Tables<'a> {
    pub(crate) strings: &'a [String],
    pub(crate) attributes: &'a [KeyValueAndUnit],
    pub(crate) mappings: &'a [Mapping],
    pub(crate) functions: &'a [Function],
    pub(crate) locations: &'a [Location],
    pub(crate) links: &'a [Link],
    pub(crate) stacks: &'a [Stack],
}

impl<'a> From<&'a ProfilesDictionary> for Tables<'a> {
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

/// A `ProfilesData` message of `resource_profiles`, which refer to `tables`, and what they reach in
/// those.
///
/// An index beyond its table becomes 0, "not set". Where `tables` hold no value twice, neither does
/// the result.
pub(crate) fn encode(tables: Tables<'_>, resource_profiles: &mut [ResourceProfiles]) -> Vec<u8> {
    let mut reached = Reached::nothing_of(tables);
    let mut message = Vec::new();
    for resource in resource_profiles {
        for profile in resource.scope_profiles.iter_mut().flat_map(|scope| &mut scope.profiles) {
            reached.profile(profile);
        }
        put_message(&mut message, RESOURCE_PROFILES, resource);
    }
    let tables = reached.encoded();
    put_head(&mut message, DICTIONARY, tables.iter().map(|table| table.len()).sum());
    for table in tables {
        message.extend_from_slice(table);
    }
    message
}

/// The elements that were reached so far, encoded, with their references to each other.
struct Reached<'a> {
    from: Tables<'a>,
    strings: Moved,
    attributes: Moved,
    mappings: Moved,
    functions: Moved,
    locations: Moved,
    links: Moved,
    stacks: Moved,
    /// Kept for its memory alone.
    spare_location: Location,
    /// Kept for its memory alone.
    spare_stack: SpareStack,
}

/// The new indices of a stack, as numbers and as bytes.
#[derive(Default)]
struct SpareStack {
    indices: Vec<i32>,
    packed: Vec<u8>,
}

impl<'a> Reached<'a> {
    fn nothing_of(from: Tables<'a>) -> Self {
        Self {
            from,
            strings: Moved::new(STRING_TABLE, from.strings.len()),
            attributes: Moved::new(ATTRIBUTE_TABLE, from.attributes.len()),
            mappings: Moved::new(MAPPING_TABLE, from.mappings.len()),
            functions: Moved::new(FUNCTION_TABLE, from.functions.len()),
            locations: Moved::new(LOCATION_TABLE, from.locations.len()),
            links: Moved::new(LINK_TABLE, from.links.len()),
            stacks: Moved::new(STACK_TABLE, from.stacks.len()),
            spare_location: Location::default(),
            spare_stack: SpareStack::default(),
        }
    }

    fn encoded(&self) -> [&[u8]; 7] {
        [
            &self.mappings,
            &self.locations,
            &self.functions,
            &self.links,
            &self.strings,
            &self.attributes,
            &self.stacks,
        ]
        .map(|table| table.encoded.as_slice())
    }

    /// Reaches all that a profile refers to, and makes it refer to the new elements.
    fn profile(&mut self, profile: &mut Profile) {
        for value_type in [&mut profile.sample_type, &mut profile.period_type].into_iter().flatten() {
            *value_type = ValueType {
                type_strindex: self.string(value_type.type_strindex),
                unit_strindex: self.string(value_type.unit_strindex),
            };
        }
        self.each_attribute(&mut profile.attribute_indices);
        for sample in &mut profile.samples {
            self.sample(sample);
        }
    }

    fn sample(&mut self, sample: &mut Sample) {
        sample.stack_index = self.stack(sample.stack_index);
        sample.link_index = self.link(sample.link_index);
        self.each_attribute(&mut sample.attribute_indices);
    }

    fn stack(&mut self, old: i32) -> i32 {
        if let Some(new) = self.stacks.get(old) {
            return new;
        }
        let from = self.from;
        let Some(stack) = from.stacks.get(old as usize) else { return 0 };
        let mut spare = std::mem::take(&mut self.spare_stack);
        spare.indices.clear();
        spare.indices.extend(stack.location_indices.iter().map(|&location| self.location(location)));
        spare.packed.clear();
        for &location in &spare.indices {
            put_varint(&mut spare.packed, location as u64);
        }
        let new = self.stacks.put_with(old, field_len(spare.packed.len()), |encoded| {
            put_head(encoded, LOCATION_INDICES, spare.packed.len());
            encoded.extend_from_slice(&spare.packed);
        });
        self.spare_stack = spare;
        new
    }

    /// The one look-up that is made for each frame of each stack.
    #[inline]
    fn location(&mut self, old: i32) -> i32 {
        self.locations.get(old).unwrap_or_else(|| self.new_location(old))
    }

    #[inline(never)]
    fn new_location(&mut self, old: i32) -> i32 {
        let from = self.from;
        let Some(location) = from.locations.get(old as usize) else { return 0 };
        let mut moved = std::mem::take(&mut self.spare_location);
        moved.mapping_index = self.mapping(location.mapping_index);
        moved.address = location.address;
        moved.lines.clear();
        for line in &location.lines {
            moved.lines.push(Line { function_index: self.function(line.function_index), ..*line });
        }
        moved.attribute_indices.clone_from(&location.attribute_indices);
        self.each_attribute(&mut moved.attribute_indices);
        let new = self.locations.put(old, &moved);
        self.spare_location = moved;
        new
    }

    fn function(&mut self, old: i32) -> i32 {
        if let Some(new) = self.functions.get(old) {
            return new;
        }
        let Some(function) = self.from.functions.get(old as usize) else { return 0 };
        let moved = Function {
            name_strindex: self.string(function.name_strindex),
            system_name_strindex: self.string(function.system_name_strindex),
            filename_strindex: self.string(function.filename_strindex),
            start_line: function.start_line,
        };
        self.functions.put(old, &moved)
    }

    fn mapping(&mut self, old: i32) -> i32 {
        if let Some(new) = self.mappings.get(old) {
            return new;
        }
        let Some(mapping) = self.from.mappings.get(old as usize) else { return 0 };
        let mut moved = mapping.clone();
        moved.filename_strindex = self.string(mapping.filename_strindex);
        self.each_attribute(&mut moved.attribute_indices);
        self.mappings.put(old, &moved)
    }

    fn link(&mut self, old: i32) -> i32 {
        if let Some(new) = self.links.get(old) {
            return new;
        }
        let Some(link) = self.from.links.get(old as usize) else { return 0 };
        self.links.put(old, link)
    }

    fn each_attribute(&mut self, indices: &mut [i32]) {
        for index in indices {
            *index = self.attribute(*index);
        }
    }

    fn attribute(&mut self, old: i32) -> i32 {
        if let Some(new) = self.attributes.get(old) {
            return new;
        }
        let Some(attribute) = self.from.attributes.get(old as usize) else { return 0 };
        let moved = KeyValueAndUnit {
            key_strindex: self.string(attribute.key_strindex),
            value: attribute.value.clone(),
            unit_strindex: self.string(attribute.unit_strindex),
        };
        self.attributes.put(old, &moved)
    }

    fn string(&mut self, old: i32) -> i32 {
        if let Some(new) = self.strings.get(old) {
            return new;
        }
        let Some(string) = self.from.strings.get(old as usize) else { return 0 };
        self.strings.put_with(old, string.len(), |encoded| encoded.extend_from_slice(string.as_bytes()))
    }
}

/// A table on its way: its elements, encoded as the field of a dictionary, and where each went.
struct Moved {
    field: u8,
    encoded: Vec<u8>,
    /// By old index.
    new_indices: Vec<i32>,
    len: i32,
}

/// The new index of an element that has not been moved.
const NOT_YET: i32 = -1;

impl Moved {
    /// A table of the zero value, which stays element 0.
    fn new(field: u8, old_len: usize) -> Self {
        let new_indices = vec![NOT_YET; old_len.max(1)];
        let mut table = Self { field, encoded: Vec::new(), new_indices, len: 0 };
        table.put_with(0, 0, |_| ());
        table
    }

    fn get(&self, old: i32) -> Option<i32> {
        self.new_indices.get(old as usize).copied().filter(|&new| new != NOT_YET)
    }

    fn put(&mut self, old: i32, element: &impl Message) -> i32 {
        self.put_with(old, element.encoded_len(), |encoded| append(encoded, element))
    }

    /// Appends element `old`, of which `write` appends `len` bytes.
    fn put_with(&mut self, old: i32, len: usize, write: impl FnOnce(&mut Vec<u8>)) -> i32 {
        put_head(&mut self.encoded, self.field, len);
        write(&mut self.encoded);
        // No more elements than the old table had, whose indices are of this type.
        let new = self.len;
        self.len += 1;
        if let Some(place) = self.new_indices.get_mut(old as usize) {
            *place = new;
        }
        new
    }
}

fn put_message(to: &mut Vec<u8>, field: u8, message: &impl Message) {
    put_head(to, field, message.encoded_len());
    append(to, message);
}

fn append(to: &mut Vec<u8>, message: &impl Message) {
    // The only error is a lack of room, and a vector grows.
    let _ = message.encode(to);
}

/// The head of a length-delimited field, of a number below 16.
fn put_head(to: &mut Vec<u8>, field: u8, len: usize) {
    const LENGTH_DELIMITED: u8 = 2;
    to.push(field << 3 | LENGTH_DELIMITED);
    put_varint(to, len as u64);
}

/// How long a field is whose content has `len` bytes.
fn field_len(len: usize) -> usize {
    1 + prost::length_delimiter_len(len) + len
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

    /// A profile of one sample of that stack.
    fn sampled(stack_index: i32) -> [ResourceProfiles; 1] {
        let samples = vec![Sample { stack_index, ..Sample::default() }];
        let profiles = vec![Profile { samples, ..Profile::default() }];
        let scope_profiles = vec![ScopeProfiles { profiles, ..ScopeProfiles::default() }];
        [ResourceProfiles { scope_profiles, ..ResourceProfiles::default() }]
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
        let bytes = encode((&dictionary()).into(), &mut sampled(stack_index));
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
}
