//! Builds the bytes of a segment: `sw_segment_header` and the data that follows it.

use std::collections::{HashMap, HashSet};

use sidewinder_address::FileOffset;
use sidewinder_unwind_table::{Entry, Rule};
use zerocopy::{FromBytes as _, IntoBytes};

use super::page::{PAGE_BYTES, PageRows};
use super::rule::Packing;
use super::runs::{self, NumberedRow, RowRun};
use crate::intf::{self, sw_rule, sw_run, sw_segment_header};
use crate::outcome::Outcome;

/// Rules and runs of a segment share one range of indices.
const NUMBERS_MAX: usize = intf::SW_RULES_MAX as usize;

/// A segment ends when it has this many rules: the remaining indices are for runs.
const RULES_TARGET: usize = NUMBERS_MAX * 3 / 4;

/// A segment ends when its table, without runs, would reach this size: small enough to separate used from unused code
/// under a tight budget, and large enough that the frames of a stack share segments.
const SEGMENT_TARGET_BYTES: usize = 48 << 10;

const BUCKETS_PER_PAGE: usize = (PAGE_BYTES / intf::SW_BUCKET_BYTES as u64) as usize;

// The last page of a segment may have a row for each of its bytes.
const _: () = assert!(SEGMENT_TARGET_BYTES / 2 + PAGE_BYTES as usize <= intf::SW_SEGMENT_ROWS_MAX as usize);

/// The unwind table of a page-aligned range of a file, in the programs' format.
#[derive(Clone, Debug)]
pub struct PackedSegment {
    /// The first byte covered; a multiple of the page size.
    pub file_offset: FileOffset,
    /// Bytes covered; a multiple of the page size.
    pub text_bytes: u64,
    /// Rows in the table.
    pub rows: usize,
    /// Distinct rules in the table.
    pub rules: usize,
    /// Distinct runs: sequences of rows that are one row wherever they occur.
    pub runs: usize,
    /// The table itself.
    pub bytes: Vec<u8>,
}

impl PackedSegment {
    /// An empty table of a file: no address has a rule, so walks try frame pointers.
    #[must_use]
    pub fn empty() -> Self {
        let mut segment = SegmentBuilder::new(0);
        segment.push(&PageRows::default(), Packing::Auto);
        segment.finish()
    }

    /// A segment from the bytes of one that was saved; `None` if they are not a segment. Walks stay within it whatever it contains.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        let (header, _) = sw_segment_header::read_from_prefix(&bytes).ok()?;
        let [rules_at, rows_at] = [header.rules, header.rows].map(|offset| offset as usize);
        let entries = rows_at.checked_sub(rules_at)? / size_of::<sw_rule>();
        let rules = header.first_run as usize;
        let pages = u64::from(header.text_bytes) / PAGE_BYTES;
        let has_whole_pages =
            header.file_offset % PAGE_BYTES == 0 && u64::from(header.text_bytes) % PAGE_BYTES == 0;
        let index_end = size_of::<sw_segment_header>() as u64 + (pages * BUCKETS_PER_PAGE as u64 + 1) * 2;
        if !has_whole_pages || index_end > rules_at as u64 || rows_at > bytes.len() {
            return None;
        }
        Some(Self {
            file_offset: FileOffset(header.file_offset),
            text_bytes: header.text_bytes.into(),
            rows: (bytes.len() - rows_at) / 2,
            rules,
            runs: entries.checked_sub(rules)?,
            bytes,
        })
    }

    /// The table of a file of one page, from rows by offset.
    #[cfg(feature = "test-programs")]
    pub(crate) fn from_page(rows: impl Iterator<Item = (u64, Entry)>, packing: Packing) -> Self {
        let mut segment = SegmentBuilder::new(0);
        segment.push(&PageRows { rows: rows.collect(), ..PageRows::default() }, packing);
        segment.finish()
    }
}

/// A segment under construction.
pub(super) struct SegmentBuilder {
    file_offset: u64,
    pages: usize,
    /// Sorted. The first is at the segment's start, and each has another index than the one before.
    rows: Vec<NumberedRow>,
    rules: Vec<sw_rule>,
    numbers: HashMap<sw_rule, u16>,
}

impl SegmentBuilder {
    pub(super) fn new(file_offset: u64) -> Self {
        let none = sw_rule::none(Outcome::NoRule);
        let frame_pointer = sw_rule::from(&Rule::FRAME_POINTER);
        Self {
            file_offset,
            pages: 0,
            rows: Vec::new(),
            rules: vec![none, frame_pointer],
            numbers: HashMap::new(),
        }
    }

