//! Static trace points (USDT), which `<sys/sdt.h>` and its relatives describe in notes.
//!
//! Source: SystemTap, "UserSpaceProbeImplementation". A note has the address of the instruction, the address that
//! `.stapsdt.base` had when the file was linked (prelinking moves both), the address of the semaphore or 0, and three texts:
//! provider, name, and arguments.

use super::{Operand, ProbeSite, SiteError};
use crate::arch;
use crate::elf::ElfLayout;
use crate::error::SymbolTableError;
use crate::image::Image;

/// The most bytes of notes that are read: some ten thousand trace points.
const NOTES_BYTES_MAX: u64 = 4 << 20;
/// The most places of one trace point: a function with it may be inlined in many.
const SITES_MAX: usize = 64;
/// The most arguments of a trace point, as in `<sys/sdt.h>`.
const ARGUMENTS_MAX: usize = 12;
/// The type of these notes, and the name of their owner.
const NOTE_TYPE: u32 = 3;
const NOTE_OWNER: &[u8] = b"stapsdt\0";

/// A note: its addresses are those that the linker wrote.
struct TracePoint<'notes> {
    svma: u64,
    base_svma: u64,
    semaphore_svma: u64,
    provider: &'notes [u8],
    name: &'notes [u8],
    arguments: &'notes [u8],
}

/// The places of a trace point: each place where its macro was compiled.
///
/// # Errors
/// If the file has no such trace point.
pub fn find_usdt(image: &Image, provider: &str, name: &str) -> Result<Vec<ProbeSite>, SiteError> {
    let layout = ElfLayout::read(image)?;
    if layout.machine != arch::MACHINE.0 || !layout.is_little_endian_64() {
        return Err(SiteError::ForeignMachine);
    }
    let wanted = format!("{provider}:{name}");
    let none = |similar| SiteError::NoTracePoint { name: wanted.clone(), similar };
    let section = layout.section(".note.stapsdt").ok_or_else(|| none(Vec::new()))?;
    let length = (section.bytes.end - section.bytes.start).min(NOTES_BYTES_MAX);
    let mut notes = vec![0; length as usize];
    image.read_exact_at(section.bytes.start, &mut notes).map_err(|source| SymbolTableError::Read {
        what: "notes of trace points",
        offset: section.bytes.start,
        source,
    })?;
    let base_svma = layout.section(".stapsdt.base").map(|section| section.svma);
    let (mut sites, mut similar) = (Vec::new(), Vec::new());
    for point in trace_points(&notes) {
        if point.provider == provider.as_bytes() && point.name == name.as_bytes() {
            sites.extend(point.site(&layout, base_svma));
        } else {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            let other = format!("{}:{}", text(point.provider), text(point.name));
            if !similar.contains(&other) && similar.len() < SITES_MAX {
                similar.push(other);
            }
        }
        if sites.len() == SITES_MAX {
            break;
        }
    }
    if sites.is_empty() { Err(none(similar)) } else { Ok(sites) }
}

impl TracePoint<'_> {
    /// Where it is in the file; `None` if it isn't in code of the file.
    fn site(&self, layout: &ElfLayout, base_svma: Option<u64>) -> Option<ProbeSite> {
        let moved_by = base_svma.map_or(0, |now| now.wrapping_sub(self.base_svma));
        let svma = self.svma.wrapping_add(moved_by);
        layout.code_section(svma)?;
        let semaphore = match self.semaphore_svma {
            0 => None,
            semaphore => Some(layout.in_file(semaphore.wrapping_add(moved_by))?.start),
        };
        let arguments = str::from_utf8(self.arguments).unwrap_or_default().split_ascii_whitespace();
        let arguments = arguments.take(ARGUMENTS_MAX).map(parse_argument).collect();
        Some(ProbeSite { file_offset: layout.in_file(svma)?.start, semaphore, arguments })
    }
}

/// An argument: `SIZE@OPERAND`, where a negative size in bytes is that of a signed integer.
fn parse_argument(text: &str) -> Option<Operand> {
    let (size, operand) = text.split_once('@')?;
    let (is_signed, bytes) = size.strip_prefix('-').map_or((false, size), |bytes| (true, bytes));
    let bits = match bytes {
        "1" => 8,
        "2" => 16,
        "4" => 32,
        "8" => 64,
        _ => return None,
    };
    Some(Operand { at: arch::parse_operand(operand)?, bits, is_signed })
}

