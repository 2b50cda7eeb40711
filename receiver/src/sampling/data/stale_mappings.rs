//! Walks by mappings that were not there any more.
//!
//! When a process unmaps a library and maps another one in its place, walks go by the old one's table until the receiver
//! has heard of it and published what is there now: for some milliseconds. Such a stack may be wrong without any sign
//! of it, but for one: it has a frame in the library that had gone. So the samples of that time are looked at once more,
//! against what was mapped at their own time, and what is not true of a stack is left out.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use sidewinder_address::FileOffset;
use sidewinder_bpf::{Frame, FrameKind, Outcome, Sample, monotonic_ns};
use sidewinder_process::{FileId, FileTable, MappingSet, Pid, Process};

use crate::sampling::feed::Stack;
use crate::sampling::{Sampler, instruction_of, process_of};

/// Samples come in much later than this only if the receiver was stopped.
const REMEMBERED_NS: u64 = 10_000_000_000;

/// Processes that have mapped something in the place of something else.
#[derive(Debug, Default)]
pub(in crate::sampling) struct StaleMappings {
    /// Until when walks did not know of it: when it was published; `u64::MAX`: they don't yet.
    until_ns: HashMap<Pid, u64>,
    /// What the process mapped that was asked about last.
    shown: Option<Shown>,
}

impl StaleMappings {
    /// Takes note that something else is there from now on.
    pub(in crate::sampling) fn add(&mut self, pid: Pid) {
        self.until_ns.insert(pid, u64::MAX);
    }

    /// Takes note that a child was forked: until walks know of it, they go by what they know of its parent.
    pub(in crate::sampling) fn inherit(&mut self, parent: Pid, child: Pid, time_ns: u64) {
        if self.until_ns.get(&parent).is_some_and(|until_ns| time_ns <= *until_ns) {
            self.add(child);
        }
    }

    /// Takes note that walks have learnt of it.
    pub(in crate::sampling) fn published(&mut self, pid: Pid) {
        if let Some(until_ns) = self.until_ns.get_mut(&pid) {
            *until_ns = monotonic_ns();
        }
    }

    /// Forgets what no sample can come from any more.
    pub(in crate::sampling) fn sweep(&mut self) {
        let now_ns = monotonic_ns();
        self.until_ns.retain(|_, until_ns| until_ns.saturating_add(REMEMBERED_NS) > now_ns);
        self.shown = None;
    }

    fn affect(&self, sample: &Sample) -> bool {
        self.until_ns.get(&Pid(sample.pid)).is_some_and(|until_ns| sample.time_ns <= *until_ns)
    }

    /// The first frame in a file, or a part of one, that the process did not map.
    fn first_stale_frame(
        &mut self,
        frames: &[Frame],
        process: &Process,
        files: &mut FileTable,
    ) -> Option<usize> {
        let mappings = process.mapping_set();
        if self.shown.as_ref().is_none_or(|shown| !Arc::ptr_eq(&shown.mappings, mappings)) {
            self.shown = Some(Shown::by(process, files));
        }
        let shown = self.shown.as_ref()?;
        frames
            .iter()
            .position(|frame| matches!(frame.kind(), Some(FrameKind::Native { .. })) && !shown.hold(frame))
    }
}

/// The parts of files that are mapped.
#[derive(Debug)]
struct Shown {
    mappings: Arc<MappingSet>,
    parts: HashMap<FileId, Vec<Range<FileOffset>>>,
}

impl Shown {
    fn by(process: &Process, files: &mut FileTable) -> Self {
        let mut parts: HashMap<FileId, Vec<Range<FileOffset>>> = HashMap::new();
        for mapping in process.mappings() {
            if let Some(identified) = files.identify(process, mapping) {
                let end = FileOffset(mapping.file_offset.0.saturating_add(mapping.len_bytes()));
                parts.entry(identified.id).or_default().push(mapping.file_offset..end);
            }
        }
        Self { mappings: Arc::clone(process.mapping_set()), parts }
    }

    fn hold(&self, frame: &Frame) -> bool {
        let Some((file, at)) = instruction_of(frame) else { return false };
        self.parts.get(&file).is_some_and(|parts| parts.iter().any(|part| part.contains(&at)))
    }
}

impl Sampler<'_> {
    /// The sample and its stack as far as they are true of what was mapped. Processes are known up to the sample's time.
    pub(in crate::sampling) fn without_stale_frames(
        &mut self,
        sample: Sample,
        stack: Option<Arc<Stack>>,
    ) -> (Sample, Option<Arc<Stack>>) {
        if !self.stale_mappings.affect(&sample) {
            return (sample, stack);
        }
        let process = process_of(&sample, &self.registry, &self.departed);
        let Some(process) = process else { return (sample, stack) };
        let stale = stack
            .as_ref()
            .and_then(|stack| self.stale_mappings.first_stale_frame(&stack.frames, process, &mut self.files));
        let (Some(stale), Some(stack)) = (stale, &stack) else { return (sample, stack) };
        let frames = stack.frames.iter().take(stale).copied().collect();
        let outcome = Outcome::StaleMapping;
        self.corrections.note(&sample, outcome);
        (Sample { outcome, ..sample }, Some(self.stacks.intern(frames)))
    }
}
