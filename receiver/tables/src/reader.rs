//! Readers through which `object` parses files, piece by piece, with a bound on the memory for cached pieces.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ops::Range;

use object::{ReadCache, ReadRef};
use sidewinder_debug_files::{SeekableContent, SizedReadAt};
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

#[cfg(test)]
mod tests {
    use std::fs::File;
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
