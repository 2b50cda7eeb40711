//! All stacks as one tree: the flame graph.

use std::cmp::Reverse;
use std::collections::HashMap;

use crate::functions::identity;
use crate::profile::{FrameKind, Profile};

/// A function, or a process where the tree begins.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Label<'a> {
    pub(crate) name: &'a str,
    pub(crate) binary: &'a str,
    /// `None` for a process.
    pub(crate) kind: Option<FrameKind>,
}

/// The stacks, merged from their roots on.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    pub(crate) labels: Vec<Label<'a>>,
    /// Each before what it called; of its callees, the busiest first.
    pub(crate) nodes: Vec<Node>,
}

/// A function in the place where it was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    /// 0 for the outermost.
    pub(crate) depth: u32,
    /// Index in [`Tree::labels`].
    pub(crate) label: u32,
    /// Events that ended here.
    pub(crate) own: u64,
}

/// A node while the tree grows: a trie with its children by label.
#[derive(Default)]
struct Growing {
    label: u32,
    own: u64,
    children: Vec<u32>,
}

const ROOT: u32 = 0;
/// Stands for stacks that hold nothing.
const NO_FRAMES: Label<'static> = Label { name: "[no frames]", binary: "", kind: Some(FrameKind::Marker) };

impl<'a> Tree<'a> {
    pub(crate) fn new(profile: &'a Profile) -> Self {
        let mut labels = Labels::default();
        let label_of_frame: Vec<u32> = profile
            .frames
            .iter()
            .map(|frame| {
                let (name, binary, kind) = identity(profile, frame);
                labels.index(Label { name, binary, kind: Some(kind) })
            })
            .collect();
        let mut growing = vec![Growing::default()];
        let mut child_of = HashMap::<(u32, u32), u32>::new();
        for stack in &profile.stacks {
            let process = (!stack.process.is_empty())
                .then(|| labels.index(Label { name: &stack.process, binary: "", kind: None }));
            let frames =
                stack.frames.iter().rev().filter_map(|frame| label_of_frame.get(frame.0 as usize).copied());
            let mut path = process.into_iter().chain(frames).peekable();
            let nothing = path.peek().is_none().then(|| labels.index(NO_FRAMES));
            let mut at = ROOT;
            for label in path.chain(nothing) {
                at = *child_of.entry((at, label)).or_insert_with(|| {
                    let child = growing.len() as u32;
                    growing.push(Growing { label, ..Growing::default() });
                    if let Some(parent) = growing.get_mut(at as usize) {
                        parent.children.push(child);
                    }
                    child
                });
            }
            if let Some(leaf) = growing.get_mut(at as usize) {
                leaf.own = leaf.own.saturating_add(stack.count);
            }
        }
        let nodes = flatten(growing, &labels.all);
        Self { labels: labels.all, nodes }
    }
}

/// The tree in the order of a walk. Iterative, for stacks may be deeper than our own.
fn flatten(mut growing: Vec<Growing>, labels: &[Label<'_>]) -> Vec<Node> {
    let totals = totals(&growing);
    let rank = |child: &u32, growing: &[Growing]| {
        let label = growing.get(*child as usize).and_then(|child| labels.get(child.label as usize));
        (Reverse(totals.get(*child as usize).copied()), label.map(|label| (label.name, label.binary)))
    };
    let mut nodes = Vec::with_capacity(growing.len());
    let mut open = vec![(ROOT, 0)];
    while let Some((at, depth)) = open.pop() {
        let Some(node) = growing.get_mut(at as usize) else { continue };
        let mut children = std::mem::take(&mut node.children);
        if at != ROOT {
            nodes.push(Node { depth: depth - 1, label: node.label, own: node.own });
        }
        children.sort_by(|one, other| rank(one, &growing).cmp(&rank(other, &growing)));
        open.extend(children.into_iter().rev().map(|child| (child, depth + 1)));
    }
    nodes
}

/// Events at or below each node. A child was always added after its parent.
fn totals(growing: &[Growing]) -> Vec<u64> {
    let mut totals = vec![0_u64; growing.len()];
    for (at, node) in growing.iter().enumerate().rev() {
        let below = node.children.iter().filter_map(|child| totals.get(*child as usize));
        let total = below.fold(node.own, |sum, child| sum.saturating_add(*child));
        if let Some(slot) = totals.get_mut(at) {
            *slot = total;
        }
    }
    totals
}

#[derive(Default)]
struct Labels<'a> {
    all: Vec<Label<'a>>,
    indices: HashMap<Label<'a>, u32>,
}

impl<'a> Labels<'a> {
    fn index(&mut self, label: Label<'a>) -> u32 {
        *self.indices.entry(label).or_insert_with(|| {
            self.all.push(label);
            self.all.len() as u32 - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{one_stack, sample};

    #[test]
    fn stacks_share_their_beginnings_and_the_busiest_comes_first() {
        let profile = sample();
        let tree = Tree::new(&profile);
        let shown: Vec<_> = tree
            .nodes
            .iter()
            .map(|node| (node.depth, tree.labels[node.label as usize].name, node.own))
            .collect();
        assert_eq!(
            shown,
            [
                (0, "app", 0),
                (1, "main", 3),
                (2, "work", 5),
                (3, "work", 2),
                (2, "write_it", 0),
                (3, "vfs_write", 4)
            ]
        );
    }

    #[test]
    fn a_stack_of_nothing_has_a_place_too() {
        let mut profile = one_stack(&[]);
        profile.stacks[0].process = "".into();
        let tree = Tree::new(&profile);
        assert_eq!(tree.nodes, [Node { depth: 0, label: 0, own: 1 }]);
    }
}
