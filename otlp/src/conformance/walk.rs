//! The parts of a message, each with its path.

use crate::wire::{KeyValue, Profile, ProfilesData};

/// The profiles of a message, each with its path.
pub(super) fn profiles(data: &ProfilesData) -> impl Iterator<Item = (String, &Profile)> {
    data.resource_profiles.iter().enumerate().flat_map(|(r, resource)| {
        resource.scope_profiles.iter().enumerate().flat_map(move |(s, scope)| {
            scope.profiles.iter().enumerate().map(move |(p, profile)| {
                (format!("resource_profiles[{r}].scope_profiles[{s}].profiles[{p}]"), profile)
            })
        })
    })
}

/// The inline attributes of a message, each list with its path.
pub(super) fn inline_attributes(data: &ProfilesData) -> impl Iterator<Item = (String, &[KeyValue])> {
    data.resource_profiles.iter().enumerate().flat_map(|(r, resource)| {
        let own = resource.resource.iter().map(move |resource| {
            (format!("resource_profiles[{r}].resource"), resource.attributes.as_slice())
        });
        let scopes = resource.scope_profiles.iter().enumerate().flat_map(move |(s, scope)| {
            scope.scope.iter().map(move |scope| {
                let path = format!("resource_profiles[{r}].scope_profiles[{s}].scope");
                (path, scope.attributes.as_slice())
            })
        });
        own.chain(scopes)
    })
}
