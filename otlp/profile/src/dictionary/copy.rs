//! Copies from one dictionary to another.

use std::collections::HashMap;

use crate::dictionary::{Dictionary, Function, Line, Location, Mapping};
use crate::index::{
    AttributeSetIndex, FunctionIndex, LinkIndex, LocationIndex, MappingIndex, StackIndex, StringIndex,
};

/// Copies what is referred to from a dictionary, with all that it refers to. What was copied before is not looked up again.
#[derive(Debug)]
pub struct DictionaryCopier<'a> {
    from: &'a Dictionary,
    strings: HashMap<StringIndex, StringIndex>,
    attribute_sets: HashMap<AttributeSetIndex, AttributeSetIndex>,
    mappings: HashMap<MappingIndex, MappingIndex>,
    functions: HashMap<FunctionIndex, FunctionIndex>,
    locations: HashMap<LocationIndex, LocationIndex>,
    stacks: HashMap<StackIndex, StackIndex>,
}

impl<'a> DictionaryCopier<'a> {
    /// Copies from this dictionary.
    #[must_use]
    pub fn new(from: &'a Dictionary) -> Self {
        Self {
            from,
            strings: HashMap::new(),
            attribute_sets: HashMap::new(),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            stacks: HashMap::new(),
        }
    }

    /// The copy of a stack.
    pub fn stack(&mut self, to: &mut Dictionary, index: StackIndex) -> StackIndex {
        if let Some(known) = self.stacks.get(&index) {
            return *known;
        }
        let locations: Vec<_> = self.from.stack(index).iter().map(|at| self.location(to, *at)).collect();
        let copy = to.add_stack(&locations);
        self.stacks.insert(index, copy);
        copy
    }

    /// The copy of a location, if it was copied before.
    #[must_use]
    pub fn copied_location(&self, index: LocationIndex) -> Option<LocationIndex> {
        self.locations.get(&index).copied()
    }

    /// The copy of a location.
    pub fn location(&mut self, to: &mut Dictionary, index: LocationIndex) -> LocationIndex {
        if let Some(known) = self.copied_location(index) {
            return known;
        }
        let location = self.from.location(index);
        let lines: Vec<_> = location
            .lines
            .iter()
            .map(|line| Line { function: self.function(to, line.function), ..*line })
            .collect();
        let mapping = self.mapping(to, location.mapping);
        let copy = to.add_location(&Location { mapping, lines: &lines, ..location });
        self.locations.insert(index, copy);
        copy
    }

    /// The copy of a mapping.
    pub fn mapping(&mut self, to: &mut Dictionary, index: MappingIndex) -> MappingIndex {
        if let Some(known) = self.mappings.get(&index) {
            return *known;
        }
        let mapping = self.from.mapping(index);
        let filename = self.string(to, mapping.filename);
        let attributes = self.attribute_set(to, mapping.attributes);
        let copy = to.add_mapping(Mapping { filename, attributes, ..mapping });
        self.mappings.insert(index, copy);
        copy
    }

    /// The copy of a set of attributes.
    pub fn attribute_set(&mut self, to: &mut Dictionary, index: AttributeSetIndex) -> AttributeSetIndex {
        if let Some(known) = self.attribute_sets.get(&index) {
            return *known;
        }
        let attributes = self.from.attributes_of(index).map(|(key, value)| {
            let key = to.add_string(key);
            to.add_held_attribute(key, value)
        });
        let attributes = attributes.collect();
        let copy = to.add_attribute_set(attributes);
        self.attribute_sets.insert(index, copy);
        copy
    }

    /// The copy of a link.
    pub fn link(&self, to: &mut Dictionary, index: LinkIndex) -> LinkIndex {
        to.add_link(self.from.link(index))
    }

    fn function(&mut self, to: &mut Dictionary, index: FunctionIndex) -> FunctionIndex {
        if let Some(known) = self.functions.get(&index) {
            return *known;
        }
        let function = self.from.function(index);
        let [name, system_name, filename] =
            [function.name, function.system_name, function.filename].map(|string| self.string(to, string));
        let copy = to.add_function(Function { name, system_name, filename, ..function });
        self.functions.insert(index, copy);
        copy
    }

    fn string(&mut self, to: &mut Dictionary, index: StringIndex) -> StringIndex {
        *self.strings.entry(index).or_insert_with(|| to.add_string(self.from.string(index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Value;
    use crate::dictionary::BuildIds;
    use crate::frame_type::FrameType;

    #[test]
    fn a_copy_of_a_stack_says_the_same_in_another_dictionary() {
        let mut from = Dictionary::default();
        let function = from.add_function_named("main");
        let build_ids = BuildIds { gnu: Some("0123"), ..BuildIds::default() };
        let mapping = Mapping {
            filename: from.add_string("/srv/app"),
            attributes: from.add_build_ids(&build_ids),
            ..Mapping::default()
        };
        let mapping = from.add_mapping(mapping);
        let lines = [Line { line: 7, ..Line::new(function) }];
        let at = from.add_location(&Location {
            mapping,
            address: 0x1000,
            frame_type: FrameType::Rust,
            lines: &lines,
            ..Location::default()
        });
        let stack = from.add_stack(&[at]);
        let mut to = Dictionary::default();
        to.add_function_named("another");
        let copy = DictionaryCopier::new(&from).stack(&mut to, stack);
        assert_ne!(to.location(to.stack(copy)[0]).lines, from.location(at).lines, "other indices");
        let described = |dictionary: &Dictionary, stack| {
            let frames = dictionary.frames_of(stack).filter_map(|frame| dictionary.frame(frame));
            let described = frames.map(|frame| {
                let gnu = frame.mapping().and_then(|mapping| dictionary.build_ids(&mapping).gnu);
                let name = frame.name().into_owned();
                (
                    name,
                    frame.line.line,
                    frame.location.address,
                    frame.binary_path().to_owned(),
                    gnu.map(str::to_owned),
                )
            });
            described.collect::<Vec<_>>()
        };
        assert_eq!(described(&to, copy), described(&from, stack));
        let set = from.add_attributes([("a", Value::Int(1))]);
        let copied = DictionaryCopier::new(&from).attribute_set(&mut to, set);
        assert!(to.attributes_of(copied).eq(from.attributes_of(set)));
    }
}
