//! Reads the pprof format, from any writer.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use hex::FromHex;
use prost::Message as _;
use sidewinder_kind::unit;
use sidewinder_profile::{
    BuildIds, Dictionary, FrameType, Line, Link, Location, LocationIndex, Mapping, MappingIndex, Marker,
    Period, SampleType, SourceLine, StatedAttributes, Table, ValueType,
};

use super::error::ReadError;
use super::guess::{FrameHints, guess_frame_type, guess_marker};
use super::locations::{InlinedCalls, add_location, common_type};
use super::protobuf::{FieldValue, fields};
use crate::container::ProfileContainer;
use crate::expansion::ExpansionBudget;
use crate::label::ParsedLabel;
use crate::pprof::proto;
use crate::profile::{Profile, ProfileSample, ProfileThread, StateIndex, ThreadIndex, ThreadState};

/// Reads an uncompressed message. If it has several value types, the number of samples is used if their period is a time,
/// otherwise a value that is a time, otherwise the last value, which is pprof's own default.
///
/// The message is read field by field: strings, functions and mappings first, then locations, then samples.
pub(super) fn read(title: &str, bytes: &[u8], mut expansion: ExpansionBudget) -> Result<Profile, ReadError> {
    let tables = PprofTables::read(bytes, &mut expansion)?;
    let (column, measure) = tables.select_sample_type().ok_or(ReadError::NoSampleType)?;
    let mut profile = Profile::new(title.to_owned(), measure);
    profile.start = SystemTime::UNIX_EPOCH + Duration::from_nanos(tables.time_ns);
    profile.duration = Duration::from_nanos(tables.duration_ns);
    let dictionary = &mut profile.dictionary;
    let locations = read_locations(bytes, &tables, dictionary, &mut expansion)?;
    let mut samples = SampleReader::new(&tables, &locations, column, expansion);
    for field in fields(bytes) {
        if let (2, sample) = field? {
            profile.samples.extend(samples.read(sample.bytes(), dictionary)?);
        }
    }
    profile.threads = samples.threads.into_values();
    profile.states = samples.states.into_values();
    Ok(profile)
}

/// What samples and locations refer to.
#[derive(Default)]
struct PprofTables<'a> {
    sample_types: Vec<proto::ValueType>,
    mappings: Vec<proto::Mapping>,
    functions: HashMap<u64, proto::Function>,
    strings: Vec<&'a str>,
    period_type: Option<proto::ValueType>,
    period: u64,
    time_ns: u64,
    duration_ns: u64,
}

impl<'a> PprofTables<'a> {
    fn read(bytes: &'a [u8], expansion: &mut ExpansionBudget) -> Result<Self, ReadError> {
        let mut tables = Self::default();
        for field in fields(bytes) {
            let (number, value) = field?;
            match number {
                1 | 3 | 5 | 6 => expansion.take_entry(0)?,
                _ => {}
            }
            match number {
                1 => tables.sample_types.push(proto::ValueType::decode(value.bytes())?),
                3 => tables.mappings.push(proto::Mapping::decode(value.bytes())?),
                5 => {
                    let function = proto::Function::decode(value.bytes())?;
                    tables.functions.insert(function.id, function);
                }
                6 => {
                    let text = std::str::from_utf8(value.bytes()).map_err(|_| ReadError::Protobuf)?;
                    tables.strings.push(text);
                }
                9 => tables.time_ns = non_negative(value),
                10 => tables.duration_ns = non_negative(value),
                11 => tables.period_type = Some(proto::ValueType::decode(value.bytes())?),
                12 => tables.period = non_negative(value),
                _ => {}
            }
        }
        Ok(tables)
    }

