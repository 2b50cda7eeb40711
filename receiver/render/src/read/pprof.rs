//! Reads the pprof format, from any writer.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use prost::Message as _;
use sidewinder_kind::unit;
use sidewinder_profile::{Marker, Period, SampleType, ValueType};

use super::error::ReadError;
use super::guess::{FrameHints, guess_frame_type, guess_marker};
use super::inlining::InlinedCalls;
use super::protobuf::{FieldValue, fields};
use crate::container::ProfileContainer;
use crate::expansion::ExpansionBudget;
use crate::interner::ValueInterner;
use crate::label::ParsedLabel;
use crate::pprof::proto;
use crate::profile::{
    AttributeSetIndex, BinaryIndex, FrameIndex, Profile, ProfileBinary, ProfileFrame, ProfileSample,
    ProfileSpan, ProfileThread, SpanIndex, StackIndex, StateIndex, ThreadIndex, ThreadState,
};

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
    profile.binaries = tables.mappings.iter().map(|mapping| tables.binary(mapping)).collect();
    let locations = PprofLocations::read(bytes, &tables, &mut profile, &mut expansion)?;
    let mut samples = SampleReader::new(&tables, &locations, column, expansion);
    for field in fields(bytes) {
        if let (2, sample) = field? {
            profile.samples.extend(samples.read(sample.bytes(), &mut profile.frames)?);
        }
    }
    profile.stacks = samples.stacks.values;
    profile.threads = samples.threads.values;
    profile.spans = samples.spans.values;
    profile.states = samples.states.values;
    Ok(profile)
}

/// What samples and locations refer to.
#[derive(Default)]
struct PprofTables<'a> {
    sample_types: Vec<proto::ValueType>,
    mappings: Vec<proto::Mapping>,
    functions: HashMap<u64, proto::Function>,
    strings: Vec<&'a str>,
    /// The texts of frames and threads: each string that one of them has, once.
    texts: HashMap<i64, Arc<str>>,
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
        tables.share_texts();
        Ok(tables)
    }

    /// Makes the texts that frames will share.
    fn share_texts(&mut self) {
        for function in self.functions.values() {
            for index in [function.name, function.system_name, function.filename] {
                let text = string(&self.strings, index);
                self.texts.entry(index).or_insert_with(|| text.into());
            }
        }
    }

    /// A string; empty if the index is invalid.
    fn string(&self, index: i64) -> &'a str {
        string(&self.strings, index)
    }

    /// A string that a function has.
    fn text(&self, index: i64) -> Arc<str> {
        self.texts.get(&index).cloned().unwrap_or_default()
    }

    fn binary(&self, mapping: &proto::Mapping) -> ProfileBinary {
        ProfileBinary {
            path: self.string(mapping.filename).to_owned(),
            build_id: Some(self.string(mapping.build_id).to_owned()).filter(|id| !id.is_empty()),
            ..ProfileBinary::default()
        }
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

fn string<'a>(strings: &[&'a str], index: i64) -> &'a str {
    usize::try_from(index).ok().and_then(|index| strings.get(index)).copied().unwrap_or_default()
}

fn non_negative(value: FieldValue<'_>) -> u64 {
    u64::try_from(value.integer().cast_signed()).unwrap_or(0)
}

/// The frames of each location: the first, and their number. They are leaf first: inlined ones first, as in the format.
struct PprofLocations(HashMap<u64, (u32, u32)>);

impl PprofLocations {
    /// Adds the frames of all locations to a profile, which has its binaries.
    fn read(
        bytes: &[u8],
        tables: &PprofTables<'_>,
        profile: &mut Profile,
        expansion: &mut ExpansionBudget,
    ) -> Result<Self, ReadError> {
        let binaries = tables.mappings.iter().zip(0..).map(|(mapping, at)| (mapping.id, BinaryIndex(at)));
        let binaries: HashMap<_, _> = binaries.collect();
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
            let place = FramePlace { binary: binaries.get(&mapping_id).copied(), address };
            let first = profile.frames.len();
            for field in fields(location.bytes()) {
                let (4, line) = field? else { continue };
                let line = proto::Line::decode(line.bytes())?;
                let Some(function) = tables.functions.get(&line.function_id) else { continue };
                let frame = place.frame_of_function(tables, profile, function, line.line);
                expansion.take_entry(frame.name.len() + frame.system_name.len() + frame.path.len())?;
                profile.frames.push(ProfileFrame { is_inlined: true, ..frame });
            }
            if profile.frames.len() == first {
                expansion.take_entry(0)?;
                profile.frames.push(place.unnamed_frame(profile));
            }
            // The last one contains the others.
            profile.frames.last_mut().into_iter().for_each(|frame| frame.is_inlined = false);
            locations.insert(id, (first as u32, (profile.frames.len() - first) as u32));
        }
        Ok(Self(locations))
    }

    fn frames(&self, location: u64) -> impl ExactSizeIterator<Item = FrameIndex> + use<> {
        let (first, count) = self.0.get(&location).copied().unwrap_or_default();
        (first..first + count).map(FrameIndex)
    }
}

/// Where a location is.
struct FramePlace {
    binary: Option<BinaryIndex>,
    address: u64,
}

