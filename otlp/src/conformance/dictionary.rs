//! Checks the elements of the seven tables.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use prost::Message;

use super::findings::Violations;
use super::units::is_ucum;
use crate::wire::{AnyValue, AnyValueKind, Location, Mapping, ProfilesDictionary, Stack};
use sidewinder_profile::key;

/// For each element of each table, the index of the first element of equal value.
///
/// Values are compared including everything that they refer to, so that duplicates in a referenced table don't hide those
/// in the referring table.
pub(super) struct CanonicalIndices {
    pub(super) strings: Vec<usize>,
    pub(super) attributes: Vec<usize>,
    pub(super) mappings: Vec<usize>,
    pub(super) functions: Vec<usize>,
    pub(super) locations: Vec<usize>,
    pub(super) links: Vec<usize>,
    pub(super) stacks: Vec<usize>,
}

impl CanonicalIndices {
    pub(super) fn new(dictionary: &ProfilesDictionary) -> Self {
        let strings = first_occurrences(dictionary.string_table.iter());
        let attributes = first_occurrences(dictionary.attribute_table.iter().map(|attribute| {
            let value = attribute.value.as_ref().map(AnyValue::encode_to_vec);
            (first(&strings, attribute.key_strindex), value, first(&strings, attribute.unit_strindex))
        }));
        let mappings = first_occurrences(dictionary.mapping_table.iter().map(|mapping| {
            (
                [mapping.memory_start, mapping.memory_limit, mapping.file_offset],
                first(&strings, mapping.filename_strindex),
                set(&attributes, &mapping.attribute_indices),
            )
        }));
        let functions = first_occurrences(dictionary.function_table.iter().map(|function| {
            let names = [function.name_strindex, function.system_name_strindex, function.filename_strindex];
            (names.map(|name| first(&strings, name)), function.start_line)
        }));
        let locations = first_occurrences(dictionary.location_table.iter().map(|location| {
            let lines = location.lines.iter();
            let lines: Vec<_> =
                lines.map(|line| (first(&functions, line.function_index), line.line, line.column)).collect();
            (
                first(&mappings, location.mapping_index),
                location.address,
                lines,
                set(&attributes, &location.attribute_indices),
            )
        }));
        let links = first_occurrences(dictionary.link_table.iter());
        let stacks = first_occurrences(dictionary.stack_table.iter().map(|stack| {
            stack.location_indices.iter().map(|&index| first(&locations, index)).collect::<Vec<_>>()
        }));
        Self { strings, attributes, mappings, functions, locations, links, stacks }
    }
}

fn first_occurrences<T: Hash + Eq>(values: impl Iterator<Item = T>) -> Vec<usize> {
    let mut seen = HashMap::new();
    values.enumerate().map(|(index, value)| *seen.entry(value).or_insert(index)).collect()
}

/// The first element of equal value; an index out of range is returned unchanged.
pub(super) fn first(canonical: &[usize], index: i32) -> i64 {
    let known = usize::try_from(index).ok().and_then(|index| canonical.get(index));
    known.map_or(i64::from(index), |&first| first as i64)
}

/// A list of attributes, regardless of its order.
pub(super) fn set(canonical: &[usize], indices: &[i32]) -> Vec<i64> {
    let mut set: Vec<_> = indices.iter().map(|&index| first(canonical, index)).collect();
    set.sort_unstable();
    set
}

