//! The parts of a `perf.data` file: its header, the attributes of its events, its features, and its records.
//!
//! The format is described in Linux, `tools/perf/Documentation/perf.data-file-format.txt`.

use std::collections::HashMap;
use std::io::Write;

use super::bytes::Bytes;
use crate::read::error::{BYTES_MAX, ReadError};

/// The first bytes of files that little-endian machines write, and of the others.
pub(super) const MAGIC: &[u8] = b"PERFILE2";
const MAGIC_BIG_ENDIAN: &[u8] = b"2ELIFREP";
/// The size of the header of a file that was written to a pipe: it has records in place of sections.
const PIPE_HEADER_BYTES: u64 = 16;
/// The size of a record's own header: `type`, `misc`, `size`.
const RECORD_HEADER_BYTES: usize = 8;

/// Numbers of features (`HEADER_BUILD_ID`, `HEADER_EVENT_DESC`), and how many there can be.
const FEATURE_BUILD_ID: u64 = 2;
const FEATURE_EVENT_DESC: u64 = 12;
const FEATURES: u64 = 256;

/// Types of the records that only user space writes (`enum perf_user_event_type`).
const RECORD_HEADER_ATTR: u32 = 64;
const RECORD_HEADER_BUILD_ID: u32 = 67;
const RECORD_AUXTRACE: u32 = 71;
const RECORD_HEADER_FEATURE: u32 = 80;
const RECORD_COMPRESSED: u32 = 81;
const RECORD_COMPRESSED2: u32 = 83;

/// In `misc` of a build ID: the byte after its 20 bytes is its length.
const MISC_BUILD_ID_SIZE: u16 = 1 << 15;
const BUILD_ID_BYTES: usize = 20;

/// A file whose records are found, and not parsed.
#[derive(Default, Debug)]
pub(super) struct PerfFile<'a> {
    /// At least one.
    pub(super) events: Vec<PerfEvent>,
    /// By path, in hexadecimal.
    pub(super) build_ids: HashMap<String, String>,
    /// Those of the kernel, in the order of the file.
    pub(super) records: Vec<PerfRecord<'a>>,
    /// Whether the last record is incomplete.
    pub(super) is_cut: bool,
}

/// An event: what was counted, and what its samples consist of.
#[derive(Clone, Debug)]
pub(super) struct PerfEvent {
    pub(super) name: String,
    pub(super) ids: Vec<u64>,
    pub(super) attributes: PerfAttributes,
}

/// The part of `struct perf_event_attr` that is used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PerfAttributes {
    pub(super) kind: u32,
    pub(super) config: u64,
    /// `None`: the kernel varied the period.
    pub(super) fixed_period: Option<u64>,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) branch_sample_type: u64,
    /// Whether all records end in the fields that identify a sample.
    pub(super) sample_id_all: bool,
}

/// A record.
#[derive(Clone, Copy, Debug)]
pub(super) struct PerfRecord<'a> {
    pub(super) kind: u32,
    pub(super) misc: u16,
    pub(super) body: Bytes<'a>,
}

/// A section: a range of the file.
type FileSection = (u64, u64);

pub(in crate::read) fn is_perf_data(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC) || bytes.starts_with(MAGIC_BIG_ENDIAN)
}

/// Finds the parts of a file. `decompressed` receives the records that are compressed in it.
pub(super) fn parse<'a>(bytes: &'a [u8], decompressed: &'a mut Vec<u8>) -> Result<PerfFile<'a>, ReadError> {
    if bytes.starts_with(MAGIC_BIG_ENDIAN) {
        return Err(ReadError::PerfData("it comes from a big-endian machine"));
    }
    let mut header = Bytes(bytes);
    header.take(MAGIC.len());
    let header_bytes = header.u64().ok_or(ReadError::PerfData("its header is cut"))?;
    let mut file = PerfFile::default();
    let mut names = Vec::new();
    let data = if header_bytes == PIPE_HEADER_BYTES {
        header.0
    } else {
        let sections = file.sections(bytes, header, &mut names);
        sections.ok_or(ReadError::PerfData("its header refers to parts that it does not have"))?
    };
    let mut compressed = Vec::new();
    file.records(data, &mut names, &mut compressed);
    if !compressed.is_empty() {
        decompress(&compressed, &mut *decompressed)?;
        file.records(decompressed, &mut names, &mut Vec::new());
    }
    for (event, name) in file.events.iter_mut().zip(names) {
        event.name = name;
    }
    match file.events.is_empty() {
        true => Err(ReadError::PerfData("it has no event")),
        false => Ok(file),
    }
}

