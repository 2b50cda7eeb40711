//! All stacks as one call tree: stacks with common callers share nodes. It grows with its profile, and its indices don't
//! change.

use std::borrow::Borrow;
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, Hash};
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};

use crate::escape::{escaped, escaped_or_empty};
use crate::functions::function_key;
use crate::names::ShortNames;
use crate::profile::{FrameCategory, Profile};

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

/// A function line, as reached by a certain chain of callers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct CallNode {
    /// The caller, as index in [`CallTree::nodes`]; `None` for the outermost.
    pub(crate) parent: Option<u32>,
    /// Index in [`CallTree::function_lines`].
    pub(crate) function_line: u32,
}

/// A function as reached by a certain chain of callers, whatever the lines: one or more [`CallNode`]s.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FunctionNode {
    /// The caller, as index in [`CallTree::function_nodes`]; `None` for the outermost.
    parent: Option<u32>,
    /// Index in [`CallTree::functions`].
    function: u32,
}

/// The stacks, merged from their roots.
#[derive(Debug)]
pub(crate) struct CallTree {
    /// Each distinct string, escaped; the first is empty.
    pub(crate) strings: StringTable,
    pub(crate) functions: Vec<TreeFunction>,
    pub(crate) function_lines: ValueInterner<FunctionLine>,
    /// Each node comes after its caller.
    pub(crate) nodes: ValueInterner<CallNode>,
    function_nodes: ValueInterner<FunctionNode>,
    /// The function node of each of `nodes`, as index in `function_nodes`.
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
    /// Its indices in [`CallTree::function_lines`], once it has them: of a call that is not inlined, and of one that is.
    indices: [Option<u32>; 2],
}

impl Default for CallTree {
    fn default() -> Self {
        let mut texts = StringTable::default();
        texts.intern("");
        Self {
            strings: texts,
            functions: Vec::new(),
            function_lines: ValueInterner::default(),
            nodes: ValueInterner::default(),
            function_nodes: ValueInterner::default(),
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
            let line = FunctionLine { function, line: frame.line, path, is_inlined: false };
            self.line_of_frame.push(FrameLine { line, indices: [None; 2] });
        }
        for stack in profile.stacks.iter().skip(self.leaves.len()) {
            let mut reached = None;
            for (frame, is_inlined) in profile.frames_with_inlining(stack).into_iter().rev() {
                let Some(FrameLine { line, indices }) = self.line_of_frame.get_mut(frame.0 as usize) else {
                    continue;
                };
                let [plain, inlined] = indices;
                let known = if is_inlined { inlined } else { plain };
                let function_line = *known
                    .get_or_insert_with(|| self.function_lines.intern(FunctionLine { is_inlined, ..*line }));
                let function = line.function;
                reached = Some(self.node(CallNode { parent: reached, function_line }, function));
            }
            let leaf = reached.unwrap_or_else(|| self.empty_stack_node());
            self.leaves.push(leaf);
        }
        self.renew_short_names();
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
        self.functions.push(TreeFunction { name, short: name, short_since: 0, binary, kind, path });
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

    /// The node for empty stacks.
    fn empty_stack_node(&mut self) -> u32 {
        let function = self.function("[no frames]", "", FrameCategory::Marker, "");
        let line = FunctionLine { function, line: 0, path: 0, is_inlined: false };
        let function_line = self.function_lines.intern(line);
        self.node(CallNode { parent: None, function_line }, function)
    }

    /// The index of a node, which is of a line of this function.
    fn node(&mut self, node: CallNode, function: u32) -> u32 {
        let index = self.nodes.intern(node);
        if index as usize == self.function_node_of.len() {
            let parent = node.parent.and_then(|parent| self.function_node_of.get(parent as usize)).copied();
            self.function_node_of.push(self.function_nodes.intern(FunctionNode { parent, function }));
        }
        index
    }

    /// For each node the number of function nodes from its own one to the last one that there was: 0 if it is the first node of
    /// its function node.
    pub(crate) fn function_nodes_back(&self) -> impl Iterator<Item = u32> {
        let mut count = 0;
        self.function_node_of.iter().map(move |function_node| {
            let back = count - function_node;
            count = count.max(function_node + 1);
            back
        })
    }
}

/// Each distinct value once, indexed in order of arrival. The hash has a random seed: profiled programs choose names.
#[derive(Debug)]
pub(crate) struct ValueInterner<T> {
    pub(crate) values: Vec<T>,
    /// Indices in `values`, by the hash of the value.
    indices: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for ValueInterner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), indices: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<T: Eq + Hash> ValueInterner<T> {
    pub(crate) fn intern(&mut self, value: T) -> u32 {
        self.find(&value).unwrap_or_else(|| self.insert(value))
    }

    fn find<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        let is_same =
            |index: &u32| self.values.get(*index as usize).is_some_and(|known| known.borrow() == value);
        self.indices.find(self.hasher.hash_one(value), is_same).copied()
    }

    /// Adds a value that is not there.
    fn insert(&mut self, value: T) -> u32 {
        let Self { values, indices, hasher } = self;
        let (hash, index) = (hasher.hash_one(&value), values.len() as u32);
        values.push(value);
        let hash_of = |index: &u32| values.get(*index as usize).map_or(0, |known: &T| hasher.hash_one(known));
        indices.insert_unique(hash, index, hash_of);
        index
    }

    /// The approximate memory in bytes, except what values own. A hash table is three quarters full on average.
    fn bytes(&self) -> usize {
        self.values.len() * (size_of::<T>() + (size_of::<u32>() + 1) * 4 / 3)
    }
}

/// Each distinct text once.
#[derive(Default, Debug)]
pub(crate) struct StringTable {
    table: ValueInterner<Arc<str>>,
    string_bytes: usize,
}

impl StringTable {
    pub(crate) fn intern(&mut self, text: &str) -> u32 {
        if let Some(number) = self.table.find(text) {
            return number;
        }
        self.string_bytes += text.len();
        self.table.insert(text.into())
    }

    pub(crate) fn all(&self) -> &[Arc<str>] {
        &self.table.values
    }

    fn get(&self, number: u32) -> Arc<str> {
        self.table.values.get(number as usize).cloned().unwrap_or_default()
    }

    fn bytes(&self) -> usize {
        self.table.bytes() + self.string_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{lines, one_stack, sample};

    fn grown(profile: &Profile) -> CallTree {
        let mut tree = CallTree::default();
        tree.update(profile);
        tree
    }

    fn name<'a>(tree: &'a CallTree, node: &CallNode) -> &'a str {
        let place = tree.function_lines.values[node.function_line as usize];
        &tree.strings.all()[tree.functions[place.function as usize].name as usize]
    }

    #[test]
    fn stacks_share_their_beginnings() {
        let tree = grown(&sample());
        let shown: Vec<_> = tree.nodes.values.iter().map(|node| (node.parent, name(&tree, node))).collect();
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
        assert_eq!(tree.leaves, [0, 1, 2, 3, 5]);
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
        assert_eq!(name(&tree, &tree.nodes.values[0]), "[no frames]");
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
        assert_eq!(tree.leaves, at_once.leaves);
        assert_eq!(tree.nodes.values, at_once.nodes.values);
        assert_eq!(tree.functions, at_once.functions);
        assert_eq!(tree.strings.all(), at_once.strings.all());
    }
}
