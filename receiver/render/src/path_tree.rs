//! Paths of numbers, merged from their beginnings.

use std::hash::BuildHasher as _;

use hashbrown::{DefaultHashBuilder, HashTable};

/// Paths, each a list of labels from the outermost on.
#[derive(Default, Debug)]
pub(crate) struct Paths {
    labels: Vec<u32>,
    /// Where each path ends in `labels`, and the next one begins.
    ends: Vec<usize>,
}

impl Paths {
    /// No paths, with room for this many, and for this many labels in all of them.
    pub(crate) fn with_capacity(labels: usize, paths: usize) -> Self {
        Self { labels: Vec::with_capacity(labels), ends: Vec::with_capacity(paths) }
    }

    /// Appends labels to the path that is open.
    pub(crate) fn extend(&mut self, labels: impl IntoIterator<Item = u32>) {
        self.labels.extend(labels);
    }

    /// Whether the path that is open has no labels.
    pub(crate) fn is_open_empty(&self) -> bool {
        self.labels.len() == self.start(self.ends.len())
    }

    /// Ends the path that is open.
    pub(crate) fn close(&mut self) {
        self.ends.push(self.labels.len());
    }

    /// The number of paths that are closed.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    fn start(&self, path: usize) -> usize {
        path.checked_sub(1).and_then(|before| self.ends.get(before)).copied().unwrap_or(0)
    }

    fn get(&self, path: usize) -> &[u32] {
        let end = self.ends.get(path).copied().unwrap_or(0);
        self.labels.get(self.start(path)..end).unwrap_or_default()
    }

    /// How many labels these paths have in common from this depth on.
    fn shared_from(&self, depth: usize, paths: impl IntoIterator<Item = u32>) -> usize {
        let mut rests =
            paths.into_iter().map(|path| self.get(path as usize).get(depth..).unwrap_or_default());
        let first = rests.next().unwrap_or_default();
        rests
            .fold(first, |shared, rest| {
                let length = shared.iter().zip(rest).take_while(|(one, other)| one == other).count();
                shared.get(..length).unwrap_or_default()
            })
            .len()
    }

    /// The numbers of all paths in their lexicographic order. Label by label, so that one that paths share is read once for each
    /// path, and not once for each comparison of two.
    fn sorted_numbers(&self) -> Vec<u32> {
        /// A path, with its label at the depth that is being sorted; `None` where it has ended.
        type LabelledPath = (Option<u32>, u32);
        let mut order: Vec<LabelledPath> = (0..self.len() as u32).map(|number| (None, number)).collect();
        // Ranges of `order` whose paths have at least this many labels in common, and are not sorted by the rest.
        let mut unsorted = vec![(0..order.len(), 0)];
        while let Some((range, depth)) = unsorted.pop() {
            let start = range.start;
            let group = order.get_mut(range).unwrap_or_default();
            let depth = depth + self.shared_from(depth, group.iter().map(|(_, number)| *number));
            for (label, number) in &mut *group {
                *label = self.get(*number as usize).get(depth).copied();
            }
            group.sort_unstable_by_key(|(label, _)| *label);
            let mut at = start;
            for equal in group.chunk_by(|(one, _), (other, _)| one == other) {
                if equal.len() > 1 && equal.first().is_some_and(|(label, _)| label.is_some()) {
                    unsorted.push((at..at + equal.len(), depth + 1));
                }
                at += equal.len();
            }
        }
        order.into_iter().map(|(_, number)| number).collect()
    }
}

/// A label, as reached by a path.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PathNode {
    /// The index of the node before it; `None` for the outermost.
    pub(crate) parent: Option<u32>,
    pub(crate) label: u32,
}

