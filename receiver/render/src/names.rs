//! Short forms of function names: what tells the functions of a profile apart, without the rest.
//!
//! Each name has candidates, from the shortest to the name itself ([`candidates`]): `_Executor<…>::_M_dfs`, then with template
//! arguments, with parameters, with its namespaces. A name is shown as the first candidate that no other name of the profile
//! has among its own. So no two names have the same short form, and it depends on the set of names alone, not on their order.

mod candidates;
mod go;
mod java;
pub(crate) mod path;
mod scan;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use sidewinder_profile::Frame;

use crate::category::FrameCategory;
use crate::escape::escaped;
use crate::label::frame_label;
use crate::lock_sites::lock_sites;
use crate::profile::Profile;

use self::candidates::candidates;

/// How functions are named in output for people.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum NameStyle {
    /// By what tells them apart from the other functions of the profile.
    #[default]
    Short,
    /// As the symbol table or the runtime has them.
    Full,
}

/// Names by the candidates that they have. A candidate is its hash: two with the same hash only make a name longer than needed.
#[derive(Default, Debug)]
pub(crate) struct ShortNames {
    owners: HashMap<u64, CandidateOwner>,
}

/// Who has a candidate: names are numbers that the caller gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CandidateOwner {
    One(u32),
    Several,
}

impl ShortNames {
    /// Adds a name that has not been added yet. Returns those whose short form may have changed by it.
    pub(crate) fn add(&mut self, number: u32, label: &str, kind: FrameCategory) -> Vec<u32> {
        let mut changed = Vec::new();
        for candidate in candidates(label, kind).iter().map(String::as_str).chain([label]) {
            let owner = self.owners.entry(hash(candidate)).or_insert(CandidateOwner::One(number));
            match *owner {
                CandidateOwner::One(other) if other != number => {
                    *owner = CandidateOwner::Several;
                    changed.push(other);
                }
                CandidateOwner::One(_) | CandidateOwner::Several => {}
            }
        }
        changed
    }

    /// The short form of a name that was added.
    pub(crate) fn get<'a>(&self, label: &'a str, kind: FrameCategory) -> Cow<'a, str> {
        let is_unique =
            |candidate: &String| matches!(self.owners.get(&hash(candidate)), Some(CandidateOwner::One(_)));
        candidates(label, kind).into_iter().find(is_unique).map_or(Cow::Borrowed(label), Cow::Owned)
    }

    /// The approximate memory in bytes. A hash map is three quarters full on average.
    pub(crate) fn bytes(&self) -> usize {
        self.owners.len() * size_of::<(u64, CandidateOwner)>() / 3 * 4
    }
}

fn hash(candidate: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    candidate.hash(&mut hasher);
    hasher.finish()
}

/// The names of a profile's functions as they are shown, escaped.
#[derive(Default, Debug)]
pub struct DisplayNames {
    short_forms: HashMap<String, String>,
}

