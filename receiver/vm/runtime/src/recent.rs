//! What was needed last, in bounded memory.

use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// Something with a size in memory.
pub trait MemorySize {
    /// The bytes that count towards the limit.
    fn bytes(&self) -> usize;
}

/// Values by key. If there are too many, or they take too much memory, those that were needed the longest time ago are forgotten.
#[derive(Debug)]
pub struct Recent<K: Debug + Eq + Hash, V: Debug> {
    entries: Mutex<RecentEntries<K, V>>,
    bytes_max: usize,
}

/// The entries of a [`Recent`].
#[derive(Debug)]
pub struct RecentEntries<K: Debug + Eq + Hash, V: Debug> {
    /// The values, those that were needed last first.
    pub values: LruCache<K, Arc<V>>,
    /// Their bytes.
    pub bytes: usize,
}

impl<K: Debug + Eq + Hash, V: Debug + MemorySize> Recent<K, V> {
    /// Room for this many values of so many bytes. It keeps one value at least.
    #[must_use]
    pub fn new(count_max: NonZeroUsize, bytes_max: usize) -> Self {
        Self { entries: Mutex::new(RecentEntries { values: LruCache::new(count_max), bytes: 0 }), bytes_max }
    }

    /// The value with a key.
    pub fn get(&self, key: &K) -> Option<Arc<V>> {
        self.lock().values.get(key).cloned()
    }

    /// Adds a value, in the place of the key's if it has one.
    pub fn add(&self, key: K, value: V) -> Arc<V> {
        let value = Arc::new(value);
        let mut entries = self.lock();
        entries.bytes += value.bytes();
        if let Some((_, replaced)) = entries.values.push(key, Arc::clone(&value)) {
            entries.bytes -= replaced.bytes();
        }
        // The one that is being used stays.
        while entries.bytes > self.bytes_max && entries.values.len() > 1 {
            let Some((_, oldest)) = entries.values.pop_lru() else { break };
            entries.bytes -= oldest.bytes();
        }
        value
    }

    /// All entries.
    pub fn lock(&self) -> MutexGuard<'_, RecentEntries<K, V>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
