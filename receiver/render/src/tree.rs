//! All stacks as one call tree: stacks with common callers share nodes. It grows with its profile, and its indices don't
//! change.

use std::collections::{BTreeSet, HashMap};

use sidewinder_profile::{FrameIndex, Index as _, StackIndex, StringIndex, StringTable, Table, index_types};

use crate::category::FrameCategory;
use crate::escape::{escaped, escaped_or_empty};
use crate::functions::function_key;
use crate::names::ShortNames;
use crate::path_tree::{PathNode, PathTree, Paths};
use crate::profile::{Profile, ProfileSample};
use crate::standard::is_standard;

/// A function: frames with the same name in the same binary. Strings are indices in [`CallTree::strings`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TreeFunction {
    pub(crate) name: u32,
    /// The short form of the name.
    pub(crate) short: u32,
    /// The number of functions when it became that.
    pub(crate) short_since: u32,
    pub(crate) binary: u32,
    pub(crate) kind: FrameCategory,
    /// Whether it is [code of a standard library](crate::standard).
    pub(crate) is_standard: bool,
    /// The source file; empty if unknown.
    pub(crate) path: u32,
}

index_types! {
    /// Index in [`CallTree::function_lines`].
    pub(crate) LineIndex,
}

/// A line of a function.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FunctionLine {
    /// Index in [`CallTree::functions`].
    pub(crate) function: u32,
    /// The line number, from 1; 0 if unknown.
    pub(crate) line: u32,
    /// Its file, if it is another one than the function's; else the empty string.
    pub(crate) path: u32,
    /// Whether the call of the function is inlined.
    pub(crate) is_inlined: bool,
}

/// No node has this number.
const UNKNOWN_NODE: u32 = u32::MAX;

/// The stacks, merged from their roots.
#[derive(Default, Debug)]
pub(crate) struct CallTree {
    /// Each distinct string, escaped; the first is empty.
    pub(crate) strings: StringTable<StringIndex>,
    pub(crate) functions: Vec<TreeFunction>,
    pub(crate) function_lines: Table<LineIndex, FunctionLine>,
    /// The lines of functions as reached by chains of callers: labels are indices in `function_lines`.
    pub(crate) nodes: PathTree,
    /// The same of functions, whatever the lines: labels are indices in `functions`.
    function_nodes: PathTree,
    /// The function node of each of `nodes`.
    function_node_of: Vec<u32>,
    /// The leaf of each stack of the profile, as index in `nodes`; [`UNKNOWN_NODE`] if the stack was not added.
    leaves: Vec<u32>,
    /// By name and binary.
    function_indices: HashMap<(u32, u32), u32>,
    short_names: ShortNames,
    /// The functions of each name, in different binaries.
    functions_of_name: HashMap<u32, Vec<u32>>,
    /// Names whose short form is to be made, or made again.
    outdated_names: BTreeSet<u32>,
    /// The index in `function_lines` of each frame that is in a stack.
    line_of_frame: Vec<Option<u32>>,
}