impl DisplayNames {
    /// The names of all functions of some profiles that are shown together.
    #[must_use]
    pub fn new<'a>(profiles: impl IntoIterator<Item = &'a Profile>, style: NameStyle) -> Self {
        if style == NameStyle::Full {
            return Self::default();
        }
        let mut names = HashMap::<String, FrameCategory>::new();
        for (_, frame) in profiles.into_iter().flat_map(Profile::stacked_frames) {
            let label = frame_label(&frame);
            let label = escaped(&label);
            if !names.contains_key(&*label) {
                names.insert(label.into_owned(), FrameCategory::of(&frame));
            }
        }
        let mut short = ShortNames::default();
        for ((label, kind), number) in names.iter().zip(0..) {
            short.add(number, label, *kind);
        }
        let shortened = names.into_iter().filter_map(|(label, kind)| match short.get(&label, kind) {
            Cow::Borrowed(_) => None,
            Cow::Owned(short) => Some((label, short)),
        });
        Self { short_forms: shortened.collect() }
    }

    /// The same, with locks followed by the function that waits for each the most: `[lock 7f3a] in Cache::get`.
    #[must_use]
    pub fn with_lock_sites<'a>(mut self, profiles: impl IntoIterator<Item = &'a Profile>) -> Self {
        for (lock, site) in profiles.into_iter().flat_map(lock_sites) {
            let lock = escaped(&lock).into_owned();
            let shown = format!("{lock} in {}", self.shown(&site));
            self.short_forms.insert(lock, shown);
        }
        self
    }

    /// A label as it is shown.
    #[must_use]
    pub fn shown<'a>(&'a self, label: &'a str) -> Cow<'a, str> {
        let label = escaped(label);
        match self.short_forms.get(&*label) {
            Some(short) => Cow::Borrowed(short),
            None => label,
        }
    }

    /// A frame's label as it is shown.
    pub(crate) fn of_frame<'a>(&'a self, frame: &Frame<'a>) -> Cow<'a, str> {
        match frame_label(frame) {
            Cow::Borrowed(label) => self.shown(label),
            Cow::Owned(label) => Cow::Owned(self.shown(&label).into_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::profile::tests::{frame, one_stack, profile};
    use proptest::prelude::*;

    fn shown(names: &[&str]) -> Vec<String> {
        let profile = one_stack(names);
        let display = DisplayNames::new([&profile], NameStyle::Short);
        names.iter().map(|name| display.shown(name).into_owned()).collect()
    }

    #[test]
    fn a_name_is_as_long_as_it_takes_to_tell_it_apart() {
        assert_eq!(
            shown(&[
                "std::vector<int, std::allocator<int> >::push_back(int&&)",
                "std::vector<long, std::allocator<long> >::push_back(long&&)",
                "std::vector<long, std::allocator<long> >::size() const",
                "std::vector<long, std::allocator<long> >::push_back(long const&)",
                "mine::vector<long>::size() const",
                "other::run(int)",
                "ns::other::run(int)",
            ]),
            [
                "vector<int, allocator<…>>::push_back",
                "vector<…>::push_back(long&&)",
                "vector<long, allocator<…>>::size",
                "vector<…>::push_back(long const&)",
                "vector<long>::size",
                "other::run(int)",
                "ns::other::run",
            ]
        );
    }

    #[test]
    fn full_names_are_as_they_are_and_no_control_character_survives() {
        let profile = one_stack(&["a::b::c::d(int)\u{1b}"]);
        let shown = |style| DisplayNames::new([&profile], style).shown("a::b::c::d(int)\u{1b}").into_owned();
        assert_eq!(shown(NameStyle::Full), "a::b::c::d(int)\\u{1b}");
        assert_eq!(shown(NameStyle::Short), "c::d");
    }

    #[test]
    fn a_lock_is_shown_with_the_short_name_of_who_wants_it() {
        let frames = [
            frame("[lock 7f]", FrameCategory::Lock, 0),
            frame("std::mutex::lock()", FrameCategory::Native, 0),
            frame("app::db::Cache::get(int)", FrameCategory::Native, 0),
        ];
        let profile = profile(&frames, &[(&[0, 1, 2], 1)]);
        for (style, expected) in [
            (NameStyle::Short, "[lock 7f] in Cache::get"),
            (NameStyle::Full, "[lock 7f] in app::db::Cache::get(int)"),
        ] {
            let names = DisplayNames::new([&profile], style);
            assert_eq!(names.shown("[lock 7f]"), "[lock 7f]");
            assert_eq!(names.with_lock_sites([&profile]).shown("[lock 7f]"), expected);
        }
    }

    /// Names made of what names are made of, so that many are alike.
    fn name() -> impl Strategy<Value = String> {
        let part = prop::sample::select(vec![
            "a",
            "b",
            "std",
            "::",
            "::",
            "<",
            ">",
            "<int>",
            "<long, b>",
            "(",
            ")",
            "(int)",
            "(a::b)",
            "()",
            " ",
            ", ",
            "const",
            "&",
            "{{closure}}",
            "{closure#0}",
            "{lambda(int)#1}",
            "operator",
            "operator<",
            "operator()",
            "[clone .cold]",
            "[abi:cxx11]",
            "void ",
            " as ",
            "<impl ",
            " for ",
            "::h0123456789abcdef",
            "(anonymous namespace)",
            "github.com/a/b",
            ".",
            "/",
            ".(*T)",
            "[go.shape.int]",
            "java.util",
            "$1",
            "…",
            "[guessed] ",
            "@plt",
            "ß",
            "->",
        ]);
        prop::collection::vec(part, 1..9).prop_map(|parts| parts.concat())
    }

    fn kind() -> impl Strategy<Value = FrameCategory> {
        prop::sample::select(FrameCategory::ALL.to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn different_names_are_shown_differently_and_never_longer(
            names in prop::collection::hash_map(prop_oneof![name(), any::<String>()], kind(), 1..40)
        ) {
            let mut short = ShortNames::default();
            for ((name, kind), number) in names.iter().zip(0..) {
                short.add(number, name, *kind);
            }
            let shown: Vec<_> = names.iter().map(|(name, kind)| short.get(name, *kind)).collect();
            let distinct: HashSet<_> = shown.iter().collect();
            prop_assert_eq!(distinct.len(), names.len(), "{:?}", shown);
            for (name, shown) in names.keys().zip(&shown) {
                prop_assert!(shown.chars().count() <= name.chars().count(), "{} {}", name, shown);
                prop_assert!(!shown.is_empty() || name.is_empty());
            }
        }

        #[test]
        fn the_order_of_names_does_not_matter_and_changes_are_announced(
            names in prop::collection::hash_map(name(), kind(), 1..30)
        ) {
            let names: Vec<_> = names.into_iter().collect();
            let mut forwards = ShortNames::default();
            let mut announced = vec![String::new(); names.len()];
            for ((name, kind), number) in names.iter().zip(0_u32..) {
                let changed = forwards.add(number, name, *kind);
                for number in changed.into_iter().chain([number]) {
                    let (name, kind) = &names[number as usize];
                    announced[number as usize] = forwards.get(name, *kind).into_owned();
                }
            }
            let mut backwards = ShortNames::default();
            for (number, (name, kind)) in names.iter().enumerate().rev() {
                backwards.add(number as u32, name, *kind);
            }
            for ((name, kind), announced) in names.iter().zip(announced) {
                prop_assert_eq!(forwards.get(name, *kind), backwards.get(name, *kind));
                prop_assert_eq!(forwards.get(name, *kind), announced);
            }
        }
    }
}
