//! The object of machine code around an instruction, and what that says of the instruction: the inlined calls there, or the bytecode
//! that it was compiled from.
//!
//! Nothing leads from an instruction to its object, but each object begins in front of its instructions, with its map.

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use super::bytecodes::BytecodeSizes;
use super::code_layout::{CodeLayout, INDEX_MAX};
use super::lines::{Position, position_at};
use super::text::{Heap, Object, TaggedWord};

/// Instructions begin at addresses that are multiples of this, in all versions.
const ALIGNMENT: u64 = 32;
/// How much is read at a time, aligned to it: a block lies in one page, whatever their size.
const BLOCK_BYTES: u64 = 4096;
/// How far before an instruction its object is looked for: compilers leave larger functions to the interpreter.
const OBJECT_BYTES_MAX: u64 = 1 << 20;
/// Words that look like a map before the right one.
const CANDIDATES_MAX: usize = 64;
/// The longest tables that are read, in bytes.
const POSITIONS_BYTES_MAX: usize = 256 << 10;
const INLININGS_BYTES_MAX: usize = 64 << 10;
const BYTECODES_BYTES_MAX: usize = 256 << 10;
/// A call is inlined in so many others at most.
const DEPTH_MAX: usize = 64;
/// Bytes of an inlined call: its position in the caller, and the index of its function.
const INLINING_BYTES: usize = 16;
/// Tells weak references from others.
const WEAK: u64 = 2;

/// An instruction of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct InstructionInFrame {
    pub(super) pc: Avma,
    /// Whether it is the one behind a call that is being made.
    pub(super) is_return_address: bool,
}

/// An object of machine code.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Compiled {
    /// Where its first instruction is.
    start: u64,
    bytes: u32,
    code: Object,
    /// Of its instructions.
    positions: Object,
    pub(super) compiler: Compiler,
}

/// Which compiler has made an object of machine code, and what it has left there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Compiler {
    /// The baseline compiler, from bytecode: nothing is inlined.
    Baseline { bytecode: Object },
    /// An optimizing compiler.
    Optimizing {
        deoptimization: Object,
        /// The function that was compiled.
        shared: Object,
        /// The offset of the first code that only leaves the function.
        exits: u32,
    },
}

/// An inlined call, or the function that was compiled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Inlined {
    pub(super) shared: Object,
    /// In characters, in its source.
    pub(super) position: Option<i32>,
}

impl Compiled {
    /// The object around an instruction; `None` if that is none of a function.
    pub(super) fn find(
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &CodeLayout,
        at: InstructionInFrame,
    ) -> Result<Option<Self>, FunctionError> {
        let pc = at.pc.0.saturating_sub(at.is_return_address.into());
        let Some(stream) = find_stream(heap, layout, pc)? else { return Ok(None) };
        let found = Self::read(heap, layout, stream)?;
        Ok(found.filter(|found| pc >= found.start && pc - found.start < u64::from(found.bytes)))
    }

    fn read(
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &CodeLayout,
        stream: Object,
    ) -> Result<Option<Self>, FunctionError> {
        let instructions = stream.address(layout.instructions.into())?.0;
        let code = match layout.start {
            Some(start) => {
                let code = heap.value(stream, 8)?.object()?;
                if heap.type_of(code)? != layout.code_type
                    || heap.memory.word(code.address(start.into())?)? != instructions
                {
                    return Ok(None);
                }
                code
            }
            None => stream,
        };
        let data = heap.value(code, layout.deoptimization)?.object()?;
        let positions = heap.value(code, layout.positions)?.object()?;
        if !heap.layout.byte_array_types.contains(&heap.type_of(positions)?) {
            return Ok(None);
        }
        let kind = heap.type_of(data)?;
        let compiler = if kind == heap.layout.bytecode_type {
            Compiler::Baseline { bytecode: data }
        } else if layout.array_types.contains(&kind)
            && length(heap, data)? > usize::from(layout.inlinings) + 1
        {
            let mut shared = element(heap, data, layout.function)?.object()?;
            if let Some((kind, field)) = layout.wrapper
                && heap.type_of(shared)? == kind
            {
                shared = heap.value(shared, field)?.object()?;
            }
            let exits = element(heap, data, layout.inlinings + 1)?.number();
            let exits = exits.and_then(|exits| u32::try_from(exits).ok()).unwrap_or(u32::MAX);
            Compiler::Optimizing { deoptimization: data, shared, exits }
        } else {
            return Ok(None);
        };
        let bytes = heap.u32(code, layout.size.into())?;
        Ok(Some(Self { start: instructions, bytes, code, positions, compiler }))
    }

