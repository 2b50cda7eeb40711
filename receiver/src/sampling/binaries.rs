//! The files that processes execute, and where walks find their tables.

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{Arena, PackedSegment, Packing, Range, SegmentId, Tables};
use sidewinder_process::{ExecutableMapping, FileId, OpenedFile, Pid};

use super::debug_file::DebugFile;
use super::table_builder::{BuildError, Built, TableBuilder};

/// A file whose tables were evicted is read again at most this often.
const RELOAD_INTERVAL: Duration = Duration::from_millis(250);

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Binaries {
    builder: TableBuilder,
    binaries: HashMap<FileId, Binary>,
    /// The table of files that say nothing.
    blank: SegmentId,
    reloads: u64,
}

#[derive(Debug)]
struct Binary {
    content: OpenedFile,
    packing: Packing,
    debug_file: DebugFile,
    state: State,
    /// Processes that map it.
    users: BTreeSet<Pid>,
    ordered_at: Instant,
    /// Segments that walks have missed.
    missed: BTreeSet<SegmentId>,
}

#[derive(Debug)]
enum State {
    Building,
    Built(Vec<Segment>),
    /// Whatever frame pointers find.
    Blank,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    file_offset: FileOffset,
    text_bytes: u64,
    id: SegmentId,
}

impl Segment {
    fn end(&self) -> u64 {
        self.file_offset.0 + self.text_bytes
    }
}

/// A file that is ready to be walked: its processes' ranges are to be published again.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) file: FileId,
    pub(crate) users: Vec<Pid>,
    pub(crate) loads: Vec<LoadSegment>,
    pub(crate) failure: Option<BuildError>,
}

impl Binaries {
    pub(crate) fn new(builder: TableBuilder, arena: &mut Arena, tables: &mut Tables) -> Option<Self> {
        let blank = tables.reserve()?;
        tables.load(arena, blank, &PackedSegment::blank()).ok()?;
        Some(Self { builder, binaries: HashMap::new(), blank, reloads: 0 })
    }

    /// Notes that a process maps a file, and sees to it that its table is built.
    pub(crate) fn use_by(
        &mut self,
        file: FileId,
        content: &OpenedFile,
        path: &[u8],
        packing: Packing,
        user: Pid,
    ) {
        let builder = &mut self.builder;
        let binary = self.binaries.entry(file).or_insert_with(|| {
            let debug_file = DebugFile::of_process(user, path);
            builder.order(file, content.clone(), packing, debug_file.clone());
            Binary {
                content: content.clone(),
                packing,
                debug_file,
                state: State::Building,
                users: BTreeSet::new(),
                ordered_at: Instant::now(),
                missed: BTreeSet::new(),
            }
        });
        binary.users.insert(user);
    }

    /// Notes that a process maps nothing any more.
    pub(crate) fn unused_by(&mut self, user: Pid) {
        for binary in self.binaries.values_mut() {
            binary.users.remove(&user);
        }
    }

    /// Adds the ranges of one mapping: a part for each segment of its file.
    pub(crate) fn push_ranges(
        &self,
        ranges: &mut Vec<Range>,
        file: Option<FileId>,
        mapping: &ExecutableMapping,
    ) {
        let whole = Range {
            start: mapping.range.start,
            bytes: mapping.len_bytes(),
            file: file.map_or(0, |file| file.0),
            file_offset: mapping.file_offset,
            segment: None,
        };
        match file.and_then(|file| self.binaries.get(&file)).map(|binary| &binary.state) {
            Some(State::Built(segments)) => push_parts(ranges, whole, segments),
            Some(State::Building) => ranges.push(whole),
            // Files that can't be read, and code without a file.
            Some(State::Blank) | None => ranges.push(Range { segment: Some(self.blank), ..whole }),
        }
    }

    /// A walk has missed the table at this place; it is loaded again.
    pub(crate) fn missed(&mut self, file: FileId, offset: FileOffset) {
        let Some(binary) = self.binaries.get_mut(&file) else { return };
        let State::Built(segments) = &binary.state else { return };
        let segment = segments.iter().find(|s| s.file_offset <= offset && offset.0 < s.end());
        let Some(segment) = segment else { return };
        if binary.missed.insert(segment.id) && binary.ordered_at.elapsed() >= RELOAD_INTERVAL {
            self.reload(file);
        }
    }

