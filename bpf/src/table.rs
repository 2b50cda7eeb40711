//! The format of unwind tables that walks read: packing them, and reading packed tables.
//!
//! `c/intf/tables.h` describes the format, `c/table.bpf.h` reads it in the kernel. A file becomes one or more segments of whole
//! pages, each with its own distinct rules, so that a row takes two bytes, and a huge file is loaded and evicted in
//! parts. `segment` builds a segment's bytes from `rule`s and `runs` of rows, and `lookup` reads them.

mod lookup;
mod page;
mod rule;
mod runs;
mod segment;
#[cfg(test)]
mod tests;

use std::ops::Range;

use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_unwind_table::{Entry, UnwindRow, UnwindTable};

pub(crate) use self::lookup::look_up;
use self::page::{PAGE_BYTES, PageRows};
pub use self::rule::Packing;
pub use self::segment::PackedSegment;
use self::segment::SegmentBuilder;

/// Packs the part of `table` for one executable segment of its file.
#[must_use]
pub fn pack(table: &UnwindTable, load: &LoadSegment, packing: Packing) -> Vec<PackedSegment> {
    pack_part(table, load, packing, page_range(load))
}

/// The pages of a file that one of its executable segments overlaps.
#[must_use]
pub fn page_range(load: &LoadSegment) -> Range<FileOffset> {
    let end = load.file_offset.0.saturating_add(load.size).next_multiple_of(PAGE_BYTES);
    FileOffset(load.file_offset.0 / PAGE_BYTES * PAGE_BYTES)..FileOffset(end)
}

/// Packs the part of `table` for some of these pages.
#[must_use]
pub fn pack_part(
    table: &UnwindTable,
    load: &LoadSegment,
    packing: Packing,
    part: Range<FileOffset>,
) -> Vec<PackedSegment> {
    let mut packed = Vec::new();
    let mut segment = SegmentBuilder::new(part.start.0);
    for_each_page(table, load, part.start.0..part.end.0, |page_start, page| {
        if !segment.has_room_for(page, packing) {
            packed.push(std::mem::replace(&mut segment, SegmentBuilder::new(page_start)).finish());
        }
        segment.push(page, packing);
    });
    packed.push(segment.finish());
    packed
}

/// Packs one of the segments that [`pack_part`] made of the same file again. Only the part of `table` for that range of
/// the file is used.
#[must_use]
pub fn repack(
    table: &UnwindTable,
    load: &LoadSegment,
    packing: Packing,
    part: Range<FileOffset>,
) -> PackedSegment {
    let mut segment = SegmentBuilder::new(part.start.0);
    for_each_page(table, load, part.start.0..part.end.0, |_, page| segment.push(page, packing));
    segment.finish()
}

/// Calls `sink` with the rows of each page of a part of a file, in order, and the page's start offset. The part starts
/// and ends at page boundaries.
fn for_each_page(
    table: &UnwindTable,
    load: &LoadSegment,
    part: Range<u64>,
    mut sink: impl FnMut(u64, &PageRows),
) {
    let first = FileOffset(part.start.max(load.file_offset.0));
    let (Some(first_svma), Some(end_svma)) = (load.svma_of(first), load.svma.checked_add(load.size)) else {
        return;
    };
    let at_first = table.lookup(first_svma);
    let mut rows = without_padding(table.rows())
        .skip_while(|row| row.start <= first_svma)
        .take_while(|row| row.start < end_svma)
        .filter_map(|row| Some((load.file_offset_of(row.start)?.0, row.entry)))
        .peekable();

    let mut page = PageRows::default();
    if first.0 == part.start {
        page.entry_at_start = at_first;
    } else {
        page.rows.push((first.0 - part.start, at_first));
    }
    for page_start in part.step_by(PAGE_BYTES as usize) {
        while let Some((offset, entry)) = rows.next_if(|(offset, _)| *offset < page_start + PAGE_BYTES) {
            page.rows.push((offset - page_start, entry));
        }
        if let Some((0, entry)) = page.rows.first() {
            page.entry_at_start = *entry;
        }
        sink(page_start, &page);
        page.entry_at_start = page.rows.last().map_or(page.entry_at_start, |(_, last)| *last);
        page.rows.clear();
    }
}

/// The alignment of functions, in bytes.
const FUNCTION_ALIGNMENT_BYTES: u64 = 16;

/// Drops the rows at ends of functions that are followed only by padding, if the next function is aligned and there is no
/// aligned address in between: that padding is never executed, so the previous rule may continue. This drops a tenth of
/// all rows. A page can be packed alone, so an end at the end of a page is kept.
fn without_padding(rows: impl Iterator<Item = UnwindRow>) -> impl Iterator<Item = UnwindRow> {
    let mut rows = rows.peekable();
    std::iter::from_fn(move || {
        loop {
            let row = rows.next()?;
            if !rows.peek().is_some_and(|next| is_padding(&row, next.start)) {
                return Some(row);
            }
        }
    })
}

fn is_padding(row: &UnwindRow, end: Svma) -> bool {
    row.entry == Entry::NO_INFORMATION
        && end.0.is_multiple_of(FUNCTION_ALIGNMENT_BYTES)
        && !end.0.is_multiple_of(PAGE_BYTES)
        && end.0 - row.start.0 < FUNCTION_ALIGNMENT_BYTES
}
