//! What samples refer to: each string, attribute, mapping, function, location, stack and link once.

mod copy;
mod frame;
mod location;
mod mapping;

use std::hash::Hash;
use std::ops::Range;

pub use self::copy::DictionaryCopier;
pub use self::frame::Frame;
pub use self::location::{Function, Line, Location, SourceLine};
pub use self::mapping::{BuildIds, Link, Mapping};
use crate::attributes::{AttributeValue, Value, key, truncated};
use crate::frame_type::FrameType;
use crate::index::{
    AttributeIndex, AttributeSetIndex, FrameIndex, FunctionIndex, LinkIndex, LocationIndex, MappingIndex,
    StackIndex, StringIndex,
};
use crate::marker::Marker;
use crate::table::{Index as _, ListTable, StringTable, Table};

/// An attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attribute {
    /// Its key.
    pub key: StringIndex,
    /// Its value.
    pub value: AttributeValue,
}

/// The tables of `ProfilesDictionary`, without duplicates. Element 0 of each is the one that stands for nothing.
///
/// Indices stay valid when more is added. Those of stacks end with [`forget_stacks`](Self::forget_stacks).
#[derive(Clone, PartialEq, Debug)]
pub struct Dictionary {
    strings: StringTable<StringIndex>,
    attributes: Table<AttributeIndex, Attribute>,
    /// Each sorted. Not a table of the message, whose elements list their attributes.
    attribute_sets: ListTable<AttributeSetIndex, AttributeIndex>,
    mappings: Table<MappingIndex, Mapping>,
    /// Of each mapping, whether its file is identified.
    is_identified: Vec<bool>,
    functions: Table<FunctionIndex, Function>,
    locations: Table<LocationIndex, LocationEntry>,
    /// The lines of the locations, in their order: each is a frame.
    lines: Vec<Line>,
    /// The location of each frame.
    locations_of_frames: Vec<LocationIndex>,
    stacks: ListTable<StackIndex, LocationIndex>,
    links: Table<LinkIndex, Link>,
    /// The size of the values of attributes.
    value_bytes: usize,
}

/// A location, without its lines.
#[derive(Clone, PartialEq, Debug)]
struct LocationEntry {
    mapping: MappingIndex,
    address: u64,
    frame_type: FrameType,
    is_generated: bool,
    is_guessed: bool,
    is_unnamed: bool,
    marker: Option<Box<Marker>>,
    /// What the message says of these properties.
    attributes: AttributeSetIndex,
    /// The positions of its frames.
    frames: Range<u32>,
}

impl LocationEntry {
    /// The location that this and some lines make.
    fn with_lines<'a>(&'a self, lines: &'a [Line]) -> Location<'a> {
        Location {
            mapping: self.mapping,
            address: self.address,
            frame_type: self.frame_type,
            is_generated: self.is_generated,
            is_guessed: self.is_guessed,
            is_unnamed: self.is_unnamed,
            marker: self.marker.as_deref(),
            lines,
        }
    }
}

impl Default for Dictionary {
    fn default() -> Self {
        let mut dictionary = Self {
            strings: StringTable::default(),
            attributes: Table::default(),
            attribute_sets: ListTable::default(),
            mappings: Table::default(),
            is_identified: Vec::new(),
            functions: Table::default(),
            locations: Table::default(),
            lines: Vec::new(),
            locations_of_frames: Vec::new(),
            stacks: ListTable::default(),
            links: Table::default(),
            value_bytes: 0,
        };
        let none = Attribute { key: StringIndex::default(), value: AttributeValue::Bool(false) };
        dictionary.attributes.insert(&(), none);
        dictionary.attribute_sets.intern(&[]);
        dictionary.add_mapping(Mapping::default());
        dictionary.functions.intern(Function::default());
        // It differs from an unknown location by having no attributes, so it is not found by what it says.
        let nowhere = Location { lines: &[Line::default()], ..Location::default() };
        dictionary.insert_location(&(), &nowhere, AttributeSetIndex::default());
        dictionary.stacks.intern(&[]);
        dictionary.links.intern(Link::default());
        dictionary
    }
}

