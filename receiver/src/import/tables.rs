//! The tables of a profile that is read from OTLP: binaries, frames, stacks, threads and what samples have in common.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use sidewinder_otlp::FrameType;
use sidewinder_otlp::builder::{Link, UNKNOWN_SERVICE};
use sidewinder_otlp::decode::{
    Attributes, DecodedFrame, DecodedLine, DecodedProfile, DecodedSample, DecodedValue,
};
use sidewinder_render::{
    BinaryIndex, ExpansionBudget, ExpansionError, FrameCategory, FrameIndex, Profile, ProfileBinary,
    ProfileContainer, ProfileFrame, ProfileThread, SpanIndex, StackIndex, StateIndex, ThreadIndex,
    ThreadState,
};

use crate::collect::{IndexedSet, LOCK_MARKER, lock_marker};
use crate::naming::marker_summary;
use crate::report::LOCK_ID;

/// The properties shared by the events that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct ImportedEventKey {
    pub(super) thread: ThreadIndex,
    pub(super) span: Option<SpanIndex>,
    pub(super) state: Option<StateIndex>,
    pub(super) stack: StackIndex,
}

/// What the attributes of a sample and its resource say.
#[derive(Clone, Copy)]
struct SampleContext {
    thread: ThreadIndex,
    state: Option<StateIndex>,
    /// The lock that the thread waited for.
    lock: Option<FrameIndex>,
}

