//! A part of a file that is read page by page, of which a few are kept.
//!
//! Go's table of a large program has tens of MiB, of which one function needs some hundred scattered bytes.

use std::cell::RefCell;

use crate::read::ReadFile;

const PAGE_BYTES: u64 = 4 << 10;
/// Pages that are kept. A power of two: a page's place is its number's lowest bits.
const PAGES: usize = 64;

/// Bytes that [`Bytes`] reads ahead.
const AHEAD_BYTES: usize = 16;

/// A part of a file, such as a section.
pub(crate) struct PagedPart<R> {
    file: R,
    /// Of the part, in the file.
    offset: u64,
    bytes: u64,
    pages: RefCell<Vec<Option<Page>>>,
}

struct Page {
    /// Its offset in the part, in pages.
    number: u64,
    bytes: Vec<u8>,
}

impl<'data, R: ReadFile<'data>> PagedPart<R> {
    pub(crate) fn new(file: R, offset: u64, bytes: u64) -> Self {
        Self { file, offset, bytes, pages: RefCell::default() }
    }

    /// The length of the part.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills a buffer from an offset in the part; `None` where the part ends, or can't be read.
    pub(crate) fn read(&self, mut at: u64, mut to: &mut [u8]) -> Option<()> {
        while !to.is_empty() {
            let copied = self.copy(at, to)?;
            at += copied as u64;
            to = to.get_mut(copied..)?;
        }
        Some(())
    }

    /// Copies what one page has from an offset on, which is at least one byte.
    fn copy(&self, at: u64, to: &mut [u8]) -> Option<usize> {
        if at >= self.bytes {
            return None;
        }
        let (number, within) = (at / PAGE_BYTES, (at % PAGE_BYTES) as usize);
        let mut pages = self.pages.borrow_mut();
        pages.resize_with(PAGES, || None);
        let place = pages.get_mut(number as usize % PAGES)?;
        if place.as_ref().is_none_or(|held| held.number != number) {
            let mut bytes = place.take().map(|held| held.bytes).unwrap_or_default();
            let start = number * PAGE_BYTES;
            bytes.resize((self.bytes - start).min(PAGE_BYTES) as usize, 0);
            self.file.read_into(self.offset.checked_add(start)?, &mut bytes)?;
            *place = Some(Page { number, bytes });
        }
        let rest = place.as_ref()?.bytes.get(within..)?;
        let count = rest.len().min(to.len());
        to.get_mut(..count)?.copy_from_slice(rest.get(..count)?);
        Some(count)
    }

    pub(crate) fn u32_at(&self, at: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(at, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// The bytes from an offset to the end of the part, or to the first that can't be read.
    pub(crate) fn bytes_from(&self, at: u64) -> Bytes<'_, R> {
        Bytes { part: self, at, ahead: [0; AHEAD_BYTES], next: 0, end: 0 }
    }
}

/// Iterates over bytes of a part.
pub(crate) struct Bytes<'part, R> {
    part: &'part PagedPart<R>,
    /// Where the bytes behind those in `ahead` are.
    at: u64,
    ahead: [u8; AHEAD_BYTES],
    next: usize,
    end: usize,
}

impl<R> Clone for Bytes<'_, R> {
    fn clone(&self) -> Self {
        Self { ..*self }
    }
}

impl<'data, R: ReadFile<'data>> Iterator for Bytes<'_, R> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.next == self.end {
            self.end = self.part.copy(self.at, &mut self.ahead)?;
            self.at += self.end as u64;
            self.next = 0;
        }
        let byte = self.ahead.get(self.next).copied();
        self.next += 1;
        byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_across_pages_is_what_the_part_holds() {
        let content: Vec<u8> = (0..(PAGES as u64 + 3) * PAGE_BYTES).map(|at| (at % 251) as u8).collect();
        let part = PagedPart::new(&*content, 100, content.len() as u64 - 200);
        let held = &content[100..content.len() - 100];
        for at in [0, PAGE_BYTES - 1, 5, PAGES as u64 * PAGE_BYTES - 3, 0] {
            let mut read = [0; 6];
            part.read(at, &mut read).unwrap();
            assert_eq!(read, held[at as usize..][..6]);
        }
        assert!(part.bytes_from(7).eq(held[7..].iter().copied()));
        let last = part.bytes() - 1;
        assert_eq!(part.read(last, &mut [0; 2]), None, "beyond the end");
        assert_eq!(part.bytes_from(last).count(), 1);
        assert_eq!(part.read(u64::MAX, &mut [0; 1]), None);
    }

    #[test]
    fn a_part_that_the_file_does_not_have_is_not_read() {
        let part = PagedPart::new(&[1_u8; 100][..], u64::MAX - 10, 50);
        assert_eq!(part.u32_at(0), None);
        assert_eq!(PagedPart::new(&[1_u8; 100][..], 90, 50).bytes_from(0).next(), None);
    }
}
