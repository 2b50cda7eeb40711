//! Self and total events of each function.

use std::borrow::Cow;
use std::collections::HashMap;

use sidewinder_profile::{Frame, FrameIndex, Index as _, SampleType, StackIndex};

use crate::category::FrameCategory;
use crate::label::{frame_label, frame_label_with};
use crate::profile::Profile;

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

impl FunctionTotals<'_> {
    /// Its identity; `None` if it stands for the absence of a caller.
    #[must_use]
    pub fn id(&self) -> Option<FunctionId> {
        (self.name != NO_CALLER).then(|| FunctionId {
            name: self.name.clone().into_owned(),
            binary: self.binary.to_owned(),
            kind: self.kind,
        })
    }
}

/// The identity of a function, for as long as its profile changes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FunctionId {
    /// As in [`FunctionTotals`].
    pub name: String,
    /// As in [`FunctionTotals`].
    pub binary: String,
    /// As in [`FunctionTotals`].
    pub kind: FrameCategory,
}

/// What functions are sorted by, descending.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FunctionOrder {
    /// By self count.
    SelfCount,
    /// By total count.
    TotalCount,
}

impl FunctionOrder {
    /// The order that shows the most of such samples: what waits is always in the same functions, and what leads there differs.
    #[must_use]
    pub fn of(measure: &SampleType) -> Self {
        if measure.is_of_waits() { Self::TotalCount } else { Self::SelfCount }
    }
}

/// The label for all functions of a file that have no name.
pub(crate) const NO_SYMBOL: &str = "[no symbol]";
/// The label of what calls the outermost function of a stack.
const NO_CALLER: &str = "[no caller]";

/// All functions, those with the most events first. The code of a file without names counts as one function.
#[must_use]
pub fn functions(profile: &Profile) -> Vec<FunctionTotals<'_>> {
    functions_of_process(profile, None)
}

/// The functions of a process, or of all.
#[must_use]
pub fn functions_of_process(profile: &Profile, pid: Option<u32>) -> Vec<FunctionTotals<'_>> {
    let (index, mut totals) = FunctionIndex::new(profile);
    // The last stack for which a function was counted, so that recursion counts once.
    let mut counted_for = vec![None; totals.len()];
    for (stack, count) in profile.stack_counts_of_process(pid) {
        for (depth, function) in index.of_stack(profile, stack).enumerate() {
            let (Some(totals), Some(counted_for)) = (totals.get_mut(function), counted_for.get_mut(function))
            else {
                continue;
            };
            if depth == 0 {
                totals.self_count += count;
            }
            if *counted_for != Some(stack) {
                *counted_for = Some(stack);
                totals.total_count += count;
            }
        }
    }
    sorted(totals)
}

/// The callers of a function in a process, or in all. `chain` is the function, and possibly its caller, the caller of that and so on:
/// then they are the callers of the last one, for the calls that lead to the first one. `self_count` is that of the
/// first function. In a stack in which the chain is more than once, the innermost one counts.
#[must_use]
pub fn callers<'a>(profile: &'a Profile, pid: Option<u32>, chain: &[FunctionId]) -> Vec<FunctionTotals<'a>> {
    let (index, mut totals) = FunctionIndex::new(profile);
    let index_of = |id: &FunctionId| {
        totals.iter().position(|function| {
            (&*function.name, function.binary, function.kind) == (&*id.name, &*id.binary, id.kind)
        })
    };
    let Some(chain) = chain.iter().map(index_of).collect::<Option<Vec<_>>>() else { return Vec::new() };
    let no_caller = totals.len();
    totals.push(FunctionTotals {
        name: NO_CALLER.into(),
        binary: "",
        kind: FrameCategory::Marker,
        self_count: 0,
        total_count: 0,
    });
    for (stack, count) in profile.stack_counts_of_process(pid) {
        let functions: Vec<_> = index.of_stack(profile, stack).collect();
        let Some(depth) = functions.windows(chain.len().max(1)).position(|calls| calls == chain) else {
            continue;
        };
        let caller = functions.get(depth + chain.len()).copied().unwrap_or(no_caller);
        if let Some(totals) = totals.get_mut(caller) {
            totals.total_count += count;
            totals.self_count += if depth == 0 { count } else { 0 };
        }
    }
    sorted(totals)
}