/// The tables of a profile under construction. Decoded profiles contain each frame, stack and set of attributes once, so that its
/// address identifies it.
pub(super) struct ImportBuilder<'a> {
    expansion: &'a mut ExpansionBudget,
    binaries: Vec<ProfileBinary>,
    frames: Vec<ProfileFrame>,
    stacks: Vec<Vec<FrameIndex>>,
    threads: Vec<ProfileThread>,
    spans: IndexedSet<Link>,
    binary_indices: HashMap<Arc<str>, BinaryIndex>,
    /// The range of `frames` that each is: more than one where calls are inlined.
    frame_indices: HashMap<*const DecodedFrame, Range<u32>>,
    /// With the lock that the thread waited for. `None` is the empty stack, which has no address of its own.
    stack_indices: HashMap<(Option<*const Arc<DecodedFrame>>, Option<FrameIndex>), StackIndex>,
    lock_frames: HashMap<Arc<str>, FrameIndex>,
    thread_indices: HashMap<ProfileThread, ThreadIndex>,
    states: Vec<ThreadState>,
    state_indices: HashMap<ThreadState, StateIndex>,
    /// By the attributes of the resource and of the sample.
    contexts: HashMap<[*const Attributes; 2], SampleContext>,
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
            frame_indices: HashMap::new(),
            stack_indices: HashMap::new(),
            lock_frames: HashMap::new(),
            thread_indices: HashMap::new(),
            states: Vec::new(),
            state_indices: HashMap::new(),
            contexts: HashMap::new(),
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
        let attributes = [&profile.resource, &sample.attributes].map(Arc::as_ptr);
        let context = match self.contexts.get(&attributes) {
            Some(known) => *known,
            None => {
                let context = self.context(profile, sample)?;
                self.contexts.insert(attributes, context);
                context
            }
        };
        Ok(ImportedEventKey {
            thread: context.thread,
            span: sample.link.map(|link| SpanIndex(self.spans.intern(link))),
            state: context.state,
            stack: self.stack(&sample.stack, context.lock)?,
        })
    }

    fn context(
        &mut self,
        profile: &DecodedProfile,
        sample: &DecodedSample,
    ) -> Result<SampleContext, ExpansionError> {
        let lock = text(&sample.attributes, LOCK_ID);
        Ok(SampleContext {
            thread: self.thread(profile, sample)?,
            state: self.state(sample)?,
            lock: lock.map(|lock| self.lock_frame(&lock)).transpose()?,
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
            pid: to_u32(profile.resource.get("process.pid").and_then(DecodedValue::as_int)),
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
        lock: Option<FrameIndex>,
    ) -> Result<StackIndex, ExpansionError> {
        let key = ((!stack.is_empty()).then_some(stack.as_ptr()), lock);
        if let Some(index) = self.stack_indices.get(&key) {
            return Ok(*index);
        }
        let mut frames: Vec<_> = lock.into_iter().collect();
        for frame in stack.iter() {
            let named = self.frames_of(frame)?;
            self.expansion.take_frames(named.len())?;
            frames.extend(named.map(FrameIndex));
        }
        let index = StackIndex(self.stacks.len() as u32);
        self.stacks.push(frames);
        self.stack_indices.insert(key, index);
        Ok(index)
    }

    fn lock_frame(&mut self, lock: &Arc<str>) -> Result<FrameIndex, ExpansionError> {
        self.expansion.take_entry(lock.len())?;
        let frames = &mut self.frames;
        Ok(*self.lock_frames.entry(Arc::clone(lock)).or_insert_with(|| {
            frames.push(ProfileFrame {
                name: lock_marker(lock).into(),
                is_named: true,
                system_name: Arc::default(),
                binary: None,
                kind: FrameCategory::Lock,
                address: 0,
                path: Arc::default(),
                line: 0,
                is_guessed: false,
                is_marker: true,
            });
            FrameIndex(frames.len() as u32 - 1)
        }))
    }

    /// One frame for each inlined call, leaf first.
    fn frames_of(&mut self, frame: &Arc<DecodedFrame>) -> Result<Range<u32>, ExpansionError> {
        if let Some(frames) = self.frame_indices.get(&Arc::as_ptr(frame)) {
            return Ok(frames.clone());
        }
        let mapped = frame.mapping.as_ref().map_or("", |mapping| &mapping.filename);
        self.expansion.take_entry(mapped.len())?;
        let binary = self.binary(frame);
        let is_marker = is_marker(frame);
        let is_placeholder = is_placeholder(frame);
        let kind = category(frame);
        let first = self.frames.len() as u32;
        let new = |name: Arc<str>| ProfileFrame {
            name,
            is_named: true,
            system_name: Arc::default(),
            binary,
            kind,
            address: frame.address,
            path: Arc::default(),
            line: 0,
            is_guessed: frame.is_guessed(),
            is_marker,
        };
        for line in &frame.lines {
            let DecodedLine { function, system_name, filename, line, .. } = line;
            self.expansion.take_entry(function.len() + system_name.len() + filename.len())?;
            let summary = marker_summary(function).filter(|_| is_placeholder);
            self.frames.push(ProfileFrame {
                system_name: Arc::clone(system_name),
                path: Arc::clone(filename),
                line: u32::try_from(*line).unwrap_or(0),
                ..new(summary.map_or_else(|| Arc::clone(function), Into::into))
            });
        }
        if frame.lines.is_empty() {
            let file = mapped.rsplit('/').next().unwrap_or_default();
            let name = format!("{file}+{:#x}", frame.address);
            self.frames.push(ProfileFrame { is_named: false, ..new(name.into()) });
        }
        let frames = first..self.frames.len() as u32;
        self.frame_indices.insert(Arc::as_ptr(frame), frames.clone());
        Ok(frames)
    }

    fn binary(&mut self, frame: &DecodedFrame) -> Option<BinaryIndex> {
        let mapping = frame.mapping.as_ref();
        let path = match (mapping, frame.frame_type()) {
            (Some(mapping), _) => Arc::clone(&mapping.filename),
            (None, Some(FrameType::Kernel)) => "[kernel]".into(),
            (None, _) => return None,
        };
        let binaries = &mut self.binaries;
        Some(*self.binary_indices.entry(path).or_insert_with_key(|path| {
            binaries.push(ProfileBinary {
                path: path.to_string(),
                build_id: mapping.and_then(|mapping| mapping.gnu_build_id()).map(str::to_owned),
                htlhash: mapping.and_then(|mapping| mapping.htlhash()).map(str::to_owned),
            });
            BinaryIndex(binaries.len() as u32 - 1)
        }))
    }
}

/// The text of an attribute, if it has one.
fn text(attributes: &Attributes, key: &str) -> Option<Arc<str>> {
    match attributes.get(key)? {
        DecodedValue::Str(text) => Some(Arc::clone(text)),
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

/// Whether a frame is words that stand for no code.
fn is_placeholder(frame: &DecodedFrame) -> bool {
    is_marker(frame) && frame.mapping.is_none() && frame.address == 0
}

fn category(frame: &DecodedFrame) -> FrameCategory {
    if is_placeholder(frame) {
        let is_lock = frame.function().is_some_and(|name| name.starts_with(LOCK_MARKER));
        return if is_lock { FrameCategory::Lock } else { FrameCategory::Marker };
    }
    match frame.frame_type() {
        Some(FrameType::Kernel) => FrameCategory::Kernel,
        Some(FrameType::Rust) => FrameCategory::Rust,
        Some(FrameType::Go) => FrameCategory::Go,
        Some(FrameType::CPython) => FrameCategory::Python,
        Some(FrameType::Native) | None => FrameCategory::Native,
        Some(_) => FrameCategory::Jit,
    }
}
