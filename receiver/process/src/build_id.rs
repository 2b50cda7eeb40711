//! Identifiers of a file's content: build IDs from its notes, and a hash of its ends.

use std::fmt;
use std::io;
use std::ops::ControlFlow;

use object::elf;
use object::endian::LittleEndian;
use object::read::elf::NoteIterator;
use sha2::{Digest, Sha256};

use crate::id::BuildId;
use crate::opened_file::OpenedFile;
use crate::read_at::ReadAt;

/// The build IDs in a file's notes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct BuildIds {
    /// The linker's (`NT_GNU_BUILD_ID`).
    pub gnu: Option<BuildId>,
    /// The Go linker's (`.note.go.buildid`): text that consists of four content hashes.
    pub go: Option<Box<str>>,
}

/// The most program headers that are read.
const MOST_PROGRAM_HEADERS: u16 = 512;
/// The most that is read of one segment of notes, in bytes.
const MOST_NOTE_BYTES: u64 = 64 * 1024;
/// The longest Go build ID that is kept, in bytes; the linker writes 83.
const LONGEST_GO_BUILD_ID_BYTES: usize = 256;
/// Type of the note that holds the Go build ID (cmd/internal/buildid).
const NT_GO_BUILD_ID: elf::NoteType = elf::NoteType(4);

pub(crate) type ElfHeader = elf::FileHeader64<LittleEndian>;
type ProgramHeader = elf::ProgramHeader64<LittleEndian>;

/// Reads the build IDs from the notes of a 64-bit little-endian ELF file.
///
/// Any other file, or one with malformed notes, has none. At most 512 program headers and 64 KiB of each note segment are
/// read.
///
/// # Errors
/// Any I/O error of the file, except short reads.
pub fn read_build_ids(file: &OpenedFile) -> io::Result<BuildIds> {
    let mut ids = BuildIds::default();
    for_each_note_segment(file, |notes, align| {
        ids.take_notes(notes, align);
        if ids.gnu.is_some() && ids.go.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    Ok(ids)
}

/// Passes each segment of notes of a 64-bit little-endian ELF file to `take`, with its alignment, until that breaks. Any other file
/// has none. At most 512 program headers and 64 KiB of each segment are read.
///
/// # Errors
/// Any I/O error of the file, except short reads.
pub(crate) fn for_each_note_segment(
    file: &OpenedFile,
    mut take: impl FnMut(&[u8], u64) -> ControlFlow<()>,
) -> io::Result<()> {
    let bytes = read_most(file, 0, size_of::<ElfHeader>() as u64)?;
    let Ok((header, _)) = object::pod::from_bytes::<ElfHeader>(&bytes) else { return Ok(()) };
    let is_known = header.e_ident.magic == elf::ELFMAG
        && header.e_ident.class == elf::ELFCLASS64
        && header.e_ident.data == elf::ELFDATA2LSB
        && usize::from(header.e_phentsize.get(LittleEndian)) == size_of::<ProgramHeader>();
    if !is_known {
        return Ok(());
    }
    let count = header.e_phnum.get(LittleEndian).min(MOST_PROGRAM_HEADERS);
    let table_bytes = u64::from(count) * size_of::<ProgramHeader>() as u64;
    let table = read_most(file, header.e_phoff.get(LittleEndian), table_bytes)?;
    for segment in table.chunks_exact(size_of::<ProgramHeader>()) {
        let Ok((segment, _)) = object::pod::from_bytes::<ProgramHeader>(segment) else { continue };
        if segment.p_type.get(LittleEndian) != elf::PT_NOTE {
            continue;
        }
        let size_bytes = segment.p_filesz.get(LittleEndian).min(MOST_NOTE_BYTES);
        let notes = read_most(file, segment.p_offset.get(LittleEndian), size_bytes)?;
        if take(&notes, segment.p_align.get(LittleEndian)).is_break() {
            break;
        }
    }
    Ok(())
}

impl BuildIds {
    /// The IDs in notes, up to the first malformed one.
    #[must_use]
    pub fn from_notes(bytes: &[u8], align: u64) -> Self {
        let mut ids = Self::default();
        ids.take_notes(bytes, align);
        ids
    }

    /// Takes the IDs that are still missing from one note segment, up to the first malformed note.
    fn take_notes(&mut self, bytes: &[u8], align: u64) {
        let Ok(mut notes) = NoteIterator::<ElfHeader>::new(LittleEndian, align, bytes) else { return };
        while let Ok(Some(note)) = notes.next() {
            match (note.name(), note.n_type(LittleEndian)) {
                (elf::ELF_NOTE_GNU, elf::NT_GNU_BUILD_ID) if self.gnu.is_none() => {
                    self.gnu = BuildId::new(note.desc());
                }
                (b"Go", NT_GO_BUILD_ID) if self.go.is_none() => self.go = go_build_id(note.desc()),
                _ => {}
            }
        }
    }
}

fn go_build_id(description: &[u8]) -> Option<Box<str>> {
    let text = std::str::from_utf8(description).ok()?.trim_end_matches('\0');
    let is_sane =
        (1..=LONGEST_GO_BUILD_ID_BYTES).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic());
    is_sane.then(|| text.into())
}

/// Identifies any file by its two ends and its length: the first 16 bytes of
/// SHA-256(first 4,096 bytes, last 4,096 bytes, length as 8 bytes, most significant first). In a short file the two ends
/// overlap (semantic conventions, `process.executable.build_id.htlhash`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileHash(pub [u8; 16]);

impl fmt::Display for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for FileHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FileHash({self})")
    }
}

/// Bytes of each end that are hashed.
const HASHED_END_BYTES: u64 = 4096;

/// Computes the hash from the ends of a file of this size.
///
/// # Errors
/// Any I/O error of the file, or [`io::ErrorKind::UnexpectedEof`] if it has shrunk.
pub fn read_htlhash(file: &impl ReadAt, size_bytes: u64) -> io::Result<FileHash> {
    let mut end = vec![0; HASHED_END_BYTES.min(size_bytes) as usize];
    let mut hash = Sha256::new();
    for offset in [0, size_bytes.saturating_sub(HASHED_END_BYTES)] {
        file.read_exact_at(&mut end, offset)?;
        hash.update(&end);
    }
    hash.update(size_bytes.to_be_bytes());
    let digest = hash.finalize();
    let mut first_half = [0; 16];
    first_half.copy_from_slice(&digest[..16]);
    Ok(FileHash(first_half))
}

/// The `length` bytes at `offset`; fewer if the file ends earlier.
fn read_most(file: &OpenedFile, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let present = file.size_bytes().saturating_sub(offset).min(length);
    let mut bytes = vec![0; usize::try_from(present).unwrap_or_default()];
    let read = file.read_up_to(&mut bytes, offset)?;
    bytes.truncate(read);
    Ok(bytes)
}
