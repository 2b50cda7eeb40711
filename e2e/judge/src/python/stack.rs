//! Samples with their frames, whatever they were read from.

use std::path::Path;

use anyhow::Result;
use sidewinder_e2e_support::received::Received;
use sidewinder_otlp::decode::{AttributeValue, DecodedFrame, DecodedProfile};
use sidewinder_otlp::{FrameType, key};
use sidewinder_profile::{Frame as ProfileFrame, Marker};

/// Whose a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// A Python function's.
    Python,
    /// Machine code's.
    Native,
    /// The kernel's.
    Kernel,
    /// The profiler's: where frames are missing.
    Marker,
}

/// One frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Whose it is.
    pub kind: FrameKind,
    /// The function.
    pub name: String,
    /// The source file; of native code, the binary.
    pub file: String,
    /// The line; 0 if unknown.
    pub line: u32,
    /// Whether the compiler put its code into the function of the frame before it: both are one native frame.
    pub is_inlined: bool,
}

impl Frame {
    /// Whether it is code of the interpreter's own, which is only shown on request: it has one text for its name and its file.
    fn is_internal(&self) -> bool {
        self.kind == FrameKind::Python && self.name == self.file
    }
}

/// A sample, or several that are alike.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    /// The process.
    pub pid: u32,
    /// The thread.
    pub tid: u32,
    /// How many samples.
    pub count: u64,
    /// Outermost first.
    pub frames: Vec<Frame>,
    /// Whether frames are missing beyond the outermost one, which is a marker then.
    pub is_truncated: bool,
}

impl Stack {
    /// The frames of the program's Python functions, each with its index in the stack.
    pub fn python_frames(&self) -> impl DoubleEndedIterator<Item = (usize, &Frame)> {
        let is_programs = |frame: &Frame| frame.kind == FrameKind::Python && !frame.is_internal();
        self.frames.iter().enumerate().filter(move |(_, frame)| is_programs(frame))
    }

    /// All frames in a line: Python's with their lines, others in parentheses.
    #[must_use]
    pub fn summary(&self) -> String {
        let name = |frame: &Frame| match frame.kind {
            FrameKind::Python => format!("{}:{}", frame.name, frame.line),
            _ => format!("({})", frame.name),
        };
        self.frames.iter().map(name).collect::<Vec<_>>().join(" ")
    }
}

/// Reads pprof, as `record -o out.pb.gz` writes it.
///
/// # Errors
/// When it is something else.
pub fn from_pprof(path: &Path) -> Result<Vec<Stack>> {
    let file = std::fs::File::open(path)?;
    let profile = sidewinder_render::read("", file, None, &mut sidewinder_render::NoNames)?;
    let stacks = profile.samples.iter().map(|sample| {
        let thread = profile.threads.get(sample.thread.0 as usize);
        let (pid, tid) = thread.map_or((0, 0), |thread| (thread.pid, thread.tid));
        let frames = || {
            let frames = profile.dictionary.frames_of(sample.stack).rev();
            frames.filter_map(|index| profile.dictionary.frame(index))
        };
        let is_truncation =
            |frame: ProfileFrame<'_>| matches!(frame.location.marker, Some(Marker::Truncated(_)));
        Stack {
            pid,
            tid,
            count: sample.count,
            frames: frames().map(|frame| of_pprof(&frame)).collect(),
            is_truncated: frames().next().is_some_and(is_truncation),
        }
    });
    Ok(stacks.collect())
}

/// pprof doesn't tell languages apart: a frame is Python's if it lies in no binary and has a source file.
fn of_pprof(frame: &ProfileFrame<'_>) -> Frame {
    let (name, binary) = (frame.name(), frame.binary_path());
    let is_marker = binary.is_empty() && frame.location.marker.is_some();
    let is_python = binary.is_empty() && !frame.path().is_empty() && !is_marker;
    let kind = match frame.location.frame_type {
        _ if is_python => FrameKind::Python,
        FrameType::Kernel => FrameKind::Kernel,
        _ if is_marker => FrameKind::Marker,
        _ => FrameKind::Native,
    };
    let file = if is_python { frame.path() } else { binary };
    Frame {
        kind,
        name: name.into_owned(),
        file: file.to_owned(),
        line: frame.line.line,
        is_inlined: kind == FrameKind::Native && frame.is_inlined,
    }
}

/// Takes stacks out of OTLP, which says of each frame of what language it is.
#[must_use]
pub fn from_otlp(received: &Received) -> Vec<Stack> {
    from_otlp_since(received, 0)
}

/// The same of the samples that were taken at a time or later, in nanoseconds since 1970.
#[must_use]
pub fn from_otlp_since(received: &Received, since_ns: u64) -> Vec<Stack> {
    let of_profile = |profile: &DecodedProfile| {
        let pid = number(profile.resource.get("process.pid").and_then(AttributeValue::as_int));
        let stacks = profile.samples.iter().map(|sample| Stack {
            pid,
            tid: number(sample.thread_id()),
            count: sample.timestamps_unix_ns.iter().filter(|at_ns| **at_ns >= since_ns).count() as u64,
            frames: sample.stack.iter().rev().flat_map(|frame| of_otlp(frame)).collect(),
            is_truncated: sample.outcome().is_some(),
        });
        stacks.collect::<Vec<_>>()
    };
    received.profiles.iter().flat_map(of_profile).filter(|stack| stack.count > 0).collect()
}

fn number(number: Option<i64>) -> u32 {
    number.and_then(|number| u32::try_from(number).ok()).unwrap_or(0)
}

/// The function at the address, and those that were inlined into it.
fn of_otlp(frame: &DecodedFrame) -> Vec<Frame> {
    let kind = match frame.frame_type() {
        Some(FrameType::CPython) => FrameKind::Python,
        Some(FrameType::Kernel) => FrameKind::Kernel,
        None if !frame.attributes.contains_key(key::FRAME_TYPE) && frame.mapping.is_none() => {
            FrameKind::Marker
        }
        _ => FrameKind::Native,
    };
    let binary = frame.mapping.as_ref().map_or("", |mapping| &*mapping.filename);
    let has_marker = frame.is_marker() == Some(true) && !frame.lines.is_empty();
    let of_line = |name: &str, source: &str, line: i64| Frame {
        kind: if has_marker { FrameKind::Marker } else { kind },
        name: name.to_owned(),
        file: if kind == FrameKind::Python { source } else { binary }.to_owned(),
        line: u32::try_from(line).unwrap_or(0),
        is_inlined: false,
    };
    if frame.lines.is_empty() {
        return vec![of_line("", "", 0)];
    }
    let lines = frame.lines.iter().rev().enumerate();
    lines
        .map(|(depth, line)| Frame {
            is_inlined: depth > 0,
            ..of_line(&line.function, &line.filename, line.line)
        })
        .collect()
}
