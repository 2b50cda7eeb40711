//! Native frames among those of Python: that they stand where a function in C called back, that those of the interpreter's
//! loop are hidden or shown, and that each activation of the loop has its group of Python frames.

use std::fmt;

use super::expected::Chain;
use super::stack::{Frame, FrameKind, Stack};

/// The function that interprets, and its cold parts.
const LOOP: &str = "_PyEval_EvalFrameDefault";

impl Frame {
    /// Whether it is one of the interpreter's loop.
    #[must_use]
    pub fn is_loop(&self) -> bool {
        // An entry of the procedure linkage table that leads there isn't part of it.
        let is_called = self.name.starts_with(LOOP) && !self.name.ends_with("@plt");
        self.kind == FrameKind::Native && is_called
    }

    /// Whether it stands for the frames of an activation that has none.
    fn says_no_frames(&self) -> bool {
        self.kind == FrameKind::Marker && self.name == "[Python frames missing: no_frames]"
    }

    /// Whether it is a function of the interpreter or of an extension, other than the loop.
    fn is_interpreters(&self) -> bool {
        let file = self.file.rsplit('/').next().unwrap_or_default();
        let is_there =
            file.starts_with("libpython") || file.starts_with("python") || file.contains(".cpython-");
        self.kind == FrameKind::Native && is_there && !self.is_loop()
    }
}

const EXAMPLES: usize = 5;

/// Whether each activation of the loop has frames of Python, in samples where the loop is shown. This doesn't depend on names.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Activations {
    /// Samples with frames of the loop.
    pub samples: u64,
    /// Of these, with as many groups of Python frames as frames of the loop, each group behind its frame of the loop. Up to
    /// 3.10 a group has one frame. The innermost activation may have a marker instead: it has no frame when it begins and when
    /// it ends.
    pub matched: u64,
    /// Of these, with such a marker.
    pub at_edge: u64,
    /// The first few others.
    pub examples: Vec<String>,
}

impl Activations {
    /// Judges one more stack. Whether a group has exactly one frame depends on the version.
    pub fn add(&mut self, stack: &Stack, has_one_frame: bool) {
        if !stack.frames.iter().any(Frame::is_loop) {
            return;
        }
        self.samples += stack.count;
        let is_python = |frame: &Frame| frame.kind == FrameKind::Python;
        // Outermost first: what begins at a frame of the loop, or before the first.
        let mut pieces: Vec<&[Frame]> = stack.frames.chunk_by(|_, next| !next.is_loop()).collect();
        let is_edge = pieces.last().is_some_and(|piece| {
            let behind = piece.iter().skip(1).find(|frame| !frame.is_inlined);
            piece[0].is_loop() && behind.is_some_and(Frame::says_no_frames)
        });
        if is_edge {
            pieces.pop();
        }
        let is_matched = pieces.iter().all(|piece| {
            let of_loop = usize::from(piece.first().is_some_and(Frame::is_loop));
            let inlined = piece.iter().skip(of_loop).take_while(|frame| of_loop > 0 && frame.is_inlined);
            let (loops, rest) = piece.split_at(of_loop + inlined.count());
            let group = rest.iter().take_while(|frame| is_python(frame)).count();
            let others = rest.iter().skip(group).filter(|frame| is_python(frame)).count();
            let wanted = match (loops.is_empty(), has_one_frame) {
                (true, _) => 0..=0,
                (false, true) => 1..=1,
                (false, false) => 1..=usize::MAX,
            };
            wanted.contains(&group) && others == 0
        });
        if is_matched {
            self.matched += stack.count;
            self.at_edge += if is_edge { stack.count } else { 0 };
        } else if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{} times: {}", stack.count, stack.summary()));
        }
    }

    /// The share of samples in which each activation has its group.
    #[must_use]
    pub fn matched_share(&self) -> f64 {
        if self.samples == 0 { 0.0 } else { self.matched as f64 / self.samples as f64 }
    }
}

impl fmt::Display for Activations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, matched, at_edge, examples } = self;
        if *samples == 0 {
            return Ok(());
        }
        let share = 100.0 * self.matched_share();
        writeln!(
            f,
            "{matched} of {samples} samples ({share:.3}%) have a group of frames for each activation, {at_edge} of them \
             for all but one that begins or ends"
        )?;
        examples.iter().try_for_each(|example| writeln!(f, "  without: {example}"))
    }
}

/// What was found in the stacks that are equal to a chain.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct NativeFrames {
    /// Calls of Python functions by functions in C.
    pub calls_from_c: u64,
    /// Of these, with no native frame of the interpreter between caller and callee.
    pub without_native: u64,
    /// Frames of the loop.
    pub loops: u64,
    /// Stacks with fewer frames of the loop than the chain needs at least: one, and one more for each call from C.
    pub with_too_few_loops: u64,
    /// The first few calls from C that are among `without_native`.
    pub examples: Vec<String>,
}

impl NativeFrames {
    pub(super) fn add(&mut self, stack: &Stack, chain: &Chain) {
        let at: Vec<usize> = stack.python_frames().map(|(at, _)| at).collect();
        let mut loops_needed = 1;
        for (pair, callee) in at.windows(2).zip(chain.frames.iter().skip(1)) {
            if !callee.is_called_from_c {
                continue;
            }
            loops_needed += 1;
            self.calls_from_c += stack.count;
            let between = stack.frames.get(pair[0] + 1..pair[1]).unwrap_or_default();
            if !between.iter().any(Frame::is_interpreters) {
                self.without_native += stack.count;
                if self.examples.len() < EXAMPLES {
                    let names: Vec<_> = between.iter().map(|frame| &*frame.name).collect();
                    self.examples.push(format!("{} to {}: {names:?}", chain.name, callee.shown_name()));
                }
            }
        }
        let loops = stack.frames.iter().filter(|frame| frame.is_loop()).count() as u64;
        self.loops += stack.count * loops;
        self.with_too_few_loops += if loops < loops_needed { stack.count } else { 0 };
    }
}

impl fmt::Display for NativeFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { calls_from_c, without_native, loops, with_too_few_loops, examples } = self;
        writeln!(
            f,
            "{calls_from_c} calls from C, {without_native} of them without a native frame; {loops} frames of the loop, \
             too few of them in {with_too_few_loops} samples"
        )?;
        examples.iter().try_for_each(|example| writeln!(f, "  {example}"))
    }
}