pub(super) fn check(
    dictionary: &ProfilesDictionary,
    canonical: &CanonicalIndices,
    findings: &mut Violations,
) {
    zero_elements(dictionary, findings);
    duplicates(canonical, findings);
    attributes(dictionary, findings);
    for (index, mapping) in dictionary.mapping_table.iter().enumerate().skip(1) {
        let path = format!("dictionary.mapping_table[{index}]");
        unique_keys(dictionary, &mapping.attribute_indices, &path, findings);
        check_mapping(dictionary, mapping, &path, findings);
    }
    for (index, function) in dictionary.function_table.iter().enumerate().skip(1) {
        let path = format!("dictionary.function_table[{index}]");
        let names = [function.name_strindex, function.system_name_strindex, function.filename_strindex];
        let named = names.iter().any(|&name| !string(dictionary, name).is_empty());
        findings.require(28, named, &path, "it has no name of any kind");
        findings.require(26, function.start_line >= 0, &path, "its line is negative");
    }
    for (index, location) in dictionary.location_table.iter().enumerate().skip(1) {
        let path = format!("dictionary.location_table[{index}]");
        unique_keys(dictionary, &location.attribute_indices, &path, findings);
        check_location(dictionary, location, &path, findings);
    }
    for (index, link) in dictionary.link_table.iter().enumerate().skip(1) {
        let fits = link.trace_id.len() == 16 && link.span_id.len() == 8;
        findings.require(23, fits, format!("dictionary.link_table[{index}]"), "its ids have other lengths");
    }
    for (index, stack) in dictionary.stack_table.iter().enumerate() {
        check_order(dictionary, stack, &format!("dictionary.stack_table[{index}]"), findings);
    }
}

fn zero_elements(dictionary: &ProfilesDictionary, findings: &mut Violations) {
    fn is_zero<T: Default + PartialEq>(table: &[T]) -> bool {
        table.first().is_some_and(|first| *first == T::default())
    }
    for (table, holds) in [
        ("string", is_zero(&dictionary.string_table)),
        ("attribute", is_zero(&dictionary.attribute_table)),
        ("mapping", is_zero(&dictionary.mapping_table)),
        ("function", is_zero(&dictionary.function_table)),
        ("location", is_zero(&dictionary.location_table)),
        ("link", is_zero(&dictionary.link_table)),
        ("stack", is_zero(&dictionary.stack_table)),
    ] {
        findings.require(1, holds, format!("dictionary.{table}_table[0]"), "it is not the zero value");
    }
}

fn duplicates(canonical: &CanonicalIndices, findings: &mut Violations) {
    for (table, firsts) in [
        ("string", &canonical.strings),
        ("attribute", &canonical.attributes),
        ("mapping", &canonical.mappings),
        ("function", &canonical.functions),
        ("location", &canonical.locations),
        ("link", &canonical.links),
        ("stack", &canonical.stacks),
    ] {
        for (index, &first) in firsts.iter().enumerate() {
            let path = format_args!("dictionary.{table}_table[{index}]");
            findings.require(2, first == index, path, format_args!("it equals element {first}"));
        }
    }
}

fn attributes(dictionary: &ProfilesDictionary, findings: &mut Violations) {
    for (index, attribute) in dictionary.attribute_table.iter().enumerate().skip(1) {
        let path = format!("dictionary.attribute_table[{index}]");
        let unit = string(dictionary, attribute.unit_strindex);
        findings.require(7, unit.is_empty() || is_ucum(unit), &path, format_args!("{unit:?} is not UCUM"));
        findings.require(8, is_categorical(attribute.value.as_ref()), &path, "it is a float or a map");
    }
}

/// Whether a value has a type with a bounded number of values in a dictionary.
pub(super) fn is_categorical(value: Option<&AnyValue>) -> bool {
    match value.and_then(|value| value.value.as_ref()) {
        Some(AnyValueKind::DoubleValue(_) | AnyValueKind::KvlistValue(_)) => false,
        Some(AnyValueKind::ArrayValue(array)) => array.values.iter().all(|value| is_categorical(Some(value))),
        _ => true,
    }
}

pub(super) fn unique_keys(
    dictionary: &ProfilesDictionary,
    attribute_indices: &[i32],
    path: &str,
    findings: &mut Violations,
) {
    let mut seen = HashSet::new();
    for &index in attribute_indices {
        let key = attribute(dictionary, index).map(|(key, _)| key).unwrap_or_default();
        findings.require(
            5,
            seen.insert(key),
            path,
            format_args!("its attributes have the key {key:?} twice"),
        );
    }
}

