//! Builds a report from events in any order.
//!
//! ```
//! use sidewinder_kind::Kind;
//! use sidewinder_otlp::builder::{ReportBuilder, ReportOptions, SampleAttributes, SampleIdentity};
//! use sidewinder_profile::{Dictionary, FrameType, LinkIndex, Line, Location, Value, key};
//!
//! let mut dictionary = Dictionary::default();
//! let main = dictionary.add_function_named("main");
//! let frame = dictionary.add_location(&Location {
//!     address: 0x1234,
//!     frame_type: FrameType::Native,
//!     lines: &[Line::new(main)],
//!     ..Location::default()
//! });
//! let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
//! let thread = SampleAttributes { thread_id: Some(7), ..SampleAttributes::default() };
//! let identity = SampleIdentity {
//!     resource: dictionary.add_attributes([(key::SERVICE_NAME, Value::Str("shop"))]),
//!     profile_type: builder.kind(Kind::Cpu { samples_per_second: 19 }),
//!     stack: dictionary.add_stack(&[frame]),
//!     attributes: thread.add_to(&mut dictionary),
//!     link: LinkIndex::default(),
//! };
//! builder.event(&identity, 1_700_000_000_000_000_000, 1);
//! builder.event(&identity, 1_700_000_000_050_000_000, 1);
//! let interval = 1_700_000_000_000_000_000..1_700_000_005_000_000_000;
//! let report = builder.finish(&mut dictionary, interval).ok_or("no event")?;
//! assert_eq!((report.tally().events, report.tally().samples), (2, 1));
//! # Ok::<(), &str>(())
//! ```

mod input;
mod profile;

use std::collections::HashMap;
use std::ops::Range;

use sidewinder_kind::Kind;
use sidewinder_profile::{AttributeSetIndex, Dictionary, Table};

pub use crate::attribute::UNKNOWN_SERVICE;
use crate::attribute::resource_attributes;
use crate::report::{Report, ReportDraft};
use crate::wire::{InstrumentationScope, Profile, Resource, ResourceProfiles, SCHEMA_URL, ScopeProfiles};
pub use input::{ProfileType, ProfileTypeIndex, SampleAttributes, SampleIdentity};
use profile::{AccumulatorIndex, ColumnarSamples, ProfileAccumulator, SampleKey, SampleKeyIndex};

/// The name of the scope. It must never change, because receivers name the profile after it.
const SCOPE_NAME: &str = "sidewinder";

/// Options for all reports of a builder.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReportOptions {
    /// The scope's version: the release's.
    pub scope_version: String,
}

impl ReportOptions {
    /// The options for a release with this version.
    #[must_use]
    pub fn new(scope_version: impl Into<String>) -> Self {
        Self { scope_version: scope_version.into() }
    }
}

/// Collects events, and builds reports from them.
///
/// What events refer to is in a dictionary of the caller, which may have more, and stays for later reports: a report only
/// contains what its events reach.
#[derive(Debug)]
pub struct ReportBuilder {
    options: ReportOptions,
    /// A few, so that they are searched from the first one.
    profile_types: Vec<ProfileType>,
    kinds: Vec<(Kind, ProfileTypeIndex)>,
    profiles: Table<AccumulatorIndex, ProfileAccumulator>,
    /// The profile of the last event.
    last_profile: AccumulatorIndex,
    /// For each stack, the sample of its last event, in any profile.
    last_samples: Vec<SampleKeyIndex>,
}

impl ReportBuilder {
    /// Creates a builder without events.
    #[must_use]
    pub fn new(options: ReportOptions) -> Self {
        Self {
            options,
            profile_types: Vec::new(),
            kinds: Vec::new(),
            profiles: Table::default(),
            last_profile: AccumulatorIndex::default(),
            last_samples: Vec::new(),
        }
    }

    /// Interns a type of profile.
    pub fn profile_type(&mut self, profile_type: ProfileType) -> ProfileTypeIndex {
        let known = self.profile_types.iter().position(|known| *known == profile_type);
        ProfileTypeIndex(known.unwrap_or_else(|| {
            self.profile_types.push(profile_type);
            self.profile_types.len() - 1
        }) as u32)
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

    /// Adds one event at `time_unix_ns`.
    ///
    /// `value` is in the unit of the identity's profile type. It is ignored if events of this type are only counted.
    pub fn event(&mut self, identity: &SampleIdentity, time_unix_ns: u64, value: i64) {
        let SampleIdentity { resource, profile_type, stack, attributes, link } = *identity;
        let Some(shape) = self.profile_types.get(profile_type.0 as usize).map(|of| of.shape) else { return };
        let same =
            |draft: &ProfileAccumulator| draft.resource == resource && draft.profile_type == profile_type;
        // Most events have the same profile as the previous one.
        if !self.profiles.get(self.last_profile).is_some_and(same) {
            let make = || ProfileAccumulator::new(resource, profile_type, shape);
            self.last_profile = self.profiles.intern_with(&(resource, profile_type), same, make);
        }
        let Some(draft) = self.profiles.get_mut(self.last_profile) else { return };
        let place = stack.0 as usize;
        if place >= self.last_samples.len() {
            self.last_samples.resize(place + 1, SampleKeyIndex::default());
        }
        let identity = SampleKey { stack, attributes, link };
        self.last_samples[place] = draft.event(identity, self.last_samples[place], time_unix_ns, value);
    }

    /// The number of events for the next report.
    #[must_use]
    pub fn pending_events(&self) -> usize {
        self.profiles.values().iter().map(ProfileAccumulator::events).sum()
    }

    /// Returns the reports of all events so far, none if there are no events, and starts the next ones.
    ///
    /// `dictionary` has what the events refer to. `interval_unix_ns` is the time that they cover. It is extended to include all events. There is more than one if they would
    /// exceed `bytes_max` together. A report of one event may exceed it.
    pub fn drain(
        &mut self,
        dictionary: &mut Dictionary,
        interval_unix_ns: Range<u64>,
        bytes_max: usize,
    ) -> Vec<Report> {
        let mut drafts = std::mem::take(&mut self.profiles).into_values();
        // Stacks may have other indices afterwards.
        self.last_samples.clear();
        if drafts.is_empty() {
            return Vec::new();
        }
        // Tools show the first profile of the first resource by default.
        let rank = |draft: &ProfileAccumulator| {
            self.profile_types.get(draft.profile_type.0 as usize).map(|of| of.display_rank)
        };
        let mut resource_ranks: HashMap<AttributeSetIndex, Option<u8>> = HashMap::new();
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
            let profile = draft.profile(&of.sample_type, dictionary, &interval_unix_ns);
            match resource_profiles.last_mut().and_then(|last| last.scope_profiles.first_mut()) {
                Some(scope) if last == Some(resource) => scope.profiles.push(profile),
                _ => resource_profiles.push(self.resource_profiles(dictionary, resource, profile)),
            }
            last = Some(resource);
            lists.push(draft.into_columns());
        }
        let samples = lists.iter().map(ColumnarSamples::samples).collect();
        ReportDraft::new(dictionary, resource_profiles, samples).encode_within(bytes_max)
    }

    /// The last report, as from [`Self::drain`], of any size.
    #[must_use]
    pub fn finish(mut self, dictionary: &mut Dictionary, interval_unix_ns: Range<u64>) -> Option<Report> {
        self.drain(dictionary, interval_unix_ns, usize::MAX).pop()
    }

    fn resource_profiles(
        &self,
        dictionary: &Dictionary,
        resource: AttributeSetIndex,
        profile: Profile,
    ) -> ResourceProfiles {
        let attributes = resource_attributes(dictionary, resource);
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
