//! What is encoded: tables and samples, without a copy.

use crate::wire::{Function, KeyValueAndUnit, Link, Location, Mapping, ProfilesDictionary, Sample, Stack};

/// The seven tables of a dictionary, borrowed.
#[derive(Clone, Copy, Debug)]
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
