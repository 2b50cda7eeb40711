//! Functions of processes that have been read, in bounded memory.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use lru::LruCache;

use crate::Function;

/// What an allocator needs in addition to the bytes of a block: its header, and rounding.
const BLOCK_BYTES: usize = 16;
/// The share of the budget that is freed at once, as a divisor.
const FREED_SHARE: usize = 8;

/// What a [`FunctionCache`] keeps.
pub trait CachedCode {
    /// Bytes of heap memory that it uses, without the shared text.
    fn heap_bytes(&self) -> usize;

    /// A text that it may share with others.
    fn shared_text(&mut self) -> Option<&mut Arc<str>>;
}

impl CachedCode for Function {
    fn heap_bytes(&self) -> usize {
        Self::heap_bytes(self)
    }

    fn shared_text(&mut self) -> Option<&mut Arc<str>> {
        Some(&mut self.source)
    }
}

/// Texts that many functions have in common, each once.
#[derive(Default, Debug)]
pub struct SharedTexts {
    texts: HashSet<Arc<str>>,
    bytes: usize,
}

impl SharedTexts {
    /// Makes the text of a code a shared one.
    pub fn share(&mut self, code: &mut impl CachedCode) {
        let Some(text) = code.shared_text() else { return };
        if let Some(known) = self.texts.get(text) {
            *text = Arc::clone(known);
        } else {
            self.bytes += Self::entry_bytes(text);
            self.texts.insert(Arc::clone(text));
        }
    }

    /// Forgets a code, and its shared text if nothing else has it any more.
    pub fn release(&mut self, mut code: impl CachedCode) {
        let text = code.shared_text().cloned();
        drop(code);
        // This one, and that of the set.
        if let Some(text) = text
            && Arc::strong_count(&text) == 2
            && self.texts.remove(&text)
        {
            self.bytes -= Self::entry_bytes(&text);
        }
    }

    /// The bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The bytes of memory that a text takes: with counts of references, and a slot of the set, of which 7/16 to 7/8 are in use.
    #[must_use]
    pub fn entry_bytes(text: &str) -> usize {
        let slot = (size_of::<Arc<str>>() + 1) * 16 / 7;
        text.len() + 2 * size_of::<usize>() + BLOCK_BYTES + slot
    }
}

/// Functions by key. If they don't fit the budget, those that were looked up the longest time ago are forgotten.
#[derive(Debug)]
pub struct FunctionCache<K: Eq + Hash, F: CachedCode = Function> {
    /// `None`: the function can't be named.
    functions: LruCache<K, Option<F>>,
    texts: SharedTexts,
    /// Without the shared texts.
    function_bytes: usize,
    budget_bytes: usize,
}

impl<K: Eq + Hash, F: CachedCode> FunctionCache<K, F> {
    /// An empty cache for at most `budget_bytes` of memory.
    #[must_use]
    pub fn new(budget_bytes: usize) -> Self {
        Self {
            functions: LruCache::unbounded(),
            texts: SharedTexts::default(),
            function_bytes: 0,
            budget_bytes,
        }
    }

    /// The bytes of memory that an entry takes, without its shared text.
    #[must_use]
    pub fn entry_bytes(function: Option<&F>) -> usize {
        // A node of the list, and a slot of the map with its pointers and control byte, of which 7/16 to 7/8 are in use.
        let node = size_of::<(K, Option<F>, [usize; 2])>() + BLOCK_BYTES;
        let slot = (2 * size_of::<usize>() + 1) * 16 / 7;
        // Its two blocks are the name and the lines.
        node + slot + function.map_or(0, |function| 2 * BLOCK_BYTES + function.heap_bytes())
    }

    /// The bytes of memory that all entries take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.function_bytes + self.texts.bytes()
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
    pub fn get(&mut self, key: &K) -> Option<Option<&F>> {
        self.functions.get(key).map(Option::as_ref)
    }

    /// Adds a function, or that it can't be named. Returns how many others were forgotten for it: an eighth of the budget at
    /// once, so that this is rare.
    pub fn insert(&mut self, key: K, mut function: Option<F>) -> usize {
        if let Some(previous) = self.functions.pop(&key) {
            self.removed(previous);
        }
        if let Some(function) = &mut function {
            self.texts.share(function);
        }
        self.function_bytes += Self::entry_bytes(function.as_ref());
        let forgotten = self.forget_oldest();
        if self.bytes() <= self.budget_bytes {
            self.functions.put(key, function);
        } else {
            self.removed(function);
        }
        forgotten
    }

    /// Sets the budget. Returns how many functions were forgotten for it.
    pub fn set_budget(&mut self, bytes: usize) -> usize {
        self.budget_bytes = bytes;
        self.forget_oldest()
    }

    /// Forgets functions if they don't fit. Returns how many.
    fn forget_oldest(&mut self) -> usize {
        let mut forgotten = 0;
        if self.bytes() > self.budget_bytes {
            let kept_bytes = self.budget_bytes - self.budget_bytes / FREED_SHARE;
            while self.bytes() > kept_bytes
                && let Some((_, oldest)) = self.functions.pop_lru()
            {
                self.removed(oldest);
                forgotten += 1;
            }
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
                self.removed(function);
            }
        }
    }

    /// Subtracts a function that is not kept any more.
    fn removed(&mut self, function: Option<F>) {
        self.function_bytes -= Self::entry_bytes(function.as_ref());
        if let Some(function) = function {
            self.texts.release(function);
        }
    }
}