    pub(super) fn has_room_for(&self, page: &PageRows, packing: Packing) -> bool {
        if self.pages == 0 {
            return true;
        }
        if self.bytes_without_runs() >= SEGMENT_TARGET_BYTES {
            return false;
        }
        if self.rules.len() + page.rows.len() < RULES_TARGET {
            return true;
        }
        let entries = std::iter::once(page.entry_at_start).chain(page.rows.iter().map(|(_, entry)| *entry));
        let new: HashSet<sw_rule> = entries
            .map(|entry| sw_rule::new(entry, packing))
            .filter(|rule| self.number_of(rule).is_none())
            .collect();
        self.rules.len() + new.len() <= RULES_TARGET
    }

    pub(super) fn push(&mut self, page: &PageRows, packing: Packing) {
        let start = (self.pages as u64 * PAGE_BYTES) as u32;
        self.push_row(start, page.entry_at_start, packing);
        for (offset, entry) in &page.rows {
            self.push_row(start + *offset as u32, *entry, packing);
        }
        self.pages += 1;
    }

    fn push_row(&mut self, at: u32, entry: Entry, packing: Packing) {
        let number = self.intern(entry, packing);
        if self.rows.last().is_none_or(|last| last.number != number) {
            self.rows.push(NumberedRow { at, number });
        }
    }

    fn number_of(&self, rule: &sw_rule) -> Option<u16> {
        rule.fixed_number().or_else(|| self.numbers.get(rule).copied())
    }

    /// The index of an entry's rule. If a page has more distinct rules than a segment can index, which no compiler
    /// generates, the excess rules become unsupported ones.
    fn intern(&mut self, entry: Entry, packing: Packing) -> u16 {
        let rule = sw_rule::new(entry, packing);
        if let Some(number) = self.number_of(&rule) {
            return number;
        }
        let refused = sw_rule::none(Outcome::UnsupportedRule);
        if self.rules.len() >= NUMBERS_MAX - 1 && rule != refused {
            return self.intern_rule(refused);
        }
        self.intern_rule(rule)
    }

    fn intern_rule(&mut self, rule: sw_rule) -> u16 {
        if let Some(number) = self.number_of(&rule) {
            return number;
        }
        let number = self.rules.len() as u16;
        self.rules.push(rule);
        self.numbers.insert(rule, number);
        number
    }

    fn rules_offset(&self) -> usize {
        let index_bytes = (self.pages * BUCKETS_PER_PAGE + 1) * 2;
        (size_of::<sw_segment_header>() + index_bytes).next_multiple_of(size_of::<sw_rule>())
    }

    fn bytes_without_runs(&self) -> usize {
        self.rules_offset() + self.rules.len() * size_of::<sw_rule>() + self.rows.len() * 2
    }

    pub(super) fn finish(self) -> PackedSegment {
        let runs = runs::select_runs(&self.rows, NUMBERS_MAX - self.rules.len());
        let first_run = self.rules.len() as u16;
        let (index, rows) = self.index_and_rows(first_run, &runs);
        let rules_offset = self.rules_offset();
        let runs_offset = rules_offset + self.rules.len() * size_of::<sw_rule>();
        let rows_offset = runs_offset + runs.len() * size_of::<sw_run>();
        let text_bytes = self.pages as u64 * PAGE_BYTES;

        let mut bytes = Vec::with_capacity(rows_offset + rows.len() * 2);
        let header = sw_segment_header {
            file_offset: self.file_offset,
            text_bytes: text_bytes as u32,
            rules: rules_offset as u32,
            rows: rows_offset as u32,
            first_run: first_run.into(),
        };
        bytes.extend(header.as_bytes());
        bytes.extend(index.as_bytes());
        bytes.resize(rules_offset, 0);
        bytes.extend(self.rules.as_bytes());
        bytes.extend(runs.as_bytes());
        bytes.extend(rows.as_bytes());
        PackedSegment {
            file_offset: FileOffset(self.file_offset),
            text_bytes,
            rows: rows.len(),
            rules: self.rules.len(),
            runs: runs.len(),
            bytes,
        }
    }

    /// The index of the first row of each bucket, and of the end; and the rows, with runs in place of their sequences.
    fn index_and_rows(&self, first_run: u16, runs: &[RowRun]) -> (Vec<u16>, Vec<u16>) {
        let mut index = Vec::with_capacity(self.pages * BUCKETS_PER_PAGE + 1);
        let mut rows = Vec::with_capacity(self.rows.len());
        for sequence in runs::row_sequences(&self.rows) {
            index.resize((sequence[0].bucket() as usize + 1).max(index.len()), rows.len() as u16);
            match runs.binary_search(&runs::run(sequence)) {
                Ok(run) => rows.push(packed(sequence[0], first_run + run as u16)),
                Err(_) => rows.extend(sequence.iter().map(|row| packed(*row, row.number))),
            }
        }
        index.resize(self.pages * BUCKETS_PER_PAGE + 1, rows.len() as u16);
        (index, rows)
    }
}

fn packed(row: NumberedRow, number: u16) -> u16 {
    NumberedRow::packed(row.at % intf::SW_BUCKET_BYTES, number)
}
