//! The line table of a unit.

use std::sync::Arc;

use gimli::{ColumnType, Dwarf, LineProgramHeader, Reader as _, Result, Unit};

use super::ranges::CodeRangeReader;
use super::section::SectionReader;

/// The longest path that is returned.
const PATH_LIMIT_BYTES: usize = 4096;

/// The source line of the code from an address on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct LineTableRow {
    start: u32,
    pub(super) line: u32,
    /// Index into the unit's files; [`LineTableRow::NO_FILE`] at the end of a sequence.
    file: u16,
    pub(super) column: u16,
}

impl LineTableRow {
    const NO_FILE: u16 = u16::MAX;

    fn new(start: u32, row: &gimli::LineRow) -> Self {
        if row.end_sequence() {
            return Self { start, line: 0, file: Self::NO_FILE, column: 0 };
        }
        Self {
            start,
            line: row.line().and_then(|line| u32::try_from(line.get()).ok()).unwrap_or(0),
            file: u16::try_from(row.file_index()).unwrap_or(Self::NO_FILE),
            column: match row.column() {
                ColumnType::LeftEdge => 0,
                ColumnType::Column(column) => u16::try_from(column.get()).unwrap_or(0),
            },
        }
    }

    pub(super) fn file(&self) -> u64 {
        self.file.into()
    }

    fn is_end(&self) -> bool {
        self.file == Self::NO_FILE
    }
}

/// The rows of a unit, in order; `None` if there are more than `rows_max`.
pub(super) fn rows_of(
    unit: &Unit<SectionReader<'_>>,
    ranges: &CodeRangeReader,
    rows_max: usize,
) -> Result<Option<Box<[LineTableRow]>>> {
    let Some(program) = unit.line_program.clone() else { return Ok(Some(Box::default())) };
    let mut program = program.rows();
    let mut rows: Vec<LineTableRow> = Vec::new();
    let mut sequence_start = 0;
    // Whether the linker kept the code of the sequence.
    let mut is_code = true;
    while let Some((_, row)) = program.next_row()? {
        let place = ranges.place(row.address());
        is_code &= place.is_some();
        if is_code && let Some(start) = place {
            push(&mut rows, sequence_start, LineTableRow::new(start, row));
        }
        if row.end_sequence() {
            if !is_code {
                rows.truncate(sequence_start);
            }
            (sequence_start, is_code) = (rows.len(), true);
        }
        if rows.len() > rows_max {
            return Ok(None);
        }
    }
    // One sequence may end where another begins.
    rows.sort_by_key(|row| (row.start, !row.is_end()));
    Ok(Some(rows.into_boxed_slice()))
}

/// The rows that cover some places, which are in order, from one pass over a unit with too many rows to keep.
pub(super) fn rows_at(
    unit: &Unit<SectionReader<'_>>,
    ranges: &CodeRangeReader,
    places: &[u32],
) -> Result<Vec<Option<LineTableRow>>> {
    let mut found: Vec<Option<LineTableRow>> = vec![None; places.len()];
    let Some(program) = unit.line_program.clone() else { return Ok(found) };
    let mut program = program.rows();
    // Of the sequence so far: what it covers, and its last row.
    let (mut covered, mut last): (Vec<(usize, LineTableRow)>, Option<LineTableRow>) = (Vec::new(), None);
    let mut is_code = true;
    while let Some((_, row)) = program.next_row()? {
        let place = ranges.place(row.address());
        is_code &= place.is_some();
        if is_code && let Some(start) = place {
            if let Some(last) = last.filter(|last| last.start < start) {
                let before = |end: u32| places.partition_point(|place| *place < end);
                covered.extend((before(last.start)..before(start)).map(|place| (place, last)));
            }
            last = Some(LineTableRow::new(start, row));
        }
        if row.end_sequence() {
            for (place, row) in covered.drain(..).filter(|_| is_code) {
                if let Some(found) = found.get_mut(place)
                    && found.is_none_or(|found| found.start <= row.start)
                {
                    *found = Some(row);
                }
            }
            (last, is_code) = (None, true);
        }
    }
    Ok(found)
}

/// Adds a row to its sequence. Of several for one address, the last holds; one with the source position of its
/// predecessor is skipped.
fn push(rows: &mut Vec<LineTableRow>, sequence_start: usize, row: LineTableRow) {
    if rows.len() > sequence_start {
        rows.pop_if(|last| last.start == row.start);
    }
    let last = rows.last().filter(|_| rows.len() > sequence_start);
    let same = |last: &LineTableRow| (last.line, last.file, last.column) == (row.line, row.file, row.column);
    if !last.is_some_and(same) {
        rows.push(row);
    }
}

/// The row that covers an address.
pub(super) fn row_at(rows: &[LineTableRow], place: u32) -> Option<LineTableRow> {
    let after = rows.partition_point(|row| row.start <= place);
    after.checked_sub(1).and_then(|at| rows.get(at)).copied().filter(|row| !row.is_end())
}

/// The path of a file of a unit: as given to the compiler, made absolute by the directories of the unit.
pub(super) fn path(
    dwarf: &Dwarf<SectionReader<'_>>,
    unit: &Unit<SectionReader<'_>>,
    file: u64,
) -> Option<Arc<str>> {
    let header: &LineProgramHeader<SectionReader<'_>> = unit.line_program.as_ref()?.header();
    let text = |mut text: SectionReader<'_>| {
        text.truncate(text.len().min(PATH_LIMIT_BYTES)).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    };
    let entry = header.file(file)?;
    let mut path = text(dwarf.attr_string(unit, entry.path_name()).ok()?)?;
    let directory = entry.directory(header).and_then(|directory| dwarf.attr_string(unit, directory).ok());
    for directory in [directory, unit.comp_dir].into_iter().flatten() {
        if path.starts_with('/') {
            break;
        }
        let directory = text(directory)?;
        if !directory.is_empty() {
            path = format!("{}/{path}", directory.trim_end_matches('/'));
        }
    }
    (!path.is_empty()).then(|| path.into())
}
