//! Folded stacks, as `folded` writes them and as FlameGraph's `stackcollapse-*` do.

use sidewinder_kind::Kind;

use super::error::ReadError;
use super::guess::guessed_kind;
use crate::profile::{
    Frame, FrameIndex, FrameKind, Measure, Profile, Sample, StackIndex, Thread, ThreadIndex,
};
use crate::tree::Numbered;

/// What FlameGraph's tools append to names, by the kind of code.
const SUFFIXES: [(&str, FrameKind); 3] =
    [("_[k]", FrameKind::Kernel), ("_[j]", FrameKind::Jit), ("_[i]", FrameKind::Native)];

/// Whether a line ends in a count.
pub(super) fn is_stack(line: &str) -> bool {
    parts(line).is_some()
}

fn parts(line: &str) -> Option<(&str, u64)> {
    let (stack, count) = line.trim_end().rsplit_once(' ')?;
    Some((stack, count.parse().ok()?))
}

/// Reads the lines. What one sample stands for is not told.
pub(super) fn read(title: &str, text: &str) -> Result<Profile, ReadError> {
    let measure = Measure::of(Kind::Counted { samples_per_second: 0 });
    let mut profile = Profile::empty(title.to_owned(), measure);
    let (mut names, mut threads) = (Numbered::default(), Numbered::default());
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let (stack, count) = parts(line).ok_or(ReadError::NoCount { line: number })?;
        let (process, frames) = split_process(stack);
        let frames = frames.rsplit(';').map(|name| FrameIndex(names.number(name)));
        profile.stacks.push(frames.collect());
        profile.samples.push(Sample {
            slice: 0,
            thread: ThreadIndex(threads.number(Thread {
                process: process.into(),
                pid: 0,
                name: "".into(),
                tid: 0,
                container: "".into(),
            })),
            span: None,
            stack: StackIndex(profile.stacks.len() as u32 - 1),
            count,
        });
    }
    profile.frames = names.all.into_iter().map(frame).collect();
    profile.threads = threads.all;
    Ok(profile)
}

/// The process, where a stack begins with it for sure, and its frames. It may be anywhere, but only what is no frame comes
/// before the mark of a stack that was cut.
fn split_process(stack: &str) -> (&str, &str) {
    match stack.split_once(';') {
        Some((process, frames))
            if guessed_kind(frames.split(';').next().unwrap_or_default(), "", "") == FrameKind::Marker =>
        {
            (process, frames)
        }
        _ => ("", stack),
    }
}

fn frame(label: &str) -> Frame {
    let (name, is_guessed) = Frame::parse_label(label);
    let found = SUFFIXES.iter().find_map(|(suffix, kind)| Some((name.strip_suffix(suffix)?, *kind)));
    let (name, kind) = found.unwrap_or_else(|| (name, guessed_kind(name, "", "")));
    Frame {
        name: name.to_owned(),
        is_named: true,
        system_name: String::new(),
        binary: None,
        kind,
        address: 0,
        path: String::new(),
        line: 0,
        is_guessed,
    }
}
