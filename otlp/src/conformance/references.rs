//! Checks indices: each is within its table, and each element is reached.

use std::fmt::Display;

use super::findings::Violations;
use super::walk::{inline_attributes, profiles};
use crate::wire::{AnyValueKind, Profile, ProfilesData, ProfilesDictionary, Sample, ValueType};

/// A table of the dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum DictionaryTable {
    Strings,
    Attributes,
    Mappings,
    Functions,
    Locations,
    Links,
    Stacks,
}

impl DictionaryTable {
    const ALL: [Self; 7] = [
        Self::Strings,
        Self::Attributes,
        Self::Mappings,
        Self::Functions,
        Self::Locations,
        Self::Links,
        Self::Stacks,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Strings => "string_table",
            Self::Attributes => "attribute_table",
            Self::Mappings => "mapping_table",
            Self::Functions => "function_table",
            Self::Locations => "location_table",
            Self::Links => "link_table",
            Self::Stacks => "stack_table",
        }
    }

    fn len(self, dictionary: &ProfilesDictionary) -> usize {
        match self {
            Self::Strings => dictionary.string_table.len(),
            Self::Attributes => dictionary.attribute_table.len(),
            Self::Mappings => dictionary.mapping_table.len(),
            Self::Functions => dictionary.function_table.len(),
            Self::Locations => dictionary.location_table.len(),
            Self::Links => dictionary.link_table.len(),
            Self::Stacks => dictionary.stack_table.len(),
        }
    }
}

/// An index of an element.
type Reference = (DictionaryTable, i32);

pub(super) fn check(dictionary: &ProfilesDictionary, data: &ProfilesData, findings: &mut Violations) {
    for table in DictionaryTable::ALL {
        for index in 0..table.len(dictionary) {
            for reference in references_of_element(dictionary, table, index) {
                let path = format_args!("dictionary.{}[{index}]", table.name());
                in_range(dictionary, reference, path, findings);
            }
        }
    }
    let mut reached = ReachableElements::new(dictionary);
    references_of_message(data, |path, reference| {
        in_range(dictionary, reference, path, findings);
        reached.follow(reference);
    });
    for (table, elements) in DictionaryTable::ALL.into_iter().zip(&reached.tables) {
        for (index, is_reached) in elements.iter().enumerate().skip(1) {
            let path = format_args!("dictionary.{}[{index}]", table.name());
            findings.require(3, *is_reached, path, "nothing refers to it");
        }
    }
}

fn in_range(
    dictionary: &ProfilesDictionary,
    (table, index): Reference,
    path: impl Display,
    findings: &mut Violations,
) {
    let holds = usize::try_from(index).is_ok_and(|index| index < table.len(dictionary));
    findings.require(4, holds, path, format_args!("{index} is outside of {}", table.name()));
}

/// The elements that profiles reach.
struct ReachableElements<'a> {
    dictionary: &'a ProfilesDictionary,
    tables: Vec<Vec<bool>>,
}

impl<'a> ReachableElements<'a> {
    fn new(dictionary: &'a ProfilesDictionary) -> Self {
        let tables = DictionaryTable::ALL.iter().map(|table| vec![false; table.len(dictionary)]).collect();
        Self { dictionary, tables }
    }

    fn follow(&mut self, (table, index): Reference) {
        let Ok(index) = usize::try_from(index) else { return };
        let element = self.tables.get_mut(table as usize).and_then(|elements| elements.get_mut(index));
        if let Some(is_reached) = element
            && !std::mem::replace(is_reached, true)
        {
            // The tables refer to each other without cycles.
            for reference in references_of_element(self.dictionary, table, index) {
                self.follow(reference);
            }
        }
    }
}

/// Calls `found` for each index that a message contains outside of the dictionary, with the path of the referring field.
fn references_of_message(data: &ProfilesData, mut found: impl FnMut(&dyn Display, Reference)) {
    for (path, attributes) in inline_attributes(data) {
        for attribute in attributes {
            found(&path, (DictionaryTable::Strings, attribute.key_strindex));
            let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
            if let Some(AnyValueKind::StringValueStrindex(index)) = value {
                found(&path, (DictionaryTable::Strings, *index));
            }
        }
    }
    for (path, profile) in profiles(data) {
        for reference in references_of_profile(profile) {
            found(&path, reference);
        }
        for (index, sample) in profile.samples.iter().enumerate() {
            for reference in references_of_sample(sample) {
                found(&format_args!("{path}.samples[{index}]"), reference);
            }
        }
    }
}

fn references_of_profile(profile: &Profile) -> Vec<Reference> {
    let types = [profile.sample_type, profile.period_type].into_iter().flatten();
    let mut references = attribute_references(&profile.attribute_indices);
    for ValueType { type_strindex, unit_strindex } in types {
        references
            .extend([(DictionaryTable::Strings, type_strindex), (DictionaryTable::Strings, unit_strindex)]);
    }
    references
}

fn references_of_sample(sample: &Sample) -> Vec<Reference> {
    let mut references = attribute_references(&sample.attribute_indices);
    references
        .extend([(DictionaryTable::Stacks, sample.stack_index), (DictionaryTable::Links, sample.link_index)]);
    references
}

fn references_of_element(
    dictionary: &ProfilesDictionary,
    table: DictionaryTable,
    index: usize,
) -> Vec<Reference> {
    let references = match table {
        DictionaryTable::Strings | DictionaryTable::Links => None,
        DictionaryTable::Attributes => dictionary.attribute_table.get(index).map(|attribute| {
            vec![
                (DictionaryTable::Strings, attribute.key_strindex),
                (DictionaryTable::Strings, attribute.unit_strindex),
            ]
        }),
        DictionaryTable::Mappings => dictionary.mapping_table.get(index).map(|mapping| {
            let mut references = attribute_references(&mapping.attribute_indices);
            references.push((DictionaryTable::Strings, mapping.filename_strindex));
            references
        }),
        DictionaryTable::Functions => dictionary.function_table.get(index).map(|function| {
            let names = [function.name_strindex, function.system_name_strindex, function.filename_strindex];
            names.map(|name| (DictionaryTable::Strings, name)).to_vec()
        }),
        DictionaryTable::Locations => dictionary.location_table.get(index).map(|location| {
            let mut references = attribute_references(&location.attribute_indices);
            references.push((DictionaryTable::Mappings, location.mapping_index));
            references
                .extend(location.lines.iter().map(|line| (DictionaryTable::Functions, line.function_index)));
            references
        }),
        DictionaryTable::Stacks => dictionary.stack_table.get(index).map(|stack| {
            stack.location_indices.iter().map(|&location| (DictionaryTable::Locations, location)).collect()
        }),
    };
    references.unwrap_or_default()
}

fn attribute_references(indices: &[i32]) -> Vec<Reference> {
    indices.iter().map(|&index| (DictionaryTable::Attributes, index)).collect()
}
