//! The tables of a profile that is read from OTLP: binaries, frames, stacks, threads and what samples have in common.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use sidewinder_otlp::builder::UNKNOWN_SERVICE;
use sidewinder_otlp::decode::{
    AttributeValue, Attributes, DecodedFrame, DecodedLine, DecodedMapping, DecodedProfile, DecodedSample,
};
use sidewinder_profile::Link;
use sidewinder_render::{
    AttributeSet, AttributeSetIndex, BinaryIndex, ExpansionBudget, ExpansionError, FrameIndex, FrameType,
    Marker, Profile, ProfileBinary, ProfileContainer, ProfileFrame, ProfileSample, ProfileThread, SpanIndex,
    StackIndex, StateIndex, ThreadIndex, ThreadState, Truncation,
};

use crate::collect::IndexedSet;
use crate::naming::truncation_with_reason;
use crate::report::LOCK_ID;

/// The properties shared by the events that are counted together. The thread and its state follow from the attributes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ImportedEventKey {
    span: Option<SpanIndex>,
    attributes: AttributeSetIndex,
    stack: StackIndex,
}

/// What the attributes of a sample and its resource say.
#[derive(Clone, Copy)]
struct SampleContext {
    thread: ThreadIndex,
    state: Option<StateIndex>,
    /// The lock that the thread waited for.
    lock: Option<FrameIndex>,
    /// What stands for the missing frames at the root of its stack.
    truncation: Option<FrameIndex>,
}

/// A decoded stack, with the lock that the thread waited for, and the truncation. `None` is the empty stack, which has no address of
/// its own.
type StackKey = (Option<*const Arc<DecodedFrame>>, [Option<FrameIndex>; 2]);