fn check_mapping(dictionary: &ProfilesDictionary, mapping: &Mapping, path: &str, findings: &mut Violations) {
    let (start, limit) = (mapping.memory_start, mapping.memory_limit);
    findings.require(
        27,
        start < limit || (start, limit) == (0, 0),
        path,
        "it does not start before its limit",
    );
    let id = |key| text_of(dictionary, &mapping.attribute_indices, key);
    let is_hex =
        |id: &str| id.len().is_multiple_of(2) && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let htlhash = id(key::BUILD_ID_HTLHASH);
    findings.require(
        29,
        htlhash.is_some_and(|hash| hash.len() == 32 && is_hex(hash)),
        path,
        format_args!("{htlhash:?} is no htlhash"),
    );
    let gnu = id(key::BUILD_ID_GNU);
    findings.require(
        29,
        gnu.is_none_or(|gnu| !gnu.is_empty() && is_hex(gnu)),
        path,
        format_args!("{gnu:?} is no GNU build ID"),
    );
    findings.require(29, id(key::BUILD_ID_GO) != Some(""), path, "its Go build ID is empty");
}

fn check_location(
    dictionary: &ProfilesDictionary,
    location: &Location,
    path: &str,
    findings: &mut Violations,
) {
    if let Some(mapping) = at(&dictionary.mapping_table, location.mapping_index)
        && mapping.memory_limit != 0
    {
        let within = (mapping.memory_start..=mapping.memory_limit).contains(&location.address);
        findings.require(25, within, path, format_args!("{:#x} is outside of its mapping", location.address));
    }
    for line in &location.lines {
        let fits = line.line >= 0 && line.column >= 0 && (line.line > 0 || line.column == 0);
        findings.require(26, fits, path, format_args!("line {} column {}", line.line, line.column));
    }
}

/// What can be checked of the order in the table alone: a stack goes from the kernel to user space.
fn check_order(dictionary: &ProfilesDictionary, stack: &Stack, path: &str, findings: &mut Violations) {
    let mut left_kernel = false;
    for &index in &stack.location_indices {
        let Some(location) = at(&dictionary.location_table, index) else { continue };
        let is_kernel = text_of(dictionary, &location.attribute_indices, key::FRAME_TYPE) == Some("kernel");
        findings.require(24, !(is_kernel && left_kernel), path, "a kernel frame follows one of user space");
        left_kernel |= !is_kernel;
    }
}

/// Whether a location says that its name is words of the profiler.
pub(super) fn is_marker(dictionary: &ProfilesDictionary, location: i32) -> bool {
    let location = at(&dictionary.location_table, location);
    location.is_some_and(|location| {
        location.attribute_indices.iter().any(|&index| {
            attribute(dictionary, index) == Some((key::FRAME_MARKER, Some(&AnyValueKind::BoolValue(true))))
        })
    })
}

/// The string value of the attribute with this key in a list.
pub(super) fn text_of<'a>(
    dictionary: &'a ProfilesDictionary,
    attribute_indices: &[i32],
    key: &str,
) -> Option<&'a str> {
    attribute_indices.iter().find_map(|&index| match attribute(dictionary, index)? {
        (found, Some(AnyValueKind::StringValue(text))) if found == key => Some(text.as_str()),
        _ => None,
    })
}

fn attribute(dictionary: &ProfilesDictionary, index: i32) -> Option<(&str, Option<&AnyValueKind>)> {
    let attribute = at(&dictionary.attribute_table, index)?;
    let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
    Some((string(dictionary, attribute.key_strindex), value))
}

/// The string at `index`; a missing one counts as empty here.
pub(super) fn string(dictionary: &ProfilesDictionary, index: i32) -> &str {
    at(&dictionary.string_table, index).map(String::as_str).unwrap_or_default()
}

pub(super) fn at<T>(table: &[T], index: i32) -> Option<&T> {
    table.get(usize::try_from(index).ok()?)
}
