//! Builds the table of a large file in parts, those first that walks wait for.
//!
//! Unwind information describes most code. Analysing the machine code of the rest takes far longer for the same number of bytes: parts
//! with such code come last, unless walks wait for them, and are smaller.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{PackedSegment, Packing, pack_part, page_range};
use sidewinder_debug_files::{Companions, DebugFile};
use sidewinder_unwind::{FileOutline, PartedSources, ReadFile};

use crate::built_table::{BuiltTable, TextRange, executable_segments, locate_in_loads, split, to_file_range};
use crate::table_room::TableRoom;

/// The most bytes of a part that is described: it takes some milliseconds to build.
const PART_BYTES: u64 = 1 << 20;
/// The same of a part with code that is not, which takes some ten times as long.
const UNDESCRIBED_PART_BYTES: u64 = 128 << 10;
/// Parts consist of units: those with code that nothing describes, and the others. Each change from one to the other
/// ends a part, and takes a segment ID.
const UNIT_BYTES: u64 = 16 << 10;
/// The minimum size of the parts that are left unbuilt, and the most of them. Large parts save segment IDs, but each newly
/// encountered function of a part makes all its known functions be built again.
const UNBUILT_PART_BYTES_MIN: u64 = 64 << 10;
const UNBUILT_PARTS_MAX: u64 = 256;
/// Parts that no walk has missed are batched for this long, because each delivery publishes every process that maps the file
/// again.
const PARTS_PER_DELIVERY: Duration = Duration::from_millis(50);

/// A build of a file that is read in parts.
pub(crate) struct SegmentedBuild<'file, 'data, R: ReadFile<'data>> {
    sources: PartedSources<'file, 'data, R>,
    outline: Arc<FileOutline>,
    loads: Vec<LoadSegment>,
    packing: Packing,
    companions: Companions,
    room: &'file TableRoom,
    /// Built segments that are not delivered yet, and the machine code that they have rows from.
    segments: Vec<PackedSegment>,
    from_machine_code: Vec<Range<FileOffset>>,
    /// What walks have missed in parts that are not built yet.
    missed: BTreeSet<FileOffset>,
}

/// A part that is not built yet.
#[derive(Clone, Copy, Debug)]
struct Part {
    range: TextRange,
    /// Whether unwind information describes it as far as it is code.
    is_described: bool,
}

impl<'file, 'data, R: ReadFile<'data>> SegmentedBuild<'file, 'data, R> {
    pub(crate) fn new(
        sources: PartedSources<'file, 'data, R>,
        packing: Packing,
        companions: Companions,
        room: &'file TableRoom,
    ) -> Self {
        let outline = Arc::new(sources.outline().clone());
        Self {
            sources,
            loads: outline.loads().to_vec(),
            outline,
            packing,
            companions,
            room,
            segments: Vec::new(),
            from_machine_code: Vec::new(),
            missed: BTreeSet::new(),
        }
    }

    /// Builds parts as long as there is room for tables, and delivers them but for the last ones, which are returned. `wanted` has
    /// the file offsets that walks miss meanwhile.
    pub(crate) fn build(
        &mut self,
        wanted: &Receiver<FileOffset>,
        mut deliver: impl FnMut(BuiltTable),
    ) -> BuiltTable {
        let mut remaining = self.parts();
        let (mut delivered_at, mut was_described) = (Instant::now(), true);
        while !remaining.is_empty() {
            self.missed.extend(wanted.try_iter());
            let is_missed = |Part { range, .. }: &Part| {
                self.missed.range(range.file_offset..range.end()).next().is_some()
            };
            let missed = remaining.iter().position(is_missed);
            if missed.is_none() && self.undelivered_bytes() >= self.room.bytes() {
                break;
            }
            let part = remaining.remove(missed.unwrap_or(0));
            // What is built doesn't wait for the first analysis, which decodes all undescribed code.
            if was_described && !part.is_described && !self.segments.is_empty() {
                deliver(self.take_built());
            }
            was_described = part.is_described;
            self.pack(part);
            if missed.is_some() || delivered_at.elapsed() >= PARTS_PER_DELIVERY {
                deliver(self.take_built());
                delivered_at = Instant::now();
            }
            self.missed.retain(|at| !part.range.contains(*at));
        }
        let remaining = remaining.iter().map(|part| part.range.file_offset..part.range.end());
        BuiltTable { unbuilt: unbuilt_parts(&self.loads, remaining), ..self.take_built() }
    }

    fn undelivered_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes.len() as u64).sum()
    }

    /// All parts: those that are described, and then the others.
    fn parts(&mut self) -> Vec<Part> {
        let code = self.sources.undescribed_code();
        let mut code: Vec<_> = code.iter().filter_map(|code| to_file_range(&self.loads, code)).collect();
        code.sort_unstable_by_key(|code| code.start);
        let mut parts = Vec::new();
        for load in executable_segments(&self.loads) {
            let pages = page_range(load);
            let first = code.partition_point(|code| code.end <= pages.start);
            let last = code.partition_point(|code| code.start < pages.end);
            let mut described_from = pages.start;
            for code in covering_units(&pages, code.get(first..last).unwrap_or_default()) {
                parts.extend(described_parts(described_from..code.start));
                described_from = code.end;
                let ranges = split(code, UNDESCRIBED_PART_BYTES);
                parts.extend(ranges.map(|range| Part { range, is_described: false }));
            }
            parts.extend(described_parts(described_from..pages.end));
        }
        parts.sort_by_key(|part| !part.is_described);
        parts
    }

    fn pack(&mut self, Part { range, is_described }: Part) {
        let Some((range, load, addresses)) = locate_in_loads(range, &self.loads) else { return };
        let addresses = &[addresses];
        if !is_described {
            self.sources.read_code(addresses);
        }
        let table = self.sources.table_of(addresses);
        self.segments.extend(pack_part(&table, load, self.packing, range.file_offset..range.end()));
        let read = table.by_machine_code().filter_map(|code| to_file_range(&self.loads, &code));
        self.from_machine_code.extend(read);
    }

    fn take_built(&mut self) -> BuiltTable {
        BuiltTable {
            segments: std::mem::take(&mut self.segments),
            from_machine_code: std::mem::take(&mut self.from_machine_code),
            outline: Some(Arc::clone(&self.outline)),
            debug_file: DebugFile::Searched(self.companions.clone()),
            ..BuiltTable::with_loads(self.loads.clone())
        }
    }
}

