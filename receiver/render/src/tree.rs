//! All stacks as one tree: what has its callers in common is held once. It grows with its profile, and what it has
//! numbered keeps its number.

use std::collections::HashMap;
use std::sync::Arc;

use crate::escape::{visible, visible_or_nothing};
use crate::functions::identity;
use crate::profile::{FrameKind, Profile};

/// A function: what has the same name in the same binary. Texts are numbers in [`Tree::texts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Function {
    pub(crate) name: u32,
    pub(crate) binary: u32,
    pub(crate) kind: FrameKind,
    /// The source file; empty if unknown.
    pub(crate) path: u32,
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
pub(crate) struct Tree {
    /// Every text once, harmless; the first is empty.
    pub(crate) texts: Texts,
    pub(crate) functions: Vec<Function>,
    pub(crate) places: Numbered<Place>,
    /// Each after its caller.
    pub(crate) nodes: Numbered<Node>,
    /// For each stack of the profile its leaf, as index in `nodes`.
    pub(crate) leaves: Vec<u32>,
    function_numbers: HashMap<(u32, u32), u32>,
    place_of_frame: Vec<u32>,
}

impl Default for Tree {
    fn default() -> Self {
        let mut texts = Texts::default();
        texts.number("");
        Self {
            texts,
            functions: Vec::new(),
            places: Numbered::default(),
            nodes: Numbered::default(),
            leaves: Vec::new(),
            function_numbers: HashMap::new(),
            place_of_frame: Vec::new(),
        }
    }
}

impl Tree {
    /// Takes in the frames and stacks that the profile has more of than the last time.
    pub(crate) fn grow(&mut self, profile: &Profile) {
        for frame in profile.frames.iter().skip(self.place_of_frame.len()) {
            let (name, binary, kind) = identity(profile, frame);
            let function = self.function(&name, binary, kind, &frame.path);
            self.place_of_frame.push(self.places.number(Place { function, line: frame.line }));
        }
        for stack in profile.stacks.iter().skip(self.leaves.len()) {
            let places = stack.iter().rev().filter_map(|frame| self.place_of_frame.get(frame.0 as usize));
            let nodes = &mut self.nodes;
            let reached = places.fold(None, |parent, &place| Some(nodes.number(Node { parent, place })));
            let leaf = reached.unwrap_or_else(|| self.no_frames());
            self.leaves.push(leaf);
        }
    }

    /// About how many bytes it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.texts.bytes()
            + self.functions.len() * (size_of::<Function>() + 2 * size_of::<(u32, u32, u32)>())
            + self.places.bytes()
            + self.nodes.bytes()
            + (self.leaves.len() + self.place_of_frame.len()) * size_of::<u32>()
    }

    fn function(&mut self, name: &str, binary: &str, kind: FrameKind, path: &str) -> u32 {
        let name = self.texts.number(&visible(name));
        let [binary, path] = [binary, path].map(|text| self.texts.number(&visible_or_nothing(text)));
        let functions = &mut self.functions;
        let number = *self.function_numbers.entry((name, binary)).or_insert_with(|| {
            functions.push(Function { name, binary, kind, path });
            functions.len() as u32 - 1
        });
        // Not every place of a function has a file.
        if let Some(known) = self.functions.get_mut(number as usize).filter(|known| known.path == 0) {
            known.path = path;
        }
        number
    }

    /// The node that stands for stacks that hold nothing.
    fn no_frames(&mut self) -> u32 {
        let function = self.function("[no frames]", "", FrameKind::Marker, "");
        let place = self.places.number(Place { function, line: 0 });
        self.nodes.number(Node { parent: None, place })
    }
}

/// Each distinct value once, numbered in the order of arrival.
#[derive(Debug)]
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

    /// About how many bytes it takes, but for what values own. A hash map is three quarters full on average.
    fn bytes(&self) -> usize {
        self.all.len() * (size_of::<T>() + size_of::<(T, u32)>() / 3 * 4)
    }
}

/// Each distinct text once.
#[derive(Default, Debug)]
pub(crate) struct Texts {
    numbered: Numbered<Arc<str>>,
    characters_bytes: usize,
}

impl Texts {
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbered.numbers.get(text) {
            return *number;
        }
        self.characters_bytes += text.len();
        self.numbered.number(text.into())
    }

    pub(crate) fn all(&self) -> &[Arc<str>] {
        &self.numbered.all
    }

    fn bytes(&self) -> usize {
        self.numbered.bytes() + self.characters_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};

    fn grown(profile: &Profile) -> Tree {
        let mut tree = Tree::default();
        tree.grow(profile);
        tree
    }

    fn name<'a>(tree: &'a Tree, node: &Node) -> &'a str {
        let place = tree.places.all[node.place as usize];
        &tree.texts.all()[tree.functions[place.function as usize].name as usize]
    }

    #[test]
    fn stacks_share_their_beginnings() {
        let tree = grown(&sample());
        let shown: Vec<_> = tree.nodes.all.iter().map(|node| (node.parent, name(&tree, node))).collect();
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
        let tree = grown(&profile);
        assert_eq!(tree.functions.len(), 4);
        assert_eq!(tree.places.all.len(), 5);
        assert_eq!(tree.leaves, [0, 1, 2, 3, 5]);
    }

    #[test]
    fn a_stack_of_nothing_has_a_place_too() {
        let tree = grown(&one_stack(&[]));
        assert_eq!(tree.leaves, [0]);
        assert_eq!(name(&tree, &tree.nodes.all[0]), "[no frames]");
    }

    #[test]
    fn what_grows_bit_by_bit_is_what_grows_at_once() {
        let profile = sample();
        let mut tree = Tree::default();
        for stacks in 0..=profile.stacks.len() {
            let mut so_far = profile.clone();
            so_far.stacks.truncate(stacks);
            so_far.frames.truncate(stacks + 1);
            tree.grow(&so_far);
        }
        let at_once = grown(&profile);
        assert_eq!(tree.leaves, at_once.leaves);
        assert_eq!(tree.nodes.all, at_once.nodes.all);
        assert_eq!(tree.functions, at_once.functions);
        assert_eq!(tree.texts.all(), at_once.texts.all());
    }
}