/// Paths as a tree: those with a common beginning share its nodes. The tree grows, and the indices of its nodes don't change.
#[derive(Default, Debug)]
pub(crate) struct PathTree {
    /// Each comes after its parent.
    nodes: Vec<PathNode>,
    /// The indices of the nodes that were there before the last addition, by hash. The hash has a random seed: profiled programs
    /// choose what is called by what.
    indices: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl PathTree {
    /// Adds paths, and tells the nodes of each, the outermost first, in any order of paths.
    ///
    /// They are added in their lexicographic order: then a path differs from the one before it at its end, and only where a new
    /// node has a parent that was there before this addition, it has to be looked up.
    pub(crate) fn add(&mut self, paths: &Paths, mut added: impl FnMut(usize, &[u32])) {
        if paths.len() == 0 {
            return;
        }
        self.index_nodes();
        let known_count = self.nodes.len();
        let mut before: &[u32] = &[];
        let mut chain: Vec<u32> = Vec::new();
        for number in paths.sorted_numbers() {
            let number = number as usize;
            let path = paths.get(number);
            let shared = before.iter().zip(path).take_while(|(one, other)| one == other).count();
            chain.truncate(shared);
            for &label in path.iter().skip(shared) {
                let node = PathNode { parent: chain.last().copied(), label };
                let is_below_new = node.parent.is_some_and(|parent| parent as usize >= known_count);
                let known = if is_below_new { None } else { self.find(node) };
                chain.push(known.unwrap_or_else(|| {
                    self.nodes.push(node);
                    self.nodes.len() as u32 - 1
                }));
            }
            added(number, &chain);
            before = path;
        }
    }

    /// The node below `node.parent` with this label, which is added if it is new.
    pub(crate) fn child(&mut self, node: PathNode) -> u32 {
        if let Some(known) = self.find(node) {
            return known;
        }
        self.nodes.push(node);
        self.index_nodes();
        self.nodes.len() as u32 - 1
    }

    /// Makes room for this many nodes that [`Self::child`] adds.
    pub(crate) fn reserve(&mut self, nodes: usize) {
        let Self { nodes: known, indices, hasher } = self;
        known.reserve(nodes);
        let hash = |index: &u32| known.get(*index as usize).map_or(0, |node| hasher.hash_one(node));
        indices.reserve(nodes, hash);
    }

    /// All nodes.
    pub(crate) fn all(&self) -> &[PathNode] {
        &self.nodes
    }

    /// The number of nodes.
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The approximate memory in bytes, of a tree that grows further. A hash table is three quarters full on average.
    pub(crate) fn bytes(&self) -> usize {
        self.nodes.len() * (size_of::<PathNode>() + (size_of::<u32>() + 1) * 4 / 3)
    }

    /// Makes all nodes known to [`Self::find`].
    fn index_nodes(&mut self) {
        let Self { nodes, indices, hasher } = self;
        let hash = |index: &u32| nodes.get(*index as usize).map_or(0, |node| hasher.hash_one(node));
        indices.reserve(nodes.len() - indices.len(), hash);
        for index in indices.len() as u32..nodes.len() as u32 {
            indices.insert_unique(hash(&index), index, hash);
        }
    }

    fn find(&self, node: PathNode) -> Option<u32> {
        let is_same = |index: &u32| self.nodes.get(*index as usize) == Some(&node);
        self.indices.find(self.hasher.hash_one(node), is_same).copied()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use proptest::prelude::*;

    fn paths_of(lists: &[Vec<u32>]) -> Paths {
        let mut paths = Paths::default();
        for list in lists {
            paths.extend(list.iter().copied());
            paths.close();
        }
        paths
    }

    fn path_to(tree: &PathTree, node: u32) -> Vec<u32> {
        let mut path: Vec<_> =
            std::iter::successors(Some(node), |node| tree.all()[*node as usize].parent).collect();
        path.reverse();
        path.iter().map(|node| tree.all()[*node as usize].label).collect()
    }

    proptest! {
        #[test]
        fn each_beginning_of_a_path_is_one_node_whenever_it_is_added(
            additions in prop::collection::vec(
                prop::collection::vec(prop::collection::vec(0_u32..4, 0..6), 0..8), 1..4)
        ) {
            let mut tree = PathTree::default();
            for lists in &additions {
                tree.add(&paths_of(lists), |number, nodes| assert_eq!(nodes.len(), lists[number].len()));
            }
            for lists in &additions {
                let before = tree.len();
                let mut told = 0;
                tree.add(&paths_of(lists), |number, nodes| {
                    told += 1;
                    assert!(nodes.iter().all(|node| (*node as usize) < before), "{number}");
                });
                prop_assert_eq!(told, lists.len());
                prop_assert_eq!(tree.len(), before);
            }
            let all = additions.iter().flatten();
            let beginnings: HashSet<_> =
                all.flat_map(|list| (1..=list.len()).map(|length| list[..length].to_vec())).collect();
            let held: Vec<_> = (0..tree.len() as u32).map(|node| path_to(&tree, node)).collect();
            prop_assert_eq!(held.len(), beginnings.len());
            prop_assert_eq!(held.into_iter().collect::<HashSet<_>>(), beginnings);
            for (index, node) in tree.all().iter().enumerate() {
                prop_assert!(node.parent.is_none_or(|parent| (parent as usize) < index));
            }
        }
    }
}
