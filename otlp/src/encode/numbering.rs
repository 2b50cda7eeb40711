//! Which elements of a dictionary a report reaches, and their indices in it.

use super::input::{DictionaryTables, SampleRef};
use crate::wire::{Profile, ResourceProfiles};

/// The elements of a table that are in the report, in the order of the table. Element 0, the zero value, is always
/// included.
pub(super) struct Numbering {
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
    pub(super) fn index(&self, old: i32) -> i32 {
        self.numbers.get(old as usize).copied().unwrap_or(0)
    }

    /// The elements of the table that are in the report.
    pub(super) fn pick<'t, T>(&self, table: &'t [T]) -> impl Iterator<Item = &'t T> {
        table.iter().zip(&self.is_reached).filter(|(_, is_reached)| **is_reached).map(|(element, _)| element)
    }
}

/// The renumbering of all tables.
pub(super) struct DictionaryNumbering {
    pub(super) strings: Numbering,
    pub(super) attributes: Numbering,
    pub(super) mappings: Numbering,
    pub(super) functions: Numbering,
    pub(super) locations: Numbering,
    pub(super) links: Numbering,
    pub(super) stacks: Numbering,
}

impl DictionaryNumbering {
    /// Marks what profiles and samples reach. Each table is processed after all tables that refer to it.
    pub(super) fn new(
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
    pub(super) fn estimated_len(
        &self,
        tables: DictionaryTables<'_>,
        samples: &[Vec<SampleRef<'_>>],
    ) -> usize {
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
}