    /// Whether the object is still there.
    pub(super) fn is_current(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &CodeLayout,
    ) -> Result<bool, FunctionError> {
        let stream = Object::at(Avma(self.start.wrapping_sub(layout.instructions.into())));
        Ok(heap.type_of(stream)? == layout.stream_type && Self::read(heap, layout, stream)? == Some(*self))
    }

    /// The offset of an instruction in the code.
    fn offset_of(&self, at: InstructionInFrame) -> u32 {
        let offset = at.pc.0.saturating_sub(at.is_return_address.into()).saturating_sub(self.start);
        u32::try_from(offset).unwrap_or(u32::MAX)
    }

    /// The offset of the bytecode that an instruction of the baseline compiler belongs to; `None`: to none.
    pub(super) fn bytecode_at(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        sizes: &BytecodeSizes,
        bytecode: Object,
        at: InstructionInFrame,
    ) -> Result<Option<u32>, FunctionError> {
        let (table, _) = read_bytes(heap, self.positions, POSITIONS_BYTES_MAX)?;
        let mut bytecodes = vec![0; length(heap, bytecode)?.min(BYTECODES_BYTES_MAX)];
        heap.memory.read_exact(bytecode.address(heap.layout.bytecodes.into())?, &mut bytecodes)?;
        Ok(sizes.offset_at(&table, &bytecodes, self.offset_of(at)))
    }

    /// The calls that are inlined in each other at an instruction of an optimizing compiler, the innermost first, and the function
    /// that was compiled.
    pub(super) fn calls_at(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &CodeLayout,
        at: InstructionInFrame,
    ) -> Result<Vec<Inlined>, FunctionError> {
        let Compiler::Optimizing { deoptimization, shared, exits } = self.compiler else {
            return Ok(Vec::new());
        };
        let (offset, own) = (self.offset_of(at), Inlined { shared, position: None });
        let (Some(form), false) = (heap.layout.position_form, offset >= exits) else { return Ok(vec![own]) };
        let (table, is_cut) = read_bytes(heap, self.positions, POSITIONS_BYTES_MAX)?;
        let Some(mut position) = position_at(&table, form, is_cut, offset) else { return Ok(vec![own]) };
        let (mut calls, mut inlinings, mut before) = (Vec::new(), None, usize::MAX);
        while let Some(index) = position.inlined_call() {
            // A call is inlined in one before it.
            if index >= before || calls.len() >= DEPTH_MAX {
                return Err(FunctionError::Malformed("an endless chain of inlined calls"));
            }
            before = index;
            let table = match &inlinings {
                Some(table) => table,
                None => inlinings.insert(Inlinings::read(heap, layout, deoptimization)?),
            };
            let (shared, caller) = table.get(heap, index)?;
            calls.push(Inlined { shared, position: position.in_source() });
            position = caller;
        }
        calls.push(Inlined { position: position.in_source(), ..own });
        Ok(calls)
    }
}

/// The inlined calls of a code.
struct Inlinings {
    bytes: Vec<u8>,
    literals: Object,
    functions: usize,
}

