//! All stacks as one call tree: stacks with common callers share nodes. It grows with its profile, and its indices don't
//! change.

use std::collections::{BTreeSet, HashMap};

use crate::escape::{escaped, escaped_or_empty};
use crate::functions::function_key;
use crate::interner::{StringTable, ValueInterner};
use crate::names::ShortNames;
use crate::path_tree::{PathNode, PathTree, Paths};
use crate::profile::{FrameCategory, FrameIndex, Profile};
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
#[derive(Debug)]
pub(crate) struct CallTree {
    /// Each distinct string, escaped; the first is empty.
    pub(crate) strings: StringTable,
    pub(crate) functions: Vec<TreeFunction>,
    pub(crate) function_lines: ValueInterner<FunctionLine>,
    /// The lines of functions as reached by chains of callers: labels are indices in `function_lines`.
    pub(crate) nodes: PathTree,
    /// The same of functions, whatever the lines: labels are indices in `functions`.
    function_nodes: PathTree,
    /// The function node of each of `nodes`.
    function_node_of: Vec<u32>,
    /// The leaf of each stack of the profile, as index in `nodes`.
    pub(crate) leaves: Vec<u32>,
    /// By name and binary.
    function_indices: HashMap<(u32, u32), u32>,
    short_names: ShortNames,
    /// The functions of each name, in different binaries.
    functions_of_name: HashMap<u32, Vec<u32>>,
    /// Names whose short form is to be made, or made again.
    outdated_names: BTreeSet<u32>,
    line_of_frame: Vec<FrameLine>,
}

/// The line of a frame.
#[derive(Clone, Copy, Debug)]
struct FrameLine {
    line: FunctionLine,
    /// Its index in [`CallTree::function_lines`], once it has one.
    index: Option<u32>,
}

impl Default for CallTree {
    fn default() -> Self {
        let mut texts = StringTable::default();
        texts.intern("");
        Self {
            strings: texts,
            functions: Vec::new(),
            function_lines: ValueInterner::default(),
            nodes: PathTree::default(),
            function_nodes: PathTree::default(),
            function_node_of: Vec::new(),
            leaves: Vec::new(),
            function_indices: HashMap::new(),
            short_names: ShortNames::default(),
            functions_of_name: HashMap::new(),
            outdated_names: BTreeSet::new(),
            line_of_frame: Vec::new(),
        }
    }
}

impl CallTree {
    /// Adds the new frames and stacks of the profile.
    pub(crate) fn update(&mut self, profile: &Profile) {
        for frame in profile.frames.iter().skip(self.line_of_frame.len()) {
            let (name, binary, kind) = function_key(profile, frame);
            let function = self.function(&name, binary, kind, &frame.path);
            let own_path = self.functions.get(function as usize).map_or(0, |function| function.path);
            let path = self.strings.intern(&escaped_or_empty(&frame.path));
            let path = if path == own_path { 0 } else { path };
            let line = FunctionLine { function, line: frame.line, path, is_inlined: frame.is_inlined };
            self.line_of_frame.push(FrameLine { line, index: None });
        }
        self.add_stacks(profile);
        self.renew_short_names();
    }

    /// Adds the new stacks.
    fn add_stacks(&mut self, profile: &Profile) {
        let first = self.leaves.len();
        let new = profile.stacks.get(first..).unwrap_or_default();
        let mut paths = Paths::with_capacity(new.iter().map(Vec::len).sum(), new.len());
        for stack in new {
            for frame in stack.iter().rev() {
                paths.extend(self.function_line(*frame));
            }
            if paths.is_open_empty() {
                paths.extend([self.line_of_empty_stack()]);
            }
            paths.close();
        }
        let leaves = &mut self.leaves;
        leaves.resize(first + paths.len(), 0);
        self.nodes.add(&paths, |path, nodes| {
            if let (Some(leaf), Some(node)) = (leaves.get_mut(first + path), nodes.last()) {
                *leaf = *node;
            }
        });
        self.add_function_nodes();
    }

