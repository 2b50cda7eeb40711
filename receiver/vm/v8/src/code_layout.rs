//! Where objects of machine code have what leads to the functions in them.

use super::constants::{Constants, OFFSET_MAX};

const STREAM_TYPE: &[u8] = b"v8dbg_type_InstructionStream__INSTRUCTION_STREAM_TYPE";
const STREAM_START: &[u8] = b"v8dbg_class_InstructionStream__instruction_start__uintptr_t";
const CODE_TYPE: &[u8] = b"v8dbg_type_Code__CODE_TYPE";
/// A pointer (since V8 12), or where the instructions begin in the `Code` itself (V8 10).
const CODE_START: &[u8] = b"v8dbg_class_Code__instruction_start__Address";
const OWN_START: &[u8] = b"v8dbg_class_Code__instruction_start__uintptr_t";
const CODE_SIZE: &[u8] = b"v8dbg_class_Code__instruction_size__int";
const CODE_WRAPPER: &[u8] = b"v8dbg_class_Code__wrapper__Tagged_CodeWrapper_";
const CODE_POSITIONS: &[u8] = b"v8dbg_class_Code__source_position_table__ByteArray";
const INLINED_COUNT: &[u8] = b"v8dbg_DeoptimizationDataInlinedFunctionCountIndex";
const LITERALS: &[u8] = b"v8dbg_DeoptimizationDataLiteralArrayIndex";
const FUNCTION: &[u8] = b"v8dbg_DeoptimizationDataSharedFunctionInfoIndex";
const WRAPPED_FUNCTION: &[u8] = b"v8dbg_DeoptimizationDataWrappedSharedFunctionInfoIndex";
const INLININGS: &[u8] = b"v8dbg_DeoptimizationDataInliningPositionsIndex";
const WRAPPER_TYPE: &[u8] = b"v8dbg_type_SharedFunctionInfoWrapper__SHARED_FUNCTION_INFO_WRAPPER_TYPE";
const WRAPPER_FUNCTION: &[u8] =
    b"v8dbg_class_SharedFunctionInfoWrapper__shared_info__Tagged_SharedFunctionInfo_";
const ARRAY_TYPES: [&[u8]; 5] = [
    b"v8dbg_type_FixedArray__FIXED_ARRAY_TYPE",
    b"v8dbg_type_TrustedFixedArray__TRUSTED_FIXED_ARRAY_TYPE",
    b"v8dbg_type_ProtectedFixedArray__PROTECTED_FIXED_ARRAY_TYPE",
    b"v8dbg_type_WeakFixedArray__WEAK_FIXED_ARRAY_TYPE",
    b"v8dbg_type_TrustedWeakFixedArray__TRUSTED_WEAK_FIXED_ARRAY_TYPE",
];
/// Constants that not all versions have.
pub(super) const CODE_NAMES: [&[u8]; 19] = [
    STREAM_TYPE,
    STREAM_START,
    CODE_TYPE,
    CODE_START,
    OWN_START,
    CODE_SIZE,
    CODE_WRAPPER,
    CODE_POSITIONS,
    INLINED_COUNT,
    LITERALS,
    FUNCTION,
    WRAPPED_FUNCTION,
    INLININGS,
    WRAPPER_TYPE,
    WRAPPER_FUNCTION,
    ARRAY_TYPES[1],
    ARRAY_TYPES[2],
    ARRAY_TYPES[3],
    ARRAY_TYPES[4],
];
/// Elements of the deoptimization data, as V8 10 has them without saying so.
const INLINED_COUNT_INDEX: u16 = 1;
const LITERALS_INDEX: u16 = 2;
const FUNCTION_INDEX: u16 = 6;
const INLININGS_INDEX: u16 = 7;
/// Elements of the deoptimization data are below this.
pub(super) const INDEX_MAX: u16 = 15;

/// The layout of objects of machine code: offsets of fields, in bytes, numbers of types, and indices in the deoptimization data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CodeLayout {
    /// The type of the object that contains the instructions: an `InstructionStream`, or in V8 10 the `Code` itself.
    pub stream_type: u16,
    /// In it: its first instruction.
    pub instructions: u16,
    /// The type of the `Code` that describes it. The stream's first field refers to that, unless it is the `Code` itself.
    pub code_type: u16,
    /// In a `Code`: the address of its first instruction; `None` if they are in itself.
    pub start: Option<u16>,
    /// In a `Code`: the bytes of its instructions.
    pub size: u16,
    /// In a `Code`: its deoptimization data.
    pub deoptimization: u16,
    /// In a `Code`: the positions of its instructions in the source.
    pub positions: u16,
    /// The types of arrays.
    pub array_types: [u16; 5],
    /// In the deoptimization data: how many inlined functions are the first of its literals.
    pub inlined_count: u16,
    /// In the deoptimization data: its literals.
    pub literals: u16,
    /// In the deoptimization data: the function, or since V8 13 a wrapper of it.
    pub function: u16,
    /// In the deoptimization data: the inlined calls. What follows is the offset of the first code that only deoptimizes.
    pub inlinings: u16,
    /// The type of the function's wrapper, and its field.
    pub wrapper: Option<(u16, u16)>,
}

impl CodeLayout {
    /// `None`: a constant is missing.
    pub(super) fn from_constants(constants: &Constants) -> Option<Self> {
        let get = |name: &[u8]| constants.any(&[name]);
        let code_type = get(CODE_TYPE)?;
        let (stream_type, instructions) = match get(STREAM_TYPE) {
            Some(kind) => (kind, get(STREAM_START)?),
            None => (code_type, get(OWN_START)?),
        };
        // The table of positions is followed by a wrapper and two references, or in V8 11 by one, or in V8 10 by the container
        // of what changes. The deoptimization data is before it.
        let (positions, start, size) = match (get(CODE_WRAPPER), get(CODE_POSITIONS)) {
            (Some(wrapper), _) => (wrapper.checked_sub(8)?, Some(get(CODE_START)?), get(CODE_SIZE)?),
            (None, Some(positions)) => (positions, Some(positions + 16), positions + 32),
            (None, None) => (get(CODE_SIZE)?.checked_sub(16)?, None, get(CODE_SIZE)?),
        };
        let found = Self {
            stream_type,
            instructions,
            code_type,
            start,
            size,
            deoptimization: positions.checked_sub(8)?,
            positions,
            array_types: ARRAY_TYPES.map(|name| get(name).unwrap_or(u16::MAX)),
            inlined_count: get(INLINED_COUNT).unwrap_or(INLINED_COUNT_INDEX),
            literals: get(LITERALS).unwrap_or(LITERALS_INDEX),
            function: constants.any(&[WRAPPED_FUNCTION, FUNCTION]).unwrap_or(FUNCTION_INDEX),
            inlinings: get(INLININGS).unwrap_or(INLININGS_INDEX),
            wrapper: get(WRAPPER_TYPE).zip(get(WRAPPER_FUNCTION)),
        };
        let offsets = [found.size, found.positions, found.start.unwrap_or(0)];
        let indices = [found.inlined_count, found.literals, found.function, found.inlinings];
        let is_near = offsets.into_iter().all(|offset| offset <= OFFSET_MAX)
            && indices.into_iter().all(|index| index < INDEX_MAX)
            && instructions <= 2 * OFFSET_MAX;
        is_near.then_some(found)
    }
}
