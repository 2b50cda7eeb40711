//! The functions of compiled code that were read last.

use std::num::NonZeroUsize;
use std::sync::Arc;

use sidewinder_vm_runtime::Function;
use sidewinder_vm_runtime::recent::{MemorySize, Recent};

use super::text::Object;

/// The functions of a process that are kept, and their memory.
const FUNCTIONS_MAX: NonZeroUsize = NonZeroUsize::new(1024).unwrap();
const BYTES_MAX: usize = 512 << 10;

/// A function without the lines of its bytecode.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) cookie: u32,
    pub(super) function: Arc<Function>,
}

impl MemorySize for Named {
    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of::<Function>() + self.function.heap_bytes()
    }
}

/// Functions by their object and their cookie, as far as they were needed last.
#[derive(Debug)]
pub(super) struct RecentFunctions(Recent<(Object, u32), Named>);

impl Default for RecentFunctions {
    fn default() -> Self {
        Self(Recent::new(FUNCTIONS_MAX, BYTES_MAX))
    }
}

impl RecentFunctions {
    pub(super) fn get(&self, shared: Object, cookie: u32) -> Option<Arc<Named>> {
        self.0.get(&(shared, cookie))
    }

    pub(super) fn add(&self, shared: Object, named: Named) -> Arc<Named> {
        self.0.add((shared, named.cookie), named)
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_address::Avma;

    use super::*;

    #[test]
    fn the_functions_that_were_needed_last_are_kept() {
        let functions = RecentFunctions::default();
        let name = "x".repeat(1 << 10);
        for number in 0..2_000_u32 {
            let function = Function::new(name.as_str().into(), "".into(), 1, None);
            let named = Named { cookie: number, function: Arc::new(function) };
            functions.add(Object::at(Avma(8 * u64::from(number))), named);
        }
        let has = |number: u32| functions.get(Object::at(Avma(8 * u64::from(number))), number).is_some();
        assert!(has(1_999) && has(1_700) && !has(1_000));
        assert!(functions.get(Object::at(Avma(8 * 1_999)), 0).is_none());
        let known = functions.0.lock();
        let bytes: usize = known.values.iter().map(|(_, named)| named.bytes()).sum();
        assert_eq!(known.bytes, bytes);
        assert!(bytes <= BYTES_MAX);
    }
}
