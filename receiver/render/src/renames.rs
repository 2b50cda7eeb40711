//! Binaries that are named differently in two recordings, such as `app-1.2` and `app-1.3`. Their functions are still compared.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use crate::category::FrameCategory;
use crate::functions::{NO_SYMBOL, functions};
use crate::profile::Profile;

/// A binary, and its name in the other recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenamedBinary {
    /// The last component of its path in the earlier recording, which may be hostile.
    pub before: String,
    /// The same in the later one.
    pub after: String,
    /// How many functions both have.
    pub functions: usize,
}

/// Binaries with a smaller part of all samples are not compared, so that there are few of them.
const PART_MIN: f64 = 0.005;

/// The samples in each named function, by binary.
type SamplesByBinary<'a> = BTreeMap<&'a str, BTreeMap<String, u128>>;

/// Gives binaries of `before` the name that they have in `after`. A binary has been renamed if neither recording has both names, and
/// most samples of each are in functions whose names both have.
pub fn match_renamed_binaries(before: &mut Profile, after: &Profile) -> Vec<RenamedBinary> {
    let renamed = renamed_binaries(before, after);
    before.dictionary.rename_files(|path| {
        let name = path.rsplit('/').next().unwrap_or_default();
        let renamed = renamed.iter().find(|renamed| renamed.before == name)?;
        Some(format!("{}{}", path.strip_suffix(name)?, renamed.after))
    });
    renamed
}

fn renamed_binaries(before: &Profile, after: &Profile) -> Vec<RenamedBinary> {
    let [gone, come] = [(before, after), (after, before)].map(|(one, other)| only_in(one, other));
    let mut pairs: Vec<_> = gone
        .iter()
        .flat_map(|(old, old_samples)| {
            come.iter().map(move |(new, new_samples)| (old, old_samples, new, new_samples))
        })
        .filter_map(|(old, old_samples, new, new_samples)| {
            let shared: BTreeSet<_> =
                old_samples.keys().filter(|name| new_samples.contains_key(*name)).collect();
            let is_most = |samples: &BTreeMap<String, u128>| {
                let in_shared: u128 = shared.iter().filter_map(|name| samples.get(*name)).sum();
                in_shared * 2 > samples.values().sum()
            };
            (is_most(old_samples) && is_most(new_samples)).then_some((Reverse(shared.len()), *old, *new))
        })
        .collect();
    pairs.sort_unstable();
    let mut renamed: Vec<RenamedBinary> = Vec::new();
    for (Reverse(functions), old, new) in pairs {
        if !renamed.iter().any(|known| known.before == old || known.after == new) {
            renamed.push(RenamedBinary { before: old.to_owned(), after: new.to_owned(), functions });
        }
    }
    renamed
}

/// The binaries of one recording whose names the other does not have.
fn only_in<'a>(one: &'a Profile, other: &Profile) -> SamplesByBinary<'a> {
    let others: BTreeSet<&str> = functions(other).into_iter().map(|function| function.binary).collect();
    let mut binaries = SamplesByBinary::new();
    for function in functions(one) {
        let is_named = function.name != NO_SYMBOL && function.kind != FrameCategory::Marker;
        if is_named && !function.binary.is_empty() && !others.contains(function.binary) {
            let samples = binaries.entry(function.binary).or_default();
            // A caller without self samples is evidence, too.
            *samples.entry(function.name.into_owned()).or_default() += u128::from(function.self_count.max(1));
        }
    }
    let part_min = one.total_count() as f64 * PART_MIN;
    binaries.retain(|_, samples| samples.values().sum::<u128>() as f64 >= part_min);
    binaries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{SAMPLE_STACKS, profile, sample, sample_frames};

    /// `sample()` with its binary at another path, and with functions of other names.
    fn renamed_sample(path: &'static str, functions: &[(&str, &str)]) -> Profile {
        let mut frames = sample_frames();
        for frame in frames.iter_mut().filter(|frame| frame.file == "/usr/bin/app") {
            frame.file = path;
            if let Some((_, name)) = functions.iter().find(|(name, _)| frame.name == *name) {
                frame.name = (*name).to_owned();
            }
        }
        profile(&frames, &SAMPLE_STACKS)
    }

    fn paths(profile: &Profile) -> BTreeSet<&str> {
        profile.stacked_frames().map(|(_, frame)| frame.binary_path()).collect()
    }

    #[test]
    fn a_binary_with_another_name_and_the_same_functions_is_the_same() {
        let mut before = renamed_sample("/opt/app-1.2", &[]);
        let after = renamed_sample("/opt/app-1.3", &[("write_it", "write_all")]);
        let renamed = match_renamed_binaries(&mut before, &after);
        let expected = RenamedBinary { before: "app-1.2".into(), after: "app-1.3".into(), functions: 2 };
        assert_eq!((renamed, paths(&before)), (vec![expected], BTreeSet::from(["/opt/app-1.3", "[kernel]"])));
    }

    #[test]
    fn another_program_is_not_the_same_because_both_have_a_main() {
        let mut before = renamed_sample("/opt/reader", &[]);
        let after = renamed_sample("/opt/writer", &[("work", "toil")]);
        assert_eq!(match_renamed_binaries(&mut before, &after), []);
        assert!(paths(&before).contains("/opt/reader"));
    }

    #[test]
    fn a_name_that_both_have_stays() {
        let mut frames = sample_frames();
        for frame in frames.iter_mut().filter(|frame| frame.name == "work") {
            frame.file = "/usr/bin/app-2";
        }
        let after = profile(&frames, &SAMPLE_STACKS);
        assert_eq!(match_renamed_binaries(&mut sample(), &after), [], "its `main` is still in app");
    }
}