    /// Adds the function nodes of new nodes. A node comes after its parent.
    fn add_function_nodes(&mut self) {
        let function_of =
            |line: u32| self.function_lines.values.get(line as usize).map_or(0, |line| line.function);
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
    fn function_line(&mut self, frame: FrameIndex) -> Option<u32> {
        let FrameLine { line, index } = self.line_of_frame.get_mut(frame.0 as usize)?;
        Some(*index.get_or_insert_with(|| self.function_lines.intern(*line)))
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
            + self.line_of_frame.len() * size_of::<FrameLine>()
    }

    fn function(&mut self, name: &str, binary: &str, kind: FrameCategory, path: &str) -> u32 {
        let name = self.strings.intern(&escaped(name));
        let [binary, path] = [binary, path].map(|text| self.strings.intern(&escaped_or_empty(text)));
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
        let [label, file] = [name, binary].map(|text| self.strings.get(text));
        let is_standard = is_standard(&label, &file, kind);
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
            let label = self.strings.get(name);
            self.outdated_names.extend(self.short_names.add(name, &label, kind));
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
            let label = self.strings.get(name);
            let short = self.strings.intern(&self.short_names.get(&label, kind));
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
        self.function_lines.intern(FunctionLine { function, line: 0, path: 0, is_inlined: false })
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
    use std::sync::Arc;

    use super::*;
    use crate::path_tree::PathNode;
    use crate::profile::tests::{lines, one_stack, sample};

    fn grown(profile: &Profile) -> CallTree {
        let mut tree = CallTree::default();
        tree.update(profile);
        tree
    }

    fn name<'a>(tree: &'a CallTree, node: &PathNode) -> &'a str {
        let place = tree.function_lines.values[node.label as usize];
        &tree.strings.all()[tree.functions[place.function as usize].name as usize]
    }

    /// The functions of each stack, leaf first.
    fn paths(tree: &CallTree) -> Vec<Vec<&str>> {
        let path = |leaf: &u32| {
            let leaf = tree.nodes.all().get(*leaf as usize);
            let callers = std::iter::successors(leaf, |node| tree.nodes.all().get(node.parent? as usize));
            callers.map(|node| name(tree, node)).collect()
        };
        tree.leaves.iter().map(path).collect()
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
        assert_eq!(tree.leaves, [0, 1, 1, 2, 4]);
    }

    #[test]
    fn lines_of_a_function_are_distinguished() {
        let mut profile = sample();
        profile.frames[1].line = 10;
        profile.frames[2].line = 12;
        let tree = grown(&profile);
        assert_eq!(tree.functions.len(), 4);
        assert_eq!(tree.function_lines.values.len(), 5);
        assert_eq!(tree.leaves, [0, 1, 3, 2, 5]);
    }

    #[test]
    fn lines_say_whether_they_are_inlined_and_which_other_file_they_are_of() {
        let tree = grown(&lines());
        let line =
            |name: &str, line, path: &str, is_inlined| (Arc::from(name), line, Arc::from(path), is_inlined);
        let lines = tree.function_lines.values.iter().map(|line| {
            let name = tree.functions[line.function as usize].name;
            (tree.strings.get(name), line.line, tree.strings.get(line.path), line.is_inlined)
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
        assert_eq!(tree.leaves, [0]);
        assert_eq!(name(&tree, &tree.nodes.all()[0]), "[no frames]");
    }

    #[test]
    fn what_grows_bit_by_bit_is_what_grows_at_once() {
        let profile = sample();
        let mut tree = CallTree::default();
        for stacks in 0..=profile.stacks.len() {
            let mut so_far = profile.clone();
            so_far.stacks.truncate(stacks);
            so_far.frames.truncate(stacks + 1);
            tree.update(&so_far);
        }
        let at_once = grown(&profile);
        assert_eq!(paths(&tree), paths(&at_once));
        assert_eq!(tree.nodes.all().len(), at_once.nodes.all().len());
        assert_eq!(tree.functions, at_once.functions);
        assert_eq!(tree.strings.all(), at_once.strings.all());
    }
}
