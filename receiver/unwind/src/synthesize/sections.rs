//! Which code is analyzed: what no source of rows covers, and the sections whose code is not ordinary text.
//!
//! Input: a file, its code, and the rows of other sources. Output: pieces of code.

use object::{File, Object as _, ObjectSection as _, ReadRef};
use sidewinder_unwind_table::{EntryInterner, RowBuffer, Summary, UnresolvedReason};

use crate::arch::{self, clone};
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::span::MIN_GAP_BYTES;
use crate::segments::CodeRanges;

/// A section with more code without rows than this isn't analyzed. The analysis takes some 0.3 s of CPU time for each MiB, and
/// several times the size of the code in memory. Browsers have more than 100 MiB of such code.
const ANALYZED_BYTES_MAX: u32 = 32 << 20;

/// The executable code without rows, except for gaps that are only padding, or that are too short for a function and no
/// call of `clone`. Of a section with [too much](ANALYZED_BYTES_MAX) of it there is none.
pub(crate) fn uncovered_code<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    has_clone: bool,
    rows: &RowBuffer,
    entries: &EntryInterner,
    summary: &mut Summary,
) -> Vec<CodeSlice<'data>> {
    let mut pieces = Vec::new();
    for (start, end) in code.instructions(file) {
        let gaps: Vec<_> = rows.gaps(start, end, entries).collect();
        let bytes: u32 = gaps.iter().map(|(start, end)| end - start).sum();
        if bytes > ANALYZED_BYTES_MAX {
            summary.count_unresolved(Some(UnresolvedReason::TooMuchCode), bytes);
            continue;
        }
        for (start, end) in gaps {
            let is_short = end - start < MIN_GAP_BYTES;
            if is_short && !(has_clone && clone::is_call(file, code, start)) {
                continue;
            }
            let Some(bytes) = code.bytes(file, start, u64::from(end - start)) else { continue };
            let piece = CodeSlice { architecture: code.architecture(), start, bytes };
            if !arch::is_padding(code.architecture(), &piece) {
                pieces.push(piece);
            }
        }
    }
    pieces
}

/// Ranges of addresses.
#[derive(Default)]
pub(super) struct AddressRanges {
    pub(super) ranges: Vec<(u32, u32)>,
}

impl AddressRanges {
    pub(super) fn contains(&self, at: u32) -> bool {
        self.ranges.iter().any(|(start, end)| (*start..*end).contains(&at))
    }
}

/// A section without rows that isn't ordinary text.
pub(super) struct SpecialSection<'data> {
    pub(super) kind: SectionKind,
    pub(super) piece: CodeSlice<'data>,
}

pub(super) enum SectionKind {
    /// `.init` and `.fini`: one function, made of parts of several files.
    OneFunction,
    /// A procedure linkage table.
    Linkage,
}

impl SectionKind {
    pub(super) fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b".init" | b".fini" => Some(Self::OneFunction),
            name if name.starts_with(b".plt") || name == b".iplt" => Some(Self::Linkage),
            _ => None,
        }
    }
}

pub(super) fn sections<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    pieces: &[CodeSlice<'data>],
) -> Vec<SpecialSection<'data>> {
    let sections = file.sections().filter_map(|section| {
        let kind = SectionKind::by_name(section.name_bytes().ok()?)?;
        let (start, end) = code.clip(section.address(), section.address().saturating_add(section.size()))?;
        let piece = piece_at(pieces, start).filter(|piece| end <= piece.end())?;
        Some(SpecialSection { kind, piece: piece.part(start, end) })
    });
    sections.collect()
}

/// The code in which functions are followed. Where at least half of the code between the first and the last undescribed
/// piece of a section is undescribed, that is one region; otherwise each piece is its own.
pub(super) fn regions<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    pieces: &[CodeSlice<'data>],
) -> Vec<CodeSlice<'data>> {
    let mut regions = Vec::new();
    for (start, end) in code.instructions(file) {
        let within = |at: u32| pieces.partition_point(|piece| piece.start < at);
        let inside = pieces.get(within(start)..within(end)).unwrap_or_default();
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else { continue };
        let (start, length) = (first.start, last.end() - first.start);
        let undescribed: usize = inside.iter().map(|piece| piece.bytes.len()).sum();
        let whole = (undescribed >= length as usize / 2)
            .then(|| code.bytes(file, start, u64::from(length)))
            .flatten();
        match whole {
            Some(bytes) => regions.push(CodeSlice { architecture: code.architecture(), start, bytes }),
            None => regions.extend(inside),
        }
    }
    regions
}