/// The tables of a profile under construction. Decoded profiles contain each frame, stack and set of attributes once, so that its
/// address identifies it.
pub(super) struct ImportBuilder<'a> {
    expansion: &'a mut ExpansionBudget,
    binaries: Vec<ProfileBinary>,
    frames: Vec<ProfileFrame>,
    stacks: Vec<Vec<FrameIndex>>,
    threads: Vec<ProfileThread>,
    spans: IndexedSet<Link>,
    binary_indices: HashMap<*const DecodedMapping, BinaryIndex>,
    kernel: Option<BinaryIndex>,
    /// The range of `frames` that each is: more than one where calls are inlined.
    frame_indices: HashMap<*const DecodedFrame, Range<u32>>,
    stack_indices: HashMap<StackKey, StackIndex>,
    marker_frames: HashMap<Marker, FrameIndex>,
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
            binaries: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            threads: Vec::new(),
            spans: IndexedSet::default(),
            binary_indices: HashMap::new(),
            kernel: None,
            frame_indices: HashMap::new(),
            stack_indices: HashMap::new(),
            marker_frames: HashMap::new(),
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
            binaries: self.binaries,
            frames: self.frames,
            stacks: self.stacks,
            threads: self.threads,
            spans: self.spans.to_spans(),
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
        let span = sample.link.map(|link| SpanIndex(self.spans.intern(link)));
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
            lock: lock.map(|lock| self.marker_frame(lock)).transpose()?,
            truncation: truncation.map(|truncation| self.marker_frame(truncation)).transpose()?,
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
        if let Some(index) = self.stack_indices.get(&key) {
            return Ok(*index);
        }
        let outermost = stack.last();
        let truncation = truncation.filter(|index| {
            let marker = self.frames.get(index.0 as usize).and_then(|frame| frame.marker.as_ref());
            let Some(Marker::Truncated(truncation)) = marker else { return false };
            outermost.is_some_and(|outermost| is_truncation(outermost, truncation))
        });
        let walked = &stack[..stack.len() - usize::from(truncation.is_some())];
        let mut frames: Vec<_> = lock.into_iter().collect();
        for frame in walked {
            let named = self.frames_of(frame)?;
            self.expansion.take_frames(named.len())?;
            frames.extend(named.map(FrameIndex));
        }
        frames.extend(truncation);
        let index = StackIndex(self.stacks.len() as u32);
        self.stacks.push(frames);
        self.stack_indices.insert(key, index);
        Ok(index)
    }

    fn marker_frame(&mut self, marker: Marker) -> Result<FrameIndex, ExpansionError> {
        if let Some(known) = self.marker_frames.get(&marker) {
            return Ok(*known);
        }
        let frame = ProfileFrame::from_marker(marker.clone());
        self.expansion.take_entry(frame.name.len())?;
        let index = FrameIndex(self.frames.len() as u32);
        self.frames.push(frame);
        self.marker_frames.insert(marker, index);
        Ok(index)
    }

    /// One frame for each inlined call, leaf first.
    fn frames_of(&mut self, frame: &Arc<DecodedFrame>) -> Result<Range<u32>, ExpansionError> {
        if let Some(frames) = self.frame_indices.get(&Arc::as_ptr(frame)) {
            return Ok(frames.clone());
        }
        let mapped = frame.mapping.as_ref().map_or("", |mapping| &mapping.filename);
        self.expansion.take_entry(mapped.len())?;
        let location = ProfileFrame {
            is_named: true,
            binary: self.binary(frame),
            frame_type: frame.frame_type().unwrap_or_default(),
            is_generated: frame.is_generated(),
            marker: is_marker(frame).then_some(Marker::Words),
            address: frame.address,
            is_guessed: frame.is_guessed(),
            ..ProfileFrame::default()
        };
        let first = self.frames.len() as u32;
        let outermost = frame.lines.len().saturating_sub(1);
        for (number, line) in frame.lines.iter().enumerate() {
            let DecodedLine { function, system_name, filename, line, column } = line;
            self.expansion.take_entry(function.len() + system_name.len() + filename.len())?;
            self.frames.push(ProfileFrame {
                name: Arc::clone(function),
                system_name: Arc::clone(system_name),
                path: Arc::clone(filename),
                line: u32::try_from(*line).unwrap_or(0),
                column: u32::try_from(*column).unwrap_or(0),
                is_inlined: number < outermost,
                ..location.clone()
            });
        }
        if frame.lines.is_empty() {
            let file = mapped.rsplit('/').next().unwrap_or_default();
            let name = format!("{file}+{:#x}", frame.address).into();
            self.frames.push(ProfileFrame { name, is_named: false, ..location });
        }
        let frames = first..self.frames.len() as u32;
        self.frame_indices.insert(Arc::as_ptr(frame), frames.clone());
        Ok(frames)
    }

    fn binary(&mut self, frame: &DecodedFrame) -> Option<BinaryIndex> {
        let binaries = &mut self.binaries;
        let mut add = |binary: ProfileBinary| {
            binaries.push(binary);
            BinaryIndex(binaries.len() as u32 - 1)
        };
        match (&frame.mapping, frame.frame_type()) {
            (Some(mapping), _) => Some(
                *self
                    .binary_indices
                    .entry(Arc::as_ptr(mapping))
                    .or_insert_with(|| add(mapped_binary(mapping))),
            ),
            (None, Some(FrameType::Kernel)) => Some(*self.kernel.get_or_insert_with(|| {
                add(ProfileBinary { path: "[kernel]".to_owned(), ..ProfileBinary::default() })
            })),
            (None, _) => None,
        }
    }
}

fn mapped_binary(mapping: &DecodedMapping) -> ProfileBinary {
    ProfileBinary {
        path: mapping.filename.to_string(),
        build_id: mapping.gnu_build_id().map(str::to_owned),
        go_build_id: mapping.go_build_id().map(str::to_owned),
        addresses: mapping.memory_start..mapping.memory_limit,
        file_offset: mapping.file_offset,
        htlhash: mapping.htlhash().map(str::to_owned),
    }
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
