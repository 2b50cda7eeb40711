//! What became of the frames of Python in a program's stacks.

use std::collections::BTreeMap;
use std::fmt;

use sidewinder_e2e_judge::python::{Activations, Frame, FrameKind, Stack, from_otlp_since};
use sidewinder_e2e_support::received::Received;

/// Of the samples of a program of Python.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PythonFrames {
    /// Samples with frames of the interpreter's loop.
    pub samples: u64,
    /// Frames of Python.
    pub frames: u64,
    /// Samples with frames that say what is not known, by their text.
    pub marked: BTreeMap<String, u64>,
    /// Samples with any of them.
    pub marked_samples: u64,
    /// Whether each activation of the loop has its group of frames, in the samples without markers.
    pub activations: Activations,
}

impl PythonFrames {
    /// Judges the samples taken at a time or later. The loop has to be among the frames.
    pub(crate) fn since(received: &Received, since_ns: u64) -> Self {
        let mut found = Self::default();
        from_otlp_since(received, since_ns).iter().for_each(|stack| found.add(stack));
        found
    }

    fn add(&mut self, stack: &Stack) {
        if !stack.frames.iter().any(Frame::is_loop) {
            return;
        }
        self.samples += stack.count;
        self.frames += stack.count * stack.python_frames().count() as u64;
        // Those of stacks that were cut are counted by the outcome.
        let is_marker = |name: &str| {
            ["[Python frames missing", "[Python not detected yet", "[unknown Python"]
                .iter()
                .any(|marker| name.starts_with(marker))
        };
        let mut markers: Vec<&str> = stack
            .frames
            .iter()
            .filter(|frame| frame.kind == FrameKind::Marker && is_marker(&frame.name))
            .map(|frame| &*frame.name)
            .collect();
        markers.sort_unstable();
        markers.dedup();
        if markers.is_empty() {
            self.activations.add(stack, false);
            return;
        }
        self.marked_samples += stack.count;
        for marker in markers {
            *self.marked.entry(marker.to_owned()).or_default() += stack.count;
        }
    }

    /// The share of samples in which all functions are known and none is missing.
    #[must_use]
    pub fn known_share(&self) -> f64 {
        if self.samples == 0 { 1.0 } else { 1.0 - self.marked_samples as f64 / self.samples as f64 }
    }
}

impl fmt::Display for PythonFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, frames, marked, activations, .. } = self;
        write!(
            f,
            "{samples} samples of Python with {frames} frames, all known in {:.3}%, a group for each activation in {:.3}% of \
             these",
            100.0 * self.known_share(),
            100.0 * activations.matched_share(),
        )?;
        for (marker, count) in marked {
            write!(f, "; {count} x {marker}")?;
        }
        activations.examples.iter().try_for_each(|example| write!(f, "\n  without: {example}"))
    }
}
