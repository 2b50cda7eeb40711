//! The functions of compiled code that were read last.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;

use super::text::Object;
use crate::cpython::Function;

/// The functions of a process that are kept, and their memory.
const FUNCTIONS_MAX: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const BYTES_MAX: usize = 512 << 10;

/// A function without the lines of its bytecode.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) cookie: u32,
    pub(super) function: Arc<Function>,
}

impl Named {
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Function>() + self.function.heap_bytes()
    }
}

/// Functions by their object and their cookie, as far as they were needed last.
#[derive(Debug)]
pub(super) struct NamedFunctions(Mutex<Known>);

#[derive(Debug)]
struct Known {
    functions: LruCache<(Object, u32), Arc<Named>>,
    bytes: usize,
}

impl Default for NamedFunctions {
    fn default() -> Self {
        Self(Mutex::new(Known { functions: LruCache::new(FUNCTIONS_MAX), bytes: 0 }))
    }
}

impl NamedFunctions {
    pub(super) fn get(&self, shared: Object, cookie: u32) -> Option<Arc<Named>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).functions.get(&(shared, cookie)).cloned()
    }

    pub(super) fn add(&self, shared: Object, named: Named) -> Arc<Named> {
        let named = Arc::new(named);
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.bytes += named.bytes();
        if let Some((_, replaced)) = known.functions.push((shared, named.cookie), Arc::clone(&named)) {
            known.bytes -= replaced.bytes();
        }
        while known.bytes > BYTES_MAX && known.functions.len() > 1 {
            let Some((_, oldest)) = known.functions.pop_lru() else { break };
            known.bytes -= oldest.bytes();
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_address::Avma;

    use super::*;

    #[test]
    fn the_functions_that_were_needed_last_are_kept() {
        let functions = NamedFunctions::default();
        let name = "x".repeat(1 << 10);
        for number in 0..2_000_u32 {
            let function = Function::new(name.as_str().into(), "".into(), 1, None);
            let named = Named { cookie: number, function: Arc::new(function) };
            functions.add(Object::at(Avma(8 * u64::from(number))), named);
        }
        let has = |number: u32| functions.get(Object::at(Avma(8 * u64::from(number))), number).is_some();
        assert!(has(1_999) && has(1_700) && !has(1_000));
        assert!(functions.get(Object::at(Avma(8 * 1_999)), 0).is_none());
        let known = functions.0.lock().unwrap();
        let bytes: usize = known.functions.iter().map(|(_, named)| named.bytes()).sum();
        assert_eq!(known.bytes, bytes);
        assert!(bytes <= BYTES_MAX);
    }
}
