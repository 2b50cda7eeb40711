//! Builds the table of a large file in parts, those first that walks wait for.
//!
//! `.eh_frame` describes most code, and each part of that can be built alone. Machine code is only analysed as a whole, which
//! may take longer than all else: the parts with code that nothing describes come after that, the others before.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use sidewinder_address::{FileOffset, LoadSegment};
use sidewinder_bpf::{PackedSegment, Packing, pack_part, page_range};
use sidewinder_unwind::{ReadFile, UnwindSources};

use super::build::{BuiltTable, TextRange, executable_segments, locate_in_loads, split, to_file_range};
use super::debug_files::{Companions, DebugFile};

/// The most bytes of one part: it takes some milliseconds to build.
const PART_BYTES: u64 = 1 << 20;
/// Parts consist of units: those with code that `.eh_frame` doesn't describe, and the others. Each change from one to the other
/// ends a part, and takes a segment ID.
const UNIT_BYTES: u64 = 16 << 10;
/// Parts that no walk has missed are batched for this long, because each delivery publishes every process that maps the file
/// again.
const PARTS_PER_DELIVERY: Duration = Duration::from_millis(50);

/// A build of a file whose only sources are `.eh_frame` and machine code.
pub(super) struct SegmentedBuild<'file, 'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>> {
    sources: UnwindSources<'file, 'data, 'debug, R, D>,
    loads: Vec<LoadSegment>,
    packing: Packing,
    companions: Companions,
    from_machine_code: Vec<Range<FileOffset>>,
    /// Built segments that are not delivered yet.
    segments: Vec<PackedSegment>,
    /// What walks have missed in parts that are not built yet.
    missed: BTreeSet<FileOffset>,
}

/// The parts that are not built yet, in order.
struct Parts {
    /// Those that `.eh_frame` describes as far as they are code.
    described: Vec<TextRange>,
    /// Those with other code.
    undescribed: Vec<TextRange>,
}

