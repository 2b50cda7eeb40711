//! Folded stacks: one line per stack, root first, frames separated by `;`, followed by the number of events.
//!
//! Source: Brendan Gregg's FlameGraph, `stackcollapse*.pl`; kernel frames end in `_[k]` as there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{self, Write};

use sidewinder_profile::{Frame, Index as _};

use crate::escape::escaped;
use crate::label::escape_name;
use crate::names::DisplayNames;
use crate::profile::{Profile, ProfileSample, ProfileThread};

/// Writes the stacks in alphabetical order, with equal ones merged.
pub(crate) fn write(profile: &Profile, names: &DisplayNames, out: &mut impl Write) -> io::Result<()> {
    for line in lines(profile, names) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// The lines, without line terminators.
pub(crate) fn lines(profile: &Profile, names: &DisplayNames) -> impl Iterator<Item = String> + use<> {
    let frames: Vec<_> = profile.dictionary.frames().map(|frame| frame_name(&frame, names)).collect();
    let mut merged = BTreeMap::<String, u64>::new();
    for sample in profile.samples_without_time() {
        let count = merged.entry(line(profile, &frames, &sample)).or_default();
        *count = count.saturating_add(sample.count);
    }
    merged.into_iter().map(|(stack, count)| format!("{stack} {count}"))
}

/// A sample's line, with these names of frames.
fn line(profile: &Profile, frames: &[String], sample: &ProfileSample) -> String {
    let process = profile.thread_of(sample).map(|thread| &*thread.process).filter(|name| !name.is_empty());
    let process = process.map(escape_process);
    let thread = profile.thread_of(sample).filter(|_| profile.is_per_thread).map(thread_name);
    let stack = profile.dictionary.frames_of(sample.stack);
    let frames = stack.rev().filter_map(|index| frames.get(index.position())).map(String::as_str);
    let frames: Vec<_> = process.as_deref().into_iter().chain(thread.as_deref()).chain(frames).collect();
    if frames.is_empty() { String::from("[no frames]") } else { frames.join(";") }
}

/// The name of a thread in this format, with its TID.
pub(crate) fn thread_name(thread: &ProfileThread) -> String {
    escape_process(&format!("{}/{}", thread.name, thread.tid))
}

/// The name of a process or a thread, which stands where frames do.
pub(crate) fn escape_process(name: &str) -> String {
    escape_field(&escape_name(name)).into_owned()
}

/// A frame's name in this format.
pub(crate) fn frame_name(frame: &Frame<'_>, names: &DisplayNames) -> String {
    let label = names.of_frame(frame);
    let name = escape_field(&label);
    let suffix = if frame.is_kernel() { "_[k]" } else { "" };
    format!("{name}{suffix}")
}

/// Escapes a name so that it contains no separator, and its end can't be parsed as a number of events.
fn escape_field(name: &str) -> Cow<'_, str> {
    let mut name = escaped(name.trim());
    if name.contains(';') {
        name = Cow::Owned(name.replace(';', ":"));
    }
    let looks_like_count = |tail: &str| tail.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    match name.rsplit_once(' ') {
        Some((head, tail)) if looks_like_count(tail) => Cow::Owned(format!("{head}_{tail}")),
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::NameStyle;
    use crate::profile::tests::{guessed_sample, one_stack, sample};
    use proptest::prelude::*;

    fn full_lines(profile: &Profile) -> impl Iterator<Item = String> {
        lines(profile, &DisplayNames::default())
    }

    #[test]
    fn names_are_short_if_requested() {
        let profile = one_stack(&["a::b::c(int)", "main"]);
        let names = DisplayNames::new([&profile], NameStyle::Short);
        assert_eq!(lines(&profile, &names).collect::<Vec<_>>(), ["p;main;b::c 1"]);
        assert_eq!(full_lines(&profile).collect::<Vec<_>>(), ["p;main;a::b::c(int) 1"]);
    }

    #[test]
    fn threads_are_apart_if_requested() {
        let mut profile = one_stack(&["main"]);
        (profile.threads[0].name, profile.threads[0].tid) = ("a;b".into(), 7);
        profile.is_per_thread = true;
        assert_eq!(full_lines(&profile).collect::<Vec<_>>(), ["p;a:b/7;main 1"]);
    }

    #[test]
    fn stacks_are_root_first_and_merged() {
        let lines: Vec<_> = full_lines(&sample()).collect();
        assert_eq!(
            lines,
            ["app;main 3", "app;main;work 5", "app;main;work;work 2", "app;main;write_it;vfs_write_[k] 4"]
        );
    }

    #[test]
    fn guesses_are_distinguished_from_known_callers() {
        let lines: Vec<_> = full_lines(&guessed_sample()).collect();
        assert_eq!(lines[0], "app;[guessed] main;write_it;vfs_write_[k] 4");
        assert_eq!(lines[1], "app;main 3");
    }

    #[test]
    fn a_name_cannot_pose_as_structure() {
        let line = full_lines(&one_stack(&["a;b\nc 7", "x 3"])).next().unwrap();
        assert_eq!(line, "p;x_3;a:b\\u{a}c_7 1");
    }

    proptest! {
        #[test]
        fn any_names_give_one_line_with_as_many_fields(names in prop::collection::vec(any::<String>(), 1..6)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let lines: Vec<_> = full_lines(&one_stack(&names)).collect();
            prop_assert_eq!(lines.len(), 1);
            let (stack, count) = lines[0].rsplit_once(' ').unwrap();
            prop_assert_eq!(count, "1");
            prop_assert_eq!(stack.split(';').count(), names.len() + 1);
            prop_assert_eq!(lines[0].lines().count(), 1);
        }

        #[test]
        fn inferno_reads_what_is_written(names in prop::collection::vec(any::<String>(), 1..6)) {
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            let lines: Vec<_> = full_lines(&one_stack(&names)).collect();
            let mut svg = Vec::new();
            let mut options = inferno::flamegraph::Options::default();
            inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut svg).unwrap();
            let svg = String::from_utf8(svg).unwrap();
            prop_assert!(svg.contains("all (1 samples, 100%)"), "{lines:?}");
        }
    }
}
