//! Sections of files as `gimli` reads them: page by page, a few of which are held.
//!
//! Debug information takes hundreds of MiB, of which one look-up needs a few KiB in scattered places. Mapping it would
//! turn a file that shrinks into a signal; reading it whole would take its size in memory.

use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

use gimli::{Error, ReaderOffsetId, Result, RunTimeEndian};

use super::compressed::CompressedSection;
use super::pages::{ImageId, PAGE_BYTES, PageCache};
use crate::image::Image;

/// The longest piece that is returned as a whole: a name or a path.
const PIECE_LIMIT_BYTES: usize = 64 << 10;

/// The source of a section's bytes.
#[derive(Debug)]
pub(crate) enum SectionLocation {
    /// The file, from this offset on.
    File { offset: u64, bytes: u64 },
    /// The file, compressed.
    Compressed(ImageId, CompressedSection),
    /// Memory: a compressed section that is small.
    Memory(Box<[u8]>),
}

impl SectionLocation {
    pub(crate) const EMPTY: Self = Self::File { offset: 0, bytes: 0 };

    fn bytes(&self) -> usize {
        match self {
            Self::File { bytes, .. } | Self::Compressed(_, CompressedSection { bytes, .. }) => {
                usize::try_from(*bytes).unwrap_or(usize::MAX)
            }
            Self::Memory(bytes) => bytes.len(),
        }
    }
}

/// An open section.
#[derive(Debug)]
pub(crate) struct PagedSection<'a> {
    pages: &'a PageCache,
    image: &'a Image,
    id: ImageId,
    place: &'a SectionLocation,
    /// The last page that was read.
    current: RefCell<(u64, Option<Arc<[u8]>>)>,
}

impl<'a> PagedSection<'a> {
    pub(crate) fn new(
        pages: &'a PageCache,
        image: &'a Image,
        id: ImageId,
        place: &'a SectionLocation,
    ) -> Self {
        Self { pages, image, id, place, current: RefCell::new((0, None)) }
    }

    pub(crate) fn reader(&'a self, endian: RunTimeEndian) -> SectionReader<'a> {
        SectionReader { section: self, start: 0, end: self.place.bytes(), endian }
    }

    /// Calls `show` with the bytes from an offset on, as many as are available in one piece, which is at least one.
    fn with_bytes<T>(&self, at: usize, show: impl FnOnce(&[u8]) -> T) -> Result<T> {
        let offset = match self.place {
            SectionLocation::File { offset, .. } => offset.checked_add(at as u64).ok_or(Error::Io)?,
            SectionLocation::Compressed(..) => at as u64,
            SectionLocation::Memory(bytes) => {
                let rest = bytes.get(at..).filter(|rest| !rest.is_empty()).ok_or(Error::Io)?;
                return Ok(show(rest));
            }
        };
        let (page, within) = (offset / PAGE_BYTES, (offset % PAGE_BYTES) as usize);
        let mut current = self.current.borrow_mut();
        if current.0 != page || current.1.is_none() {
            *current = (page, Some(self.page(page)?));
        }
        // The file may have shrunk in the meantime.
        let rest = current.1.as_deref().and_then(|bytes| bytes.get(within..)).filter(|rest| !rest.is_empty());
        rest.map(show).ok_or(Error::Io)
    }

    fn page(&self, page: u64) -> Result<Arc<[u8]>> {
        match self.place {
            SectionLocation::Compressed(id, packed) => {
                self.pages.page((*id, page), |bytes| packed.fill(self.image, self.pages, page, bytes))
            }
            SectionLocation::File { .. } | SectionLocation::Memory(_) => {
                self.pages.page((self.id, page), |bytes| {
                    self.image.read_at(page * PAGE_BYTES, bytes).map_err(|_| Error::Io)
                })
            }
        }
    }

    fn read(&self, mut at: usize, mut buffer: &mut [u8]) -> Result<()> {
        self.pages.spend(buffer.len() as u64)?;
        while !buffer.is_empty() {
            let copied = self.with_bytes(at, |bytes| {
                let count = bytes.len().min(buffer.len());
                buffer.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
                count
            })?;
            at += copied;
            buffer = buffer.get_mut(copied..).unwrap_or_default();
        }
        Ok(())
    }
}

/// A part of a section.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionReader<'a> {
    section: &'a PagedSection<'a>,
    start: usize,
    end: usize,
    endian: RunTimeEndian,
}

impl SectionReader<'_> {
    fn remaining(&self) -> usize {
        self.end - self.start
    }

    /// Advances and returns the previous offset.
    fn advance(&mut self, bytes: usize) -> Result<usize> {
        let at = self.start;
        if bytes > self.remaining() {
            return Err(Error::UnexpectedEof(ReaderOffsetId(at as u64)));
        }
        self.start += bytes;
        Ok(at)
    }
}