impl<'file, 'data, 'debug, R: ReadFile<'data>, D: ReadFile<'debug>>
    SegmentedBuild<'file, 'data, 'debug, R, D>
{
    pub(super) fn new(
        sources: UnwindSources<'file, 'data, 'debug, R, D>,
        loads: Vec<LoadSegment>,
        packing: Packing,
        companions: Companions,
    ) -> Self {
        Self {
            sources,
            loads,
            packing,
            companions,
            from_machine_code: Vec::new(),
            segments: Vec::new(),
            missed: BTreeSet::new(),
        }
    }

    /// Builds all parts, and delivers them but for the last ones, which are returned. `wanted` has the file offsets that walks
    /// miss meanwhile.
    pub(super) fn build(
        &mut self,
        wanted: &Receiver<FileOffset>,
        mut deliver: impl FnMut(BuiltTable),
    ) -> BuiltTable {
        let Parts { described, undescribed } = self.parts();
        self.build_parts(described, wanted, &mut deliver);
        if undescribed.is_empty() {
            return self.take_built();
        }
        // What is built doesn't wait for the analysis.
        if !self.segments.is_empty() {
            deliver(self.take_built());
        }
        let code = self.sources.read_code();
        self.from_machine_code = code.iter().filter_map(|code| to_file_range(&self.loads, code)).collect();
        self.build_parts(undescribed, wanted, &mut deliver);
        self.take_built()
    }

    fn parts(&mut self) -> Parts {
        let code = self.sources.undescribed_code();
        let code: Vec<_> = code.iter().filter_map(|code| to_file_range(&self.loads, code)).collect();
        let has_code = |unit: &TextRange| code.iter().any(|code| unit.overlaps(code));
        let mut parts = Parts { described: Vec::new(), undescribed: Vec::new() };
        for load in executable_segments(&self.loads) {
            for part in split(page_range(load), PART_BYTES) {
                let units: Vec<_> = split(part.file_offset..part.end(), UNIT_BYTES).collect();
                for units in units.chunk_by(|one, next| has_code(one) == has_code(next)) {
                    let (Some(first), Some(last)) = (units.first(), units.last()) else { continue };
                    let text_bytes = last.end().0.saturating_sub(first.file_offset.0);
                    let part = TextRange { text_bytes, ..*first };
                    if has_code(first) { &mut parts.undescribed } else { &mut parts.described }.push(part);
                }
            }
        }
        parts
    }

    fn build_parts(
        &mut self,
        mut remaining: Vec<TextRange>,
        wanted: &Receiver<FileOffset>,
        deliver: &mut impl FnMut(BuiltTable),
    ) {
        let mut delivered_at = Instant::now();
        while !remaining.is_empty() {
            self.missed.extend(wanted.try_iter());
            let is_missed =
                |part: &TextRange| self.missed.range(part.file_offset..part.end()).next().is_some();
            let next = remaining.iter().position(is_missed);
            let part = remaining.remove(next.unwrap_or(0));
            self.pack(part);
            if next.is_some() || delivered_at.elapsed() >= PARTS_PER_DELIVERY {
                deliver(self.take_built());
                delivered_at = Instant::now();
            }
            self.missed.retain(|at| !part.contains(*at));
        }
    }

    fn pack(&mut self, part: TextRange) {
        if let Some((part, load, addresses)) = locate_in_loads(part, &self.loads) {
            let table = self.sources.table_of(&[addresses]);
            self.segments.extend(pack_part(&table, load, self.packing, part.file_offset..part.end()));
        }
    }

    fn take_built(&mut self) -> BuiltTable {
        BuiltTable {
            segments: std::mem::take(&mut self.segments),
            from_machine_code: self.from_machine_code.clone(),
            debug_file: DebugFile::Searched(self.companions.clone()),
            ..BuiltTable::with_loads(self.loads.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use sidewinder_unwind::load_segments;

    use super::*;

    /// Of those that don't need the analysis of machine code, which comes before the others, and of the others.
    #[test]
    fn a_part_that_a_walk_missed_comes_first_and_no_part_is_left_out() {
        let program = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let file = object::File::parse(&*program).unwrap();
        let loads = load_segments(&file);
        let code = *executable_segments(&loads).max_by_key(|load| load.size).unwrap();
        let sources = UnwindSources::<_, &[u8]>::new(&file, &[]).unwrap();
        let mut build = SegmentedBuild::new(sources, loads, Packing::Auto, Companions::default());
        let Parts { described, undescribed } = build.parts();
        assert!(described.len() > 1, "{described:?}");
        let last = [described, undescribed].map(|parts| FileOffset(parts.last().unwrap().end().0 - 1));
        let (sender, wanted) = mpsc::channel();
        last.iter().rev().for_each(|at| sender.send(*at).unwrap());
        let mut delivered = Vec::new();
        let final_delivery = build.build(&wanted, |built| delivered.push(built));
        delivered.push(final_delivery);
        let first = delivered.iter().position(|built| !built.from_machine_code.is_empty()).unwrap();
        for (first, missed) in [0, first].into_iter().zip(last) {
            assert!(
                delivered[first].segments.iter().any(|segment| TextRange::from(segment).contains(missed))
            );
        }
        let by_machine_code = &delivered[first].from_machine_code;
        let early = delivered[..first].iter().flat_map(|built| &built.segments).map(TextRange::from);
        for part in early {
            assert!(!by_machine_code.iter().any(|code| part.overlaps(code)), "{part:?}");
        }

        let segments = delivered.iter().flat_map(|built| &built.segments);
        let mut parts: Vec<TextRange> = segments.map(TextRange::from).collect();
        parts.sort_unstable_by_key(|part| part.file_offset);
        assert!(parts.is_sorted_by(|one, next| one.end() == next.file_offset));
        let pages = page_range(&code);
        assert_eq!(parts.iter().map(|part| part.text_bytes).sum::<u64>(), pages.end.0 - pages.start.0);
    }
}
