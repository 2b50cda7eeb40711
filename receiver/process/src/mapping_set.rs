//! The executable mappings of one address space.

use std::collections::BTreeMap;
use std::ops::Range;

use sidewinder_address::Avma;

use crate::mapping::ExecutableMapping;

/// Executable mappings of one address space: sorted, not overlapping, and merged if contiguous in memory and in the same
/// file.
///
/// The set is bounded. A mapping, or the remainder of a split one, that would exceed the limit is omitted and counted; the
/// mappings that it replaces are removed nevertheless, so that the set is never wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MappingSet {
    by_start: BTreeMap<Avma, ExecutableMapping>,
    limit: usize,
    left_out: u64,
}

impl MappingSet {
    /// An empty set of at most `limit` mappings.
    #[must_use]
    pub const fn new(limit: usize) -> Self {
        Self { by_start: BTreeMap::new(), limit, left_out: 0 }
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
            self.by_start.remove(&start);
        }
        if let Some(after) = self.by_start.get(&mapping.range.end)
            && mapping.continues_in(after)
        {
            let merged = mapping.range.end;
            mapping.range.end = after.range.end;
            self.by_start.remove(&merged);
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
            let Some(whole) = self.by_start.remove(&start) else { continue };
            let tail = (whole.range.end > range.end).then(|| whole.tail_from(range.end));
            if start < range.start {
                self.add(ExecutableMapping { range: start..range.start, ..whole });
            }
            if let Some(tail) = tail {
                self.add(tail);
            }
        }
    }

    /// Adds a mapping that overlaps no other, if the limit allows.
    fn add(&mut self, mapping: ExecutableMapping) {
        if self.by_start.len() < self.limit {
            self.by_start.insert(mapping.range.start, mapping);
        } else {
            self.left_out += 1;
        }
    }

    /// The number of mappings, or parts of mappings, that were omitted because of the limit.
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
    use std::sync::Arc;

    use proptest::prelude::*;
    use sidewinder_address::FileOffset;

    use super::*;
    use crate::id::{DeviceId, MappedIdentity};
    use crate::mapping::{Backing, MappedFile};

    const PAGE: u64 = 0x1000;
    const PAGES: u64 = 48;

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
        let mut set = MappingSet::new(10);
        set.insert(mapping(10..20, 0, file(1)));
        set.insert(mapping(13..15, 7, file(2)));
        assert_eq!(ranges(&set), [(10, 13, 0), (13, 15, 7), (15, 20, 5)]);
    }

    #[test]
    fn neighbours_in_memory_and_in_the_file_are_one() {
        let mut set = MappingSet::new(10);
        set.insert(mapping(10..12, 0, file(1)));
        set.insert(mapping(14..16, 4, file(1)));
        set.insert(mapping(12..14, 2, file(1)));
        assert_eq!(ranges(&set), [(10, 16, 0)]);
        set.insert(mapping(16..17, 7, file(1)));
        assert_eq!(ranges(&set), [(10, 16, 0), (16, 17, 7)]);
    }

    #[test]
    fn a_full_set_leaves_out_what_is_new_and_keeps_nothing_that_is_gone() {
        let mut set = MappingSet::new(2);
        set.insert(mapping(1..2, 0, file(1)));
        set.insert(mapping(10..20, 0, file(2)));
        set.insert(mapping(30..31, 0, file(3)));
        assert_eq!((set.len(), set.left_out()), (2, 1));
        set.remove(&(Avma(12 * PAGE)..Avma(13 * PAGE)));
        assert_eq!(ranges(&set), [(1, 2, 0), (10, 12, 0)]);
        assert_eq!(set.left_out(), 2);
    }

    #[test]
    fn sixty_five_thousand_mappings_in_the_worst_order_are_quick() {
        let started = std::time::Instant::now();
        let mut set = MappingSet::new(65_530);
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
            let mut set = MappingSet::new(usize::MAX);
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
