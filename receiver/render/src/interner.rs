//! Values that are held once, and are known by their numbers.

use std::borrow::Borrow;
use std::hash::{BuildHasher as _, Hash};

use hashbrown::{DefaultHashBuilder, HashTable};

/// Each distinct value once, indexed in order of arrival. The hash has a random seed: profiled programs choose names.
#[derive(Debug)]
pub(crate) struct ValueInterner<T> {
    pub(crate) values: Vec<T>,
    /// Indices in `values`, by the hash of the value.
    indices: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl<T> Default for ValueInterner<T> {
    fn default() -> Self {
        Self { values: Vec::new(), indices: HashTable::new(), hasher: DefaultHashBuilder::default() }
    }
}

impl<T: Eq + Hash> ValueInterner<T> {
    pub(crate) fn intern(&mut self, value: T) -> u32 {
        self.find(&value).unwrap_or_else(|| self.insert(value))
    }

    fn find<Q: Eq + Hash + ?Sized>(&self, value: &Q) -> Option<u32>
    where
        T: Borrow<Q>,
    {
        let is_same =
            |index: &u32| self.values.get(*index as usize).is_some_and(|known| known.borrow() == value);
        self.indices.find(self.hasher.hash_one(value), is_same).copied()
    }

    /// Adds a value that is not there.
    fn insert(&mut self, value: T) -> u32 {
        let Self { values, indices, hasher } = self;
        let (hash, index) = (hasher.hash_one(&value), values.len() as u32);
        values.push(value);
        let hash_of = |index: &u32| values.get(*index as usize).map_or(0, |known: &T| hasher.hash_one(known));
        indices.insert_unique(hash, index, hash_of);
        index
    }

    /// The approximate memory in bytes, except what values own. A hash table is three quarters full on average.
    pub(crate) fn bytes(&self) -> usize {
        self.values.len() * (size_of::<T>() + (size_of::<u32>() + 1) * 4 / 3)
    }
}
