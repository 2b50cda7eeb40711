//! Checks the samples of profiles.

use std::collections::HashSet;

use sidewinder_profile::key;

use super::dictionary::{CanonicalIndices, at, first, is_marker, set, text_of, unique_keys};
use super::findings::Violations;
use super::walk::profiles;
use crate::wire::{Profile, ProfilesData, ProfilesDictionary, Sample};

pub(super) fn check(
    dictionary: &ProfilesDictionary,
    canonical: &CanonicalIndices,
    data: &ProfilesData,
    findings: &mut Violations,
) {
    for (path, profile) in profiles(data) {
        unique_keys(dictionary, &profile.attribute_indices, &path, findings);
        let mut identities = HashSet::new();
        let mut shapes = HashSet::new();
        for (index, sample) in profile.samples.iter().enumerate() {
            let path = format!("{path}.samples[{index}]");
            let identity = (
                first(&canonical.stacks, sample.stack_index),
                set(&canonical.attributes, &sample.attribute_indices),
                first(&canonical.links, sample.link_index),
            );
            findings.require(20, identities.insert(identity), &path, "its identity came before");
            shapes.insert((sample.values.is_empty(), sample.timestamps_unix_nano.is_empty()));
            unique_keys(dictionary, &sample.attribute_indices, &path, findings);
            check_observations(profile, sample, &path, findings);
        }
        findings.require(21, shapes.len() <= 1, &path, "its samples have different shapes");
    }
    check_truncations(dictionary, data, findings);
}

/// Where outermost frames are missing, the sample says why, and a marker stands in their place: at the end of its stack, and nowhere else
/// in any.
fn check_truncations(dictionary: &ProfilesDictionary, data: &ProfilesData, findings: &mut Violations) {
    let mut truncations = HashSet::new();
    for (path, profile) in profiles(data) {
        for (index, sample) in profile.samples.iter().enumerate() {
            if text_of(dictionary, &sample.attribute_indices, key::STACK_OUTCOME).is_none() {
                continue;
            }
            let stack = at(&dictionary.stack_table, sample.stack_index);
            let end = stack.and_then(|stack| stack.location_indices.last().copied());
            let marker = end.filter(|end| is_marker(dictionary, *end));
            let path = format_args!("{path}.samples[{index}]");
            findings.require(24, marker.is_some(), path, "no marker stands for its missing frames");
            truncations.extend(marker);
        }
    }
    for (index, stack) in dictionary.stack_table.iter().enumerate() {
        let inner = stack.location_indices.split_last().map_or(&[][..], |(_, inner)| inner);
        let has_none = inner.iter().all(|location| !truncations.contains(location));
        let path = format_args!("dictionary.stack_table[{index}]");
        findings.require(24, has_none, path, "frames follow the marker of a truncation");
    }
}

fn check_observations(profile: &Profile, sample: &Sample, path: &str, findings: &mut Violations) {
    match (sample.values.len(), sample.timestamps_unix_nano.len()) {
        (0, 0) => findings.require(17, false, path, "it has neither values nor timestamps"),
        (0, _) => {}
        (values, 0) => {
            findings.require(19, values == 1, path, format_args!("{values} values without timestamps"));
        }
        (values, times) => {
            findings.require(18, values == times, path, format_args!("{values} values, {times} timestamps"));
        }
    }
    let start = profile.time_unix_nano;
    let covered = start..start.saturating_add(profile.duration_nano);
    for time in &sample.timestamps_unix_nano {
        findings.require(22, covered.contains(time), path, format_args!("{time} is outside of {covered:?}"));
    }
}