impl FramePlace {
    fn frame_of_function(
        &self,
        tables: &PprofTables<'_>,
        profile: &Profile,
        function: &proto::Function,
        line: i64,
    ) -> ProfileFrame {
        let [name, system_name, path] =
            [function.name, function.system_name, function.filename].map(|index| tables.text(index));
        let label = if name.is_empty() { Arc::clone(&system_name) } else { name };
        let parsed = ProfileFrame::parse_label(&label);
        let name = if parsed.name == &*label { Arc::clone(&label) } else { parsed.name.into() };
        let system_name = if system_name == name { Arc::default() } else { system_name };
        let line = u32::try_from(line).unwrap_or(0);
        ProfileFrame { name, system_name, line, ..self.frame(profile, parsed, path) }
    }

    /// The frame of a location without functions.
    fn unnamed_frame(&self, profile: &Profile) -> ProfileFrame {
        let binary = self.binary(profile);
        let file = binary.map_or("", ProfileBinary::file_name);
        ProfileFrame {
            name: format!("{file}+{:#x}", self.address).into(),
            is_named: false,
            // A file has its whole path; `[vdso]` is ours.
            marker: binary.filter(|binary| binary.path.starts_with('[')).map(|_| Marker::Words),
            ..self.frame(profile, ProfileFrame::parse_label(""), Arc::default())
        }
    }

    /// A frame with everything that its label and its source say, but for its name.
    fn frame(&self, profile: &Profile, label: ParsedLabel<'_>, path: Arc<str>) -> ProfileFrame {
        let binary = self.binary(profile);
        let hints = FrameHints {
            name: if label.is_marker { "" } else { label.name },
            source: &path,
            binary: binary.map_or("", |binary| &binary.path),
            has_address: self.address != 0,
        };
        ProfileFrame {
            frame_type: guess_frame_type(hints),
            // Without a symbol, the place in the file stands for the name, as our own files have it.
            is_named: !is_offset_in(label.name, binary.map_or("", ProfileBinary::file_name)),
            binary: self.binary,
            address: self.address,
            path,
            is_guessed: label.is_guessed,
            marker: label.is_marker.then(|| guess_marker(label.name)),
            ..ProfileFrame::default()
        }
    }

    fn binary<'a>(&self, profile: &'a Profile) -> Option<&'a ProfileBinary> {
        self.binary.and_then(|binary| profile.binaries.get(binary.0 as usize))
    }
}

/// Reads samples, and gathers what they refer to.
struct SampleReader<'a> {
    tables: &'a PprofTables<'a>,
    locations: &'a PprofLocations,
    /// Which value of a sample is used.
    column: usize,
    expansion: ExpansionBudget,
    stacks: ValueInterner<Vec<FrameIndex>>,
    threads: ValueInterner<ProfileThread>,
    spans: ValueInterner<ProfileSpan>,
    states: ValueInterner<ThreadState>,
    inlined: InlinedCalls,
}

impl<'a> SampleReader<'a> {
    fn new(
        tables: &'a PprofTables<'a>,
        locations: &'a PprofLocations,
        column: usize,
        expansion: ExpansionBudget,
    ) -> Self {
        Self {
            tables,
            locations,
            column,
            expansion,
            stacks: ValueInterner::default(),
            threads: ValueInterner::default(),
            spans: ValueInterner::default(),
            states: ValueInterner::default(),
            inlined: InlinedCalls::default(),
        }
    }

    /// Reads a sample of stacks of these frames; `None` if it counts nothing.
    fn read(
        &mut self,
        sample: &[u8],
        table: &mut Vec<ProfileFrame>,
    ) -> Result<Option<ProfileSample>, ReadError> {
        let (mut frames, mut labels, mut count, mut values) = (Vec::new(), Vec::new(), 0, 0);
        for field in fields(sample) {
            let (number, value) = field?;
            match number {
                1 => {
                    for location in value.integers() {
                        let more = self.locations.frames(location?);
                        self.expansion.take_frames(more.len())?;
                        frames.extend(more);
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
        let span = Option::zip(labels.bytes::<16>("trace_id"), labels.bytes::<8>("span_id"));
        let thread = labels.thread();
        self.inlined.mark(table, &mut frames);
        frames.shrink_to_fit();
        self.expansion
            .take_entry(thread.process.len() + thread.name.len() + thread.container.text_bytes())?;
        Ok(Some(ProfileSample {
            slice: 0,
            thread: ThreadIndex(self.threads.intern(thread)),
            span: span
                .map(|(trace_id, span_id)| SpanIndex(self.spans.intern(ProfileSpan { trace_id, span_id }))),
            state: labels.state().map(|state| StateIndex(self.states.intern(state))),
            attributes: AttributeSetIndex::EMPTY,
            stack: StackIndex(self.stacks.intern(frames)),
            count,
        }))
    }
}

/// Whether a name is that of a file and an offset in it.
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
    fn bytes<const LENGTH: usize>(&self, key: &str) -> Option<[u8; LENGTH]> {
        let text = self.text(key);
        let mut bytes = [0; LENGTH];
        if text.len() != 2 * LENGTH || !text.is_ascii() {
            return None;
        }
        for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
            *byte = u8::from_str_radix(text.get(at..at + 2)?, 16).ok()?;
        }
        Some(bytes)
    }
}

#[cfg(test)]
mod tests;
