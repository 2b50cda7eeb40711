//! Two recordings in one profile, to be compared.

use std::collections::HashMap;
use std::time::Duration;

use crate::profile::{
    Binary, BinaryIndex, Frame, FrameIndex, Part, Profile, Sample, Span, SpanIndex, StackIndex, Thread,
    ThreadIndex,
};
use crate::tree::Numbered;

/// Both recordings, each as a part of one slice: what is compared is shares, not times.
#[must_use]
pub fn joined(before: &Profile, after: &Profile) -> Profile {
    let mut joined = Profile::empty(format!("{} → {}", before.title, after.title), after.measure.clone());
    let mut tables = Tables::default();
    for (part, slice) in [before, after].into_iter().zip(0..) {
        tables.add(part, slice, &mut joined.samples);
        joined.parts.push(Part { name: part.title.clone(), slices: slice..slice + 1 });
    }
    joined.start = after.start;
    joined.duration = Duration::ZERO;
    joined.binaries = tables.binaries.all;
    joined.frames = tables.frames.all;
    joined.stacks = tables.stacks.all;
    joined.threads = tables.threads.all;
    joined.spans = tables.spans.all;
    joined
}

#[derive(Default)]
struct Tables {
    binaries: Numbered<Binary>,
    frames: Numbered<Frame>,
    stacks: Numbered<Vec<FrameIndex>>,
    threads: Numbered<Thread>,
    spans: Numbered<Span>,
}

impl Tables {
    fn add(&mut self, part: &Profile, slice: u32, samples: &mut Vec<Sample>) {
        let binaries: Vec<_> =
            part.binaries.iter().map(|binary| self.binaries.number(binary.clone())).collect();
        let frames: Vec<_> = part
            .frames
            .iter()
            .map(|frame| {
                let binary = frame.binary.and_then(|at| binaries.get(at.0 as usize));
                self.frames.number(Frame { binary: binary.copied().map(BinaryIndex), ..frame.clone() })
            })
            .collect();
        let stacks: Vec<_> = part
            .stacks
            .iter()
            .map(|stack| {
                let frames = stack.iter().filter_map(|at| frames.get(at.0 as usize)).copied();
                self.stacks.number(frames.map(FrameIndex).collect())
            })
            .collect();
        let threads: Vec<_> = part.threads.iter().map(|thread| self.threads.number(thread.clone())).collect();
        let spans: Vec<_> = part.spans.iter().map(|span| self.spans.number(*span)).collect();
        let mut counts = HashMap::<Sample, u64>::new();
        for sample in &part.samples {
            let (Some(&stack), Some(&thread)) =
                (stacks.get(sample.stack.0 as usize), threads.get(sample.thread.0 as usize))
            else {
                continue;
            };
            let span = sample.span.and_then(|span| spans.get(span.0 as usize)).copied().map(SpanIndex);
            let (stack, thread) = (StackIndex(stack), ThreadIndex(thread));
            *counts.entry(Sample { slice, thread, span, stack, count: 0 }).or_default() += sample.count;
        }
        samples.extend(counts.into_iter().map(|(sample, count)| Sample { count, ..sample }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};

    #[test]
    fn what_both_have_is_held_once_and_every_event_is_kept() {
        let joined = joined(&sample(), &sample());
        assert_eq!(joined.total(), 28);
        assert_eq!((joined.frames.len(), joined.stacks.len(), joined.threads.len()), (5, 5, 1));
        assert_eq!(joined.samples.iter().filter(|sample| sample.slice == 1).count(), 5);
    }

    #[test]
    fn what_one_has_is_added() {
        let joined = joined(&sample(), &one_stack(&["main", "other"]));
        assert_eq!(joined.total(), 15);
        assert_eq!(joined.stacks.len(), 6);
        assert_eq!(joined.parts[1].slices, 1..2);
    }
}
