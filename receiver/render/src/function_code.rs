//! Where a function's code is, and what each of its instructions costs.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

use sidewinder_profile::{Frame, FrameIndex, Index as _, MappingIndex, StackIndex};

use crate::annotation::{InstructionCosts, PageFunction};
use crate::category::FrameCategory;
use crate::escape::{escaped, escaped_or_empty};
use crate::functions::{NO_SYMBOL, function_key, functions};
use crate::label::frame_label;
use crate::profile::Profile;

/// A function's frames in a profile.
#[derive(Debug)]
pub struct FunctionCode<'a> {
    profile: &'a Profile,
    /// Whether each frame of the profile is one of the function.
    is_frame: Vec<bool>,
}

/// What a line of a function costs, in events.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct LineCost<'a> {
    /// Events that were taken at the line.
    pub own: u64,
    /// These, and those in what the line calls. Recursion counts once.
    pub total: u64,
    /// Those of `total` in calls that were inlined at the line, by the label of the function.
    pub inlined: BTreeMap<Cow<'a, str>, u64>,
}

impl PageFunction {
    /// The function with this name, in a binary whose file has this name.
    #[must_use]
    pub fn new(name: &str, binary: &str) -> Self {
        Self { name: escaped(name).into_owned(), binary: escaped_or_empty(binary).into_owned() }
    }

    /// The functions with the most self events that have code in a file.
    #[must_use]
    pub fn hottest(profile: &Profile, count: usize) -> Vec<Self> {
        let has_code = |kind| matches!(kind, FrameCategory::Native | FrameCategory::Rust | FrameCategory::Go);
        // Where the name of a file would be, `[vdso]` and the like are no file.
        let has_file = |binary: &str| !binary.is_empty() && !binary.starts_with('[');
        let functions = functions(profile).into_iter();
        let functions = functions.filter(|function| {
            function.name != NO_SYMBOL && has_code(function.kind) && has_file(function.binary)
        });
        functions.take(count).map(|function| Self::new(&function.name, function.binary)).collect()
    }
}