    /// A string; empty if the index is invalid.
    fn string(&self, index: i64) -> &'a str {
        usize::try_from(index).ok().and_then(|index| self.strings.get(index)).copied().unwrap_or_default()
    }

    /// Adds a mapping. Its addresses are a process's, and so are those of locations.
    fn add_mapping(&self, dictionary: &mut Dictionary, mapping: &proto::Mapping) -> MappingIndex {
        let build_id = Some(self.string(mapping.build_id)).filter(|id| !id.is_empty());
        let attributes = dictionary.add_build_ids(&BuildIds { gnu: build_id, ..BuildIds::default() });
        let filename = dictionary.add_string(self.string(mapping.filename));
        dictionary.add_mapping(Mapping { filename, attributes, ..Mapping::default() })
    }

    /// Which value of a sample is used, and its measure.
    fn select_sample_type(&self) -> Option<(usize, SampleType)> {
        let is_in = |kind: &proto::ValueType, unit: &str| self.string(kind.unit) == unit;
        let period = self.period_type.as_ref().filter(|kind| is_in(kind, unit::NANOSECONDS));
        let period_ns = Some(self.period).filter(|period| *period > 0);
        let find = |wanted: &str| self.sample_types.iter().position(|kind| is_in(kind, wanted));
        if let (Some(kind), Some(period_ns), Some(column)) = (period, period_ns, find(unit::COUNT)) {
            return Some((column, SampleType::at_rate(self.string(kind.r#type), period_ns)));
        }
        let column = find(unit::NANOSECONDS).or_else(|| self.sample_types.len().checked_sub(1))?;
        let value_type =
            |kind: &proto::ValueType| ValueType::new(self.string(kind.r#type), self.string(kind.unit));
        let period = Option::zip(self.period_type.as_ref(), period_ns)
            .map(|(kind, amount)| Period { value_type: value_type(kind), amount });
        Some((column, SampleType { value_type: value_type(self.sample_types.get(column)?), period }))
    }
}

fn non_negative(value: FieldValue<'_>) -> u64 {
    u64::try_from(value.integer().cast_signed()).unwrap_or(0)
}

/// Adds all mappings and locations to a dictionary. Returns the locations by their IDs.
fn read_locations(
    bytes: &[u8],
    tables: &PprofTables<'_>,
    dictionary: &mut Dictionary,
    expansion: &mut ExpansionBudget,
) -> Result<HashMap<u64, LocationIndex>, ReadError> {
    let mappings = tables.mappings.iter();
    let mappings: HashMap<_, _> =
        mappings.map(|mapping| (mapping.id, tables.add_mapping(dictionary, mapping))).collect();
    let mut locations = HashMap::new();
    for field in fields(bytes) {
        let (4, location) = field? else { continue };
        let (mut id, mut mapping_id, mut address) = (0, 0, 0);
        for field in fields(location.bytes()) {
            match field? {
                (1, value) => id = value.integer(),
                (2, value) => mapping_id = value.integer(),
                (3, value) => address = value.integer(),
                _ => {}
            }
        }
        let mapping = mappings.get(&mapping_id).copied().unwrap_or_default();
        let place = PprofPlace { tables, mapping, address };
        // Inlined calls come first, as in memory.
        let mut lines = Vec::new();
        for field in fields(location.bytes()) {
            let (4, line) = field? else { continue };
            let line = proto::Line::decode(line.bytes())?;
            let Some(function) = tables.functions.get(&line.function_id) else { continue };
            lines.push(place.read_line(dictionary, expansion, function, line.line)?);
        }
        if lines.is_empty() {
            expansion.take_entry(0)?;
        }
        locations.insert(id, place.add(dictionary, &lines));
    }
    Ok(locations)
}

/// Where a location is.
struct PprofPlace<'a> {
    tables: &'a PprofTables<'a>,
    mapping: MappingIndex,
    address: u64,
}

/// A line of a location, with what its label and its source say of the location.
struct PprofLine {
    line: Line,
    frame_type: FrameType,
    is_guessed: bool,
    /// Whether a place in the file stands for the name.
    is_unnamed: bool,
    marker: Option<Marker>,
}

impl PprofPlace<'_> {
    fn read_line(
        &self,
        dictionary: &mut Dictionary,
        expansion: &mut ExpansionBudget,
        function: &proto::Function,
        line: i64,
    ) -> Result<PprofLine, ReadError> {
        let [name, system_name, path] =
            [function.name, function.system_name, function.filename].map(|index| self.tables.string(index));
        let label = ParsedLabel::new(if name.is_empty() { system_name } else { name });
        let system_name = if system_name == label.name { "" } else { system_name };
        expansion.take_entry(label.name.len() + system_name.len() + path.len())?;
        let line = u32::try_from(line).unwrap_or(0);
        let source = SourceLine { function: label.name, system_name, path, line, column: 0 };
        let binary = self.path(dictionary);
        Ok(PprofLine {
            frame_type: guess_frame_type(FrameHints {
                name: if label.is_marker { "" } else { label.name },
                source: path,
                binary,
                has_address: self.address != 0,
            }),
            is_guessed: label.is_guessed,
            // As our own files have it.
            is_unnamed: is_offset_in(label.name, binary.rsplit('/').next().unwrap_or_default()),
            marker: label.is_marker.then(|| guess_marker(label.name)),
            line: dictionary.add_line(&source),
        })
    }

    /// Adds the location. The last of its lines contains the others.
    fn add(&self, dictionary: &mut Dictionary, lines: &[PprofLine]) -> LocationIndex {
        let outermost = lines.last();
        let binary = self.path(dictionary);
        let marker = match (outermost, lines.len()) {
            // A file has its whole path; `[vdso]` is ours.
            (None, _) => binary.starts_with('[').then_some(&Marker::Words),
            (Some(line), 1) => line.marker.as_ref(),
            // What stands for missing frames contains none.
            (Some(line), _) => line.marker.as_ref().map(|_| &Marker::Words),
        };
        let frame_types = lines.iter().map(|line| line.frame_type);
        let unnamed_type = || {
            guess_frame_type(FrameHints { binary, has_address: self.address != 0, ..FrameHints::default() })
        };
        let location = Location {
            mapping: self.mapping,
            address: self.address,
            frame_type: if lines.is_empty() { unnamed_type() } else { common_type(frame_types) },
            is_generated: false,
            is_guessed: outermost.is_some_and(|line| line.is_guessed),
            is_unnamed: outermost.is_some_and(|line| line.is_unnamed),
            marker,
            lines: &lines.iter().map(|line| line.line).collect::<Vec<_>>(),
        };
        match lines {
            [] => dictionary.add_unnamed_location(&location),
            _ => add_location(dictionary, &location),
        }
    }

    /// The path of the file; empty if there is none.
    fn path<'a>(&self, dictionary: &'a Dictionary) -> &'a str {
        dictionary.string(dictionary.mapping(self.mapping).filename)
    }
}

/// Reads samples, and gathers what they refer to.
struct SampleReader<'a> {
    tables: &'a PprofTables<'a>,
    locations: &'a HashMap<u64, LocationIndex>,
    /// Which value of a sample is used.
    column: usize,
    expansion: ExpansionBudget,
    threads: Table<ThreadIndex, ProfileThread>,
    states: Table<StateIndex, ThreadState>,
    inlined: InlinedCalls,
}

