//! The executable mappings of one address space.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sidewinder_address::Avma;

use crate::interner::MappedFileInterner;
use crate::mapping::{ExecutableMapping, MappedFile};

/// Executable mappings of one address space: sorted, not overlapping, and merged if contiguous in memory and in the same
/// file.
///
/// The set is bounded by the memory that it shares with others, of which it takes at most as much as it leaves. A mapping, or the
/// remainder of a split one, that would exceed that is omitted and counted; the mappings that it replaces are removed
/// nevertheless, so that the set is never wrong. A copy for which there is no memory is empty.
#[derive(Debug)]
pub struct MappingSet {
    by_start: BTreeMap<Avma, ExecutableMapping>,
    /// What they take.
    bytes: usize,
    memory: MappingMemory,
    left_out: u64,
}

/// The memory for several sets, of which this is one handle.
#[derive(Clone, Debug)]
pub struct MappingMemory {
    left_bytes: Arc<AtomicUsize>,
}

impl MappingMemory {
    /// Memory, none of which is taken.
    #[must_use]
    pub fn new(bytes: usize) -> Self {
        Self { left_bytes: Arc::new(AtomicUsize::new(bytes)) }
    }

    /// Takes an amount, if it then leaves a set of `own_bytes` no larger than the rest.
    fn take(&self, bytes: usize, own_bytes: usize) -> bool {
        let rest =
            |left: usize| left.checked_sub(bytes).filter(|rest| own_bytes.saturating_add(bytes) <= *rest);
        self.left_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest).is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.left_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Clone for MappingSet {
    fn clone(&self) -> Self {
        let mut copy = Self::new(self.memory.clone());
        copy.left_out = self.left_out;
        if self.memory.take(self.bytes, 0) {
            copy.by_start.clone_from(&self.by_start);
            copy.bytes = self.bytes;
        } else {
            copy.left_out += self.by_start.len() as u64;
        }
        copy
    }
}

impl PartialEq for MappingSet {
    fn eq(&self, other: &Self) -> bool {
        self.by_start == other.by_start
    }
}

impl Drop for MappingSet {
    fn drop(&mut self) {
        self.memory.give_back(self.bytes);
    }
}

impl MappingSet {
    /// An empty set.
    #[must_use]
    pub const fn new(memory: MappingMemory) -> Self {
        Self { by_start: BTreeMap::new(), bytes: 0, memory, left_out: 0 }
    }

    /// What a mapping takes: the nodes of a tree are half empty at worst, and each path may be its own.
    fn cost_bytes(mapping: &ExecutableMapping) -> usize {
        let path_bytes = mapping.backing.file().map_or(0, |file| size_of::<MappedFile>() + file.path().len());
        2 * size_of::<(Avma, ExecutableMapping)>() + path_bytes
    }

    /// Replaces files with the known equal ones.
    pub(crate) fn intern(&mut self, files: &mut MappedFileInterner) {
        self.by_start.values_mut().for_each(|mapping| files.intern(&mut mapping.backing));
    }

    /// Adds a mapping. Mappings in its range are replaced, and those that overlap it are trimmed. An empty range changes
    /// nothing.
    pub fn insert(&mut self, mut mapping: ExecutableMapping) {
        if mapping.range.is_empty() {
            return;
        }
        self.remove(&mapping.range);
        if let Some(before) = self.before(mapping.range.start)
            && before.continues_in(&mapping)
        {
            let start = before.range.start;
            mapping.file_offset = before.file_offset;
            mapping.range.start = start;
            self.take_out(start);
        }
        if let Some(after) = self.by_start.get(&mapping.range.end)
            && mapping.continues_in(after)
        {
            let merged = mapping.range.end;
            mapping.range.end = after.range.end;
            self.take_out(merged);
        }
        self.add(mapping);
    }

    /// Removes a range; mappings that overlap it are trimmed.
    pub fn remove(&mut self, range: &Range<Avma>) {
        if range.is_empty() {
            return;
        }
        let first = self.before(range.start).map_or(range.start, |before| before.range.start);
        let touched: Vec<Avma> = self
            .by_start
            .range(first..range.end)
            .filter(|(_, mapping)| mapping.range.end > range.start)
            .map(|(&start, _)| start)
            .collect();
        for start in touched {
            let Some(whole) = self.take_out(start) else { continue };
            let tail = (whole.range.end > range.end).then(|| whole.tail_from(range.end));
            if start < range.start {
                self.add(ExecutableMapping { range: start..range.start, ..whole });
            }
            if let Some(tail) = tail {
                self.add(tail);
            }
        }
    }