impl gimli::Reader for SectionReader<'_> {
    type Endian = RunTimeEndian;
    type Offset = usize;

    fn endian(&self) -> RunTimeEndian {
        self.endian
    }

    fn len(&self) -> usize {
        self.remaining()
    }

    fn empty(&mut self) {
        self.end = self.start;
    }

    fn truncate(&mut self, len: usize) -> Result<()> {
        let mut whole = *self;
        whole.advance(len)?;
        self.end = whole.start;
        Ok(())
    }

    fn offset_from(&self, base: &Self) -> usize {
        self.start.wrapping_sub(base.start)
    }

    fn offset_id(&self) -> ReaderOffsetId {
        ReaderOffsetId(self.start as u64)
    }

    fn lookup_offset_id(&self, id: ReaderOffsetId) -> Option<usize> {
        usize::try_from(id.0).ok()?.checked_sub(self.start).filter(|offset| *offset <= self.remaining())
    }

    fn find(&self, byte: u8) -> Result<usize> {
        let limit = self.remaining().min(PIECE_LIMIT_BYTES);
        let mut passed = 0;
        while passed < limit {
            let (found, seen) = self.section.with_bytes(self.start + passed, |bytes| {
                let bytes = bytes.get(..limit - passed).unwrap_or(bytes);
                (bytes.iter().position(|other| *other == byte), bytes.len())
            })?;
            self.section.pages.spend(found.unwrap_or(seen) as u64)?;
            if let Some(found) = found {
                return Ok(passed + found);
            }
            passed += seen;
        }
        Err(Error::UnexpectedEof(self.offset_id()))
    }

    fn skip(&mut self, len: usize) -> Result<()> {
        self.advance(len).map(drop)
    }

    fn split(&mut self, len: usize) -> Result<Self> {
        let start = self.advance(len)?;
        Ok(Self { start, end: self.start, ..*self })
    }

    fn to_slice(&self) -> Result<Cow<'_, [u8]>> {
        if self.remaining() > PIECE_LIMIT_BYTES {
            return Err(Error::Io);
        }
        let mut bytes = vec![0; self.remaining()];
        self.section.read(self.start, &mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn to_string(&self) -> Result<Cow<'_, str>> {
        let bytes = self.to_slice()?.into_owned();
        String::from_utf8(bytes).map(Cow::Owned).map_err(|_| Error::BadUtf8)
    }

    fn to_string_lossy(&self) -> Result<Cow<'_, str>> {
        let bytes = self.to_slice()?;
        Ok(Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn read_slice(&mut self, buffer: &mut [u8]) -> Result<()> {
        let at = self.advance(buffer.len())?;
        self.section.read(at, buffer)
    }

    fn read_u8(&mut self) -> Result<u8> {
        let at = self.advance(1)?;
        self.section.pages.spend(1)?;
        self.section.with_bytes(at, |bytes| bytes.first().copied())?.ok_or(Error::Io)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use gimli::Reader as _;

    use super::*;

    fn image(bytes: u64) -> (Image, std::fs::File) {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
        file.write_all(&content).unwrap();
        (Image::from(file.try_clone().unwrap()), file)
    }

    fn with_reader<T>(
        bytes: u64,
        held: usize,
        test: impl FnOnce(SectionReader<'_>, &PageCache, &std::fs::File) -> T,
    ) -> T {
        let (image, file) = image(bytes);
        let pages = PageCache::new(held);
        pages.set_work_budget(u64::MAX);
        let place = SectionLocation::File { offset: 100, bytes: bytes - 100 };
        let section = PagedSection::new(&pages, &image, ImageId::new(), &place);
        test(section.reader(RunTimeEndian::Little), &pages, &file)
    }

    #[test]
    fn what_is_read_across_pages_is_what_the_file_holds() {
        with_reader(5 * PAGE_BYTES, 1 << 20, |mut reader, _, _| {
            reader.skip(PAGE_BYTES as usize - 103).unwrap();
            let at = PAGE_BYTES - 3;
            let expected: Vec<u8> = (at..at + 8).map(|at| (at % 251) as u8).collect();
            assert_eq!(reader.read_u64().unwrap().to_le_bytes(), *expected);
            assert_eq!(reader.read_u8().unwrap(), ((at + 8) % 251) as u8);
            assert_eq!(reader.find(((at + 8) % 251) as u8).unwrap(), 250);
            let mut rest = reader;
            let piece = rest.split(10).unwrap();
            assert_eq!(piece.to_slice().unwrap()[9], ((at + 18) % 251) as u8);
            assert_eq!(rest.offset_from(&reader), 10);
        });
    }

    #[test]
    fn few_pages_are_held_whatever_is_read() {
        with_reader(64 * PAGE_BYTES, 8 * PAGE_BYTES as usize, |mut reader, pages, _| {
            while !reader.is_empty() {
                reader.skip(reader.len().min(1000)).unwrap();
                let _ = reader.read_u8();
            }
            assert_eq!(pages.held_bytes(), 8 * PAGE_BYTES as usize);
        });
    }

    #[test]
    fn a_file_that_shrinks_and_work_without_end_are_errors() {
        with_reader(4 * PAGE_BYTES, 1 << 20, |mut reader, pages, file| {
            pages.set_work_budget(8);
            assert!(reader.read_u32().is_ok() && reader.read_u32().is_ok());
            assert_eq!(reader.read_u32(), Err(Error::Io), "its work is done");
            assert_eq!(reader.find(0xff), Err(Error::Io));
            pages.set_work_budget(u64::MAX);
            file.set_len(PAGE_BYTES).unwrap();
            reader.skip(2 * PAGE_BYTES as usize).unwrap();
            assert_eq!(reader.read_u8(), Err(Error::Io), "the file has ended");
            reader.skip(reader.len()).unwrap();
            assert!(matches!(reader.read_u8(), Err(Error::UnexpectedEof(_))));
        });
    }
}
