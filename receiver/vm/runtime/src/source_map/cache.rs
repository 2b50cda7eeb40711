//! The maps that were needed last.

use std::fmt::Debug;
use std::hash::Hash;
use std::num::NonZeroUsize;
use std::sync::Arc;

use super::SourceMap;
use crate::recent::Recent;

/// The maps that are kept at most.
const MAPS_MAX: NonZeroUsize = NonZeroUsize::new(4096).unwrap();

/// Source maps in bounded memory: those that were needed the longest time ago are forgotten first.
#[derive(Debug)]
pub struct SourceMapCache<K: Debug + Eq + Hash>(Recent<K, SourceMap>);

impl<K: Debug + Eq + Hash> SourceMapCache<K> {
    /// A cache of so many bytes. It keeps one map at least.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self(Recent::new(MAPS_MAX, bytes_max))
    }

    /// A map that is in the cache.
    pub fn get(&self, key: &K) -> Option<Arc<SourceMap>> {
        self.0.get(key)
    }

    /// Adds a map.
    pub fn add(&self, key: K, map: SourceMap) {
        self.0.add(key, map);
    }
}