    /// Adds a mapping that overlaps no other, if there is memory for it.
    fn add(&mut self, mapping: ExecutableMapping) {
        let bytes = Self::cost_bytes(&mapping);
        if self.memory.take(bytes, self.bytes) {
            self.bytes += bytes;
            self.by_start.insert(mapping.range.start, mapping);
        } else {
            self.left_out += 1;
        }
    }

    fn take_out(&mut self, start: Avma) -> Option<ExecutableMapping> {
        let mapping = self.by_start.remove(&start)?;
        let bytes = Self::cost_bytes(&mapping);
        self.bytes -= bytes;
        self.memory.give_back(bytes);
        Some(mapping)
    }

    /// The number of mappings, or parts of mappings, that were omitted for lack of memory.
    #[must_use]
    pub const fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The mapping that contains an address.
    #[must_use]
    pub fn find(&self, address: Avma) -> Option<&ExecutableMapping> {
        let (_, mapping) = self.by_start.range(..=address).next_back()?;
        mapping.range.contains(&address).then_some(mapping)
    }

    /// Whether the set contains this mapping, possibly as a part of a larger one.
    pub(crate) fn contains(&self, mapping: &ExecutableMapping) -> bool {
        self.find(mapping.range.start).is_some_and(|held| {
            held.range.end >= mapping.range.end
                && held.backing == mapping.backing
                && held.tail_from(mapping.range.start).file_offset == mapping.file_offset
        })
    }

    /// Whether any mapping overlaps a range.
    pub(crate) fn overlaps(&self, range: &Range<Avma>) -> bool {
        self.before(range.end).is_some_and(|last| last.range.end > range.start)
    }

    /// All mappings, in ascending order of address.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &ExecutableMapping> {
        self.by_start.values()
    }