/// Adding: each returns the index of what is given, which is added if it is new.
impl Dictionary {
    /// A string. A very long one is truncated.
    pub fn add_string(&mut self, text: &str) -> StringIndex {
        self.strings.intern(truncated(text))
    }

    /// An attribute.
    pub fn add_attribute(&mut self, key: &str, value: Value<'_>) -> AttributeIndex {
        let key = self.add_string(key);
        self.intern_attribute(key, &value, |held| value.is_held_as(held), || value.to_held())
    }

    /// A set of attributes. Of two values of a key, the first counts. What has no key is left out.
    pub fn add_attributes<'a>(
        &mut self,
        attributes: impl IntoIterator<Item = (&'a str, Value<'a>)>,
    ) -> AttributeSetIndex {
        let mut set: Vec<AttributeIndex> = Vec::new();
        let mut keys: Vec<&str> = Vec::new();
        for (key, value) in attributes {
            if !key.is_empty() && !keys.contains(&key) {
                keys.push(key);
                set.push(self.add_attribute(key, value));
            }
        }
        self.add_attribute_set(set)
    }

    /// An attribute, by the index of its key.
    pub fn add_held_attribute(&mut self, key: StringIndex, value: &AttributeValue) -> AttributeIndex {
        self.intern_attribute(key, value, |held| held == value, || value.clone())
    }

    fn intern_attribute(
        &mut self,
        key: StringIndex,
        value: &impl Hash,
        is: impl Fn(&AttributeValue) -> bool,
        make: impl FnOnce() -> AttributeValue,
    ) -> AttributeIndex {
        let value_bytes = &mut self.value_bytes;
        self.attributes.intern_with(
            &(key, value),
            |held| held.key == key && is(&held.value),
            || {
                let value = make();
                *value_bytes += value.text_bytes();
                Attribute { key, value }
            },
        )
    }

    /// A set of attributes, by their indices.
    pub fn add_attribute_set(&mut self, mut attributes: Vec<AttributeIndex>) -> AttributeSetIndex {
        attributes.sort_unstable();
        attributes.dedup();
        self.attribute_sets.intern(&attributes)
    }

    /// A mapping of a file known only by its path.
    pub fn add_file(&mut self, path: &str) -> MappingIndex {
        let filename = self.add_string(path);
        self.add_mapping(Mapping { filename, ..Mapping::default() })
    }

    /// Both sets as one. Of two values of a key, the one of the first set counts.
    pub fn add_union(&mut self, first: AttributeSetIndex, second: AttributeSetIndex) -> AttributeSetIndex {
        let mut union = self.attribute_set(first).to_vec();
        let has_key = |key| union.iter().any(|index| self.attribute(*index).key == key);
        let of_second = self.attribute_set(second).iter();
        let others: Vec<_> =
            of_second.filter(|index| !has_key(self.attribute(**index).key)).copied().collect();
        union.extend(others);
        self.add_attribute_set(union)
    }

    /// A mapping.
    pub fn add_mapping(&mut self, mapping: Mapping) -> MappingIndex {
        let index = self.mappings.intern(mapping);
        if self.is_identified.len() < self.mappings.values().len() {
            self.is_identified.push(self.build_ids(&mapping).htlhash.is_some());
        }
        index
    }

    /// The attributes of a mapping.
    pub fn add_build_ids(&mut self, build_ids: &BuildIds<'_>) -> AttributeSetIndex {
        self.add_attributes(build_ids.attributes())
    }

    /// A function.
    pub fn add_function(&mut self, function: Function) -> FunctionIndex {
        self.functions.intern(function)
    }

    /// A function known only by its name.
    pub fn add_function_named(&mut self, name: &str) -> FunctionIndex {
        let name = self.add_string(name);
        self.add_function(Function { name, ..Function::default() })
    }

    /// A position in a function, with the function.
    pub fn add_line(&mut self, line: &SourceLine<'_>) -> Line {
        let SourceLine { function, system_name, path, line, column } = *line;
        let [name, system_name, filename] = [function, system_name, path].map(|text| self.add_string(text));
        let function = self.add_function(Function { name, system_name, filename, start_line: 0 });
        Line { function, line, column }
    }

    /// A location. If it has no lines, it has one frame, whose function is unknown.
    pub fn add_location(&mut self, location: &Location<'_>) -> LocationIndex {
        let unknown = [Line::default()];
        let lines = if location.lines.is_empty() { &unknown } else { location.lines };
        let location = Location { lines, ..*location };
        let is = |held: &LocationEntry| self.location_in(held) == location;
        let known = self.locations.find(&location, is);
        known.unwrap_or_else(|| {
            let attributes = self.location_attributes(&location);
            self.insert_location(&location, &location, attributes)
        })
    }

    /// A location without a name, whose file and address describe it. A message has only files that are identified: the description of
    /// any other location is written as its name.
    pub fn add_unnamed_location(&mut self, location: &Location<'_>) -> LocationIndex {
        if self.written_mapping(location) != MappingIndex::default() {
            return self.add_location(&Location { lines: &[], ..*location });
        }
        let description = self.description(location);
        let lines = [Line::new(self.add_function_named(&description))];
        self.add_location(&Location { is_unnamed: true, lines: &lines, ..*location })
    }

    /// The same location with other lines.
    pub fn add_location_with_lines(&mut self, index: LocationIndex, lines: &[Line]) -> LocationIndex {
        let Some(entry) = self.locations.get(index).cloned() else { return LocationIndex::default() };
        self.add_location(&entry.with_lines(lines))
    }

    /// The location of a marker that is not code.
    pub fn add_marker(&mut self, marker: &Marker) -> LocationIndex {
        let function = marker.wire_name().map(|name| self.add_function_named(&name)).unwrap_or_default();
        self.add_location(&Location {
            marker: Some(marker),
            lines: &[Line::new(function)],
            ..Location::default()
        })
    }

    /// A stack, leaf first.
    pub fn add_stack(&mut self, locations: &[LocationIndex]) -> StackIndex {
        self.stacks.intern(locations)
    }

    /// A link; none if it is not valid.
    pub fn add_link(&mut self, link: Link) -> LinkIndex {
        if link.is_valid() { self.links.intern(link) } else { LinkIndex::default() }
    }

    /// Gives files other paths: those that `new_path` returns for theirs.
    pub fn rename_files(&mut self, new_path: impl Fn(&str) -> Option<String>) {
        let mut mappings = std::mem::take(&mut self.mappings).into_values();
        for mapping in &mut mappings {
            if let Some(path) = new_path(self.string(mapping.filename)) {
                mapping.filename = self.add_string(&path);
            }
        }
        let mut renamed = Table::default();
        mappings.into_iter().for_each(|mapping| _ = renamed.insert(&mapping, mapping));
        self.mappings = renamed;
    }

    /// Replaces markers that are not code by those that `known` returns for them.
    pub fn replace_markers(&mut self, known: impl Fn(&Marker) -> Option<Marker>) {
        let mut entries = std::mem::take(&mut self.locations).into_values();
        for entry in &mut entries {
            let Some(marker) = entry.marker.as_deref().and_then(&known) else { continue };
            let function = marker.wire_name().map(|name| self.add_function_named(&name)).unwrap_or_default();
            let frames = entry.frames.start as usize..entry.frames.end as usize;
            self.lines.get_mut(frames).unwrap_or_default().fill(Line::new(function));
            entry.marker = Some(Box::new(marker));
        }
        let mut locations = Table::default();
        for (position, entry) in entries.into_iter().enumerate() {
            let hash = match position {
                // The unknown location is not found by what it says.
                0 => locations.hash(&()),
                _ => locations.hash(&self.location_in(&entry)),
            };
            locations.insert_hashed(hash, entry);
        }
        self.locations = locations;
    }

    fn insert_location(
        &mut self,
        key: &impl Hash,
        location: &Location<'_>,
        attributes: AttributeSetIndex,
    ) -> LocationIndex {
        let first = self.lines.len() as u32;
        let index = self.locations.insert(
            key,
            LocationEntry {
                mapping: location.mapping,
                address: location.address,
                frame_type: location.frame_type,
                is_generated: location.is_generated,
                is_guessed: location.is_guessed,
                is_unnamed: location.is_unnamed,
                marker: location.marker.cloned().map(Box::new),
                attributes,
                frames: first..first + location.lines.len() as u32,
            },
        );
        self.lines.extend_from_slice(location.lines);
        self.locations_of_frames.resize(self.lines.len(), index);
        index
    }

    /// What a message says of a location apart from its place and names. Of names that look like words of the profiler, it says
    /// whether they are.
    fn location_attributes(&mut self, location: &Location<'_>) -> AttributeSetIndex {
        let mut names = self.written_lines(location).map(|line| self.function(line.function).name);
        let looks_like_marker = names.any(|name| self.string(name).starts_with('['));
        let flags = [
            (key::FRAME_GUESSED, location.is_guessed.then_some(true)),
            (key::FRAME_GENERATED, location.is_generated.then_some(true)),
            (key::FRAME_MARKER, looks_like_marker.then_some(location.marker.is_some())),
        ];
        let frame_type = (key::FRAME_TYPE, Value::Str(location.frame_type.as_str()));
        let flags = flags.into_iter().filter_map(|(key, flag)| Some((key, Value::Bool(flag?))));
        self.add_attributes([frame_type].into_iter().chain(flags))
    }
}

