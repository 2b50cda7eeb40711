//! What frames of runtimes execute.

use std::collections::HashSet;
use std::sync::Arc;

use crate::{CachedCode, Function, SharedTexts};

/// What a frame of a runtime executes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Code {
    /// A function, with the lines of all its instructions.
    Function(Function),
    /// One instruction of compiled code: the innermost function that it belongs to, and those into which the compiler has put
    /// that. At least one.
    Compiled(Box<[CompiledCall]>),
}

/// A function at an instruction of compiled code.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompiledCall {
    /// The function, without lines.
    pub function: Arc<Function>,
    /// The line, from 1; 0 if it is unknown.
    pub line: u32,
}

impl CachedCode for Code {
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Function(function) => function.heap_bytes(),
            // The functions are those of others, too.
            Self::Compiled(calls) => size_of_val(&**calls),
        }
    }

    fn shared_text(&mut self) -> Option<&mut Arc<str>> {
        match self {
            Self::Function(function) => function.shared_text(),
            Self::Compiled(_) => None,
        }
    }
}

/// Functions that many instructions of compiled code have in common, each once.
#[derive(Default, Debug)]
pub struct SharedFunctions {
    functions: HashSet<Arc<Function>>,
    texts: SharedTexts,
    /// Without the shared texts.
    function_bytes: usize,
}

impl SharedFunctions {
    /// Makes the functions of a code shared ones.
    pub fn share(&mut self, code: &mut Code) {
        let Code::Compiled(calls) = code else { return };
        for call in calls {
            if let Some(known) = self.functions.get(&call.function) {
                call.function = Arc::clone(known);
            } else {
                self.texts.share(Arc::make_mut(&mut call.function));
                self.function_bytes += Self::entry_bytes(&call.function);
                self.functions.insert(Arc::clone(&call.function));
            }
        }
    }

    /// The bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.function_bytes + self.texts.bytes()
    }

    /// Forgets those that no code has any more.
    pub fn forget_unused(&mut self) {
        let is_unused = |function: &Arc<Function>| Arc::strong_count(function) == 1;
        for function in self.functions.extract_if(is_unused).filter_map(Arc::into_inner) {
            self.function_bytes -= Self::entry_bytes(&function);
            self.texts.release(function);
        }
    }

    /// Without the shared texts. With counts of references, and what an allocator adds to the two blocks; a slot of the set, of which 7/16 to 7/8 are in use.
    fn entry_bytes(function: &Function) -> usize {
        let slot = (size_of::<usize>() + 1) * 16 / 7;
        size_of::<Function>() + 2 * size_of::<usize>() + 2 * 16 + slot + function.heap_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compiled(names: &[&str]) -> Code {
        let call = |name: &&str| {
            let function = Function::new((*name).into(), "path".into(), 1, None);
            CompiledCall { function: Arc::new(function), line: 2 }
        };
        Code::Compiled(names.iter().map(call).collect())
    }

    #[test]
    fn equal_functions_are_kept_once_and_as_long_as_they_are_used() {
        let mut shared = SharedFunctions::default();
        let (mut one, mut two) = (compiled(&["a", "b"]), compiled(&["b", "c"]));
        shared.share(&mut one);
        let before = shared.bytes();
        shared.share(&mut two);
        let (Code::Compiled(first), Code::Compiled(second)) = (&one, &two) else { panic!("compiled") };
        assert!(Arc::ptr_eq(&first[1].function, &second[0].function));
        // The third has the path of the others.
        let path = SharedTexts::entry_bytes("path");
        assert_eq!(2 * (shared.bytes() - path), 3 * (before - path));
        drop(one);
        shared.forget_unused();
        assert_eq!(shared.bytes(), before);
        drop(two);
        shared.forget_unused();
        assert_eq!(shared.bytes(), 0);
    }
}
