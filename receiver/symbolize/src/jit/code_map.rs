//! A map from addresses to functions, in which newer functions replace older ones.

use std::collections::BTreeMap;

/// The memory of a function in addition to its name.
const ENTRY_BYTES: usize = 64;
/// The longest name that is kept.
const NAME_LIMIT_BYTES: usize = 1024;

/// Functions by address. Ranges do not overlap.
#[derive(Debug, Default)]
pub(super) struct CodeMap {
    /// Keyed by start.
    functions: BTreeMap<u64, JitFunction>,
    bytes: usize,
    room_bytes: usize,
    /// Functions left out for lack of memory.
    pub(super) cut: u64,
}

#[derive(Clone, Debug)]
struct JitFunction {
    end: u64,
    name: Box<str>,
}

impl CodeMap {
    pub(super) fn new(room_bytes: usize) -> Self {
        Self { room_bytes, ..Self::default() }
    }

    pub(super) fn clear(&mut self) {
        self.functions.clear();
        self.bytes = 0;
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.bytes
    }

    /// The number of functions.
    pub(super) fn len(&self) -> usize {
        self.functions.len()
    }

    pub(super) fn lookup(&self, address: u64) -> Option<&str> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        (address < function.end).then_some(&*function.name)
    }

    /// The function that starts at an address.
    pub(super) fn starting_at(&self, start: u64) -> Option<&str> {
        self.functions.get(&start).map(|function| &*function.name)
    }

    /// Adds a function, replacing whatever its range contained. Bytes of the name that aren't UTF-8 are replaced.
    pub(super) fn insert(&mut self, start: u64, bytes: u64, name: &[u8]) {
        let Some(end) = start.checked_add(bytes).filter(|end| *end > start) else { return };
        self.remove(start, end);
        let name = name.get(..NAME_LIMIT_BYTES).unwrap_or(name);
        let name: Box<str> = String::from_utf8_lossy(name).into();
        let cost = ENTRY_BYTES + name.len();
        if self.bytes + cost > self.room_bytes {
            self.cut += 1;
            return;
        }
        self.bytes += cost;
        self.functions.insert(start, JitFunction { end, name });
    }

    /// Removes everything in a range. Of a function that extends beyond it, the rest stays; if the rest is in two
    /// parts, only the first does.
    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let before = self.functions.range_mut(..start).next_back();
        if let Some((_, function)) = before {
            function.end = function.end.min(start);
        }
        let within: Vec<u64> = self.functions.range(start..end).map(|(start, _)| *start).collect();
        for at in within {
            let Some(function) = self.functions.remove(&at) else { continue };
            if function.end > end {
                self.functions.insert(end, function);
            } else {
                self.bytes -= ENTRY_BYTES + function.name.len();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_newest_of_what_overlaps_holds() {
        let mut map = CodeMap::new(1 << 20);
        map.insert(0x100, 0x100, b"old");
        map.insert(0x300, 0x100, b"next");
        map.insert(0x180, 0x200, b"new");
        let found = [0x17f, 0x180, 0x37f, 0x380, 0x3ff, 0x400].map(|at| map.lookup(at));
        assert_eq!(found, [Some("old"), Some("new"), Some("new"), Some("next"), Some("next"), None]);
    }

    #[test]
    fn what_has_no_room_is_counted_and_what_is_replaced_makes_room() {
        let mut map = CodeMap::new(2 * (ENTRY_BYTES + 1));
        for (start, name) in [(0, b"a"), (16, b"b"), (32, b"c"), (0, b"d")] {
            map.insert(start, 16, name);
        }
        assert_eq!((map.lookup(0), map.lookup(16), map.lookup(32), map.cut), (Some("d"), Some("b"), None, 1));
        map.insert(u64::MAX, 2, b"beyond");
        assert_eq!(map.heap_bytes(), 2 * (ENTRY_BYTES + 1));
    }

    proptest! {
        /// Compares with a model that stores each byte separately, except for the second part of a function that is cut
        /// in two.
        #[test]
        fn bytes_are_named_by_who_came_last(ranges in prop::collection::vec((0_u64..64, 1_u64..32), 1..40)) {
            let mut map = CodeMap::new(1 << 20);
            let mut expected = [None; 96];
            for (number, (start, bytes)) in ranges.iter().enumerate() {
                map.insert(*start, *bytes, number.to_string().as_bytes());
                (*start..start + bytes).for_each(|at| expected[at as usize] = Some(number.to_string()).map(|_| number));
            }
            for (at, number) in expected.iter().enumerate() {
                let found = map.lookup(at as u64).map(|name| name.parse::<usize>().unwrap());
                prop_assert!(found.is_none() || found == *number, "{at}: {found:?} {number:?}");
                if *number == Some(ranges.len() - 1) {
                    prop_assert_eq!(found, *number);
                }
            }
        }
    }
}
