//! What a `ScopeInfo` says of a function: its name, the name that the parser has inferred, and its position in the source.

use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::layout::ObjectLayout;
use super::text::{Heap, Object, TaggedWord};

/// Context variables of one scope that are skipped at most.
const VARIABLES_MAX: u64 = 1 << 16;
/// From this many variables on, their names are in a table of their own.
const INLINED_NAMES_MAX: u64 = 75;
/// The flags; a number, or since V8 13 an integer in the place of its lower half.
const FLAGS: u64 = 8;
const VARIABLES: u16 = 24;
const FIXED_POSITION: u16 = 32;

/// What precedes the name.
const HAS_CLASS_VARIABLE: u32 = 1 << 10;
/// Whether there is a place for the name: two bits.
const HAS_NAME: u32 = 3 << 12;
const HAS_INFERRED_NAME: u32 = 1 << 14;

/// What a scope says.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct ScopeInfo {
    pub(super) name: Option<Object>,
    pub(super) inferred_name: Option<Object>,
    /// Where the parameters of the function begin, in characters.
    pub(super) position: Option<i32>,
}

impl ScopeInfo {
    pub(super) fn read(heap: &Heap<'_, impl ForeignMemory>, scope: Object) -> Result<Self, FunctionError> {
        let layout: &ObjectLayout = heap.layout;
        let word = heap.memory.word(scope.address(FLAGS)?)?;
        let flags = if layout.has_fixed_positions { word as u32 } else { (word >> 32) as u32 };
        let variables = heap.value(scope, VARIABLES)?.number().and_then(|count| u64::try_from(count).ok());
        let variables = variables.filter(|count| *count <= VARIABLES_MAX);
        let variables = variables.ok_or(FunctionError::Malformed("a scope of too many variables"))?;
        let names = if variables < INLINED_NAMES_MAX { variables } else { 1 };
        let mut next = u64::from(layout.scope_variables) + 8 * (names + variables);
        let mut take = || -> Result<TaggedWord, FunctionError> {
            let value = TaggedWord::from_word(heap.memory.word(scope.address(next)?)?);
            next += 8;
            Ok(value)
        };
        let mut found = Self::default();
        let string = |value: TaggedWord| match value {
            TaggedWord::Object(object) if heap.is_string(object)? => Ok(Some(object)),
            _ => Ok::<_, FunctionError>(None),
        };
        if flags & HAS_CLASS_VARIABLE != 0 {
            take()?;
        }
        if flags & HAS_NAME != 0 {
            found.name = string(take()?)?;
            take()?;
        }
        if flags & HAS_INFERRED_NAME != 0 {
            found.inferred_name = string(take()?)?;
        }
        found.position = if layout.has_fixed_positions {
            heap.value(scope, FIXED_POSITION)?.number()
        } else {
            take()?.number()
        };
        Ok(found)
    }
}