/// What is left of a file, in parts that depend on its size.
pub(crate) fn unbuilt_parts(
    loads: &[LoadSegment],
    remaining: impl Iterator<Item = Range<FileOffset>>,
) -> Vec<TextRange> {
    let code_bytes: u64 = executable_segments(loads).map(|load| load.size).sum();
    let part_bytes = (code_bytes / UNBUILT_PARTS_MAX).max(UNBUILT_PART_BYTES_MIN);
    let part_bytes = part_bytes.next_multiple_of(UNBUILT_PART_BYTES_MIN);
    remaining.flat_map(|range| split(range, part_bytes)).collect()
}

/// The parts of a range that is described.
fn described_parts(range: Range<FileOffset>) -> impl Iterator<Item = Part> {
    split(range, PART_BYTES).map(|range| Part { range, is_described: true })
}

/// The ranges of whole units, counted from the start of `pages`, that contain this code. `code` is sorted.
fn covering_units(pages: &Range<FileOffset>, code: &[Range<FileOffset>]) -> Vec<Range<FileOffset>> {
    let mut covering: Vec<Range<FileOffset>> = Vec::new();
    for code in code {
        let units_before = code.start.0.saturating_sub(pages.start.0) / UNIT_BYTES;
        let units = (code.end.0.saturating_sub(pages.start.0)).div_ceil(UNIT_BYTES);
        let start = FileOffset(pages.start.0 + units_before * UNIT_BYTES);
        let end = FileOffset(pages.start.0 + units * UNIT_BYTES).min(pages.end);
        match covering.last_mut() {
            Some(last) if start <= last.end => last.end = last.end.max(end),
            _ => covering.push(start..end),
        }
    }
    covering
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use sidewinder_unwind::load_segments;

    use super::*;

    /// Whether or not their machine code is analysed.
    #[test]
    fn parts_that_walks_missed_come_first_and_no_part_is_left_out() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = object::File::parse(&*program).unwrap();
        let loads = load_segments(&file);
        let code = *executable_segments(&loads).max_by_key(|load| load.size).unwrap();
        let sources = PartedSources::from_file::<&[u8]>(&file, &[]).unwrap().unwrap();
        let room = TableRoom::new(u64::MAX);
        let mut build = SegmentedBuild::new(sources, Packing::Auto, Companions::default(), &room);
        let (described, undescribed): (Vec<_>, Vec<_>) =
            build.parts().into_iter().map(|part| (part.range, part.is_described)).partition(|(_, is)| *is);
        assert!(described.len() > 1, "{described:?}");
        let last = [described, undescribed].map(|parts| FileOffset(parts.last().unwrap().0.end().0 - 1));
        let (sender, wanted) = mpsc::channel();
        last.iter().for_each(|at| sender.send(*at).unwrap());
        let mut delivered = Vec::new();
        let final_delivery = build.build(&wanted, |built| delivered.push(built));
        delivered.push(final_delivery);
        for (delivered, missed) in delivered.iter().zip(last) {
            let [segment] = &*delivered.segments else { panic!("{}", delivered.segments.len()) };
            assert!(TextRange::from(segment).contains(missed));
        }
        assert!(delivered[0].from_machine_code.is_empty() && !delivered[1].from_machine_code.is_empty());

        let segments = delivered.iter().flat_map(|built| &built.segments);
        let mut parts: Vec<TextRange> = segments.map(TextRange::from).collect();
        parts.sort_unstable_by_key(|part| part.file_offset);
        assert!(parts.is_sorted_by(|one, next| one.end() == next.file_offset));
        let pages = page_range(&code);
        assert_eq!(parts.iter().map(|part| part.text_bytes).sum::<u64>(), pages.end.0 - pages.start.0);
    }
}
