//! Which elements of a dictionary a report reaches, and their indices in it.

use sidewinder_profile::{Dictionary, FunctionIndex, Index, LocationIndex};

use super::sample::SampleRef;
use crate::wire::{Profile, ResourceProfiles, string_index};

/// The elements of a table that are in the report, in the order of the table. Element 0, the zero value, is always
/// included.
pub(super) struct Numbering {
    /// For each element, whether it is reached.
    is_reached: Vec<bool>,
    /// For each reached element, its index in the report; empty until all reached elements are marked.
    numbers: Vec<u32>,
}

impl Numbering {
    fn new(len: usize) -> Self {
        let mut is_reached = vec![false; len.max(1)];
        is_reached[0] = true;
        Self { is_reached, numbers: Vec::new() }
    }

    /// Marks an element as reached.
    #[inline]
    fn mark(&mut self, element: impl Index) {
        if let Some(is_reached) = self.is_reached.get_mut(element.position()) {
            *is_reached = true;
        }
    }

    /// Assigns indices to the reached elements.
    fn assign(&mut self) {
        let mut next = 0;
        let number = |is_reached: &bool| {
            let number = next;
            next += u32::from(*is_reached);
            number
        };
        self.numbers = self.is_reached.iter().map(number).collect();
    }

    /// The index in the report of a reached element, 0 if there is no such element.
    #[inline]
    pub(super) fn index(&self, element: impl Index) -> u64 {
        self.numbers.get(element.position()).copied().unwrap_or(0).into()
    }

    /// The elements of the table that are in the report.
    pub(super) fn reached<I: Index>(&self) -> impl Iterator<Item = I> {
        (0..).map(I::from_position).zip(&self.is_reached).filter(|(_, is)| **is).map(|(element, _)| element)
    }
}

/// The renumbering of all tables.
pub(super) struct DictionaryNumbering<'a> {
    pub(super) dictionary: &'a Dictionary,
    pub(super) strings: Numbering,
    pub(super) attributes: Numbering,
    pub(super) mappings: Numbering,
    pub(super) functions: Numbering,
    pub(super) locations: Numbering,
    pub(super) links: Numbering,
    pub(super) stacks: Numbering,
}

impl<'a> DictionaryNumbering<'a> {
    /// Marks what profiles and samples reach. Each table is processed after all tables that refer to it.
    pub(super) fn new(
        dictionary: &'a Dictionary,
        resource_profiles: &[ResourceProfiles],
        samples: &[Vec<SampleRef<'_>>],
    ) -> Self {
        let mut numbers = Self {
            dictionary,
            strings: Numbering::new(dictionary.strings().len()),
            attributes: Numbering::new(dictionary.attribute_count()),
            mappings: Numbering::new(dictionary.mappings().len()),
            functions: Numbering::new(dictionary.functions().len()),
            locations: Numbering::new(dictionary.location_count()),
            links: Numbering::new(dictionary.links().len()),
            stacks: Numbering::new(dictionary.stack_count()),
        };
        for profile in resource_profiles.iter().flat_map(|r| &r.scope_profiles).flat_map(|s| &s.profiles) {
            numbers.mark_profile(profile);
        }
        let mut attribute_sets = Numbering::new(dictionary.attribute_set_count());
        for sample in samples.iter().flatten() {
            numbers.stacks.mark(sample.stack);
            numbers.links.mark(sample.link);
            attribute_sets.mark(sample.attributes);
        }
        numbers.stacks.assign();
        numbers.links.assign();
        for stack in numbers.stacks.reached() {
            dictionary.stack(stack).iter().for_each(|location| numbers.locations.mark(*location));
        }
        numbers.locations.assign();
        for location in numbers.locations.reached() {
            attribute_sets.mark(dictionary.attributes_of_location(location));
            let location = dictionary.location(location);
            numbers.mappings.mark(dictionary.written_mapping(&location));
            dictionary.written_lines(&location).for_each(|line| numbers.functions.mark(line.function));
        }
        numbers.mappings.assign();
        numbers.functions.assign();
        for mapping in numbers.mappings.reached() {
            let mapping = dictionary.mapping(mapping);
            numbers.strings.mark(mapping.filename);
            attribute_sets.mark(mapping.attributes);
        }
        for function in numbers.functions.reached() {
            let function = dictionary.function(function);
            numbers.strings.mark(function.name);
            numbers.strings.mark(function.system_name);
            numbers.strings.mark(function.filename);
        }
        for set in attribute_sets.reached() {
            dictionary.attribute_set(set).iter().for_each(|attribute| numbers.attributes.mark(*attribute));
        }
        numbers.attributes.assign();
        for attribute in numbers.attributes.reached() {
            numbers.strings.mark(dictionary.attribute(attribute).key);
        }
        numbers.strings.assign();
        numbers
    }

    /// An estimate of the message's size, usually a bit too large: a vector that must grow is copied many times.
    pub(super) fn estimated_len(&self, samples: &[Vec<SampleRef<'_>>]) -> usize {
        let dictionary = self.dictionary;
        let of_samples = samples.iter().flatten();
        let of_samples: usize = of_samples.map(|sample| 24 + size_of_val(sample.times_unix_ns)).sum();
        let of_stacks = self.stacks.reached().map(|stack| 8 + 3 * dictionary.stack(stack).len());
        let of_stacks: usize = of_stacks.sum();
        let of_locations = 24 * self.locations.reached::<LocationIndex>().count();
        let of_functions = 12 * self.functions.reached::<FunctionIndex>().count();
        let of_strings = self.strings.reached().map(|string| 4 + dictionary.string(string).len());
        let of_strings: usize = of_strings.sum();
        1024 + of_samples + of_stacks + of_locations + of_functions + of_strings
    }

    fn mark_profile(&mut self, profile: &Profile) {
        for value_type in [&profile.sample_type, &profile.period_type].into_iter().flatten() {
            self.strings.mark(string_index(value_type.type_strindex));
            self.strings.mark(string_index(value_type.unit_strindex));
        }
    }
}
