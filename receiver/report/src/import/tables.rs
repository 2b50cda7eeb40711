//! The tables of a profile that is read from OTLP: its dictionary, threads and what samples have in common.

use std::collections::HashMap;
use std::sync::Arc;

use indexmap::IndexSet;
use sidewinder_naming::truncation_with_reason;
use sidewinder_otlp::builder::UNKNOWN_SERVICE;
use sidewinder_otlp::read::ReadSample;
use sidewinder_profile::{
    AttributeSetIndex, AttributeValue, Dictionary, DictionaryCopier, LinkIndex, Location, LocationIndex,
    MappingIndex, Marker, StackIndex, StatedAttributes, Truncation, key,
};
use sidewinder_render::{
    ExpansionBudget, ExpansionError, Profile, ProfileContainer, ProfileSample, ProfileThread, StateIndex,
    ThreadIndex, ThreadState,
};

use crate::report::LOCK_ID;
use crate::resource::key as resource_key;

/// The properties shared by the events that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ImportedEventKey {
    span: LinkIndex,
    context: SampleContext,
    stack: StackIndex,
}

/// What the attributes of a sample and its resource say.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct SampleContext {
    stated: StatedAttributes,
    thread: ThreadIndex,
    state: Option<StateIndex>,
    /// The lock that the thread waited for.
    lock: Option<LocationIndex>,
    /// What stands for the missing frames at the root of its stack.
    truncation: Option<LocationIndex>,
}

/// The tables of a profile under construction. They have what it reaches of the dictionary of its messages.
pub(super) struct ImportBuilder<'a> {
    from: &'a Dictionary,
    copier: DictionaryCopier<'a>,
    expansion: &'a mut ExpansionBudget,
    dictionary: Dictionary,
    threads: IndexSet<ProfileThread>,
    states: IndexSet<ThreadState>,
    /// By the attributes of the messages.
    contexts: HashMap<StatedAttributes, SampleContext>,
    markers: HashMap<Marker, LocationIndex>,
    /// By the stack of the messages, the lock that the thread waited for, and the truncation.
    stacks: HashMap<(StackIndex, [Option<LocationIndex>; 2]), StackIndex>,
}

