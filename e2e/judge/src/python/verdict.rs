//! Decides whether the Python frames of stacks are those of a chain.
//!
//! A stack is judged if it has a frame of a chain's file. Its Python frames, by name and file, are then one of these:
//!
//! - equal: those of a chain, all of them, with the last on a line where it works.
//! - an edge: a frame is being entered or left. Either they are the first frames of a chain, and the last of them is on any
//!   line of its function; or all frames of a chain, and the last of them is on a line of its function where it doesn't work.
//! - in a library: the first frames of a chain, and then frames of files that no chain is judged by, as those of `asyncio`, or of
//!   modules that are being imported.
//! - wrong: anything else.
//!
//! Stacks in which the profiler says that it has no name for a function, or no frames, are counted as such and not judged.
//!
//! Lines are judged apart, of frames in stacks that are not wrong: the line of each caller in a chain is known, but for that of
//! the last frame of an edge.

use std::collections::BTreeMap;
use std::fmt;

use super::expected::{Chain, ChainFrame, Expected};
use super::native::{Activations, NativeFrames};
use super::stack::{Frame, FrameKind, Stack};

const EXAMPLES: usize = 10;

/// How many samples there are of which kind. Every figure counts samples, or their frames, not stacks.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Verdict {
    /// With a marker of the profiler instead of a function's name, or of frames.
    pub unnamed: u64,
    /// Without a frame of a chain's file. Of a program that was profiled from its gate to its end, there are none.
    pub unjudged: u64,
    /// Equal to a chain.
    pub equal: u64,
    /// A frame is being entered or left.
    pub edges: u64,
    /// A chain's function has called a library.
    pub in_library: u64,
    /// None of these.
    pub wrong: u64,
    /// Python frames that were judged.
    pub frames: u64,
    /// Of a function that the program doesn't have, or on a line outside of it. A line that is not known is none of these.
    pub wrong_names: u64,
    /// Frames whose line is known beforehand.
    pub lines: u64,
    /// Of these, on another line, or on none.
    pub wrong_lines: u64,
    /// What stands among the Python frames of equal stacks.
    pub native: NativeFrames,
    /// Whether activations of the interpreter's loop have Python frames, where the loop is shown.
    pub activations: Activations,
    /// Samples that are equal to a chain, by process, thread, and the name of the chain.
    pub equal_by_thread: BTreeMap<(u32, u32, String), u64>,
    /// The first wrong stacks and names, outermost frame first.
    pub examples: Vec<String>,
    /// The first stacks of each kind that are neither equal to a chain nor wrong.
    pub others: BTreeMap<&'static str, Vec<String>>,
}