impl<'a> SampleReader<'a> {
    fn new(
        tables: &'a PprofTables<'a>,
        locations: &'a HashMap<u64, LocationIndex>,
        column: usize,
        expansion: ExpansionBudget,
    ) -> Self {
        Self {
            tables,
            locations,
            column,
            expansion,
            threads: Table::default(),
            states: Table::default(),
            inlined: InlinedCalls::default(),
        }
    }

    /// Reads a sample; `None` if it counts nothing.
    fn read(
        &mut self,
        sample: &[u8],
        dictionary: &mut Dictionary,
    ) -> Result<Option<ProfileSample>, ReadError> {
        let (mut stack, mut labels, mut count, mut values) = (Vec::new(), Vec::new(), 0, 0);
        for field in fields(sample) {
            let (number, value) = field?;
            match number {
                1 => {
                    for location in value.integers() {
                        let Some(&location) = self.locations.get(&location?) else { continue };
                        self.expansion.take_frames(dictionary.location(location).lines.len())?;
                        stack.push(location);
                    }
                }
                2 => {
                    for value in value.integers() {
                        let value = value?.cast_signed();
                        if values == self.column {
                            count = u64::try_from(value).unwrap_or(0);
                        }
                        values += 1;
                    }
                }
                3 => {
                    self.expansion.take_entry(0)?;
                    labels.push(proto::Label::decode(value.bytes())?);
                }
                _ => {}
            }
        }
        if count == 0 {
            return Ok(None);
        }
        let labels = PprofLabels { labels: &labels, tables: self.tables };
        let span = Option::zip(labels.id("trace_id"), labels.id("span_id"));
        let span = span.map(|(trace_id, span_id)| dictionary.add_link(Link { trace_id, span_id }));
        let thread = labels.thread();
        self.inlined.join(dictionary, &mut stack);
        self.expansion
            .take_entry(thread.process.len() + thread.name.len() + thread.container.text_bytes())?;
        Ok(Some(ProfileSample {
            slice: 0,
            thread: self.threads.intern(thread),
            span: span.unwrap_or_default(),
            state: labels.state().map(|state| self.states.intern(state)),
            stated: StatedAttributes::default(),
            stack: dictionary.add_stack(&stack),
            count,
        }))
    }
}

/// Whether a name consists of a file and an offset in it.
fn is_offset_in(name: &str, file: &str) -> bool {
    let offset = name.strip_prefix(file).and_then(|rest| rest.strip_prefix("+0x"));
    !file.is_empty() && offset.is_some_and(|offset| u64::from_str_radix(offset, 16).is_ok())
}

/// The labels of a sample, by key.
struct PprofLabels<'a> {
    labels: &'a [proto::Label],
    tables: &'a PprofTables<'a>,
}

impl<'a> PprofLabels<'a> {
    fn find(&self, key: &str) -> Option<&'a proto::Label> {
        self.labels.iter().find(|label| self.tables.string(label.key) == key)
    }

    fn text(&self, key: &str) -> &'a str {
        self.find(key).map_or("", |label| self.tables.string(label.str))
    }

    fn number(&self, keys: &[&str]) -> u32 {
        let label = keys.iter().find_map(|key| self.find(key));
        label.and_then(|label| u32::try_from(label.num).ok()).unwrap_or(0)
    }

    fn thread(&self) -> ProfileThread {
        ProfileThread {
            process: self.text("process").into(),
            pid: self.number(&["pid", "process_id"]),
            name: self.text("thread").into(),
            tid: self.number(&["tid", "thread_id"]),
            container: ProfileContainer::from_attributes(|key| Some(self.text(key).into())),
        }
    }

    /// What the thread did or waited for.
    fn state(&self) -> Option<ThreadState> {
        let state = self.text(ThreadState::STATE_KEY);
        let cause = self.text(ThreadState::CAUSE_KEY);
        (!state.is_empty()).then(|| ThreadState { state: state.into(), cause: cause.into() })
    }

    /// An ID in hexadecimal digits.
    fn id<Id: FromHex>(&self, key: &str) -> Option<Id> {
        Id::from_hex(self.text(key)).ok()
    }
}

#[cfg(test)]
mod tests;
