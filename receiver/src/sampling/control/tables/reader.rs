//! Readers through which `object` parses files, piece by piece, with a bound on the memory for cached pieces.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::mem::offset_of;
use std::ops::Range;

use object::elf::{FileHeader64, SHT_DYNSYM, SHT_SYMTAB, SectionHeader64};
use object::pod::{bytes_of_slice, bytes_of_slice_mut, from_bytes, slice_from_all_bytes};
use object::read::elf::{FileHeader as _, SectionHeader as _};
use object::{LittleEndian, ReadCache, ReadRef};
use sidewinder_process::{OpenedFile, ReadAt};
use sidewinder_unwind::{Memory, MemoryBudget, ReadFile};

/// The budget that one string takes.
const STRING_BYTES: u64 = 256;

/// What reading a file takes at most where there is no limit.
const UNLIMITED_BYTES: u64 = 1 << 30;

/// The memory that several readers may use together, for pieces of files and for what is made of them.
#[derive(Debug)]
pub(crate) struct ReadBudget {
    memory: MemoryBudget,
    /// After one piece didn't fit, all new pieces are refused, so that no result is built from only some of them.
    is_piece_refused: Cell<bool>,
}

impl ReadBudget {
    pub(crate) fn new(bytes: u64) -> Self {
        Self { memory: MemoryBudget::new(bytes.min(UNLIMITED_BYTES)), is_piece_refused: Cell::new(false) }
    }

    /// No limit.
    pub(crate) fn unlimited() -> Self {
        Self::new(u64::MAX)
    }

    /// The first amount that didn't fit, if any.
    pub(crate) fn refused_bytes(&self) -> Option<u64> {
        self.memory.refused_bytes()
    }

    fn reserve_piece(&self, bytes: u64) -> Result<(), ()> {
        let is_granted = !self.is_piece_refused.get() && self.memory.take(bytes);
        self.is_piece_refused.set(!is_granted);
        is_granted.then_some(()).ok_or(())
    }
}

/// A [`ReadCache`] that caches only what fits a [`ReadBudget`].
#[derive(Debug)]
pub(crate) struct BoundedReader<'file, C: SizedReadAt> {
    cache: ReadCache<SeekableContent<'file, C>>,
    content: &'file C,
    /// The cached pieces, by offset and length. The length of a string is 0.
    cached_pieces: RefCell<HashSet<(u64, u64)>>,
    budget: &'file ReadBudget,
}

impl<'file, C: SizedReadAt> BoundedReader<'file, C> {
    pub(crate) fn new(content: &'file C, budget: &'file ReadBudget) -> Self {
        let cache = ReadCache::new(SeekableContent::new(content));
        Self { cache, content, cached_pieces: RefCell::default(), budget }
    }

    fn reserve_piece(&self, piece: (u64, u64), bytes: u64) -> Result<(), ()> {
        let mut cached = self.cached_pieces.borrow_mut();
        if !cached.contains(&piece) {
            self.budget.reserve_piece(bytes)?;
            cached.insert(piece);
        }
        Ok(())
    }
}

impl<'data, C: SizedReadAt> ReadRef<'data> for &'data BoundedReader<'_, C> {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'data [u8], ()> {
        self.reserve_piece((offset, size), size)?;
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'data [u8], ()> {
        self.reserve_piece((range.start, 0), STRING_BYTES)?;
        self.cache.read_bytes_at_until(range, delimiter)
    }
}

impl<'data, C: SizedReadAt> ReadFile<'data> for &'data BoundedReader<'_, C> {
    fn read_into(self, offset: u64, buffer: &mut [u8]) -> Option<()> {
        self.content.read_exact_at(buffer, offset).ok()
    }

    fn memory(self) -> Memory<'data> {
        Memory::limited_by(&self.budget.memory)
    }
}

/// A file whose size is known.
pub(crate) trait SizedReadAt: ReadAt {
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
pub(crate) struct SeekableContent<'content, C> {
    content: &'content C,
    position: u64,
    /// The file ranges of the `sh_type` fields in the headers of `.symtab` and `.dynsym`; they read as zero.
    masked: [Range<u64>; 2],
}

impl<'content, C: SizedReadAt> SeekableContent<'content, C> {
    pub(crate) fn new(content: &'content C) -> Self {
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

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use object::{Object as _, ObjectSection as _};

    use super::*;

    fn file_of_sevens() -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        file
    }

    #[test]
    fn pieces_over_budget_are_refused_and_cached_pieces_cost_once() {
        let budget = ReadBudget::new(100);
        let file = file_of_sevens();
        let reader = BoundedReader::new(&file, &budget);
        let read = |offset, size| (&reader).read_bytes_at(offset, size).map(<[u8]>::len);
        assert_eq!(read(0, 60), Ok(60));
        assert_eq!(read(0, 60), Ok(60), "it is cached already");
        assert_eq!(read(0, 61), Err(()));
        assert_eq!(read(1000, 1), Err(()), "no new piece is read any more");
        assert_eq!(read(0, 60), Ok(60), "except cached pieces");
        assert_eq!(budget.refused_bytes(), Some(61));
        let mut seen = [0; 100];
        assert_eq!((&reader).read_into(3000, &mut seen), Some(()), "uncached reads need no budget");
        assert_eq!(seen, [7; 100]);
        assert_eq!((&reader).read_into(4000, &mut seen), None, "beyond the end of the file");
    }

    #[test]
    fn symbol_tables_are_hidden_but_can_be_read_by_offset() {
        let program = File::open(std::env::current_exe().unwrap()).unwrap();
        let cache = ReadCache::new(&program);
        let plain = object::File::parse(&cache).unwrap();
        let budget = ReadBudget::new(1 << 20);
        let reader = BoundedReader::new(&program, &budget);
        let hidden = object::File::parse(&reader).unwrap();
        assert!(plain.symbols().count() > 1000);
        assert_eq!(hidden.symbols().count(), 0);
        assert!(plain.dynamic_symbols().count() > 10);
        assert_eq!(hidden.dynamic_symbols().count(), 0);
        // A section of type `SHT_NULL` has no data, but the header still states its file range.
        let (offset, size) = plain.section_by_name(".symtab").unwrap().file_range().unwrap();
        let mut symbols = vec![0; usize::try_from(size).unwrap()];
        (&reader).read_into(offset, &mut symbols).unwrap();
        assert_eq!(symbols, plain.section_by_name(".symtab").unwrap().data().unwrap());
        assert_eq!(budget.refused_bytes(), None);
    }

    #[test]
    fn readers_share_a_budget() {
        let budget = ReadBudget::new(100);
        let file = file_of_sevens();
        let [one, other] = [(), ()].map(|()| BoundedReader::new(&file, &budget));
        assert!((&one).read_bytes_at(0, 60).is_ok());
        assert!((&other).read_bytes_at(0, 30).is_ok());
        assert!((&other).read_bytes_at(30, 11).is_err());
    }
}
