//! The seven tables of a dictionary, without duplicate values.

use sidewinder_profile::FrameType;

use super::input::{Function, Link, Mapping, MappingBuildIds, SampleAttributes, StackFrame};
use crate::attribute::{Value, key, truncated};
use crate::encode::DictionaryTables;
use crate::table::DedupTable;
use crate::wire;

/// Interned values. Element 0 of every table is the zero value.
#[derive(Debug)]
pub(super) struct Dictionary {
    strings: DedupTable<String>,
    attributes: DedupTable<wire::KeyValueAndUnit>,
    mappings: DedupTable<wire::Mapping>,
    functions: DedupTable<wire::Function>,
    locations: DedupTable<wire::Location>,
    links: DedupTable<wire::Link>,
    stacks: DedupTable<wire::Stack>,
    /// Sets of sample attributes, as sorted indices. Not a table of the message: samples list them.
    attribute_sets: DedupTable<Vec<i32>>,
    /// Finds the set of sample attributes given by a caller with one lookup.
    cached_sample_attributes: DedupTable<CachedSampleAttributes>,
    /// The attribute of each frame type; 0 if it doesn't exist yet.
    frame_types: [i32; FrameType::ALL.len()],
    /// The attribute of guessed frames; 0 if it doesn't exist yet.
    guessed_attribute: i32,
    /// Of all values but stacks.
    bytes: usize,
    stacks_bytes: usize,
}

#[derive(Debug)]
struct CachedSampleAttributes {
    thread_id: Option<i64>,
    thread_name: Option<Box<str>>,
    cpu: Option<u32>,
    outcome: Option<Box<str>>,
    set: i32,
}

impl Dictionary {
    pub(super) fn new() -> Self {
        let mut dictionary = Self {
            strings: DedupTable::new(),
            attributes: DedupTable::new(),
            mappings: DedupTable::new(),
            functions: DedupTable::new(),
            locations: DedupTable::new(),
            links: DedupTable::new(),
            stacks: DedupTable::new(),
            attribute_sets: DedupTable::new(),
            cached_sample_attributes: DedupTable::new(),
            frame_types: [0; FrameType::ALL.len()],
            guessed_attribute: 0,
            bytes: 0,
            stacks_bytes: 0,
        };
        dictionary.strings.intern("", |_| false, String::new);
        dictionary.attributes.intern(&0_i32, |_| false, wire::KeyValueAndUnit::default);
        dictionary.insert_mapping(wire::Mapping::default());
        dictionary.insert_function(wire::Function::default());
        dictionary.locations.intern(&(), |_| false, wire::Location::default);
        dictionary.links.intern(&(), |_| false, wire::Link::default);
        dictionary.stack(&[], |_| false, wire::Stack::default);
        dictionary.attribute_set(Vec::new());
        dictionary
    }