impl<'a> FunctionCode<'a> {
    /// The frames of a function; `None` if the profile has none.
    #[must_use]
    pub fn new(profile: &'a Profile, function: &PageFunction) -> Option<Self> {
        let is_of = |frame: Frame<'_>| {
            let (name, binary, _) = function_key(&frame);
            escaped(&name) == function.name && escaped_or_empty(binary) == function.binary
        };
        let is_frame: Vec<_> = profile.dictionary.frames().map(is_of).collect();
        is_frame.contains(&true).then_some(Self { profile, is_frame })
    }

    fn frames(&self) -> impl Iterator<Item = Frame<'a>> {
        let frames = self.profile.dictionary.frames().zip(&self.is_frame);
        frames.filter(|(_, is)| **is).map(|(frame, _)| frame)
    }

    /// The frames of a stack, leaf first, each with whether it is one of the function.
    fn frames_of(&self, stack: StackIndex) -> impl Iterator<Item = (Frame<'a>, bool)> {
        let dictionary = &self.profile.dictionary;
        let frames = dictionary.frames_of(stack);
        frames.filter_map(|index| Some((dictionary.frame(index)?, self.is_of(index))))
    }

    fn is_of(&self, frame: FrameIndex) -> bool {
        self.is_frame.get(frame.position()).copied().unwrap_or(false)
    }

    /// The function's lines with samples, and those of the calls that were inlined into it, by source file. Lines that are not
    /// known are left out.
    #[must_use]
    pub fn lines(&self) -> BTreeMap<&'a str, BTreeSet<u32>> {
        let mut lines = BTreeMap::<&str, BTreeSet<u32>>::new();
        for (stack, _) in self.profile.stack_counts() {
            let mut inlined = Vec::new();
            for (frame, is_of) in self.frames_of(stack) {
                let is_inlined = frame.is_inlined;
                inlined.push((frame.path(), frame.line.line));
                if is_of {
                    let known = inlined.iter().filter(|(path, line)| *line > 0 && !path.is_empty());
                    known.for_each(|(path, line)| _ = lines.entry(path).or_default().insert(*line));
                }
                if !is_inlined {
                    inlined.clear();
                }
            }
        }
        lines
    }

    /// What the function's lines cost, by source file and line number: 0 if that is unknown. A line without a file is of the
    /// first file that the function has.
    #[must_use]
    pub fn line_costs(&self) -> BTreeMap<(&'a str, u32), LineCost<'a>> {
        let first_path =
            self.frames().map(|frame| frame.path()).find(|path| !path.is_empty()).unwrap_or_default();
        let mut costs = BTreeMap::<(&str, u32), LineCost<'_>>::new();
        for (stack, count) in self.profile.stack_counts() {
            let mut counted = BTreeSet::new();
            // The function that is inlined at the frame that follows.
            let mut inlined = None;
            for (depth, (frame, is_of)) in self.frames_of(stack).enumerate() {
                if is_of {
                    let path = Some(frame.path()).filter(|path| !path.is_empty());
                    let line = (path.unwrap_or(first_path), frame.line.line);
                    let cost = costs.entry(line).or_default();
                    if depth == 0 {
                        cost.own = cost.own.saturating_add(count);
                    }
                    if counted.insert(line) {
                        cost.total = cost.total.saturating_add(count);
                        if let Some(inlined) = inlined {
                            let events = cost.inlined.entry(inlined).or_default();
                            *events = events.saturating_add(count);
                        }
                    }
                }
                inlined = frame.is_inlined.then(|| frame_label(&frame));
            }
        }
        costs
    }

    /// The addresses of the function's samples in its file, with their events; `None` if none is known. Files
    /// of the same name count as one function: the mapping with the most events is taken.
    #[must_use]
    pub fn addresses(&self) -> Option<(MappingIndex, BTreeMap<u64, u64>)> {
        let mut by_mapping = BTreeMap::<MappingIndex, BTreeMap<u64, u64>>::new();
        for (stack, count) in self.profile.stack_counts() {
            let frames = self.frames_of(stack).filter(|(_, is_of)| *is_of);
            let locations = frames.map(|(frame, _)| (frame.location.mapping, frame.location.address));
            let is_known = |(mapping, address): &(MappingIndex, u64)| {
                *mapping != MappingIndex::default() && *address > 0
            };
            for (mapping, address) in locations.filter(is_known) {
                let events = by_mapping.entry(mapping).or_default().entry(address).or_default();
                *events = events.saturating_add(count);
            }
        }
        let events =
            |of: &BTreeMap<u64, u64>| of.values().fold(0_u64, |sum, count| sum.saturating_add(*count));
        by_mapping.into_iter().max_by_key(|(_, addresses)| events(addresses))
    }

    /// The costs of the function's instructions in a mapping. `instruction_at` is the index of the instruction that contains an
    /// address.
    #[must_use]
    pub fn costs(
        &self,
        mapping: MappingIndex,
        instruction_at: impl Fn(u64) -> Option<u32>,
    ) -> InstructionCosts {
        let mut of_stack = HashMap::<StackIndex, Vec<(u32, bool)>>::new();
        let mut rows = BTreeMap::<(u32, u32, u32, u32), (u64, u64)>::new();
        for sample in &self.profile.samples {
            let stack = sample.stack;
            let instructions =
                of_stack.entry(stack).or_insert_with(|| self.instructions(stack, mapping, &instruction_at));
            for &mut (instruction, is_own) in instructions {
                let state = sample.state.map_or(0, |state| state.0 + 1);
                let (own, total) =
                    rows.entry((sample.slice, sample.thread.0, state, instruction)).or_default();
                *total = total.saturating_add(sample.count);
                *own = own.saturating_add(if is_own { sample.count } else { 0 });
            }
        }
        let mut costs = InstructionCosts::default();
        for ((slice, thread, state, instruction), (own, total)) in rows {
            costs.slice.push(slice);
            costs.thread.push(thread);
            costs.state.push(state);
            costs.instruction.push(instruction);
            costs.own.push(own);
            costs.total.push(total);
        }
        costs
    }

    /// The function's instructions on a stack, each once, with whether the sample was taken there.
    fn instructions(
        &self,
        stack: StackIndex,
        mapping: MappingIndex,
        instruction_at: impl Fn(u64) -> Option<u32>,
    ) -> Vec<(u32, bool)> {
        let mut found = BTreeMap::new();
        let mut is_leaf = true;
        for (frame, is_of) in self.frames_of(stack) {
            if frame.location.mapping == mapping
                && is_of
                && let Some(instruction) = instruction_at(frame.location.address)
            {
                *found.entry(instruction).or_default() |= is_leaf;
            }
            // Calls that are inlined share the instruction of what they are inlined into.
            is_leaf &= frame.is_inlined;
        }
        found.into_iter().collect()
    }
}

