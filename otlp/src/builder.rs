//! Builds a report from events in any order.
//!
//! ```
//! use sidewinder_otlp::builder::{Function, Line, ReportBuilder, ReportOptions, SampleAttributes, SampleIdentity, StackFrame};
//! use sidewinder_kind::Kind;
//! use sidewinder_otlp::{FrameType, Value, key};
//!
//! let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
//! let resource = builder.resource(&[(key::SERVICE_NAME, Value::Str("shop"))]);
//! let main = builder.function(&Function { name: "main", ..Function::default() });
//! let frame = builder.location(&StackFrame {
//!     address: 0x1234,
//!     frame_type: FrameType::Native,
//!     lines: &[Line::new(main)],
//!     ..StackFrame::default()
//! });
//! let identity = SampleIdentity {
//!     resource,
//!     profile_type: builder.kind(Kind::Cpu { samples_per_second: 19 }),
//!     stack: builder.stack(&[frame]),
//!     attributes: builder.attributes(&SampleAttributes { thread_id: Some(7), ..SampleAttributes::default() }),
//!     link: None,
//! };
//! builder.event(&identity, 1_700_000_000_000_000_000, 1);
//! builder.event(&identity, 1_700_000_000_050_000_000, 1);
//! let report = builder.finish(1_700_000_000_000_000_000..1_700_000_005_000_000_000).ok_or("no event")?;
//! assert_eq!((report.tally().events, report.tally().samples), (2, 1));
//! # Ok::<(), &str>(())
//! ```

mod dictionary;
mod input;
mod profile;

use std::collections::HashMap;
use std::ops::Range;

use sidewinder_kind::Kind;

use crate::attribute::{Value, inline_attributes, key};
use crate::report::{Report, ReportDraft};
use crate::table::DedupTable;
use crate::wire::{
    InstrumentationScope, KeyValue, Profile, Resource, ResourceProfiles, SCHEMA_URL, ScopeProfiles, Stack,
};
use dictionary::Dictionary;
pub use input::{
    AttributeSetIndex, Function, FunctionIndex, Line, Link, LocationIndex, Mapping, MappingBuildIds,
    MappingIndex, ProfileType, ProfileTypeIndex, ResourceIndex, SampleAttributes, SampleIdentity, StackFrame,
    StackIndex,
};
use profile::{ProfileAccumulator, SampleKey};

/// The name of the scope. It must never change, because receivers name the profile after it.
const SCOPE_NAME: &str = "sidewinder";

/// The value of `service.name` if none was given, as for every OpenTelemetry resource.
pub const UNKNOWN_SERVICE: &str = "unknown_service";

/// Options for all reports of a builder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportOptions {
    /// The scope's version: that of the release.
    pub scope_version: String,
}

impl ReportOptions {
    /// The options for a release with this version.
    #[must_use]
    pub fn new(scope_version: impl Into<String>) -> Self {
        Self { scope_version: scope_version.into() }
    }
}

/// Collects events and what they refer to, and builds reports from them.
///
/// Interned values are kept between reports, so a caller may store indices next to its own data; a report only contains
/// what its events reach. A caller that sees [`Self::interned_bytes`] exceed its budget creates a new builder.
#[derive(Debug)]
pub struct ReportBuilder {
    options: ReportOptions,
    resources: DedupTable<Vec<KeyValue>>,
    resources_bytes: usize,
    dictionary: Dictionary,
    /// A few, so that they are searched from the first one.
    profile_types: Vec<ProfileType>,
    kinds: Vec<(Kind, ProfileTypeIndex)>,
    profiles: DedupTable<ProfileAccumulator>,
    /// The profile of the last event.
    last_profile: i32,
    /// For each stack, the sample of its last event, in any profile.
    last_samples: Vec<i32>,
}

impl ReportBuilder {
    /// Creates a builder without events.
    #[must_use]
    pub fn new(options: ReportOptions) -> Self {
        Self {
            options,
            resources: DedupTable::new(),
            resources_bytes: 0,
            dictionary: Dictionary::new(),
            profile_types: Vec::new(),
            kinds: Vec::new(),
            profiles: DedupTable::new(),
            last_profile: 0,
            last_samples: Vec::new(),
        }
    }

