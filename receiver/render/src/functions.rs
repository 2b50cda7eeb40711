//! Self and total events of each function.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::profile::{FrameCategory, Profile, ProfileFrame};

/// One function's share of the events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FunctionTotals<'a> {
    /// Its name, which may be hostile, marked if it is a guessed caller.
    pub name: Cow<'a, str>,
    /// The last component of the path of its binary, which may be hostile too; empty if there is none.
    pub binary: &'a str,
    /// The category of its code.
    pub kind: FrameCategory,
    /// Events in which it is the leaf.
    pub self_count: u64,
    /// Events in which it is on the stack; each is counted once, even if it recurs.
    pub total_count: u64,
}

/// The label for all functions of a file that have no name.
const NO_SYMBOL: &str = "[no symbol]";

/// All functions, those with the most events first. The code of a file without names counts as one function.
#[must_use]
pub fn functions(profile: &Profile) -> Vec<FunctionTotals<'_>> {
    let mut totals = Vec::new();
    let mut indices = HashMap::new();
    let index_of_frame: Vec<usize> = profile
        .frames
        .iter()
        .map(|frame| {
            let (name, binary, kind) = function_key(profile, frame);
            let name = if frame.is_named { name } else { frame.label_of(NO_SYMBOL) };
            *indices.entry((name, binary, kind)).or_insert_with_key(|(name, binary, kind)| {
                let (binary, kind) = (*binary, *kind);
                totals.push(FunctionTotals {
                    name: name.clone(),
                    binary,
                    kind,
                    self_count: 0,
                    total_count: 0,
                });
                totals.len() - 1
            })
        })
        .collect();
    // The last stack for which a function was counted, so that recursion counts once.
    let mut counted_for = vec![usize::MAX; totals.len()];
    for (stack_number, (stack, count)) in profile.stacks.iter().zip(profile.stack_counts()).enumerate() {
        let functions = stack.iter().filter_map(|frame| index_of_frame.get(frame.0 as usize));
        for (depth, &function) in functions.enumerate() {
            let (Some(totals), Some(counted_for)) = (totals.get_mut(function), counted_for.get_mut(function))
            else {
                continue;
            };
            if depth == 0 {
                totals.self_count += count;
            }
            if *counted_for != stack_number {
                *counted_for = stack_number;
                totals.total_count += count;
            }
        }
    }
    totals.retain(|function| function.total_count > 0);
    totals.sort_by(|one, other| {
        let key = (other.self_count, other.total_count, &one.name, one.binary);
        key.cmp(&(one.self_count, one.total_count, &other.name, other.binary))
    });
    totals
}

/// The identity of a function. Guessed frames are kept separate from others.
pub(crate) fn function_key<'a>(
    profile: &'a Profile,
    frame: &'a ProfileFrame,
) -> (Cow<'a, str>, &'a str, FrameCategory) {
    (frame.label(), profile.binary_name(frame), frame.kind)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{guessed_sample, sample};

    fn rows(profile: &Profile) -> Vec<(String, u64, u64)> {
        functions(profile)
            .into_iter()
            .map(|row| (row.name.into_owned(), row.self_count, row.total_count))
            .collect()
    }

    fn named<const N: usize>(rows: [(&str, u64, u64); N]) -> [(String, u64, u64); N] {
        rows.map(|(name, own, total)| (name.to_owned(), own, total))
    }

    #[test]
    fn a_guessed_caller_is_a_row_of_its_own() {
        let expected = [("work", 7, 7), ("vfs_write", 4, 4), ("main", 3, 10)];
        let guessed = [("[guessed] main", 0, 4), ("write_it", 0, 4)];
        assert_eq!(rows(&guessed_sample()), [named(expected).as_slice(), &named(guessed)].concat());
    }

    #[test]
    fn recursion_counts_once_in_the_total() {
        let profile = sample();
        let rows = rows(&profile);
        assert_eq!(rows, named([("work", 7, 7), ("vfs_write", 4, 4), ("main", 3, 14), ("write_it", 0, 4)]));
    }

    #[test]
    fn what_nothing_names_in_a_file_is_one_function() {
        let mut profile = sample();
        for frame in profile.frames.iter_mut().filter(|frame| matches!(&*frame.name, "work" | "write_it")) {
            frame.is_named = false;
        }
        let rows = rows(&profile);
        assert_eq!(rows, named([(NO_SYMBOL, 7, 11), ("vfs_write", 4, 4), ("main", 3, 14)]));
    }

    #[test]
    fn what_functions_did_themselves_sums_up_to_all_events() {
        let profile = sample();
        assert_eq!(functions(&profile).iter().map(|row| row.self_count).sum::<u64>(), profile.total_count());
    }
}
