//! The tables of a profile that is read from OTLP: its dictionary, threads and what samples have in common.

use std::collections::HashMap;
use std::sync::Arc;

use sidewinder_otlp::builder::UNKNOWN_SERVICE;
use sidewinder_otlp::decode::{
    AttributeValue, Attributes, DecodedFrame, DecodedLine, DecodedMapping, DecodedProfile, DecodedSample,
};
use sidewinder_profile::{
    BuildIds, Dictionary, FrameType, LinkIndex, Location, LocationIndex, Mapping, MappingIndex, Marker,
    SourceLine, StackIndex, Truncation,
};
use sidewinder_render::{
    AttributeSet, AttributeSetIndex, ExpansionBudget, ExpansionError, Profile, ProfileContainer,
    ProfileSample, ProfileThread, StateIndex, ThreadIndex, ThreadState,
};

use crate::naming::truncation_with_reason;
use crate::report::LOCK_ID;

/// The properties shared by the events that are counted together. The thread and its state follow from the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ImportedEventKey {
    span: LinkIndex,
    attributes: AttributeSetIndex,
    stack: StackIndex,
}

/// What the attributes of a sample and its resource say.
#[derive(Clone, Copy)]
struct SampleContext {
    thread: ThreadIndex,
    state: Option<StateIndex>,
    /// The lock that the thread waited for.
    lock: Option<LocationIndex>,
    /// What stands for the missing frames at the root of its stack.
    truncation: Option<LocationIndex>,
}

/// A decoded stack, with the lock that the thread waited for, and the truncation. `None` is the empty stack, which has no address of
/// its own.
type StackKey = (Option<*const Arc<DecodedFrame>>, [Option<LocationIndex>; 2]);

/// The tables of a profile under construction. Decoded profiles contain each frame, stack and set of attributes once, so that its
/// address identifies it.
pub(super) struct ImportBuilder<'a> {
    expansion: &'a mut ExpansionBudget,
    dictionary: Dictionary,
    threads: Vec<ProfileThread>,
    mappings: HashMap<*const DecodedMapping, MappingIndex>,
    locations: HashMap<*const DecodedFrame, LocationIndex>,
    stacks: HashMap<StackKey, StackIndex>,
    markers: HashMap<Marker, LocationIndex>,
    thread_indices: HashMap<ProfileThread, ThreadIndex>,
    states: Vec<ThreadState>,
    state_indices: HashMap<ThreadState, StateIndex>,
    attribute_sets: Vec<AttributeSet>,
    /// For each set of attributes but the first, which is empty.
    contexts: Vec<SampleContext>,
    /// By the attributes of the resource and of the sample.
    attribute_indices: HashMap<[*const Attributes; 2], AttributeSetIndex>,
}

impl<'a> ImportBuilder<'a> {
    pub(super) fn new(expansion: &'a mut ExpansionBudget) -> Self {
        Self {
            expansion,
            dictionary: Dictionary::default(),
            threads: Vec::new(),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            stacks: HashMap::new(),
            markers: HashMap::new(),
            thread_indices: HashMap::new(),
            states: Vec::new(),
            state_indices: HashMap::new(),
            attribute_sets: vec![AttributeSet::default()],
            contexts: Vec::new(),
            attribute_indices: HashMap::new(),
        }
    }

    /// The profile with these tables.
    pub(super) fn into_profile(self, profile: Profile) -> Profile {
        Profile {
            dictionary: self.dictionary,
            threads: self.threads,
            states: self.states,
            attribute_sets: self.attribute_sets,
            ..profile
        }
    }

    /// What the events of a sample have in common.
    ///
    /// # Errors
    /// If the message expands to too much.
    pub(super) fn event_key(
        &mut self,
        profile: &DecodedProfile,
        sample: &DecodedSample,
    ) -> Result<ImportedEventKey, ExpansionError> {
        let sets = [&profile.resource, &sample.attributes];
        let known = self.attribute_indices.get(&sets.map(Arc::as_ptr)).copied();
        let attributes = known.map_or_else(|| self.add_attributes(profile, sample), Ok)?;
        let span = sample.link.map(|link| self.dictionary.add_link(link)).unwrap_or_default();
        let stack = self.stack(&sample.stack, self.context_of(attributes))?;
        Ok(ImportedEventKey { span, attributes, stack })
    }

