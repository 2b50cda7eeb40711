//! Files as `object` reads them: by seeking, piece by piece.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::offset_of;
use std::ops::Range;

use object::LittleEndian;
use object::elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB, SectionHeader64};
use object::pod::{bytes_of_slice, bytes_of_slice_mut, from_bytes, slice_from_all_bytes};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use sidewinder_process::{OpenedFile, ReadAt};

/// A file whose size is known.
pub trait SizedReadAt: ReadAt {
    /// The file's size; for an [`OpenedFile`], its size when it was opened.
    fn size_bytes(&self) -> u64;
}

impl SizedReadAt for OpenedFile {
    fn size_bytes(&self) -> u64 {
        self.size_bytes()
    }
}

impl SizedReadAt for File {
    fn size_bytes(&self) -> u64 {
        self.metadata().map_or(0, |metadata| metadata.len())
    }
}

/// A file, read by seeking and reading. It is not memory-mapped, since truncating a mapped file would raise SIGBUS.
///
/// `object` reads the whole `.symtab` and `.dynsym` together with the headers. In some files they are as large as all unwind
/// information, while tables need few of their names. So these sections are hidden: their types read as `SHT_NULL`. Source:
/// System V ABI, "Sections".
#[derive(Debug)]
pub struct SeekableContent<'content, C> {
    content: &'content C,
    position: u64,
    /// The file ranges of the `sh_type` fields in the headers of `.symtab` and `.dynsym`; they read as zero.
    masked: [Range<u64>; 2],
}

impl<'content, C: SizedReadAt> SeekableContent<'content, C> {
    /// The content from its beginning on.
    pub fn new(content: &'content C) -> Self {
        Self { content, position: 0, masked: symbol_table_type_ranges(content).unwrap_or_default() }
    }
}

/// The file ranges of the `sh_type` fields in the section headers of `.symtab` and `.dynsym`; empty for a table that is missing.
fn symbol_table_type_ranges(content: &impl ReadAt) -> Option<[Range<u64>; 2]> {
    // A buffer of words, since headers have the alignment of a word.
    let mut header = [0_u64; size_of::<FileHeader64<LittleEndian>>() / 8];
    content.read_exact_at(bytes_of_slice_mut(&mut header), 0).ok()?;
    let (header, _) = from_bytes::<FileHeader64<LittleEndian>>(bytes_of_slice(&header)).ok()?;
    if !header.is_supported() || !header.is_class_64() {
        return None;
    }
    let header_bytes = size_of::<SectionHeader64<LittleEndian>>();
    // `e_shnum` has 16 bits, which bounds the allocation.
    let mut headers = vec![0_u64; header_bytes / 8 * usize::from(header.e_shnum.get(LittleEndian))];
    let from = header.e_shoff.get(LittleEndian);
    content.read_exact_at(bytes_of_slice_mut(&mut headers), from).ok()?;
    let headers = bytes_of_slice(&headers);
    let sections = slice_from_all_bytes::<SectionHeader64<LittleEndian>>(headers).ok()?;
    let range_of = |kind| {
        let index = sections.iter().position(|section| section.sh_type(LittleEndian) == kind)?;
        let in_headers = index * header_bytes + offset_of!(SectionHeader64<LittleEndian>, sh_type);
        let start = from.checked_add(in_headers as u64)?;
        Some(start..start.checked_add(4)?)
    };
    Some([SHT_SYMTAB, SHT_DYNSYM].map(|kind| range_of(kind).unwrap_or_default()))
}

impl<C: SizedReadAt> Read for SeekableContent<'_, C> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.content.read_at(bytes, self.position)?;
        let end = self.position.saturating_add(read as u64);
        for masked in self.masked.iter().filter(|masked| self.position < masked.end && masked.start < end) {
            let positions = (self.position..end).zip(bytes.iter_mut());
            // `SHT_NULL` is 0.
            positions.filter(|(at, _)| masked.contains(at)).for_each(|(_, byte)| *byte = 0);
        }
        self.position = end;
        Ok(read)
    }
}

impl<C: SizedReadAt> Seek for SeekableContent<'_, C> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => self.content.size_bytes().checked_add_signed(by),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
        };
        self.position = at.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
