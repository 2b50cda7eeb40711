//! The number of guessed callers, by binary.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::profile::{Profile, ProfileFrame};

/// The callers in one binary that were guessed because nothing describes its code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GuessedCallers<'a> {
    /// The path of the binary, which may be hostile; empty for code without a file.
    pub binary: &'a str,
    /// Events, each multiplied by the number of guessed callers on its stack.
    pub callers: u64,
    /// Events with such a caller on their stack, in the unit of the profile: in profiles of time, nanoseconds.
    pub events: u64,
}

/// The binaries with guessed callers, the one with the most first.
#[must_use]
pub fn guessed_callers(profile: &Profile) -> Vec<GuessedCallers<'_>> {
    let mut by_binary = BTreeMap::<&str, (u64, u64)>::new();
    for (stack, count) in profile.stacks.iter().zip(profile.stack_counts()) {
        let frames = stack.iter().filter_map(|index| profile.frames.get(index.0 as usize));
        let mut callee: Option<&ProfileFrame> = None;
        let mut binaries = Vec::<&str>::new();
        for frame in frames {
            // Inlined calls have the same address as the function that contains them.
            let is_same_place = |callee: &&ProfileFrame| {
                callee.is_guessed
                    && (callee.binary, callee.address) == (frame.binary, frame.address)
                    && *callee != frame
            };
            if let Some(callee) = callee.filter(|callee| frame.is_guessed && !is_same_place(callee)) {
                let binary = profile.binary_path(callee);
                let (callers, events) = by_binary.entry(binary).or_default();
                *callers = callers.saturating_add(count);
                if !binaries.contains(&binary) {
                    binaries.push(binary);
                    *events = events.saturating_add(count);
                }
            }
            callee = Some(frame);
        }
    }
    let mut guessed: Vec<_> = by_binary
        .into_iter()
        .map(|(binary, (callers, events))| GuessedCallers { binary, callers, events })
        .filter(|of| of.callers > 0)
        .collect();
    guessed.sort_by_key(|of| Reverse(of.callers));
    guessed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{guessed_sample, sample};

    #[test]
    fn each_guess_counts_for_the_code_that_it_was_made_in() {
        assert_eq!(guessed_callers(&sample()), []);
        assert_eq!(
            guessed_callers(&guessed_sample()),
            [GuessedCallers { binary: "/usr/bin/app", callers: 4, events: 4 }]
        );
    }

    #[test]
    fn what_was_inlined_at_a_guessed_place_is_no_further_guess() {
        let mut profile = guessed_sample();
        let inlined = ProfileFrame { name: "inlined".into(), ..profile.frames[5].clone() };
        profile.frames.push(inlined);
        let [.., wrote] = profile.stacks.as_mut_slice() else { panic!("there are stacks") };
        wrote.insert(2, crate::FrameIndex(6));
        assert_eq!(
            guessed_callers(&profile),
            [GuessedCallers { binary: "/usr/bin/app", callers: 4, events: 4 }]
        );
        // A function that called itself from there is.
        let [.., wrote] = profile.stacks.as_mut_slice() else { panic!("there are stacks") };
        wrote.insert(3, crate::FrameIndex(6));
        assert_eq!(
            guessed_callers(&profile),
            [GuessedCallers { binary: "/usr/bin/app", callers: 8, events: 4 }]
        );
    }
}