/// What a stack is.
enum Kind<'a> {
    Equal(&'a Chain),
    Edge(&'a Chain),
    InLibrary(&'a Chain),
    Wrong,
}

impl Verdict {
    /// Judges stacks. Choose those of a process beforehand, where there are others.
    pub fn of<'a>(expected: &Expected, stacks: impl IntoIterator<Item = &'a Stack>) -> Self {
        let mut verdict = Self::default();
        stacks.into_iter().for_each(|stack| verdict.add(expected, stack));
        verdict
    }

    /// Samples that were judged.
    #[must_use]
    pub fn judged(&self) -> u64 {
        self.equal + self.edges + self.in_library + self.wrong
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.judged() + self.unjudged + self.unnamed
    }

    /// The share of all samples that are equal to a chain.
    #[must_use]
    pub fn equal_share(&self) -> f64 {
        share(self.equal, self.samples())
    }

    /// The share of all samples that the program can have: those that are equal to a chain, and those on the way into or out of
    /// one.
    #[must_use]
    pub fn possible_share(&self) -> f64 {
        share(self.equal + self.edges + self.in_library, self.samples())
    }

    /// The share of frames with a known line that are on it.
    #[must_use]
    pub fn right_line_share(&self) -> f64 {
        share(self.lines - self.wrong_lines, self.lines)
    }

    fn add(&mut self, expected: &Expected, stack: &Stack) {
        let count = stack.count;
        self.activations.add(stack, expected.version < (3, 11, 0));
        if stack.frames.iter().any(|frame| frame.kind == FrameKind::Marker) {
            self.unnamed += count;
            self.give_other("with a marker", stack);
            return;
        }
        let frames: Vec<&Frame> = stack.python_frames().map(|(_, frame)| frame).collect();
        if !frames.iter().any(|frame| expected.chain_files.contains(&frame.file)) {
            self.unjudged += count;
            self.give_other("without a frame of the program", stack);
            return;
        }
        self.frames += count * frames.len() as u64;
        for frame in &frames {
            if let Some(why) = wrong_name(expected, frame) {
                self.wrong_names += count;
                self.give_example(&format!("{}:{}: {why}", frame.name, frame.line), stack);
            }
        }
        match kind_of(expected, &frames) {
            Kind::Equal(chain) => {
                self.equal += count;
                self.judge_lines(&frames, &chain.frames, stack);
                self.native.add(stack, chain);
                *self.equal_by_thread.entry((stack.pid, stack.tid, chain.name.clone())).or_default() += count;
            }
            Kind::Edge(chain) => {
                self.edges += count;
                self.give_other("entering or leaving a frame", stack);
                self.judge_lines(&frames[..frames.len() - 1], &chain.frames, stack);
            }
            Kind::InLibrary(chain) => {
                self.in_library += count;
                self.give_other("in a library", stack);
                let common = common_frames(&frames, &chain.frames);
                self.judge_lines(&frames[..common.saturating_sub(1)], &chain.frames, stack);
            }
            Kind::Wrong => {
                self.wrong += count;
                self.give_example("no chain", stack);
            }
        }
    }

    fn judge_lines(&mut self, frames: &[&Frame], chain: &[ChainFrame], stack: &Stack) {
        for (frame, known) in frames.iter().zip(chain) {
            self.lines += stack.count;
            if !known.lines.contains(&frame.line) {
                self.wrong_lines += stack.count;
                self.give_example(&format!("{}:{}, not {:?}", frame.name, frame.line, known.lines), stack);
            }
        }
    }

    fn give_example(&mut self, why: &str, stack: &Stack) {
        if self.examples.len() >= EXAMPLES {
            return;
        }
        self.examples.push(format!("{why} ({} times): {}", stack.count, stack.summary()));
    }

    fn give_other(&mut self, what: &'static str, stack: &Stack) {
        let examples = self.others.entry(what).or_default();
        if examples.len() < EXAMPLES {
            examples.push(format!("{} times: {}", stack.count, stack.summary()));
        }
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

fn wrong_name(expected: &Expected, frame: &Frame) -> Option<&'static str> {
    match expected.lines_of(&frame.name, &frame.file) {
        None => Some("no such function"),
        Some(lines) if frame.line > 0 && !lines.contains(&frame.line) => Some("no line of this function"),
        Some(_) => None,
    }
}

/// How many frames are those of a chain, from the outermost on.
fn common_frames(frames: &[&Frame], chain: &[ChainFrame]) -> usize {
    let is_same = |(frame, known): &(&&Frame, &ChainFrame)| {
        frame.name == known.shown_name() && frame.file == known.file
    };
    frames.iter().zip(chain).take_while(is_same).count()
}

fn is_in_library(expected: &Expected, frame: &Frame) -> bool {
    frame.name == "<module>" || !expected.chain_files.contains(&frame.file)
}

fn kind_of<'a>(expected: &'a Expected, frames: &[&Frame]) -> Kind<'a> {
    let common = |chain: &&Chain| common_frames(frames, &chain.frames);
    // Of chains that begin alike, one that ends there.
    let nearest =
        expected.chains.iter().max_by_key(|chain| (common(chain), chain.frames.len() == frames.len()));
    let Some(chain) = nearest else { return Kind::Wrong };
    let known = common(&chain);
    if known == frames.len() && known == chain.frames.len() {
        let works = |frame: &Frame, at: &ChainFrame| frame.line == 0 || at.lines.contains(&frame.line);
        return match (frames.last(), chain.frames.last()) {
            (Some(leaf), Some(at)) if !works(leaf, at) => Kind::Edge(chain),
            _ => Kind::Equal(chain),
        };
    }
    let beyond = frames.get(known..).unwrap_or_default();
    match known {
        0 => Kind::Wrong,
        _ if beyond.is_empty() => Kind::Edge(chain),
        _ if beyond.iter().all(|frame| is_in_library(expected, frame)) => Kind::InLibrary(chain),
        _ => Kind::Wrong,
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} samples: {} equal ({:.2}%), {} entering or leaving a frame, {} in a library, {} wrong, {} without any frame \
             of the program, {} with an unknown function or missing frames",
            self.samples(),
            self.equal,
            100.0 * self.equal_share(),
            self.edges,
            self.in_library,
            self.wrong,
            self.unjudged,
            self.unnamed
        )?;
        writeln!(
            f,
            "{} of {} names wrong; {} of {} lines wrong",
            self.wrong_names, self.frames, self.wrong_lines, self.lines
        )?;
        write!(f, "{}{}", self.native, self.activations)?;
        self.examples.iter().try_for_each(|example| writeln!(f, "  {example}"))
    }
}

#[cfg(test)]
mod tests;