impl<'a> PerfFile<'a> {
    /// Reads the sections of a file, and returns the one with the records.
    fn sections(
        &mut self,
        bytes: &'a [u8],
        mut header: Bytes<'a>,
        names: &mut Vec<String>,
    ) -> Option<&'a [u8]> {
        let attribute_bytes = usize::try_from(header.u64()?).ok()?;
        let mut section = || Some((header.u64()?, header.u64()?));
        let (attributes, (data_start, data_bytes), _event_types) = (section()?, section()?, section()?);
        let features = header.take(FEATURES as usize / 8)?;
        // perf writes the size when it ends; if it was killed, the records go on to the end.
        let data_bytes = if data_bytes == 0 {
            bytes.len() as u64 - data_start.min(bytes.len() as u64)
        } else {
            data_bytes
        };
        let data = slice(bytes, (data_start, data_bytes))?;
        let mut attributes = Bytes(slice(bytes, attributes)?);
        // Each ends in the section of its IDs.
        let own_bytes = attribute_bytes.checked_sub(16).filter(|size| *size > 0)?;
        // Events that share IDs would multiply what the file holds.
        let mut ids_left = bytes.len();
        while let Some(own) = attributes.take(own_bytes) {
            let ids = slice(bytes, (attributes.u64()?, attributes.u64()?))?;
            ids_left = ids_left.checked_sub(ids.len())?;
            self.events.push(PerfEvent::new(own, ids)?);
        }
        let mut feature_sections = Bytes(bytes.get(usize::try_from(data_start + data_bytes).ok()?..)?);
        for feature in 0..FEATURES {
            if features[feature as usize / 8] & 1 << (feature % 8) == 0 {
                continue;
            }
            let Some(section) = Option::zip(feature_sections.u64(), feature_sections.u64()) else { break };
            self.feature(feature, Bytes(slice(bytes, section).unwrap_or_default()), names);
        }
        Some(data)
    }

    fn feature(&mut self, feature: u64, mut content: Bytes<'_>, names: &mut Vec<String>) {
        match feature {
            FEATURE_BUILD_ID => {
                while let Some(record) = take_record(&mut content) {
                    self.build_id(record);
                }
            }
            FEATURE_EVENT_DESC => *names = event_names(content).unwrap_or_default(),
            _ => {}
        }
    }

    /// A build ID: a PID, 24 bytes, a path.
    fn build_id(&mut self, PerfRecord { misc, mut body, .. }: PerfRecord<'_>) {
        let Some((_pid, id)) = Option::zip(body.u32(), body.take(24)) else { return };
        let length = match misc & MISC_BUILD_ID_SIZE {
            // An old perf does not state it: IDs are padded with zeros.
            0 => id[..BUILD_ID_BYTES].iter().rposition(|byte| *byte != 0).map_or(0, |last| (last + 4) & !3),
            _ => usize::from(id[BUILD_ID_BYTES]).min(BUILD_ID_BYTES),
        };
        if let Some(id) = build_id_text(&id[..length]) {
            self.build_ids.insert(body.text(), id);
        }
    }

    /// Finds the records in `data`, and takes from those of user space what they hold.
    fn records(&mut self, data: &'a [u8], names: &mut Vec<String>, compressed: &mut Vec<&'a [u8]>) {
        let mut data = Bytes(data);
        while let Some(record) = take_record(&mut data) {
            let mut body = record.body;
            match record.kind {
                RECORD_HEADER_ATTR => {
                    // The attributes state their own size; IDs follow.
                    let size = Bytes(body.0.get(4..).unwrap_or_default()).u32().unwrap_or(0);
                    let event = body.take(size as usize).and_then(|own| PerfEvent::new(own, body.0));
                    self.events.extend(event);
                }
                RECORD_HEADER_BUILD_ID => self.build_id(record),
                RECORD_HEADER_FEATURE => {
                    if let Some(feature) = body.u64() {
                        self.feature(feature, body, names);
                    }
                }
                // What it announces follows it.
                RECORD_AUXTRACE => {
                    let size = body.u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(usize::MAX);
                    self.is_cut |= data.take(size).is_none();
                }
                RECORD_COMPRESSED => compressed.push(body.0),
                RECORD_COMPRESSED2 => {
                    let size = body.u64().and_then(|size| usize::try_from(size).ok());
                    compressed.extend(size.and_then(|size| body.0.get(..size)));
                }
                kind if kind < RECORD_HEADER_ATTR => self.records.push(record),
                _ => {}
            }
        }
        self.is_cut |= !data.0.is_empty();
    }
}