/// The trace points of a section, up to the first malformed note.
fn trace_points(notes: &[u8]) -> impl Iterator<Item = TracePoint<'_>> {
    let mut rest = notes;
    std::iter::from_fn(move || {
        loop {
            let (note, behind) = split_note(rest)?;
            rest = behind;
            if let Some(point) = note {
                return Some(point);
            }
        }
    })
}

/// The first note, if it is one of a trace point, and what follows it.
fn split_note(notes: &[u8]) -> Option<(Option<TracePoint<'_>>, &[u8])> {
    let word = |at: usize| notes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes);
    let (owner_bytes, bytes, note_type) = (word(0)?, word(4)?, word(8)?);
    let padded = |bytes: u32| usize::try_from(bytes).ok()?.checked_next_multiple_of(4);
    let (owner, behind) = notes.get(12..)?.split_at_checked(padded(owner_bytes)?)?;
    // The last note may lack its padding.
    let content = behind.get(..usize::try_from(bytes).ok()?)?;
    let next = behind.get(padded(bytes)?..).unwrap_or_default();
    let is_trace_point = note_type == NOTE_TYPE && owner.get(..owner_bytes as usize) == Some(NOTE_OWNER);
    Some((is_trace_point.then(|| parse_content(content)).flatten(), next))
}

fn parse_content(content: &[u8]) -> Option<TracePoint<'_>> {
    let address = |index: usize| content.get(8 * index..)?.first_chunk().copied().map(u64::from_le_bytes);
    let mut texts = content.get(24..)?.split(|byte| *byte == 0);
    Some(TracePoint {
        svma: address(0)?,
        base_svma: address(1)?,
        semaphore_svma: address(2)?,
        provider: texts.next()?,
        name: texts.next()?,
        arguments: texts.next()?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sites::OperandAt;

    fn note(owner: &[u8], note_type: u32, addresses: [u64; 3], texts: &[u8]) -> Vec<u8> {
        let content: Vec<u8> =
            addresses.iter().flat_map(|word| word.to_le_bytes()).chain(texts.to_vec()).collect();
        let mut note = Vec::new();
        for word in [owner.len() as u32, content.len() as u32, note_type] {
            note.extend(word.to_le_bytes());
        }
        for part in [owner, &content] {
            note.extend(part);
            note.resize(note.len().next_multiple_of(4), 0);
        }
        note
    }

    #[test]
    fn trace_points_are_found_among_other_notes() {
        let mut notes = note(b"GNU\0", 3, [1, 2, 3], b"not a trace point\0");
        notes.extend(note(NOTE_OWNER, NOTE_TYPE, [0x1000, 0x2000, 0x3000], b"shop\0sale\0-4@$7 8@$5\0"));
        notes.extend(note(NOTE_OWNER, NOTE_TYPE, [0x1010, 0x2000, 0], b"shop\0end\0\0"));
        let found: Vec<_> = trace_points(&notes)
            .map(|point| (point.svma, point.semaphore_svma, point.name.to_vec()))
            .collect();
        assert_eq!(found, [(0x1000, 0x3000, b"sale".to_vec()), (0x1010, 0, b"end".to_vec())]);
    }

    #[test]
    fn arguments_have_a_width_and_a_sign() {
        let operand = |bits, is_signed, at| Some(Operand { at, bits, is_signed });
        assert_eq!(parse_argument("-4@$5"), operand(32, true, OperandAt::Constant(5)));
        assert_eq!(parse_argument("8@$5"), operand(64, false, OperandAt::Constant(5)));
        for text in ["8f@$5", "3@$5", "$5", "8@", "@$5", "--4@$5"] {
            assert_eq!(parse_argument(text), None, "{text}");
        }
    }

    proptest! {
        /// Notes are bytes of a file that anybody may have written.
        #[test]
        fn any_bytes_are_parsed_without_end_or_panic(notes in proptest::collection::vec(any::<u8>(), 0..2048)) {
            prop_assert!(trace_points(&notes).count() <= notes.len() / 12);
        }

        #[test]
        fn a_note_with_any_content_is_parsed(
            content in proptest::collection::vec(any::<u8>(), 0..256),
            cut in 0..64_usize,
        ) {
            let whole = note(NOTE_OWNER, NOTE_TYPE, [1, 2, 3], &content);
            let notes = &whole[..whole.len().saturating_sub(cut)];
            for point in trace_points(notes) {
                let arguments = str::from_utf8(point.arguments).unwrap_or_default();
                arguments.split_ascii_whitespace().for_each(|text| { parse_argument(text); });
            }
        }
    }
}
