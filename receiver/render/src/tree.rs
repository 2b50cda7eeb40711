//! All stacks as one tree: what has its callers in common is held once.

use std::collections::HashMap;

use crate::functions::identity;
use crate::profile::{FrameKind, Profile};

/// A function: what has the same name in the same binary. Forms differ in how much else they tell of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) binary: &'a str,
    pub(crate) kind: FrameKind,
    /// The source file; empty if unknown.
    pub(crate) path: &'a str,
}

/// Every function once.
#[derive(Default)]
struct Functions<'a> {
    all: Vec<Function<'a>>,
    numbers: HashMap<(&'a str, &'a str), u32>,
}

impl<'a> Functions<'a> {
    fn number(&mut self, function: Function<'a>) -> u32 {
        let number = *self.numbers.entry((function.name, function.binary)).or_insert_with(|| {
            self.all.push(function);
            self.all.len() as u32 - 1
        });
        if let Some(known) = self.all.get_mut(number as usize).filter(|known| known.path.is_empty()) {
            known.path = function.path;
        }
        number
    }
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Place {
    /// Index in [`Tree::functions`].
    pub(crate) function: u32,
    /// From 1; 0 if unknown.
    pub(crate) line: u32,
}

/// A place as it was reached by certain calls.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Node {
    /// The caller: index in [`Tree::nodes`]; `None` for the outermost.
    pub(crate) parent: Option<u32>,
    /// Index in [`Tree::places`].
    pub(crate) place: u32,
}

/// The stacks, merged from their roots on.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) places: Vec<Place>,
    /// Each after its caller.
    pub(crate) nodes: Vec<Node>,
    /// For each stack of the profile its leaf, as index in `nodes`.
    pub(crate) leaves: Vec<u32>,
}

/// Stands for stacks that hold nothing.
const NO_FRAMES: Function<'static> =
    Function { name: "[no frames]", binary: "", kind: FrameKind::Marker, path: "" };

impl<'a> Tree<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let mut functions = Functions::default();
        let (mut places, mut nodes) = (Numbered::default(), Numbered::default());
        let place_of_frame: Vec<u32> = profile
            .frames
            .iter()
            .map(|frame| {
                let (name, binary, kind) = identity(profile, frame);
                let function = functions.number(Function { name, binary, kind, path: &frame.path });
                places.number(Place { function, line: frame.line })
            })
            .collect();
        let mut leaf = |stack: &Vec<_>| {
            let frames = stack.iter().rev();
            let places_of =
                frames.filter_map(|frame: &crate::FrameIndex| place_of_frame.get(frame.0 as usize));
            let reached = places_of.fold(None, |parent, &place| Some(nodes.number(Node { parent, place })));
            reached.unwrap_or_else(|| {
                let function = functions.number(NO_FRAMES);
                let place = places.number(Place { function, line: 0 });
                nodes.number(Node { parent: None, place })
            })
        };
        let leaves = profile.stacks.iter().map(&mut leaf).collect();
        Self { leaves, functions: functions.all, places: places.all, nodes: nodes.all }
    }
}

/// Each distinct value once, numbered in the order of arrival.
pub(crate) struct Numbered<T> {
    pub(crate) all: Vec<T>,
    numbers: HashMap<T, u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self { all: Vec::new(), numbers: HashMap::new() }
    }
}

impl<T: Clone + Eq + std::hash::Hash> Numbered<T> {
    pub(crate) fn number(&mut self, value: T) -> u32 {
        *self.numbers.entry(value).or_insert_with_key(|value| {
            self.all.push(value.clone());
            self.all.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};

    #[test]
    fn stacks_share_their_beginnings() {
        let profile = sample();
        let tree = Tree::new(&profile);
        let name = |node: &Node| tree.functions[tree.places[node.place as usize].function as usize].name;
        let shown: Vec<_> = tree.nodes.iter().map(|node| (node.parent, name(node))).collect();
        assert_eq!(
            shown,
            [
                (None, "main"),
                (Some(0), "work"),
                (Some(1), "work"),
                (Some(0), "write_it"),
                (Some(3), "vfs_write")
            ]
        );
        assert_eq!(tree.leaves, [0, 1, 1, 2, 4]);
    }

    #[test]
    fn lines_of_a_function_are_told_apart() {
        let mut profile = sample();
        profile.frames[1].line = 10;
        profile.frames[2].line = 12;
        let tree = Tree::new(&profile);
        assert_eq!(tree.functions.len(), 4);
        assert_eq!(tree.places.len(), 5);
        assert_eq!(tree.leaves, [0, 1, 2, 3, 5]);
    }

    #[test]
    fn a_stack_of_nothing_has_a_place_too() {
        let profile = one_stack(&[]);
        let tree = Tree::new(&profile);
        assert_eq!(tree.leaves, [0]);
        assert_eq!(tree.functions, [NO_FRAMES]);
    }
}