impl<'a> ImportBuilder<'a> {
    /// A builder of a profile of messages with this dictionary.
    pub(super) fn new(from: &'a Dictionary, expansion: &'a mut ExpansionBudget) -> Self {
        Self {
            from,
            copier: DictionaryCopier::new(from),
            expansion,
            dictionary: Dictionary::default(),
            threads: IndexSet::new(),
            states: IndexSet::new(),
            contexts: HashMap::new(),
            markers: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    /// The profile with these tables.
    pub(super) fn into_profile(self, profile: Profile) -> Profile {
        Profile {
            dictionary: self.dictionary,
            threads: self.threads.into_iter().collect(),
            states: self.states.into_iter().collect(),
            ..profile
        }
    }

    /// What the events of a sample have in common.
    ///
    /// # Errors
    /// If the message expands to too much.
    pub(super) fn event_key(
        &mut self,
        resource: AttributeSetIndex,
        sample: &ReadSample,
    ) -> Result<ImportedEventKey, ExpansionError> {
        let stated = StatedAttributes { resource, sample: sample.attributes };
        let known = self.contexts.get(&stated).copied();
        let context = known.map_or_else(|| self.add_context(stated), Ok)?;
        let span = self.copier.link(&mut self.dictionary, sample.link);
        Ok(ImportedEventKey { span, context, stack: self.stack(sample.stack, context)? })
    }

    /// The events of a slice that have these properties.
    pub(super) fn sample(slice: u32, key: ImportedEventKey, count: u64) -> ProfileSample {
        let ImportedEventKey { span, context, stack } = key;
        let SampleContext { stated, thread, state, .. } = context;
        ProfileSample { slice, thread, span, state, stated, stack, count }
    }

    fn add_context(&mut self, stated: StatedAttributes) -> Result<SampleContext, ExpansionError> {
        let lock = self.text(stated.sample, LOCK_ID).map(Marker::Lock);
        let truncation = self.text(stated.sample, key::STACK_OUTCOME);
        let truncation = truncation.map(|reason| Marker::Truncated(truncation_with_reason(&reason).into()));
        let context = SampleContext {
            thread: self.thread(stated)?,
            state: self.state(stated.sample)?,
            lock: lock.map(|lock| self.marker(lock)).transpose()?,
            truncation: truncation.map(|truncation| self.marker(truncation)).transpose()?,
            stated: StatedAttributes {
                resource: self.copier.attribute_set(&mut self.dictionary, stated.resource),
                sample: self.copier.attribute_set(&mut self.dictionary, stated.sample),
            },
        };
        self.contexts.insert(stated, context);
        Ok(context)
    }

    fn thread(&mut self, stated: StatedAttributes) -> Result<ThreadIndex, ExpansionError> {
        let resource = |key: &str| self.text(stated.resource, key);
        let number = |set, key| {
            let number = self.value(set, key).and_then(AttributeValue::as_int);
            number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
        };
        let name = resource(resource_key::PROCESS_EXECUTABLE_NAME).or_else(|| resource(key::SERVICE_NAME));
        let thread = ProfileThread {
            process: name.filter(|name| **name != *UNKNOWN_SERVICE).unwrap_or_default(),
            pid: number(stated.resource, resource_key::PROCESS_PID),
            name: self.text(stated.sample, key::THREAD_NAME).unwrap_or_default(),
            tid: number(stated.sample, key::THREAD_ID),
            container: ProfileContainer::from_attributes(resource),
        };
        self.expansion
            .take_entry(thread.process.len() + thread.name.len() + thread.container.text_bytes())?;
        Ok(ThreadIndex(self.threads.insert_full(thread).0 as u32))
    }

    /// What the thread did or waited for, if the sample says so.
    fn state(&mut self, sample: AttributeSetIndex) -> Result<Option<StateIndex>, ExpansionError> {
        let Some(state) = self.text(sample, ThreadState::STATE_KEY) else { return Ok(None) };
        let cause = self.text(sample, ThreadState::CAUSE_KEY).unwrap_or_default();
        self.expansion.take_entry(state.len() + cause.len())?;
        let (index, _) = self.states.insert_full(ThreadState { state, cause });
        Ok(Some(StateIndex(index as u32)))
    }

    /// A lock that the thread waited for becomes the innermost frame.
    fn stack(&mut self, stack: StackIndex, context: SampleContext) -> Result<StackIndex, ExpansionError> {
        let SampleContext { lock, truncation, .. } = context;
        let key = (stack, [lock, truncation]);
        if let Some(index) = self.stacks.get(&key) {
            return Ok(*index);
        }
        let read = self.from.stack(stack);
        let truncation = truncation.filter(|index| {
            let marker = self.dictionary.location(*index).marker;
            let Some(Marker::Truncated(truncation)) = marker else { return false };
            read.last().is_some_and(|outermost| is_truncation(self.from, *outermost, truncation))
        });
        let mut locations: Vec<_> = lock.into_iter().collect();
        for location in &read[..read.len() - usize::from(truncation.is_some())] {
            self.expansion.take_frames(self.from.location(*location).lines.len())?;
            locations.push(self.location(*location)?);
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

    fn location(&mut self, index: LocationIndex) -> Result<LocationIndex, ExpansionError> {
        if let Some(copy) = self.copier.copied_location(index) {
            return Ok(copy);
        }
        for frame in self.from.frames_at(index).filter_map(|frame| self.from.frame(frame)) {
            // In output, each line has its names.
            let texts = [frame.function_name(), frame.system_name(), frame.path(), frame.binary_path()];
            self.expansion.take_entry(texts.map(str::len).iter().sum())?;
        }
        Ok(self.copier.location(&mut self.dictionary, index))
    }

    /// The value of an attribute in a set of the messages.
    fn value(&self, set: AttributeSetIndex, key: &str) -> Option<&'a AttributeValue> {
        let mut attributes = self.from.attributes_of(set);
        attributes.find(|(known, _)| *known == key).map(|(_, value)| value)
    }

    /// The text of an attribute, if it has one.
    fn text(&self, set: AttributeSetIndex, key: &str) -> Option<Arc<str>> {
        match self.value(set, key)? {
            AttributeValue::Str(text) => Some(Arc::clone(text)),
            _ => None,
        }
    }
}

/// Whether a location stands for the frames that are missing for this reason.
fn is_truncation(dictionary: &Dictionary, location: LocationIndex, truncation: &Truncation) -> bool {
    let Location { mapping, address, marker, lines, .. } = dictionary.location(location);
    let [line] = lines else { return false };
    marker.is_some()
        && (mapping, address) == (MappingIndex::default(), 0)
        && dictionary.string(dictionary.function(line.function).name) == truncation.wire_name()
}
