//! The package that a file was built for, as its notes say.

use std::io;
use std::ops::ControlFlow;

use object::elf;
use object::endian::LittleEndian;
use object::read::elf::NoteIterator;

use crate::build_id::{ElfHeader, for_each_note_segment};
use crate::opened_file::OpenedFile;

/// The owner and the type of the note (<https://uapi-group.org/specifications/specs/package_metadata_for_executable_files>).
const OWNER: &[u8] = b"FDO";
const NT_FDO_PACKAGING_METADATA: elf::NoteType = elf::NoteType(0xcafe_1a7e);
/// The longest note that is taken, in bytes: the text has a dozen short fields.
const LONGEST_BYTES: usize = 4096;

/// Reads the packaging metadata of a 64-bit little-endian ELF file: a JSON object with the fields `type` (`deb`, `rpm`), `name` of
/// the package or its source, `version` and others, all of them by whoever made the file. `None` if it has none, or one that is no
/// UTF-8 text of at most 4 KiB.
///
/// # Errors
/// Any I/O error of the file, except short reads.
pub fn read_package_note(file: &OpenedFile) -> io::Result<Option<Box<str>>> {
    let mut found = None;
    for_each_note_segment(file, |notes, align| {
        found = package_note(notes, align);
        if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(found)
}

/// The metadata in one segment of notes, up to the first malformed one.
fn package_note(bytes: &[u8], align: u64) -> Option<Box<str>> {
    let mut notes = NoteIterator::<ElfHeader>::new(LittleEndian, align, bytes).ok()?;
    while let Ok(Some(note)) = notes.next() {
        if (note.name(), note.n_type(LittleEndian)) == (OWNER, NT_FDO_PACKAGING_METADATA) {
            let text = std::str::from_utf8(note.desc()).ok()?.trim_end_matches('\0');
            return (text.len() <= LONGEST_BYTES).then(|| text.into());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(owner: &[u8], kind: u32, text: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [owner.len() as u32 + 1, text.len() as u32, kind] {
            bytes.extend(word.to_le_bytes());
        }
        for part in [&[owner, b"\0"].concat()[..], text] {
            bytes.extend(part);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        bytes
    }

    #[test]
    fn the_note_is_found_among_others_and_never_a_long_or_a_cut_one() {
        let ours = note(b"FDO", 0xcafe_1a7e, b"{\"type\":\"rpm\"}\0");
        let notes = [note(b"GNU", 3, &[1; 20]), ours.clone()].concat();
        assert_eq!(package_note(&notes, 4).as_deref(), Some("{\"type\":\"rpm\"}"));
        assert_eq!(package_note(&ours[..ours.len() - 8], 4), None);
        assert_eq!(package_note(&note(b"FDO", 0xcafe_1a7e, &[b' '; 5000]), 4), None);
        assert_eq!(package_note(&note(b"FDO", 0xcafe_1a7e, b"\xff"), 4), None);
        assert_eq!(package_note(&note(b"GNU", 0xcafe_1a7e, b"{}"), 4), None);
    }
}