/// The functions with events, those with the most first.
fn sorted(mut totals: Vec<FunctionTotals<'_>>) -> Vec<FunctionTotals<'_>> {
    totals.retain(|function| function.total_count > 0);
    totals.sort_by(|one, other| {
        let key = (other.self_count, other.total_count, &one.name, one.binary);
        key.cmp(&(one.self_count, one.total_count, &other.name, other.binary))
    });
    totals
}

/// The number of each frame's function.
struct FunctionIndex(Vec<usize>);

impl FunctionIndex {
    /// Also returns the functions by number, each with no events.
    fn new(profile: &Profile) -> (Self, Vec<FunctionTotals<'_>>) {
        let mut totals = Vec::new();
        let mut numbers = HashMap::new();
        let of_frames = profile.dictionary.frames().map(|frame| {
            let (name, binary, kind) = function_key(&frame);
            let name = if frame.is_named() { name } else { frame_label_with(&frame, NO_SYMBOL) };
            *numbers.entry((name, binary, kind)).or_insert_with_key(|(name, binary, kind)| {
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
        });
        let index = Self(of_frames.collect());
        (index, totals)
    }

    /// The functions of a stack, leaf first.
    fn of_stack(&self, profile: &Profile, stack: StackIndex) -> impl Iterator<Item = usize> {
        let of_frame = |frame: FrameIndex| self.0.get(frame.position()).copied();
        profile.dictionary.frames_of(stack).filter_map(of_frame)
    }
}

/// The identity of a function. Guessed frames are kept separate from others.
pub(crate) fn function_key<'a>(frame: &Frame<'a>) -> (Cow<'a, str>, &'a str, FrameCategory) {
    (frame_label(frame), frame.file_name(), FrameCategory::of(frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{SAMPLE_STACKS, guessed_sample, profile, sample, sample_frames};
    use crate::profile::{ProfileThread, ThreadIndex};

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
        let mut frames = sample_frames();
        for frame in frames.iter_mut().filter(|frame| matches!(&*frame.name, "work" | "write_it")) {
            frame.is_named = false;
        }
        let profile = profile(&frames, &SAMPLE_STACKS);
        let rows = rows(&profile);
        assert_eq!(rows, named([(NO_SYMBOL, 7, 11), ("vfs_write", 4, 4), ("main", 3, 14)]));
    }

    fn id(name: &str, profile: &Profile) -> FunctionId {
        let functions = functions(profile);
        functions
            .iter()
            .find(|function| function.name == name)
            .and_then(FunctionTotals::id)
            .expect("a function")
    }

    fn callers_of(profile: &Profile, chain: &[&str]) -> Vec<(String, u64, u64)> {
        let chain: Vec<_> = chain.iter().map(|name| id(name, profile)).collect();
        let rows = callers(profile, None, &chain).into_iter();
        rows.map(|row| (row.name.into_owned(), row.self_count, row.total_count)).collect()
    }

    #[test]
    fn callers_have_the_events_of_what_they_call() {
        let profile = sample();
        assert_eq!(callers_of(&profile, &["work"]), named([("main", 5, 5), ("work", 2, 2)]));
        assert_eq!(callers_of(&profile, &["work", "work"]), named([("main", 2, 2)]));
        assert_eq!(callers_of(&profile, &["main"]), named([(NO_CALLER, 3, 14)]));
        assert_eq!(callers_of(&profile, &["vfs_write", "write_it"]), named([("main", 4, 4)]));
        assert_eq!(callers_of(&profile, &["work", "write_it"]), named([]), "no such call");
        let unknown = FunctionId { name: "gone".into(), ..id("work", &profile) };
        assert!(callers(&profile, None, &[unknown]).is_empty());
    }

    #[test]
    fn a_process_has_its_own_events() {
        let mut profile = sample();
        let other = ProfileThread { pid: 9, ..profile.threads[0].clone() };
        profile.threads.push(other);
        profile.samples[1].thread = ThreadIndex(1);
        let rows = |pid| {
            let functions = functions_of_process(&profile, Some(pid)).into_iter();
            functions.map(|row| (row.name.into_owned(), row.self_count, row.total_count)).collect::<Vec<_>>()
        };
        assert_eq!(rows(9), named([("work", 4, 4), ("main", 0, 4)]));
        assert_eq!(
            rows(7),
            named([("vfs_write", 4, 4), ("main", 3, 10), ("work", 3, 3), ("write_it", 0, 4)])
        );
        assert!(rows(1).is_empty());
        assert_eq!(callers(&profile, Some(9), &[id("work", &profile)])[0].total_count, 4);
    }

    #[test]
    fn what_functions_did_themselves_sums_up_to_all_events() {
        let profile = sample();
        assert_eq!(functions(&profile).iter().map(|row| row.self_count).sum::<u64>(), profile.total_count());
    }
}
