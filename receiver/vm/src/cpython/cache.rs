//! Functions of processes that have been read, in bounded memory.

use std::hash::Hash;
use std::sync::Arc;

use lru::LruCache;

use super::function::Function;

/// What an allocator needs in addition to the bytes of a block: its header, and rounding.
const BLOCK_BYTES: usize = 16;
/// The share of the budget that is freed at once, as a divisor.
const FREED_SHARE: usize = 8;

/// What a [`FunctionCache`] keeps.
pub trait CachedCode {
    /// Bytes of heap memory that it uses.
    fn heap_bytes(&self) -> usize;
}

impl CachedCode for Function {
    fn heap_bytes(&self) -> usize {
        Self::heap_bytes(self)
    }
}

/// Functions by key. If they don't fit the budget, those that were looked up the longest time ago are forgotten.
#[derive(Debug)]
pub struct FunctionCache<K: Eq + Hash, F: CachedCode = Function> {
    /// `None`: the function can't be named.
    functions: LruCache<K, Option<Arc<F>>>,
    bytes: usize,
    budget_bytes: usize,
}

impl<K: Eq + Hash, F: CachedCode> FunctionCache<K, F> {
    /// An empty cache for at most `budget_bytes` of memory.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Self { functions: LruCache::unbounded(), bytes: 0, budget_bytes }
    }

    /// The bytes of memory that an entry takes.
    #[must_use]
    pub fn entry_bytes(function: Option<&F>) -> usize {
        // A node of the list, and a slot of the map with its pointers and control byte, of which 7/16 to 7/8 are in use.
        let node = size_of::<(K, Option<Arc<F>>, [usize; 2])>() + BLOCK_BYTES;
        let slot = (2 * size_of::<usize>() + 1) * 16 / 7;
        // With the counts of references; its three blocks are the name, the path and the lines.
        let shared = size_of::<F>() + 2 * size_of::<usize>() + 4 * BLOCK_BYTES;
        node + slot + function.map_or(0, |function| shared + function.heap_bytes())
    }

    /// The bytes of memory that all entries take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Whether there are no entries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Looks a function up; `Some(None)` if it can't be named.
    pub fn get(&mut self, key: &K) -> Option<Option<&Arc<F>>> {
        self.functions.get(key).map(Option::as_ref)
    }

    /// Adds a function, or that it can't be named. Returns how many others were forgotten for it: an eighth of the budget at
    /// once, so that this is rare.
    pub fn insert(&mut self, key: K, function: Option<F>) -> usize {
        let bytes = Self::entry_bytes(function.as_ref());
        if let Some(previous) = self.functions.pop(&key) {
            self.bytes -= Self::entry_bytes(previous.as_deref());
        }
        let mut forgotten = 0;
        if self.bytes + bytes > self.budget_bytes {
            let kept_bytes = (self.budget_bytes - self.budget_bytes / FREED_SHARE).saturating_sub(bytes);
            while self.bytes > kept_bytes
                && let Some((_, oldest)) = self.functions.pop_lru()
            {
                self.bytes -= Self::entry_bytes(oldest.as_deref());
                forgotten += 1;
            }
        }
        if bytes <= self.budget_bytes {
            self.bytes += bytes;
            self.functions.put(key, function.map(Arc::new));
        }
        forgotten
    }

    /// Removes all entries whose key matches.
    pub fn remove_if(&mut self, matches: impl Fn(&K) -> bool)
    where
        K: Clone,
    {
        let keys: Vec<K> =
            self.functions.iter().map(|(key, _)| key).filter(|key| matches(key)).cloned().collect();
        for key in keys {
            if let Some(function) = self.functions.pop(&key) {
                self.bytes -= Self::entry_bytes(function.as_deref());
            }
        }
    }
}