impl CallTree {
    /// Adds the new stacks of these samples of the profile, with their functions.
    pub(crate) fn update<'a>(
        &mut self,
        profile: &Profile,
        samples: impl IntoIterator<Item = &'a ProfileSample>,
    ) {
        self.line_of_frame.resize(profile.dictionary.frame_count(), None);
        self.leaves.resize(profile.dictionary.stack_count(), UNKNOWN_NODE);
        let is_new = |stack: &StackIndex| self.leaves.get(stack.position()) == Some(&UNKNOWN_NODE);
        let mut new: Vec<_> = samples.into_iter().map(|sample| sample.stack).filter(is_new).collect();
        new.sort_unstable();
        new.dedup();
        self.add_stacks(profile, &new);
        self.renew_short_names();
    }

    fn add_stacks(&mut self, profile: &Profile, stacks: &[StackIndex]) {
        let frames_of = |stack: &StackIndex| profile.dictionary.frames_of(*stack);
        let frame_count = stacks.iter().map(|stack| frames_of(stack).count()).sum();
        let mut paths = Paths::with_capacity(frame_count, stacks.len());
        for stack in stacks {
            for frame in frames_of(stack).rev() {
                paths.extend(self.function_line(profile, frame));
            }
            if paths.is_open_empty() {
                paths.extend([self.line_of_empty_stack()]);
            }
            paths.close();
        }
        let leaves = &mut self.leaves;
        self.nodes.add(&paths, |path, nodes| {
            let leaf = stacks.get(path).and_then(|stack| leaves.get_mut(stack.position()));
            if let (Some(leaf), Some(node)) = (leaf, nodes.last()) {
                *leaf = *node;
            }
        });
        self.add_function_nodes();
    }

    /// The node of the leaf of a stack, if it was added.
    pub(crate) fn leaf(&self, stack: StackIndex) -> Option<u32> {
        self.leaves.get(stack.position()).copied().filter(|leaf| *leaf != UNKNOWN_NODE)
    }

    /// Adds the function nodes of new nodes. A node comes after its parent.
    fn add_function_nodes(&mut self) {
        let function_of =
            |line: u32| self.function_lines.get(LineIndex(line)).map_or(0, |line| line.function);
        let known = self.function_node_of.len();
        self.function_nodes.reserve(self.nodes.len() - known);
        for node in self.nodes.all().iter().skip(known) {
            let parent = node.parent.and_then(|parent| self.function_node_of.get(parent as usize)).copied();
            let function_node =
                self.function_nodes.child(PathNode { parent, label: function_of(node.label) });
            self.function_node_of.push(function_node);
        }
    }

    /// The line of a frame, which is added if it is new; `None` if the profile has no such frame.
    fn function_line(&mut self, profile: &Profile, index: FrameIndex) -> Option<u32> {
        if let Some(known) = *self.line_of_frame.get(index.position())? {
            return Some(known);
        }
        let frame = profile.dictionary.frame(index)?;
        let (name, binary, kind) = function_key(&frame);
        let function = self.function(&name, binary, kind, frame.path());
        let own_path = self.functions.get(function as usize).map_or(0, |function| function.path);
        let path = self.strings.intern(&escaped_or_empty(frame.path())).0;
        let path = if path == own_path { 0 } else { path };
        let line = FunctionLine { function, line: frame.line.line, path, is_inlined: frame.is_inlined };
        let line = self.function_lines.intern(line).0;
        *self.line_of_frame.get_mut(index.position())? = Some(line);
        Some(line)
    }

    /// The approximate memory in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.strings.bytes()
            + self.functions.len() * (size_of::<TreeFunction>() + 2 * size_of::<(u32, u32, u32)>())
            + self.functions_of_name.len() * 2 * size_of::<(u32, Vec<u32>, u32)>()
            + self.short_names.bytes()
            + self.function_lines.bytes()
            + self.nodes.bytes()
            + self.function_nodes.bytes()
            + self.function_node_of.len() * size_of::<u32>()
            + self.leaves.len() * size_of::<u32>()
            + size_of_val(&*self.line_of_frame)
    }

    fn function(&mut self, name: &str, binary: &str, kind: FrameCategory, path: &str) -> u32 {
        let name = self.strings.intern(&escaped(name)).0;
        let [binary, path] = [binary, path].map(|text| self.strings.intern(&escaped_or_empty(text)).0);
        let number = match self.function_indices.get(&(name, binary)) {
            Some(number) => *number,
            None => self.add_function(name, binary, kind, path),
        };
        // Not every line of a function has a file.
        if let Some(known) = self.functions.get_mut(number as usize).filter(|known| known.path == 0) {
            known.path = path;
        }
        number
    }

    fn add_function(&mut self, name: u32, binary: u32, kind: FrameCategory, path: u32) -> u32 {
        let number = self.functions.len() as u32;
        let [label, file] = [name, binary].map(|text| self.strings.get(StringIndex(text)));
        let is_standard = is_standard(label, file, kind);
        self.functions.push(TreeFunction {
            name,
            short: name,
            short_since: 0,
            binary,
            kind,
            is_standard,
            path,
        });
        self.function_indices.insert((name, binary), number);
        let same_name = self.functions_of_name.entry(name).or_default();
        same_name.push(number);
        if same_name.len() == 1 {
            let label = self.strings.get(StringIndex(name));
            self.outdated_names.extend(self.short_names.add(name, label, kind));
        }
        self.outdated_names.insert(name);
        number
    }

    fn renew_short_names(&mut self) {
        let function_count = self.functions.len() as u32;
        for name in std::mem::take(&mut self.outdated_names) {
            let same_name = self.functions_of_name.get(&name).map_or(&[][..], Vec::as_slice);
            let first = same_name.first().and_then(|number| self.functions.get(*number as usize));
            let Some(kind) = first.map(|function| function.kind) else { continue };
            let short = self.short_names.get(self.strings.get(StringIndex(name)), kind).into_owned();
            let short = self.strings.intern(&short).0;
            for number in same_name {
                if let Some(function) = self.functions.get_mut(*number as usize)
                    && function.short != short
                {
                    (function.short, function.short_since) = (short, function_count);
                }
            }
        }
    }

    /// The line that stands for stacks without frames.
    fn line_of_empty_stack(&mut self) -> u32 {
        let function = self.function("[no frames]", "", FrameCategory::Marker, "");
        self.function_lines.intern(FunctionLine { function, line: 0, path: 0, is_inlined: false }).0
    }

    /// For each node the number of function nodes from its own one to the last one that there was, in the order in which nodes
    /// come: 0 if it is the first node of its function node.
    pub(crate) fn function_nodes_back(&self) -> impl Iterator<Item = u32> {
        let mut numbers = vec![UNKNOWN_NODE; self.function_nodes.len()];
        let mut count = 0;
        self.function_node_of.iter().map(move |function_node| {
            match numbers.get_mut(*function_node as usize) {
                Some(number) if *number == UNKNOWN_NODE => {
                    *number = count;
                    count += 1;
                    0
                }
                Some(number) => count - *number,
                None => 0,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path_tree::PathNode;
    use crate::profile::tests::{SAMPLE_STACKS, lines, one_stack, profile, sample, sample_frames};

    fn grown(profile: &Profile) -> CallTree {
        let mut tree = CallTree::default();
        tree.update(profile, &profile.samples);
        tree
    }

    fn name<'a>(tree: &'a CallTree, node: &PathNode) -> &'a str {
        let place = tree.function_lines.values()[node.label as usize];
        tree.strings.get(StringIndex(tree.functions[place.function as usize].name))
    }

    /// The leaf of each stack but the empty one, which the profile has none of.
    fn leaves(tree: &CallTree) -> &[u32] {
        assert_eq!(tree.leaf(StackIndex::default()), None);
        &tree.leaves[1..]
    }

    /// The functions of each stack, leaf first.
    fn paths(tree: &CallTree) -> Vec<Vec<&str>> {
        let path = |leaf: &u32| {
            let leaf = tree.nodes.all().get(*leaf as usize);
            let callers = std::iter::successors(leaf, |node| tree.nodes.all().get(node.parent? as usize));
            callers.map(|node| name(tree, node)).collect()
        };
        leaves(tree).iter().map(path).collect()
    }

    #[test]
    fn stacks_share_their_beginnings() {
        let tree = grown(&sample());
        let shown: Vec<_> = tree.nodes.all().iter().map(|node| (node.parent, name(&tree, node))).collect();
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
        assert_eq!(leaves(&tree), [0, 1, 1, 2, 4]);
    }

    #[test]
    fn lines_of_a_function_are_distinguished() {
        let mut frames = sample_frames();
        (frames[1].line, frames[2].line) = (10, 12);
        let tree = grown(&profile(&frames, &SAMPLE_STACKS));
        assert_eq!(tree.functions.len(), 4);
        assert_eq!(tree.function_lines.values().len(), 5);
        assert_eq!(leaves(&tree), [0, 1, 3, 2, 5]);
    }

    #[test]
    fn lines_say_whether_they_are_inlined_and_which_other_file_they_are_of() {
        let tree = grown(&lines());
        let line = |name: &'static str, line, path: &'static str, is_inlined| (name, line, path, is_inlined);
        let lines = tree.function_lines.values().iter().map(|line| {
            let name = tree.functions[line.function as usize].name;
            {
                let [name, path] = [name, line.path].map(|text| tree.strings.get(StringIndex(text)));
                (name, line.line, path, line.is_inlined)
            }
        });
        let lines: Vec<_> = lines.collect();
        assert_eq!(
            lines,
            [
                line("main", 7, "", false),
                line("hot", 20, "", false),
                line("hot", 21, "", false),
                line("hash", 4, "", true),
                line("hot", 25, "", false),
                line("hot", 30, "src/table.inc", false),
            ]
        );
    }

    #[test]
    fn a_stack_of_nothing_has_a_place_too() {
        let tree = grown(&one_stack(&[]));
        assert_eq!(tree.leaf(StackIndex::default()), Some(0));
        assert_eq!(name(&tree, &tree.nodes.all()[0]), "[no frames]");
    }

    #[test]
    fn what_grows_bit_by_bit_is_what_grows_at_once() {
        let mut tree = CallTree::default();
        for stacks in 0..=SAMPLE_STACKS.len() {
            let so_far = profile(&sample_frames(), &SAMPLE_STACKS[..stacks]);
            tree.update(&so_far, &so_far.samples);
        }
        let at_once = grown(&sample());
        assert_eq!(paths(&tree), paths(&at_once));
        assert_eq!(tree.nodes.all().len(), at_once.nodes.all().len());
        assert_eq!(tree.functions, at_once.functions);
        assert_eq!(tree.strings, at_once.strings);
    }
}