impl PerfEvent {
    fn new(attributes: &[u8], ids: &[u8]) -> Option<Self> {
        let attributes = PerfAttributes::parse(Bytes(attributes))?;
        let ids = ids.chunks_exact(8).filter_map(|id| Bytes(id).u64()).collect();
        Some(Self { name: attributes.name(), ids, attributes })
    }
}

impl PerfAttributes {
    #[cfg(test)]
    pub(super) const EMPTY: Self = Self {
        kind: 0,
        config: 0,
        fixed_period: None,
        sample_type: 0,
        read_format: 0,
        branch_sample_type: 0,
        sample_id_all: false,
    };

    fn parse(mut bytes: Bytes<'_>) -> Option<Self> {
        const FLAG_FREQUENCY: u64 = 1 << 10;
        const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
        let (kind, _size, config, period) = (bytes.u32()?, bytes.u32()?, bytes.u64()?, bytes.u64()?);
        let (sample_type, read_format, flags) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        // Wake-ups, breakpoint, two more configurations; old kernels had none of what follows.
        let branch_sample_type = bytes.take(24).and_then(|_| bytes.u64()).unwrap_or(0);
        Some(Self {
            kind,
            config,
            fixed_period: (flags & FLAG_FREQUENCY == 0).then_some(period),
            sample_type,
            read_format,
            branch_sample_type,
            sample_id_all: flags & FLAG_SAMPLE_ID_ALL != 0,
        })
    }

    /// The name of the event, for files that do not state it.
    fn name(self) -> String {
        const HARDWARE: [&str; 10] = [
            "cycles",
            "instructions",
            "cache-references",
            "cache-misses",
            "branches",
            "branch-misses",
            "bus-cycles",
            "stalled-cycles-frontend",
            "stalled-cycles-backend",
            "ref-cycles",
        ];
        const SOFTWARE: [&str; 10] = [
            "cpu-clock",
            "task-clock",
            "page-faults",
            "context-switches",
            "cpu-migrations",
            "minor-faults",
            "major-faults",
            "alignment-faults",
            "emulation-faults",
            "dummy",
        ];
        let names: &[&str] = match self.kind {
            0 => &HARDWARE,
            1 => &SOFTWARE,
            _ => &[],
        };
        let name = usize::try_from(self.config).ok().and_then(|config| names.get(config));
        name.map_or_else(|| format!("event {}:{:#x}", self.kind, self.config), |name| (*name).to_owned())
    }
}

/// The names in the feature that describes the events.
fn event_names(mut content: Bytes<'_>) -> Option<Vec<String>> {
    let (count, attribute_bytes) = (content.u32()?, content.u32()?);
    let mut names = Vec::new();
    for _ in 0..count {
        content.take(attribute_bytes as usize)?;
        let (ids, name_bytes) = (content.u32()?, content.u32()?);
        names.push(Bytes(content.take(name_bytes as usize)?).text());
        content.take((ids as usize).checked_mul(8)?)?;
    }
    Some(names)
}

/// The next record; `None` at the end, and where the rest is not a whole record.
fn take_record<'a>(data: &mut Bytes<'a>) -> Option<PerfRecord<'a>> {
    let mut rest = *data;
    let (kind, misc, size) = (rest.u32()?, rest.u16()?, rest.u16()?);
    let body = rest.take(usize::from(size).checked_sub(RECORD_HEADER_BYTES)?)?;
    *data = rest;
    Some(PerfRecord { kind, misc, body: Bytes(body) })
}

/// Decompresses the parts of one stream, within the limit of the size of files.
fn decompress(parts: &[&[u8]], into: &mut Vec<u8>) -> Result<(), ReadError> {
    let mut decoder = zstd::stream::write::Decoder::new(Limited(into)).map_err(ReadError::Read)?;
    let written = parts.iter().try_for_each(|part| decoder.write_all(part)).and_then(|()| decoder.flush());
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::FileTooLarge => ReadError::TooLarge,
        _ => ReadError::PerfData("its records can't be decompressed"),
    })
}

struct Limited<'a>(&'a mut Vec<u8>);

impl Write for Limited<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if (self.0.len() + bytes.len()) as u64 > BYTES_MAX {
            return Err(std::io::ErrorKind::FileTooLarge.into());
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn slice(bytes: &[u8], (start, length): FileSection) -> Option<&[u8]> {
    bytes.get(usize::try_from(start).ok()?..)?.get(..usize::try_from(length).ok()?)
}

/// A build ID in hexadecimal digits; `None` if it has no bytes.
pub(super) fn build_id_text(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| hex::encode(bytes))
}