impl Inlinings {
    fn read(
        heap: &Heap<'_, impl ForeignMemory>,
        layout: &CodeLayout,
        deoptimization: Object,
    ) -> Result<Self, FunctionError> {
        let table = element(heap, deoptimization, layout.inlinings)?.object()?;
        let literals = element(heap, deoptimization, layout.literals)?.object()?;
        if !heap.layout.byte_array_types.contains(&heap.type_of(table)?)
            || !layout.array_types.contains(&heap.type_of(literals)?)
        {
            return Err(FunctionError::Malformed("no inlined calls"));
        }
        let count = element(heap, deoptimization, layout.inlined_count)?.number();
        let functions = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        Ok(Self {
            bytes: read_bytes(heap, table, INLININGS_BYTES_MAX)?.0,
            literals,
            functions: functions.min(length(heap, literals)?),
        })
    }

    /// The function of a call, and its position in its caller.
    fn get(
        &self,
        heap: &Heap<'_, impl ForeignMemory>,
        index: usize,
    ) -> Result<(Object, Position), FunctionError> {
        let missing = || FunctionError::Malformed("an inlined call that is missing");
        let start = index.saturating_mul(INLINING_BYTES);
        let entry = self.bytes.get(start..start.saturating_add(INLINING_BYTES)).ok_or_else(missing)?;
        let (position, rest) = entry.split_first_chunk().ok_or_else(missing)?;
        let function = usize::try_from(i32::from_le_bytes(*rest.first_chunk().ok_or_else(missing)?)).ok();
        let function = function.filter(|function| *function < self.functions).ok_or_else(missing)?;
        let literal = heap.memory.word(self.literals.address(16 + 8 * function as u64)?)?;
        let shared = TaggedWord::from_word(literal & !WEAK).object()?;
        Ok((shared, Position::from_raw(u64::from_le_bytes(*position))))
    }
}

/// The nearest object of instructions before an instruction.
fn find_stream(
    heap: &Heap<'_, impl ForeignMemory>,
    layout: &CodeLayout,
    pc: u64,
) -> Result<Option<Object>, FunctionError> {
    let Some(mut at) = (pc & !(ALIGNMENT - 1)).checked_sub(layout.instructions.into()) else {
        return Ok(None);
    };
    let (lowest, mut candidates, mut bytes) = (pc.saturating_sub(OBJECT_BYTES_MAX), 0, Vec::new());
    while at >= lowest.max(BLOCK_BYTES) {
        let block = at & !(BLOCK_BYTES - 1);
        bytes.resize((at - block) as usize + 8, 0);
        heap.memory.read_exact(Avma(block), &mut bytes)?;
        while at >= block {
            let word = bytes.get((at - block) as usize..).and_then(|rest| rest.first_chunk());
            let word = word.map_or(0, |word| u64::from_le_bytes(*word));
            if let TaggedWord::Object(map) = TaggedWord::from_word(word)
                && word >> 48 == 0
            {
                candidates += 1;
                if heap.type_of_map(map).is_ok_and(|kind| kind == layout.stream_type) {
                    return Ok(Some(Object::at(Avma(at))));
                }
                if candidates > CANDIDATES_MAX {
                    return Ok(None);
                }
            }
            let Some(before) = at.checked_sub(ALIGNMENT) else { return Ok(None) };
            at = before;
        }
    }
    Ok(None)
}

/// An element of the deoptimization data.
fn element(
    heap: &Heap<'_, impl ForeignMemory>,
    array: Object,
    index: u16,
) -> Result<TaggedWord, FunctionError> {
    heap.value(array, 16 + 8 * index.min(INDEX_MAX))
}

/// The number of elements of an array.
fn length(heap: &Heap<'_, impl ForeignMemory>, array: Object) -> Result<usize, FunctionError> {
    Ok(heap.value(array, 8)?.number().and_then(|length| usize::try_from(length).ok()).unwrap_or(0))
}

/// The content of an array of bytes, and whether it is longer than what was read.
pub(super) fn read_bytes(
    heap: &Heap<'_, impl ForeignMemory>,
    array: Object,
    bytes_max: usize,
) -> Result<(Vec<u8>, bool), FunctionError> {
    let length = length(heap, array)?;
    let mut bytes = vec![0; length.min(bytes_max)];
    heap.memory.read_exact(array.address(16)?, &mut bytes)?;
    Ok((bytes, length > bytes_max))
}
