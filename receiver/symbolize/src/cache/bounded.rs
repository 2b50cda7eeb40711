//! A cache bounded by a number of bytes.

use std::hash::Hash;

use lru::LruCache;

/// A cache that evicts the least recently used entries.
#[derive(Debug)]
pub(super) struct ByteBoundedLru<K: Hash + Eq, V> {
    held: LruCache<K, (V, usize)>,
    pub(super) bytes: usize,
    pub(super) budget_bytes: usize,
}

impl<K: Hash + Eq + Copy, V> ByteBoundedLru<K, V> {
    pub(super) fn new(budget_bytes: usize) -> Self {
        Self { held: LruCache::unbounded(), bytes: 0, budget_bytes }
    }

    pub(super) fn get(&mut self, key: &K) -> Option<&V> {
        self.held.get(key).map(|(value, _)| value)
    }

    pub(super) fn contains(&self, key: &K) -> bool {
        self.held.contains(key)
    }

    pub(super) fn put(&mut self, key: K, value: V, bytes: usize) {
        self.bytes += bytes;
        if let Some((_, (_, replaced_bytes))) = self.held.push(key, (value, bytes)) {
            self.bytes -= replaced_bytes;
        }
        self.evict();
    }

    /// Sets the budget. What no longer fits is evicted.
    pub(super) fn set_budget(&mut self, bytes: usize) {
        self.budget_bytes = bytes;
        self.evict();
    }

    fn evict(&mut self) {
        while self.bytes > self.budget_bytes {
            let Some((_, (_, bytes))) = self.held.pop_lru() else { break };
            self.bytes -= bytes;
        }
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        let gone: Vec<K> = self.held.iter().map(|(key, _)| *key).filter(|key| !is_kept(key)).collect();
        for (_, bytes) in gone.iter().filter_map(|key| self.held.pop(key)) {
            self.bytes -= bytes;
        }
    }
}
