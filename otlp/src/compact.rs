//! Profiles with just the part of a dictionary that they refer to.

use crate::wire::{
    Function, KeyValueAndUnit, Line, Link, Location, Mapping, Profile, ProfilesData, ProfilesDictionary,
    ResourceProfiles, Sample, Stack, ValueType,
};

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

/// A message of `resource_profiles`, which refer to `tables`, and what they reach in those.
///
/// An index beyond its table becomes 0, "not set". Where `tables` hold no value twice, neither does
/// the result.
pub(crate) fn compact(tables: Tables<'_>, mut resource_profiles: Vec<ResourceProfiles>) -> ProfilesData {
    let mut copy = Copy::new(tables);
    for profile in resource_profiles
        .iter_mut()
        .flat_map(|resource| &mut resource.scope_profiles)
        .flat_map(|scope| &mut scope.profiles)
    {
        copy.profile(profile);
    }
    ProfilesData { resource_profiles, dictionary: Some(copy.to) }
}

/// Copies table by table what is asked for, once each.
struct Copy<'a> {
    from: Tables<'a>,
    to: ProfilesDictionary,
    strings: Moved,
    attributes: Moved,
    mappings: Moved,
    functions: Moved,
    locations: Moved,
    links: Moved,
    stacks: Moved,
}

impl<'a> Copy<'a> {
    fn new(from: Tables<'a>) -> Self {
        Self {
            from,
            to: ProfilesDictionary {
                string_table: vec![String::new()],
                attribute_table: vec![KeyValueAndUnit::default()],
                mapping_table: vec![Mapping::default()],
                function_table: vec![Function::default()],
                location_table: vec![Location::default()],
                link_table: vec![Link::default()],
                stack_table: vec![Stack::default()],
            },
            strings: Moved::new(from.strings.len()),
            attributes: Moved::new(from.attributes.len()),
            mappings: Moved::new(from.mappings.len()),
            functions: Moved::new(from.functions.len()),
            locations: Moved::new(from.locations.len()),
            links: Moved::new(from.links.len()),
            stacks: Moved::new(from.stacks.len()),
        }
    }

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
        let location_indices =
            stack.location_indices.iter().map(|&location| self.location(location)).collect();
        self.stacks.put(old, &mut self.to.stack_table, Stack { location_indices })
    }

    fn location(&mut self, old: i32) -> i32 {
        if let Some(new) = self.locations.get(old) {
            return new;
        }
        let from = self.from;
        let Some(location) = from.locations.get(old as usize) else { return 0 };
        let lines = location
            .lines
            .iter()
            .map(|line| Line { function_index: self.function(line.function_index), ..*line });
        let mut copied = Location {
            lines: lines.collect(),
            mapping_index: self.mapping(location.mapping_index),
            address: location.address,
            attribute_indices: location.attribute_indices.clone(),
        };
        self.each_attribute(&mut copied.attribute_indices);
        self.locations.put(old, &mut self.to.location_table, copied)
    }

    fn function(&mut self, old: i32) -> i32 {
        if let Some(new) = self.functions.get(old) {
            return new;
        }
        let Some(function) = self.from.functions.get(old as usize) else { return 0 };
        let copied = Function {
            name_strindex: self.string(function.name_strindex),
            system_name_strindex: self.string(function.system_name_strindex),
            filename_strindex: self.string(function.filename_strindex),
            start_line: function.start_line,
        };
        self.functions.put(old, &mut self.to.function_table, copied)
    }

    fn mapping(&mut self, old: i32) -> i32 {
        if let Some(new) = self.mappings.get(old) {
            return new;
        }
        let Some(mapping) = self.from.mappings.get(old as usize) else { return 0 };
        let mut copied = mapping.clone();
        copied.filename_strindex = self.string(mapping.filename_strindex);
        self.each_attribute(&mut copied.attribute_indices);
        self.mappings.put(old, &mut self.to.mapping_table, copied)
    }

    fn link(&mut self, old: i32) -> i32 {
        if let Some(new) = self.links.get(old) {
            return new;
        }
        let Some(link) = self.from.links.get(old as usize) else { return 0 };
        self.links.put(old, &mut self.to.link_table, link.clone())
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
        let copied = KeyValueAndUnit {
            key_strindex: self.string(attribute.key_strindex),
            value: attribute.value.clone(),
            unit_strindex: self.string(attribute.unit_strindex),
        };
        self.attributes.put(old, &mut self.to.attribute_table, copied)
    }

    fn string(&mut self, old: i32) -> i32 {
        if let Some(new) = self.strings.get(old) {
            return new;
        }
        let Some(string) = self.from.strings.get(old as usize) else { return 0 };
        self.strings.put(old, &mut self.to.string_table, string.clone())
    }
}

/// The new index of each element that has been copied. Element 0 stays where it is.
struct Moved(Vec<i32>);

/// Of an element that has not been copied.
const NOT_YET: i32 = -1;

impl Moved {
    fn new(len: usize) -> Self {
        let mut new_indices = vec![NOT_YET; len.max(1)];
        if let Some(zero) = new_indices.first_mut() {
            *zero = 0;
        }
        Self(new_indices)
    }

    fn get(&self, old: i32) -> Option<i32> {
        self.0.get(old as usize).copied().filter(|&new| new != NOT_YET)
    }

    /// Appends the copy of element `old` to the new `table`.
    fn put<T>(&mut self, old: i32, table: &mut Vec<T>, copied: T) -> i32 {
        // The new table is no longer than the old one, whose indices are of this type.
        let new = table.len() as i32;
        table.push(copied);
        if let Some(place) = self.0.get_mut(old as usize) {
            *place = new;
        }
        new
    }
}