    /// The number of mappings.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_start.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_start.is_empty()
    }

    /// The last mapping that starts before an address.
    fn before(&self, address: Avma) -> Option<&ExecutableMapping> {
        self.by_start.range(..address).next_back().map(|(_, mapping)| mapping)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sidewinder_address::FileOffset;

    use super::*;
    use crate::id::{DeviceId, MappedIdentity};
    use crate::mapping::Backing;

    const PAGE: u64 = 0x1000;
    const PAGES: u64 = 48;

    fn unlimited() -> MappingSet {
        MappingSet::new(MappingMemory::new(usize::MAX))
    }

    fn file(inode: u64) -> Backing {
        let identity = MappedIdentity::Inode { device: DeviceId { major: 8, minor: 1 }, inode };
        Backing::File(Arc::new(MappedFile::new(identity, b"/x")))
    }

    fn mapping(pages: Range<u64>, first_page_of_file: u64, backing: Backing) -> ExecutableMapping {
        let offset = if matches!(backing, Backing::File(_)) { first_page_of_file * PAGE } else { 0 };
        ExecutableMapping {
            range: Avma(pages.start * PAGE)..Avma(pages.end * PAGE),
            file_offset: FileOffset(offset),
            backing,
        }
    }

    fn ranges(set: &MappingSet) -> Vec<(u64, u64, u64)> {
        set.iter().map(|m| (m.range.start.0 / PAGE, m.range.end.0 / PAGE, m.file_offset.0 / PAGE)).collect()
    }

    #[test]
    fn a_mapping_replaces_the_middle_of_another() {
        let mut set = unlimited();
        set.insert(mapping(10..20, 0, file(1)));
        set.insert(mapping(13..15, 7, file(2)));
        assert_eq!(ranges(&set), [(10, 13, 0), (13, 15, 7), (15, 20, 5)]);
    }

    #[test]
    fn neighbours_in_memory_and_in_the_file_are_one() {
        let mut set = unlimited();
        set.insert(mapping(10..12, 0, file(1)));
        set.insert(mapping(14..16, 4, file(1)));
        set.insert(mapping(12..14, 2, file(1)));
        assert_eq!(ranges(&set), [(10, 16, 0)]);
        set.insert(mapping(16..17, 7, file(1)));
        assert_eq!(ranges(&set), [(10, 16, 0), (16, 17, 7)]);
    }

    #[test]
    fn a_full_set_leaves_out_what_is_new_and_keeps_nothing_that_is_gone() {
        // A set takes no more than it leaves.
        let memory = MappingMemory::new(2 * 2 * MappingSet::cost_bytes(&mapping(1..2, 0, file(1))));
        let mut set = MappingSet::new(memory.clone());
        set.insert(mapping(1..2, 0, file(1)));
        set.insert(mapping(10..20, 0, file(2)));
        set.insert(mapping(30..31, 0, file(3)));
        assert_eq!((set.len(), set.left_out()), (2, 1));
        set.remove(&(Avma(12 * PAGE)..Avma(13 * PAGE)));
        assert_eq!(ranges(&set), [(1, 2, 0), (10, 12, 0)]);
        assert_eq!(set.left_out(), 2);
        let copy = set.clone();
        assert_eq!((copy.len(), copy.left_out()), (0, 4), "a copy would take all the memory that is left");
        drop((set, copy));
        let left_bytes = memory.left_bytes.load(Ordering::Relaxed);
        assert_eq!(left_bytes, 4 * MappingSet::cost_bytes(&mapping(1..2, 0, file(1))), "all was given back");
    }

    #[test]
    fn sixty_five_thousand_mappings_in_the_worst_order_are_quick() {
        let started = std::time::Instant::now();
        let mut set = unlimited();
        for page in (0..65_530).rev() {
            set.insert(mapping(2 * page..2 * page + 1, 0, file(1)));
        }
        assert_eq!(set.len(), 65_530);
        set.remove(&(Avma(0)..Avma(u64::MAX)));
        assert!(set.is_empty());
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(ExecutableMapping),
        Remove(Range<Avma>),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let backing = prop_oneof![3 => (1_u64..3).prop_map(file), 1 => Just(Backing::Anonymous)];
        let step = (0..PAGES, 1_u64..9, 0_u64..6, backing, any::<bool>()).prop_map(
            |(start, length, offset, backing, insert)| {
                let new = mapping(start..start + length, offset, backing);
                if insert { Step::Insert(new) } else { Step::Remove(new.range) }
            },
        );
        prop::collection::vec(step, 0..60)
    }

    proptest! {
        #[test]
        fn each_page_is_what_was_mapped_there_last(steps in steps()) {
            let mut set = unlimited();
            let mut pages: Vec<Option<(Backing, u64)>> = vec![None; (PAGES + 10) as usize];
            for step in steps {
                let (range, new) = match &step {
                    Step::Insert(new) => (new.range.clone(), Some(new)),
                    Step::Remove(range) => (range.clone(), None),
                };
                for page in range.start.0 / PAGE..range.end.0 / PAGE {
                    pages[page as usize] = new.map(|new| (new.backing.clone(), match new.backing {
                        Backing::File(_) => new.file_offset.0 + page * PAGE - range.start.0,
                        _ => 0,
                    }));
                }
                match step {
                    Step::Insert(new) => {
                        set.insert(new.clone());
                        prop_assert!(set.contains(&new));
                    }
                    Step::Remove(range) => {
                        set.remove(&range);
                        prop_assert!(!set.overlaps(&range));
                    }
                }
            }
            for (page, expected) in pages.iter().enumerate() {
                let address = Avma(page as u64 * PAGE + 5);
                let found = set.find(address).map(|m| (m.backing.clone(), match m.backing {
                    Backing::File(_) => m.file_offset_of(address).unwrap().0 - 5,
                    _ => 0,
                }));
                prop_assert_eq!(&found, expected, "page {}", page);
                prop_assert_eq!(set.overlaps(&(address..Avma(address.0 + 1))), expected.is_some());
            }
            let all: Vec<_> = set.iter().collect();
            for pair in all.windows(2) {
                prop_assert!(pair[0].range.end <= pair[1].range.start);
                prop_assert!(!pair[0].continues_in(pair[1]), "{:?} and {:?} could be one", pair[0], pair[1]);
            }
        }
    }
}