/// The lines of a profile, by source file: those with the most events first. Lines that are not known are left out.
#[must_use]
pub fn lines_by_file(profile: &Profile) -> Vec<(&str, BTreeSet<u32>)> {
    let mut files = BTreeMap::<&str, (u64, BTreeSet<u32>)>::new();
    for (stack, count) in profile.stack_counts() {
        let lines = profile.frames_of(stack).map(|frame| (frame.path(), frame.line.line));
        let known: BTreeSet<(&str, u32)> =
            lines.filter(|(path, line)| *line > 0 && !path.is_empty()).collect();
        for (path, line) in known {
            let (events, lines) = files.entry(path).or_default();
            *events = events.saturating_add(count);
            lines.insert(line);
        }
    }
    let mut files: Vec<_> = files.into_iter().collect();
    files.sort_by_key(|(path, (events, _))| (std::cmp::Reverse(*events), *path));
    files.into_iter().map(|(path, (_, lines))| (path, lines)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::tests::{lines, sample};

    fn id(name: &str) -> PageFunction {
        PageFunction { name: name.to_owned(), binary: "app".to_owned() }
    }

    /// Instructions of 16 bytes.
    fn instruction_at(address: u64) -> Option<u32> {
        u32::try_from(address.checked_sub(0x2000)? / 16).ok()
    }

    /// Self and total events of each instruction.
    fn sums(costs: &InstructionCosts) -> BTreeMap<u32, (u64, u64)> {
        let mut sums = BTreeMap::<u32, (u64, u64)>::new();
        for ((instruction, own), total) in costs.instruction.iter().zip(&costs.own).zip(&costs.total) {
            let sum = sums.entry(*instruction).or_default();
            *sum = (sum.0 + own, sum.1 + total);
        }
        sums
    }

    #[test]
    fn instructions_cost_what_was_taken_there_and_in_what_they_call() {
        let profile = lines();
        let hot = FunctionCode::new(&profile, &id("hot")).unwrap();
        let (mapping, addresses) = hot.addresses().unwrap();
        assert_eq!(addresses, BTreeMap::from([(0x2000, 3), (0x2010, 6), (0x2020, 2), (0x2030, 1)]));
        let costs = hot.costs(mapping, instruction_at);
        // The instruction of the inlined call is the leaf; the one that calls `hot` again is not.
        assert_eq!(sums(&costs), BTreeMap::from([(0, (3, 3)), (1, (6, 6)), (2, (0, 2)), (3, (1, 1))]));
        let hash = FunctionCode::new(&profile, &id("hash")).unwrap();
        assert_eq!(
            sums(&hash.costs(mapping, instruction_at)),
            BTreeMap::from([(1, (6, 6))]),
            "where it is inlined"
        );
    }

    #[test]
    fn lines_cost_what_was_taken_there_and_in_what_they_call() {
        let profile = lines();
        let costs = FunctionCode::new(&profile, &id("hot")).unwrap();
        let costs: Vec<_> =
            costs.line_costs().into_iter().map(|(line, cost)| (line, cost.own, cost.total)).collect();
        let line = |line| ("src/hot.c", line);
        let expected = [(line(20), 3, 3), (line(21), 0, 6), (line(25), 0, 2), (("src/table.inc", 30), 1, 1)];
        assert_eq!(costs, expected);
        let hot = FunctionCode::new(&profile, &id("hot")).unwrap();
        assert_eq!(hot.line_costs()[&line(21)].inlined, BTreeMap::from([("hash".into(), 6)]));
        assert_eq!(hot.line_costs()[&line(20)].inlined, BTreeMap::new());
    }

    #[test]
    fn lines_are_those_of_the_function_in_each_of_its_files() {
        let profile = lines();
        let hot = FunctionCode::new(&profile, &id("hot")).unwrap();
        let expected = [
            ("src/hash.h", BTreeSet::from([4])),
            ("src/hot.c", BTreeSet::from([20, 21, 25])),
            ("src/table.inc", BTreeSet::from([30])),
        ];
        assert_eq!(hot.lines(), BTreeMap::from(expected), "with what was inlined");
        assert!(FunctionCode::new(&profile, &id("cold")).is_none());
    }

    #[test]
    fn files_are_in_the_order_of_their_events() {
        let profile = lines();
        let files = lines_by_file(&profile);
        let paths: Vec<_> = files.iter().map(|(path, _)| *path).collect();
        assert_eq!(paths, ["src/hot.c", "src/main.c", "src/hash.h", "src/table.inc"]);
        assert_eq!(files[0].1, BTreeSet::from([20, 21, 25]));
    }

    #[test]
    fn the_hottest_functions_have_code_in_a_file() {
        let hottest = PageFunction::hottest(&sample(), 2);
        assert_eq!(hottest, [id("work"), id("main")], "not the kernel's");
    }
}
