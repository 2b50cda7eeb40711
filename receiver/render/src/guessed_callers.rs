//! The number of guessed callers, by binary.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sidewinder_profile::Location;

use crate::profile::Profile;

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
    let dictionary = &profile.dictionary;
    for (stack, count) in profile.stack_counts() {
        let mut callee: Option<Location<'_>> = None;
        let mut binaries = Vec::<&str>::new();
        for location in dictionary.stack(stack).iter().map(|location| dictionary.location(*location)) {
            if let Some(callee) = callee.filter(|_| location.is_guessed) {
                let binary = dictionary.string(dictionary.mapping(callee.mapping).filename);
                let (callers, events) = by_binary.entry(binary).or_default();
                *callers = callers.saturating_add(count);
                if !binaries.contains(&binary) {
                    binaries.push(binary);
                    *events = events.saturating_add(count);
                }
            }
            callee = Some(location);
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
    use crate::profile::tests::{SAMPLE_STACKS, TestFrame, guessed_sample, profile, sample, sample_frames};

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
        let mut frames = sample_frames();
        let guessed = TestFrame { is_guessed: true, ..frames[0].clone() };
        let inlined = TestFrame { is_inlined: true, name: "inlined".to_owned(), ..guessed.clone() };
        frames.extend([guessed, inlined]);
        let mut stacks = SAMPLE_STACKS;
        let mut guessed = |wrote: &'static [usize]| {
            stacks[4].0 = wrote;
            let profile = profile(&frames, &stacks);
            guessed_callers(&profile)
                .iter()
                .map(|of| (of.binary.to_owned(), of.callers, of.events))
                .collect::<Vec<_>>()
        };
        assert_eq!(guessed(&[3, 4, 6, 5]), [("/usr/bin/app".to_owned(), 4, 4)]);
        // A function that called itself from there is.
        assert_eq!(guessed(&[3, 4, 6, 5, 6, 5]), [("/usr/bin/app".to_owned(), 8, 4)]);
    }
}
