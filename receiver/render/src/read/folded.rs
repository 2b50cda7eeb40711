//! Folded stacks, as written by Sidewinder and by FlameGraph's `stackcollapse-*`.

use std::collections::HashMap;

use sidewinder_kind::Kind;
use sidewinder_profile::{
    Dictionary, FrameType, LinkIndex, Location, LocationIndex, Marker, SampleType, SourceLine,
    StatedAttributes, Table,
};

use super::error::ReadError;
use super::guess::{FrameHints, guess_frame_type, guess_marker};
use super::locations::add_location;
use crate::container::ProfileContainer;
use crate::expansion::ExpansionBudget;
use crate::label::{ParsedLabel, unescape_name};
use crate::profile::{Profile, ProfileSample, ProfileThread, ThreadIndex};

/// The suffixes that FlameGraph's tools append to names, with the type of the code, and whether it was generated at run time.
const SUFFIXES: [(&str, FrameType, bool); 3] = [
    ("_[k]", FrameType::Kernel, false),
    ("_[j]", FrameType::Native, true),
    ("_[i]", FrameType::Native, false),
];

/// Whether a line ends in a count.
pub(super) fn is_stack_line(line: &str) -> bool {
    split_count(line).is_some()
}

fn split_count(line: &str) -> Option<(&str, u64)> {
    let (stack, count) = line.trim_end().rsplit_once(' ')?;
    Some((stack, count.parse().ok()?))
}

/// Parses the lines. The format does not state what one sample represents.
pub(super) fn read(title: &str, text: &str, mut expansion: ExpansionBudget) -> Result<Profile, ReadError> {
    let measure = SampleType::from_kind(Kind::Aggregated { samples_per_second: 0 });
    let mut profile = Profile::new(title.to_owned(), measure);
    let (mut locations, mut threads) = (HashMap::new(), Table::<ThreadIndex, _>::default());
    for (line, number) in text.lines().zip(1..) {
        if line.trim().is_empty() {
            continue;
        }
        let (stack, count) = split_count(line).ok_or(ReadError::NoCount { line: number })?;
        let (process, frames) = split_process(stack);
        let depth = frames.split(';').count();
        expansion.take_frames(depth)?;
        let dictionary = &mut profile.dictionary;
        let mut stack = Vec::with_capacity(depth);
        stack.extend(
            frames
                .rsplit(';')
                .map(|label| *locations.entry(label).or_insert_with(|| labelled_location(dictionary, label))),
        );
        profile.samples.push(ProfileSample {
            slice: 0,
            thread: threads.intern(process),
            span: LinkIndex::default(),
            state: None,
            stated: StatedAttributes::default(),
            stack: dictionary.add_stack(&stack),
            count,
        });
    }
    let thread = |process: &str| ProfileThread {
        process: process.into(),
        pid: 0,
        name: "".into(),
        tid: 0,
        container: ProfileContainer::default(),
    };
    profile.threads = threads.into_values().into_iter().map(thread).collect();
    Ok(profile)
}

/// Splits the process name from the frames, if the stack certainly starts with it. Any stack may start with it, but before
/// the marker of a truncated stack there can only be a process name.
fn split_process(stack: &str) -> (&str, &str) {
    match stack.split_once(';') {
        Some((process, frames)) => {
            let outermost = ParsedLabel::new(frames.split(';').next().unwrap_or_default());
            match outermost.is_marker.then(|| guess_marker(outermost.name)) {
                Some(Marker::Truncated(_)) => (unescape_name(process), frames),
                _ => ("", stack),
            }
        }
        None => ("", stack),
    }
}

/// Adds the location that a label stands for.
fn labelled_location(dictionary: &mut Dictionary, label: &str) -> LocationIndex {
    let ParsedLabel { name, is_guessed, is_marker } = ParsedLabel::new(label);
    let suffixed = SUFFIXES.iter().find_map(|(suffix, frame_type, is_generated)| {
        Some((name.strip_suffix(suffix)?, *frame_type, *is_generated))
    });
    let function = if is_marker { "" } else { name };
    let guessed = || (name, guess_frame_type(FrameHints { name: function, ..FrameHints::default() }), false);
    let (name, frame_type, is_generated) = suffixed.unwrap_or_else(guessed);
    let marker = is_marker.then(|| guess_marker(name));
    let line = dictionary.add_line(&SourceLine { function: name, ..SourceLine::default() });
    add_location(
        dictionary,
        &Location {
            frame_type,
            is_generated,
            is_guessed,
            marker: marker.as_ref(),
            lines: &[line],
            ..Location::default()
        },
    )
}