    /// Interns a resource. If a key occurs twice, the first counts. Equal sets of attributes are one resource. Without
    /// attributes it is an unknown service.
    pub fn resource(&mut self, attributes: &[(&str, Value<'_>)]) -> ResourceIndex {
        let mut inline = inline_attributes(attributes);
        if inline.is_empty() {
            inline = inline_attributes(&[(key::SERVICE_NAME, Value::Str(UNKNOWN_SERVICE))]);
        }
        let encoded: Vec<u8> = inline.iter().flat_map(prost::Message::encode_to_vec).collect();
        let bytes = &mut self.resources_bytes;
        ResourceIndex(self.resources.intern(
            &encoded,
            |held| *held == inline,
            || {
                // Each attribute is a message of its own, with its own strings.
                *bytes += inline.len() * size_of::<KeyValue>() + encoded.len();
                inline.clone()
            },
        ))
    }

    /// Interns a type of profile.
    pub fn profile_type(&mut self, profile_type: ProfileType) -> ProfileTypeIndex {
        let known = self.profile_types.iter().position(|known| *known == profile_type);
        ProfileTypeIndex(known.unwrap_or_else(|| {
            self.profile_types.push(profile_type);
            self.profile_types.len() - 1
        }) as i32)
    }

    /// Interns the type of profile of a kind.
    pub fn kind(&mut self, kind: Kind) -> ProfileTypeIndex {
        if let Some((_, known)) = self.kinds.iter().find(|(known, _)| *known == kind) {
            return *known;
        }
        let profile_type = self.profile_type(kind.into());
        self.kinds.push((kind, profile_type));
        profile_type
    }

    /// Interns a mapping.
    pub fn mapping(&mut self, mapping: &Mapping<'_>) -> MappingIndex {
        MappingIndex(self.dictionary.mapping(mapping))
    }

    /// Interns a function.
    pub fn function(&mut self, function: &Function<'_>) -> FunctionIndex {
        FunctionIndex(self.dictionary.function(function))
    }

    /// Interns the location of a frame.
    pub fn location(&mut self, frame: &StackFrame<'_>) -> LocationIndex {
        LocationIndex(self.dictionary.location(frame))
    }

    /// Interns a stack, leaf first.
    pub fn stack(&mut self, locations: &[LocationIndex]) -> StackIndex {
        let same = |stack: &Stack| {
            stack.location_indices.len() == locations.len()
                && stack.location_indices.iter().zip(locations).all(|(held, asked)| *held == asked.0)
        };
        let make = || Stack { location_indices: locations.iter().map(|location| location.0).collect() };
        StackIndex(self.dictionary.stack(locations, same, make))
    }

    /// Interns a set of sample attributes. Equal sets are one.
    pub fn attributes(&mut self, attributes: &SampleAttributes<'_>) -> AttributeSetIndex {
        AttributeSetIndex(self.dictionary.sample_attributes(attributes))
    }

    /// Adds one event at `time_unix_ns`.
    ///
    /// `value` is in the unit of the identity's profile type. It is ignored if events of this type are only counted.
    pub fn event(&mut self, identity: &SampleIdentity, time_unix_ns: u64, value: i64) {
        let SampleIdentity { resource, profile_type, stack, attributes, link } = *identity;
        let Some(shape) = self.profile_types.get(profile_type.0 as usize).map(|of| of.shape) else { return };
        let same =
            |draft: &ProfileAccumulator| draft.resource == resource && draft.profile_type == profile_type;
        // Most events have the same profile as the previous one.
        if !self.profiles.get_mut(self.last_profile).is_some_and(|draft| same(draft)) {
            let make = || ProfileAccumulator::new(resource, profile_type, shape);
            self.last_profile = self.profiles.intern(&(resource, profile_type), same, make);
        }
        let link = link.map_or(0, |link| self.dictionary.link(&link));
        let Some(draft) = self.profiles.get_mut(self.last_profile) else { return };
        let place = stack.0 as usize;
        if place >= self.last_samples.len() {
            self.last_samples.resize(place + 1, 0);
        }
        let identity = SampleKey { stack: stack.0, attributes: attributes.0, link };
        self.last_samples[place] = draft.event(identity, self.last_samples[place], time_unix_ns, value);
    }

    /// The approximate size of the interned values, in bytes.
    #[must_use]
    pub fn interned_bytes(&self) -> usize {
        self.dictionary.bytes() + self.resources_bytes
    }

    /// Forgets all stacks. Indices of stacks become invalid; indices of locations stay valid.
    ///
    /// To be called after a report, when there are no events.
    pub fn forget_stacks(&mut self) {
        debug_assert_eq!(self.pending_events(), 0, "events refer to stacks");
        self.dictionary.forget_stacks();
        self.last_samples.clear();
    }

    /// The number of events for the next report.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.profiles.values().iter().map(ProfileAccumulator::events).sum()
    }

    /// Returns the reports of all events so far, none if there are no events, and starts the next ones.
    ///
    /// `interval_unix_ns` is the time that they cover. It is extended to include all events. There is more than one if they would
    /// exceed `bytes_max` together. A report of one event may exceed it.
    pub fn drain(&mut self, interval_unix_ns: Range<u64>, bytes_max: usize) -> Vec<Report> {
        let mut drafts = std::mem::replace(&mut self.profiles, DedupTable::new()).into_values();
        if drafts.is_empty() {
            return Vec::new();
        }
        // Tools show the first profile of the first resource by default.
        let rank = |draft: &ProfileAccumulator| {
            self.profile_types.get(draft.profile_type.0 as usize).map(|of| of.display_rank)
        };
        let mut resource_ranks: HashMap<ResourceIndex, Option<u8>> = HashMap::new();
        for draft in &drafts {
            let least = resource_ranks.entry(draft.resource).or_insert(Some(u8::MAX));
            *least = rank(draft).min(*least);
        }
        drafts.sort_by_key(|draft| (resource_ranks.get(&draft.resource), draft.resource, rank(draft)));
        let mut resource_profiles: Vec<ResourceProfiles> = Vec::new();
        let mut lists = Vec::with_capacity(drafts.len());
        let mut last = None;
        for draft in drafts {
            let resource = draft.resource;
            let Some(of) = self.profile_types.get(draft.profile_type.0 as usize) else { continue };
            let profile = draft.profile(&of.sample_type, &mut self.dictionary, &interval_unix_ns);
            match resource_profiles.last_mut().and_then(|last| last.scope_profiles.first_mut()) {
                Some(scope) if last == Some(resource) => scope.profiles.push(profile),
                _ => resource_profiles.push(self.resource_profiles(resource, profile)),
            }
            last = Some(resource);
            lists.push(draft.into_columns());
        }
        let samples = lists.iter().map(|lists| lists.samples(&self.dictionary)).collect();
        ReportDraft::new(self.dictionary.tables(), resource_profiles, samples).encode_within(bytes_max)
    }

    /// The last report, as from [`Self::drain`], of any size.
    #[must_use]
    pub fn finish(mut self, interval_unix_ns: Range<u64>) -> Option<Report> {
        self.drain(interval_unix_ns, usize::MAX).pop()
    }

    fn resource_profiles(&self, resource: ResourceIndex, profile: Profile) -> ResourceProfiles {
        let attributes = self.resources.values().get(resource.0 as usize).cloned().unwrap_or_default();
        let scope = InstrumentationScope {
            name: SCOPE_NAME.to_owned(),
            version: self.options.scope_version.clone(),
            ..InstrumentationScope::default()
        };
        ResourceProfiles {
            resource: Some(Resource { attributes, ..Resource::default() }),
            scope_profiles: vec![ScopeProfiles {
                scope: Some(scope),
                profiles: vec![profile],
                schema_url: SCHEMA_URL.to_owned(),
            }],
            schema_url: SCHEMA_URL.to_owned(),
        }
    }
}
