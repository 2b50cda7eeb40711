//! Checks resources, scopes and the fields of profiles.

use std::collections::HashSet;

use prost::Message;
use sidewinder_kind::CPU_TIME;

use super::dictionary::{is_categorical, string};
use super::findings::Violations;
use super::units::is_value_unit;
use super::walk::{inline_attributes, profiles};
use crate::wire::{KeyValue, Profile, ProfilesData, ProfilesDictionary, ResourceProfiles};

/// Earlier times, before 2001, are not in nanoseconds since 1970.
const EARLIEST_UNIX_NS: u64 = 1_000_000_000_000_000_000;
/// Neither are later times, after 2262.
const LATEST_UNIX_NS: u64 = i64::MAX as u64;
/// CPUs aren't sampled more than 1,000,000 times per second: a smaller period is actually a rate.
const SHORTEST_CPU_PERIOD_NS: i64 = 1000;

pub(super) fn check(dictionary: &ProfilesDictionary, data: &ProfilesData, findings: &mut Violations) {
    findings.require(10, !data.resource_profiles.is_empty(), "message", "it has no resource");
    let mut identities = HashSet::new();
    for (index, resource) in data.resource_profiles.iter().enumerate() {
        let path = format!("resource_profiles[{index}]");
        findings.require(9, identities.insert(identity(resource)), &path, "its resource came before");
        check_resource(resource, &path, findings);
    }
    for (path, attributes) in inline_attributes(data) {
        check_inline(attributes, &path, findings);
    }
    check_first(dictionary, data, findings);
    let mut ids = HashSet::new();
    for (path, profile) in profiles(data) {
        check_profile(dictionary, profile, &path, findings);
        findings.require(14, ids.insert(&profile.profile_id), &path, "its profile_id came before");
    }
}

/// A resource, regardless of the order of its attributes.
fn identity(resource: &ResourceProfiles) -> Vec<Vec<u8>> {
    let attributes = resource.resource.iter().flat_map(|resource| &resource.attributes);
    let mut identity: Vec<_> = attributes.map(KeyValue::encode_to_vec).collect();
    identity.sort_unstable();
    identity
}

fn check_resource(resource: &ResourceProfiles, path: &str, findings: &mut Violations) {
    let has_attributes = resource.resource.as_ref().is_some_and(|resource| !resource.attributes.is_empty());
    findings.require(10, has_attributes, path, "its resource has no attributes");
    findings.require(10, !resource.scope_profiles.is_empty(), path, "it has no scope");
    findings.require(12, !resource.schema_url.is_empty(), path, "it has no schema_url");
    for (index, scope) in resource.scope_profiles.iter().enumerate() {
        let path = format!("{path}.scope_profiles[{index}]");
        let has_name = scope.scope.as_ref().is_some_and(|scope| !scope.name.is_empty());
        findings.require(10, has_name, &path, "its scope has no name");
        findings.require(10, !scope.profiles.is_empty(), &path, "it has no profile");
        findings.require(12, !scope.schema_url.is_empty(), &path, "it has no schema_url");
    }
}

fn check_inline(attributes: &[KeyValue], path: &str, findings: &mut Violations) {
    let mut keys = HashSet::new();
    for attribute in attributes {
        let key = attribute.key.as_str();
        let inline = !key.is_empty() && attribute.key_strindex == 0;
        findings.require(6, inline, path, format_args!("attribute {key:?} is not inline"));
        findings.require(5, keys.insert(key), path, format_args!("it has the key {key:?} twice"));
        findings.require(8, is_categorical(attribute.value.as_ref()), path, "it has a float or a map");
    }
}

fn check_first(dictionary: &ProfilesDictionary, data: &ProfilesData, findings: &mut Violations) {
    let is_cpu = |profile: &Profile| {
        profile.period_type.is_some_and(|period| string(dictionary, period.type_strindex) == CPU_TIME.name)
    };
    for (index, resource) in data.resource_profiles.iter().enumerate() {
        for scope in &resource.scope_profiles {
            let order = scope.profiles.iter().map(|profile| !is_cpu(profile));
            let path = format_args!("resource_profiles[{index}]");
            findings.require(11, order.is_sorted(), path, "a CPU profile follows one of another kind");
        }
    }
    let mut all = profiles(data).map(|(_, profile)| is_cpu(profile));
    let first_is_cpu = all.next().unwrap_or(true);
    findings.require(11, first_is_cpu || !all.any(|is_cpu| is_cpu), "message", "no CPU profile comes first");
}

fn check_profile(dictionary: &ProfilesDictionary, profile: &Profile, path: &str, findings: &mut Violations) {
    findings.require(10, !profile.samples.is_empty(), path, "it has no sample");
    let sample_type = profile.sample_type.unwrap_or_default();
    let is_typed = !string(dictionary, sample_type.type_strindex).is_empty();
    findings.require(13, is_typed, path, "it has no sample_type");
    let id = &profile.profile_id;
    let is_id = id.len() == 16 && id.iter().any(|&byte| byte != 0);
    findings.require(14, is_id, path, "its profile_id is not 16 bytes, or all zero");
    let has_original = !profile.original_payload.is_empty() || !profile.original_payload_format.is_empty();
    findings.require(15, !has_original, path, "it has an original_payload");
    for value_type in [profile.sample_type, profile.period_type].into_iter().flatten() {
        let unit = string(dictionary, value_type.unit_strindex);
        findings.require(
            7,
            unit.is_empty() || is_value_unit(unit),
            path,
            format_args!("{unit:?} is no unit"),
        );
    }
    check_time(dictionary, profile, path, findings);
}

fn check_time(dictionary: &ProfilesDictionary, profile: &Profile, path: &str, findings: &mut Violations) {
    let time = profile.time_unix_nano;
    let is_time = (EARLIEST_UNIX_NS..LATEST_UNIX_NS).contains(&time);
    findings.require(16, is_time, path, format_args!("{time} is no time of today in ns"));
    let Some(period_type) = profile.period_type else {
        return findings.require(16, false, path, "it has no period_type");
    };
    let kind = string(dictionary, period_type.type_strindex);
    let period = profile.period;
    let fits = match (kind, string(dictionary, period_type.unit_strindex)) {
        ("", _) => period == 0,
        (name, unit) if (name, unit) == (CPU_TIME.name, CPU_TIME.unit) => period >= SHORTEST_CPU_PERIOD_NS,
        _ => period > 0,
    };
    findings.require(16, fits, path, format_args!("a period of {period} does not fit the type {kind:?}"));
}
