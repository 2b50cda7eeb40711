//! Named stacks.

use std::collections::{HashMap, HashSet};

use sidewinder_bpf::{Outcome, RawFrame, RawFrameKind};
use sidewinder_message::{SampleEvent, Stack, is_process_specific};
use sidewinder_process::ProcessKey;
use sidewinder_profile::{Dictionary, LocationIndex, Marker, StackIndex};

use super::location::Locations;
use super::{Namer, missing_stack, truncation};

/// A walk of a stack, to be named.
#[derive(Clone, Copy, Debug)]
pub struct WalkedStack<'a> {
    /// The process whose stack it is.
    pub process: ProcessKey,
    /// `None`: its record never arrived.
    pub stack: Option<&'a Stack>,
    /// How the walk ended.
    pub outcome: Outcome,
    /// When the code ran, by `CLOCK_MONOTONIC`.
    pub at_ns: u64,
}

impl<'a> From<&'a SampleEvent> for WalkedStack<'a> {
    fn from(event: &'a SampleEvent) -> Self {
        let SampleEvent { process, outcome, time_ns, .. } = *event;
        Self { process, stack: event.stack.as_deref(), outcome, at_ns: time_ns }
    }
}

/// Names stacks, and remembers which stack of the dictionary each is.
#[derive(Debug, Default)]
pub struct StackNames {
    locations: Locations,
    /// `None`: the frame is omitted.
    frames: HashMap<RawFrame, Option<LocationIndex>>,
    /// Of frames that are valid in one process only, and whose address may hold other code later.
    process_frames: HashMap<(ProcessKey, RawFrame), Option<LocationIndex>>,
    stacks: HashMap<StackKey, StackIndex>,
}

/// A stack's ID and the outcome of its walk; with the process if the stack has frames that are valid in one process only.
type StackKey = (Option<u64>, Outcome, Option<ProcessKey>);

impl StackNames {
    /// The stack that a walk found. What stands for its missing frames is its outermost location.
    pub fn stack(
        &mut self,
        dictionary: &mut Dictionary,
        namer: &mut Namer,
        walked: WalkedStack<'_>,
    ) -> StackIndex {
        let WalkedStack { process, stack, outcome, at_ns } = walked;
        let process_scope = stack.filter(|stack| stack.is_process_specific()).map(|_| process);
        let key = (stack.map(|stack| stack.id), outcome, process_scope);
        if let Some(known) = self.stacks.get(&key) {
            return *known;
        }
        if let Some(stack) = stack {
            namer.read_functions(process, stack);
        }
        let frames = stack.map_or(&[][..], |stack| &stack.frames);
        let (mut locations, mut is_final) = (Vec::with_capacity(frames.len() + 1), true);
        for frame in frames {
            let location = self.known_location(process, *frame).unwrap_or_else(|| {
                let (location, is_kept) = self.name(dictionary, namer, (process, *frame), at_ns);
                is_final &= is_kept;
                location
            });
            locations.extend(location);
        }
        let truncation = if stack.is_some() { truncation(outcome) } else { Some(missing_stack()) };
        let truncation = truncation.map(|truncation| Marker::Truncated(truncation.into()));
        locations.extend(truncation.map(|truncation| dictionary.add_marker(&truncation)));
        let index = dictionary.add_stack(&locations);
        if is_final {
            self.stacks.insert(key, index);
        }
        index
    }

    /// Names the frames of a walk that have a meaning only within its process, while it has what they refer to.
    pub fn name_process_specific(
        &mut self,
        dictionary: &mut Dictionary,
        namer: &mut Namer,
        walked: WalkedStack<'_>,
    ) {
        let WalkedStack { process, stack, at_ns, .. } = walked;
        let Some(stack) = stack.filter(|stack| stack.is_process_specific()) else { return };
        namer.read_functions(process, stack);
        for frame in stack.frames.iter().filter(|frame| is_process_specific(frame)) {
            if self.known_location(process, *frame).is_none() {
                self.name(dictionary, namer, (process, *frame), at_ns);
            }
        }
    }

    /// Names the frames of these stacks that are in files, file by file in the order of addresses.
    pub fn name_files<'a>(
        &mut self,
        dictionary: &mut Dictionary,
        namer: &mut Namer,
        stacks: impl Iterator<Item = &'a Stack>,
    ) {
        let is_unknown = |frame: &&RawFrame| {
            matches!(frame.kind(), Some(RawFrameKind::Native { .. }))
                && !is_process_specific(frame)
                && !self.frames.contains_key(frame)
        };
        let unknown: HashSet<RawFrame> =
            stacks.flat_map(|stack| &*stack.frames).filter(is_unknown).copied().collect();
        namer.resolve_in_files(unknown, |frame, named| {
            if !named.is_provisional {
                self.frames.insert(frame, Some(self.locations.add(dictionary, &named)));
            }
        });
    }

    /// The location of a frame that has been named; within, `None` if it is omitted.
    fn known_location(&self, process: ProcessKey, frame: RawFrame) -> Option<Option<LocationIndex>> {
        let known = if is_process_specific(&frame) {
            self.process_frames.get(&(process, frame))
        } else {
            self.frames.get(&frame)
        };
        known.copied()
    }

    /// Names a frame, and returns its location, `None` if it is omitted, and whether the name is kept: not if there may be a better one
    /// the next time.
    fn name(
        &mut self,
        dictionary: &mut Dictionary,
        namer: &mut Namer,
        (process, frame): (ProcessKey, RawFrame),
        at_ns: u64,
    ) -> (Option<LocationIndex>, bool) {
        let named = namer.resolve(process, frame, at_ns);
        let location = named.as_ref().map(|named| self.locations.add(dictionary, named));
        if named.is_some_and(|named| named.is_provisional) {
            return (location, false);
        }
        if is_process_specific(&frame) {
            self.process_frames.insert((process, frame), location);
        } else {
            self.frames.insert(frame, location);
        }
        (location, true)
    }

    /// Names all frames again: there may be better names, or they are for another dictionary.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Names again what is valid in one process only.
    pub fn clear_process_specific(&mut self) {
        self.process_frames.clear();
        self.stacks.retain(|(_, _, process), _| process.is_none());
    }

    /// Forgets the stacks, not their frames.
    pub(super) fn clear_stacks(&mut self) {
        self.stacks.clear();
    }

    /// The approximate size in bytes.
    pub fn bytes(&self) -> usize {
        let entries =
            entry_bytes(&self.frames) + entry_bytes(&self.process_frames) + entry_bytes(&self.stacks);
        // A hash map is three quarters full on average.
        entries / 3 * 4
    }
}

fn entry_bytes<K, V>(map: &HashMap<K, V>) -> usize {
    size_of::<(K, V)>() * map.len()
}