    fn reload(&mut self, file: FileId) {
        if let Some(binary) = self.binaries.get_mut(&file) {
            binary.ordered_at = Instant::now();
            self.reloads += 1;
            self.builder.order(file, binary.content.clone(), binary.packing, binary.debug_file.clone());
        }
    }

    /// Loads what has been built meanwhile.
    pub(crate) fn load_ready(&mut self, arena: &mut Arena, tables: &mut Tables) -> Vec<Ready> {
        let late: Vec<FileId> = self
            .binaries
            .iter()
            .filter(|(_, binary)| {
                !binary.missed.is_empty()
                    && matches!(binary.state, State::Built(_))
                    && binary.ordered_at.elapsed() >= RELOAD_INTERVAL
            })
            .map(|(file, _)| *file)
            .collect();
        late.into_iter().for_each(|file| self.reload(file));

        let mut ready = Vec::new();
        while let Some((file, result)) = self.builder.next() {
            let Some(binary) = self.binaries.get_mut(&file) else { continue };
            let (loads, failure) = match result {
                Ok(built) => {
                    let loads = built.loads.clone();
                    binary.take(built, arena, tables);
                    (loads, None)
                }
                Err(failure) => {
                    binary.debug_file = DebugFile::Known(None);
                    binary.state = State::Blank;
                    (Vec::new(), Some(failure))
                }
            };
            ready.push(Ready { file, users: binary.users.iter().copied().collect(), loads, failure });
        }
        ready
    }

    /// Tables that are being built.
    pub(crate) fn in_progress(&self) -> usize {
        self.builder.in_progress()
    }

    /// Files read again because a walk missed an evicted table.
    pub(crate) fn reloads(&self) -> u64 {
        self.reloads
    }
}

impl Binary {
    /// The first time every segment is loaded for which there is room; afterwards those that were missed, at the cost
    /// of others.
    fn take(&mut self, built: Built, arena: &mut Arena, tables: &mut Tables) {
        self.debug_file = built.debug_file;
        if let State::Built(segments) = &self.state {
            let missed = std::mem::take(&mut self.missed);
            for (segment, packed) in segments.iter().zip(&built.segments) {
                if missed.contains(&segment.id) && tables.load(arena, segment.id, packed).is_err() {
                    self.missed.insert(segment.id);
                }
            }
            return;
        }
        let segments = built.segments.iter().map_while(|packed| {
            let id = tables.reserve()?;
            // What has no room now is loaded when a walk misses it.
            let _ = tables.load_if_room(arena, id, packed);
            Some(Segment { file_offset: packed.file_offset, text_bytes: packed.text_bytes, id })
        });
        self.state = State::Built(segments.collect());
    }
}

/// Cuts a range where one segment ends and another begins. What no segment covers stays without a table.
fn push_parts(ranges: &mut Vec<Range>, whole: Range, segments: &[Segment]) {
    let mut rest = whole;
    for segment in segments {
        let end = rest.file_offset.0 + rest.bytes;
        let (from, to) = (rest.file_offset.0.max(segment.file_offset.0), end.min(segment.end()));
        if rest.bytes == 0 || from >= to {
            continue;
        }
        let before = from - rest.file_offset.0;
        if before > 0 {
            ranges.push(Range { bytes: before, ..rest });
            rest = advanced(rest, before);
        }
        ranges.push(Range { bytes: to - from, segment: Some(segment.id), ..rest });
        rest = advanced(rest, to - from);
    }
    if rest.bytes > 0 {
        ranges.push(rest);
    }
}

fn advanced(range: Range, bytes: u64) -> Range {
    Range {
        start: sidewinder_address::Avma(range.start.0 + bytes),
        bytes: range.bytes - bytes,
        file_offset: FileOffset(range.file_offset.0 + bytes),
        ..range
    }
}