    /// The events of a slice that have these properties.
    pub(super) fn sample(&self, slice: u32, key: ImportedEventKey, count: u64) -> Option<ProfileSample> {
        let ImportedEventKey { span, attributes, stack } = key;
        let SampleContext { thread, state, .. } = self.context_of(attributes)?;
        Some(ProfileSample { slice, thread, span, state, attributes, stack, count })
    }

    fn context_of(&self, attributes: AttributeSetIndex) -> Option<SampleContext> {
        self.contexts.get((attributes.0 as usize).checked_sub(1)?).copied()
    }

    fn add_attributes(
        &mut self,
        profile: &DecodedProfile,
        sample: &DecodedSample,
    ) -> Result<AttributeSetIndex, ExpansionError> {
        let context = self.context(profile, sample)?;
        let index = AttributeSetIndex(self.attribute_sets.len() as u32);
        let sets = [&profile.resource, &sample.attributes];
        self.attribute_indices.insert(sets.map(Arc::as_ptr), index);
        let [resource, sample] = sets.map(Arc::clone);
        self.attribute_sets.push(AttributeSet { resource, sample });
        self.contexts.push(context);
        Ok(index)
    }

    fn context(
        &mut self,
        profile: &DecodedProfile,
        sample: &DecodedSample,
    ) -> Result<SampleContext, ExpansionError> {
        let lock = text(&sample.attributes, LOCK_ID).map(Marker::Lock);
        let truncation = sample.outcome().map(truncation_with_reason);
        let truncation = truncation.map(|truncation| Marker::Truncated(truncation.into()));
        Ok(SampleContext {
            thread: self.thread(profile, sample)?,
            state: self.state(sample)?,
            lock: lock.map(|lock| self.marker(lock)).transpose()?,
            truncation: truncation.map(|truncation| self.marker(truncation)).transpose()?,
        })
    }

    fn thread(
        &mut self,
        profile: &DecodedProfile,
        sample: &DecodedSample,
    ) -> Result<ThreadIndex, ExpansionError> {
        let resource = |key: &str| text(&profile.resource, key);
        let to_u32 = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        let name = resource("process.executable.name").or_else(|| resource("service.name"));
        let thread = ProfileThread {
            process: name.filter(|name| **name != *UNKNOWN_SERVICE).unwrap_or_default(),
            pid: to_u32(profile.resource.get("process.pid").and_then(AttributeValue::as_int)),
            name: text(&sample.attributes, "thread.name").unwrap_or_default(),
            tid: to_u32(sample.thread_id()),
            container: ProfileContainer::from_attributes(resource),
        };
        self.expansion
            .take_entry(thread.process.len() + thread.name.len() + thread.container.text_bytes())?;
        let threads = &mut self.threads;
        Ok(*self.thread_indices.entry(thread).or_insert_with_key(|thread| {
            threads.push(thread.clone());
            ThreadIndex(threads.len() as u32 - 1)
        }))
    }

    /// What the thread did or waited for, if the sample says so.
    fn state(&mut self, sample: &DecodedSample) -> Result<Option<StateIndex>, ExpansionError> {
        let text = |key: &str| text(&sample.attributes, key);
        let Some(state) = text(ThreadState::STATE_KEY) else { return Ok(None) };
        let cause = text(ThreadState::CAUSE_KEY).unwrap_or_default();
        self.expansion.take_entry(state.len() + cause.len())?;
        let states = &mut self.states;
        let index = self.state_indices.entry(ThreadState { state, cause }).or_insert_with_key(|state| {
            states.push(state.clone());
            StateIndex(states.len() as u32 - 1)
        });
        Ok(Some(*index))
    }

    /// A lock that the thread waited for becomes the innermost frame.
    fn stack(
        &mut self,
        stack: &Arc<[Arc<DecodedFrame>]>,
        context: Option<SampleContext>,
    ) -> Result<StackIndex, ExpansionError> {
        let (lock, truncation) = context.map_or((None, None), |context| (context.lock, context.truncation));
        let key = ((!stack.is_empty()).then_some(stack.as_ptr()), [lock, truncation]);
        if let Some(index) = self.stacks.get(&key) {
            return Ok(*index);
        }
        let outermost = stack.last();
        let truncation = truncation.filter(|index| {
            let marker = self.dictionary.location(*index).marker;
            let Some(Marker::Truncated(truncation)) = marker else { return false };
            outermost.is_some_and(|outermost| is_truncation(outermost, truncation))
        });
        let walked = &stack[..stack.len() - usize::from(truncation.is_some())];
        let mut locations: Vec<_> = lock.into_iter().collect();
        for frame in walked {
            let location = self.location(frame)?;
            self.expansion.take_frames(self.dictionary.location(location).lines.len())?;
            locations.push(location);
        }
        locations.extend(truncation);
        let index = self.dictionary.add_stack(&locations);
        self.stacks.insert(key, index);
        Ok(index)
    }

