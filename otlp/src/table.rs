//! Interning: a table of distinct values, addressed by index.

use std::hash::{BuildHasher, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// The distinct values of one type, in order of first use.
///
/// The hash has a random seed: profiled processes choose the names that are interned here.
#[derive(Debug)]
pub(crate) struct DedupTable<T> {
    values: Vec<T>,
    slots: HashTable<HashSlot>,
    hasher: DefaultHashBuilder,
}

/// The index of a value, and its hash, so that a growing table doesn't hash again.
#[derive(Clone, Copy, Debug)]
struct HashSlot {
    hash: u64,
    index: i32,
}

impl<T> DedupTable<T> {
    /// Creates an empty table.
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), slots: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }

    pub(crate) fn values(&self) -> &[T] {
        &self.values
    }

    pub(crate) fn into_values(self) -> Vec<T> {
        self.values
    }

    /// The value at `index`. The caller must not change what identifies it.
    pub(crate) fn get_mut(&mut self, index: i32) -> Option<&mut T> {
        self.values.get_mut(index as usize)
    }

    /// The index of the value that `key` describes; `make` creates it on first use.
    ///
    /// `key` must have the same hash for all descriptions that `is` considers equal.
    pub(crate) fn intern(
        &mut self,
        key: &(impl Hash + ?Sized),
        is: impl Fn(&T) -> bool,
        make: impl FnOnce() -> T,
    ) -> i32 {
        let hash = self.hasher.hash_one(key);
        match self.find_hashed(hash, is) {
            Some(index) => index,
            None => self.insert_hashed(hash, make()),
        }
    }

    /// The index of the value that `key` describes, if it exists.
    pub(crate) fn find(&self, key: &(impl Hash + ?Sized), is: impl Fn(&T) -> bool) -> Option<i32> {
        self.find_hashed(self.hasher.hash_one(key), is)
    }

    /// Appends a value that [`Self::find`] didn't find.
    pub(crate) fn insert(&mut self, key: &(impl Hash + ?Sized), value: T) -> i32 {
        self.insert_hashed(self.hasher.hash_one(key), value)
    }

    fn find_hashed(&self, hash: u64, is: impl Fn(&T) -> bool) -> Option<i32> {
        let same =
            |slot: &HashSlot| slot.hash == hash && self.values.get(slot.index as usize).is_some_and(&is);
        self.slots.find(hash, same).map(|slot| slot.index)
    }

    fn insert_hashed(&mut self, hash: u64, value: T) -> i32 {
        // Memory ends long before 2^31 values; the index of a value beyond would be that of the zero value.
        let Ok(index) = i32::try_from(self.values.len()) else { return 0 };
        self.values.push(value);
        self.slots.insert_unique(hash, HashSlot { hash, index }, |slot| slot.hash);
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_share_an_index_and_different_ones_do_not() {
        let mut table = DedupTable::<String>::new();
        let mut intern = |text: &str| table.intern(text, |held| held == text, || text.to_owned());
        let indices = [intern("a"), intern("b"), intern("a"), intern("")];
        assert_eq!(indices, [0, 1, 0, 2]);
        assert_eq!(table.values(), ["a", "b", ""]);
        assert_eq!(table.find("b", |held| held == "b"), Some(1));
        assert_eq!(table.find("c", |held| held == "c"), None);
    }

    #[test]
    fn values_are_found_after_the_table_has_grown() {
        let mut table = DedupTable::<u64>::new();
        for value in 0..10_000_u64 {
            assert_eq!(i64::from(table.intern(&value, |held| *held == value, || value)), value as i64);
        }
        for value in 0..10_000_u64 {
            assert_eq!(table.find(&value, |held| *held == value), i32::try_from(value).ok());
        }
    }
}