    pub(super) fn tables(&self) -> DictionaryTables<'_> {
        DictionaryTables {
            strings: self.strings.values(),
            attributes: self.attributes.values(),
            mappings: self.mappings.values(),
            functions: self.functions.values(),
            locations: self.locations.values(),
            links: self.links.values(),
            stacks: self.stacks.values(),
        }
    }

    /// The approximate size of the values, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes + self.stacks_bytes
    }

    pub(super) fn forget_stacks(&mut self) {
        self.stacks = DedupTable::new();
        self.stacks_bytes = 0;
        self.stack(&[], |_| false, wire::Stack::default);
    }

    pub(super) fn string(&mut self, text: &str) -> i32 {
        if text.is_empty() {
            return 0;
        }
        let text = truncated(text);
        let bytes = &mut self.bytes;
        self.strings.intern(
            text,
            |held| held == text,
            || {
                *bytes += text.len() + size_of::<String>();
                text.to_owned()
            },
        )
    }

    /// The indices of a set's attributes, sorted.
    pub(super) fn attributes_of_set(&self, set: i32) -> &[i32] {
        self.attribute_sets.values().get(set as usize).map_or(&[], Vec::as_slice)
    }

    pub(super) fn mapping(&mut self, mapping: &Mapping<'_>) -> i32 {
        let MappingBuildIds { htlhash, gnu, go } = mapping.build_ids;
        let build_ids =
            [(key::BUILD_ID_HTLHASH, Some(htlhash)), (key::BUILD_ID_GNU, gnu), (key::BUILD_ID_GO, go)];
        let mut attribute_indices: Vec<i32> = build_ids
            .into_iter()
            .filter_map(|(key, value)| Some(self.attribute(key, Value::Str(value?))))
            .collect();
        attribute_indices.sort_unstable();
        let filename_strindex = self.string(mapping.filename);
        self.insert_mapping(wire::Mapping {
            memory_start: mapping.memory_start,
            memory_limit: mapping.memory_limit,
            file_offset: mapping.file_offset,
            filename_strindex,
            attribute_indices,
        })
    }

    fn insert_mapping(&mut self, mapping: wire::Mapping) -> i32 {
        let key = (
            mapping.memory_start,
            mapping.memory_limit,
            mapping.file_offset,
            mapping.filename_strindex,
            &mapping.attribute_indices,
        );
        let bytes = &mut self.bytes;
        self.mappings.intern(
            &key,
            |held| *held == mapping,
            || {
                *bytes += size_of::<wire::Mapping>() + size_of_val(&*mapping.attribute_indices);
                mapping.clone()
            },
        )
    }

    pub(super) fn function(&mut self, function: &Function<'_>) -> i32 {
        let function = wire::Function {
            name_strindex: self.string(function.name),
            system_name_strindex: self.string(function.system_name),
            filename_strindex: self.string(function.filename),
            start_line: i64::from(function.start_line),
        };
        self.insert_function(function)
    }

    fn insert_function(&mut self, function: wire::Function) -> i32 {
        let bytes = &mut self.bytes;
        self.functions.intern(
            &function,
            |held| *held == function,
            || {
                *bytes += size_of::<wire::Function>();
                function
            },
        )
    }

    pub(super) fn location(&mut self, frame: &StackFrame<'_>) -> i32 {
        // A line without a function has no information.
        if frame.lines.iter().any(|line| line.function.0 == 0) {
            let lines: Vec<_> = frame.lines.iter().filter(|line| line.function.0 != 0).copied().collect();
            return self.location(&StackFrame { lines: &lines, ..*frame });
        }
        let guessed = frame.is_guessed.then(|| self.guessed());
        let generated = frame.is_generated.then(|| self.attribute(key::FRAME_GENERATED, Value::Bool(true)));
        let marker =
            frame.is_marker.map(|is_marker| self.attribute(key::FRAME_MARKER, Value::Bool(is_marker)));
        let mut attributes = [self.frame_type(frame.frame_type), 0, 0, 0];
        let mut count = 1;
        for attribute in guessed.into_iter().chain(generated).chain(marker) {
            attributes[count] = attribute;
            count += 1;
        }
        let attributes = &attributes[..count];
        let mapping_index = frame.mapping.map_or(0, |mapping| mapping.0);
        let lines = frame.lines.iter().map(|line| wire::Line {
            function_index: line.function.0,
            line: i64::from(line.line),
            column: i64::from(line.column),
        });
        let bytes = &mut self.bytes;
        self.locations.intern(
            &(mapping_index, frame.address, attributes, frame.lines),
            |held| {
                held.mapping_index == mapping_index
                    && held.address == frame.address
                    && held.attribute_indices == attributes
                    && held.lines.iter().copied().eq(lines.clone())
            },
            || {
                *bytes += size_of::<wire::Location>()
                    + size_of_val(attributes)
                    + frame.lines.len() * size_of::<wire::Line>();
                wire::Location {
                    mapping_index,
                    address: frame.address,
                    lines: lines.clone().collect(),
                    attribute_indices: attributes.to_vec(),
                }
            },
        )
    }

    /// The attribute of guessed frames, created on first use.
    fn guessed(&mut self) -> i32 {
        if self.guessed_attribute == 0 {
            self.guessed_attribute = self.attribute(key::FRAME_GUESSED, Value::Bool(true));
        }
        self.guessed_attribute
    }

    fn frame_type(&mut self, frame_type: FrameType) -> i32 {
        let known = self.frame_types.get(frame_type as usize).copied().unwrap_or_default();
        if known != 0 {
            return known;
        }
        let attribute = self.attribute(key::FRAME_TYPE, Value::Str(frame_type.as_str()));
        if let Some(place) = self.frame_types.get_mut(frame_type as usize) {
            *place = attribute;
        }
        attribute
    }

    pub(super) fn link(&mut self, link: &Link) -> i32 {
        if link.trace_id == [0; 16] || link.span_id == [0; 8] {
            return 0;
        }
        let bytes = &mut self.bytes;
        self.links.intern(
            link,
            |held| held.trace_id == link.trace_id && held.span_id == link.span_id,
            || {
                *bytes += size_of::<wire::Link>() + 24;
                wire::Link { trace_id: link.trace_id.to_vec(), span_id: link.span_id.to_vec() }
            },
        )
    }

    pub(super) fn stack(
        &mut self,
        locations: &[super::LocationIndex],
        same: impl Fn(&wire::Stack) -> bool,
        make: impl FnOnce() -> wire::Stack,
    ) -> i32 {
        let bytes = &mut self.stacks_bytes;
        self.stacks.intern(locations, same, || {
            *bytes += size_of::<wire::Stack>() + size_of_val(locations);
            make()
        })
    }

    pub(super) fn sample_attributes(&mut self, attributes: &SampleAttributes<'_>) -> i32 {
        let SampleAttributes { thread_id, thread_name, cpu, outcome, extra } = *attributes;
        if !extra.is_empty() {
            return self.sample_attribute_set(attributes);
        }
        let key = (thread_id, thread_name, cpu, outcome);
        let known = self.cached_sample_attributes.find(&key, |held| {
            held.thread_id == thread_id
                && held.cpu == cpu
                && held.thread_name.as_deref() == thread_name
                && held.outcome.as_deref() == outcome
        });
        if let Some(known) =
            known.and_then(|index| self.cached_sample_attributes.values().get(index as usize))
        {
            return known.set;
        }
        let set = self.sample_attribute_set(attributes);
        let [thread_name, outcome] = [thread_name, outcome].map(|text| text.map(Box::from));
        let known = CachedSampleAttributes { thread_id, thread_name, cpu, outcome, set };
        self.bytes += size_of::<CachedSampleAttributes>();
        self.cached_sample_attributes.insert(&key, known);
        set
    }

    fn sample_attribute_set(&mut self, attributes: &SampleAttributes<'_>) -> i32 {
        let named = [
            (key::THREAD_ID, attributes.thread_id.map(Value::Int)),
            (key::THREAD_NAME, attributes.thread_name.map(Value::Str)),
            (key::CPU, attributes.cpu.map(|cpu| Value::Int(i64::from(cpu)))),
            (key::STACK_OUTCOME, attributes.outcome.map(Value::Str)),
        ];
        let mut set = Vec::with_capacity(named.len() + attributes.extra.len());
        let extra = attributes.extra.iter().map(|(key, value)| (*key, Some(*value)));
        let mut keys: Vec<&str> = Vec::new();
        for (key, value) in named.into_iter().chain(extra) {
            let Some(value) = value else { continue };
            if !key.is_empty() && !keys.contains(&key) {
                keys.push(key);
                set.push(self.attribute(key, value));
            }
        }
        set.sort_unstable();
        self.attribute_set(set)
    }

    fn attribute_set(&mut self, set: Vec<i32>) -> i32 {
        let bytes = &mut self.bytes;
        self.attribute_sets.intern(
            &set,
            |held| *held == set,
            || {
                *bytes += size_of::<Vec<i32>>() + size_of_val(&*set);
                set.clone()
            },
        )
    }

    fn attribute(&mut self, key: &str, value: Value<'_>) -> i32 {
        let key_strindex = self.string(key);
        let bytes = &mut self.bytes;
        self.attributes.intern(
            &(key_strindex, value),
            |held| {
                held.key_strindex == key_strindex
                    && held.value.as_ref().is_some_and(|held_value| value.matches_wire(held_value))
            },
            || {
                let value = value.to_wire();
                *bytes += size_of::<wire::KeyValueAndUnit>() + prost::Message::encoded_len(&value);
                wire::KeyValueAndUnit { key_strindex, value: Some(value), unit_strindex: 0 }
            },
        )
    }
}