/// Reading. Of an index that is not in the table, nothing is known.
impl Dictionary {
    /// A string.
    #[must_use]
    pub fn string(&self, index: StringIndex) -> &str {
        self.strings.get(index)
    }

    /// All strings.
    #[must_use]
    pub fn strings(&self) -> &StringTable<StringIndex> {
        &self.strings
    }

    /// An attribute.
    #[must_use]
    pub fn attribute(&self, index: AttributeIndex) -> &Attribute {
        static NONE: Attribute = Attribute { key: StringIndex(0), value: AttributeValue::Bool(false) };
        self.attributes.get(index).unwrap_or(&NONE)
    }

    /// The number of attributes.
    #[must_use]
    pub fn attribute_count(&self) -> usize {
        self.attributes.values().len()
    }

    /// The attributes of a set, sorted by index.
    #[must_use]
    pub fn attribute_set(&self, index: AttributeSetIndex) -> &[AttributeIndex] {
        self.attribute_sets.get(index)
    }

    /// The number of sets of attributes.
    #[must_use]
    pub fn attribute_set_count(&self) -> usize {
        self.attribute_sets.len()
    }

    /// The keys and values of a set.
    pub fn attributes_of(
        &self,
        index: AttributeSetIndex,
    ) -> impl Iterator<Item = (&str, &AttributeValue)> + use<'_> {
        let attributes = self.attribute_set(index).iter().filter_map(|index| self.attributes.get(*index));
        attributes.map(|attribute| (self.string(attribute.key), &attribute.value))
    }

    /// A mapping.
    #[must_use]
    pub fn mapping(&self, index: MappingIndex) -> Mapping {
        self.mappings.get(index).copied().unwrap_or_default()
    }

    /// All mappings.
    #[must_use]
    pub fn mappings(&self) -> &[Mapping] {
        self.mappings.values()
    }

    /// The mapping of a location in a message. A message has only mappings whose file is identified.
    #[must_use]
    pub fn written_mapping(&self, location: &Location<'_>) -> MappingIndex {
        let is_written = self.is_identified.get(location.mapping.position()) == Some(&true);
        if is_written { location.mapping } else { MappingIndex::default() }
    }

    /// The lines of a location in a message: a location without a name is left to backends that have symbols, if it has the file and
    /// the address.
    pub fn written_lines<'l>(&self, location: &Location<'l>) -> impl Iterator<Item = &'l Line> + use<'l> {
        let is_left = location.is_unnamed && self.written_mapping(location) != MappingIndex::default();
        let lines = if is_left { &[][..] } else { location.lines };
        lines.iter().filter(|line| line.function != FunctionIndex::default())
    }

    /// What identifies the file of a mapping.
    #[must_use]
    pub fn build_ids(&self, mapping: &Mapping) -> BuildIds<'_> {
        let mut ids = BuildIds::default();
        for (key, value) in self.attributes_of(mapping.attributes) {
            match key {
                key::BUILD_ID_HTLHASH => ids.htlhash = value.as_str(),
                key::BUILD_ID_GNU => ids.gnu = value.as_str(),
                key::BUILD_ID_GO => ids.go = value.as_str(),
                _ => {}
            }
        }
        ids
    }

    /// A function.
    #[must_use]
    pub fn function(&self, index: FunctionIndex) -> Function {
        self.functions.get(index).copied().unwrap_or_default()
    }

    /// All functions.
    #[must_use]
    pub fn functions(&self) -> &[Function] {
        self.functions.values()
    }

    /// The path of the file that contains a location; empty if there is none.
    fn binary_path(&self, location: &Location<'_>) -> &str {
        self.string(self.mapping(location.mapping).filename)
    }

    /// The file of a location and its offset there, or its address if its place in the file is unknown.
    fn description(&self, location: &Location<'_>) -> String {
        let file = self.binary_path(location).rsplit('/').next().unwrap_or_default();
        let Mapping { memory_start, memory_limit, file_offset, .. } = self.mapping(location.mapping);
        let address = location.address;
        let is_mapped = (memory_start..memory_limit).contains(&address);
        let offset = if is_mapped { (address - memory_start).saturating_add(file_offset) } else { address };
        format!("{file}+{offset:#x}")
    }

    /// The number of locations.
    #[must_use]
    pub fn location_count(&self) -> usize {
        self.locations.values().len()
    }

    /// A location.
    #[must_use]
    pub fn location(&self, index: LocationIndex) -> Location<'_> {
        self.locations.get(index).map(|entry| self.location_in(entry)).unwrap_or_default()
    }

    fn location_in<'a>(&'a self, entry: &'a LocationEntry) -> Location<'a> {
        let lines = self.lines.get(entry.frames.start as usize..entry.frames.end as usize);
        entry.with_lines(lines.unwrap_or_default())
    }

    /// What the message says of a location apart from its place and names.
    #[must_use]
    pub fn attributes_of_location(&self, index: LocationIndex) -> AttributeSetIndex {
        self.locations.get(index).map(|entry| entry.attributes).unwrap_or_default()
    }

    /// The number of frames.
    #[must_use]
    pub fn frame_count(&self) -> usize {
        self.lines.len()
    }

    /// The frames of a location, the innermost first.
    pub fn frames_at(
        &self,
        index: LocationIndex,
    ) -> impl DoubleEndedIterator<Item = FrameIndex> + Clone + use<> {
        self.locations.get(index).map_or(0..0, |entry| entry.frames.clone()).map(FrameIndex)
    }

    /// The number of stacks.
    #[must_use]
    pub fn stack_count(&self) -> usize {
        self.stacks.len()
    }

    /// The locations of a stack, leaf first.
    #[must_use]
    pub fn stack(&self, index: StackIndex) -> &[LocationIndex] {
        self.stacks.get(index)
    }

    /// The frames of a stack, leaf first.
    pub fn frames_of(
        &self,
        index: StackIndex,
    ) -> impl DoubleEndedIterator<Item = FrameIndex> + Clone + use<'_> {
        self.stack(index).iter().flat_map(|location| self.frames_at(*location))
    }

    /// A link.
    #[must_use]
    pub fn link(&self, index: LinkIndex) -> Link {
        self.links.get(index).copied().unwrap_or_default()
    }

    /// The locations of all stacks, in the order of their indices.
    pub fn stacks(&self) -> impl Iterator<Item = &[LocationIndex]> {
        self.stacks.iter()
    }

    /// All links.
    #[must_use]
    pub fn links(&self) -> &[Link] {
        self.links.values()
    }

    /// The approximate size in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let texts = self.strings.bytes() + self.value_bytes;
        let lists = self.attribute_sets.bytes() + self.stacks.bytes();
        let tables = self.attributes.bytes()
            + self.mappings.bytes()
            + self.functions.bytes()
            + self.locations.bytes()
            + self.links.bytes();
        let frames = size_of_val(&*self.lines) + size_of_val(&*self.locations_of_frames);
        texts + lists + tables + frames
    }

    /// Forgets all stacks. Their indices become invalid; others stay valid.
    pub fn forget_stacks(&mut self) {
        self.stacks = ListTable::default();
        self.stacks.intern(&[]);
    }
}

#[cfg(test)]
mod tests;