    fn marker(&mut self, marker: Marker) -> Result<LocationIndex, ExpansionError> {
        if let Some(known) = self.markers.get(&marker) {
            return Ok(*known);
        }
        self.expansion.take_entry(marker.label().unwrap_or_default().len())?;
        let location = self.dictionary.add_marker(&marker);
        self.markers.insert(marker, location);
        Ok(location)
    }

    fn location(&mut self, frame: &Arc<DecodedFrame>) -> Result<LocationIndex, ExpansionError> {
        if let Some(known) = self.locations.get(&Arc::as_ptr(frame)) {
            return Ok(*known);
        }
        let mapped = frame.mapping.as_ref().map_or("", |mapping| &mapping.filename);
        self.expansion.take_entry(mapped.len())?;
        let mut lines = Vec::with_capacity(frame.lines.len());
        for DecodedLine { function, system_name, filename: path, line, column } in &frame.lines {
            self.expansion.take_entry(function.len() + system_name.len() + path.len())?;
            let [line, column] = [line, column].map(|number| u32::try_from(*number).unwrap_or(0));
            lines.push(self.dictionary.add_line(&SourceLine { function, system_name, path, line, column }));
        }
        let location = Location {
            mapping: self.mapping(frame),
            address: frame.address,
            frame_type: frame.frame_type().unwrap_or_default(),
            is_generated: frame.is_generated(),
            is_guessed: frame.is_guessed(),
            is_unnamed: false,
            marker: is_marker(frame).then_some(&Marker::Words),
            lines: &lines,
        };
        let location = match &lines[..] {
            [] => self.dictionary.add_unnamed_location(&location),
            _ => self.dictionary.add_location(&location),
        };
        self.locations.insert(Arc::as_ptr(frame), location);
        Ok(location)
    }

    fn mapping(&mut self, frame: &DecodedFrame) -> MappingIndex {
        match (&frame.mapping, frame.frame_type()) {
            (Some(mapping), _) => *self
                .mappings
                .entry(Arc::as_ptr(mapping))
                .or_insert_with(|| add_mapping(&mut self.dictionary, mapping)),
            (None, Some(FrameType::Kernel)) => self.dictionary.add_file("[kernel]"),
            (None, _) => MappingIndex::default(),
        }
    }
}

fn add_mapping(dictionary: &mut Dictionary, mapping: &DecodedMapping) -> MappingIndex {
    let DecodedMapping { memory_start, memory_limit, file_offset, ref filename, .. } = *mapping;
    let build_ids =
        BuildIds { htlhash: mapping.htlhash(), gnu: mapping.gnu_build_id(), go: mapping.go_build_id() };
    let filename = dictionary.add_string(filename);
    let attributes = dictionary.add_build_ids(&build_ids);
    dictionary.add_mapping(Mapping { memory_start, memory_limit, file_offset, filename, attributes })
}

/// The text of an attribute, if it has one.
fn text(attributes: &Attributes, key: &str) -> Option<Arc<str>> {
    match attributes.get(key)? {
        AttributeValue::Str(text) => Some(Arc::clone(text)),
        _ => None,
    }
}

/// Whether the name of a frame is words of a profiler. Other profilers and older versions don't say so: what looks like one has no
/// file there.
fn is_marker(frame: &DecodedFrame) -> bool {
    let looks_so = |name: &str| name.starts_with('[');
    frame.is_marker().unwrap_or_else(|| match (&frame.mapping, &*frame.lines) {
        (Some(mapping), []) => looks_so(&mapping.filename),
        (Some(_), _) => false,
        (None, _) => frame.function().is_some_and(looks_so),
    })
}

/// Whether a location stands for the frames that are missing for this reason.
fn is_truncation(location: &DecodedFrame, truncation: &Truncation) -> bool {
    location.is_marker() != Some(false)
        && location.mapping.is_none()
        && location.address == 0
        && location.lines.len() == 1
        && location.function() == Some(&*truncation.wire_name())
}
