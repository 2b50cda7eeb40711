//! x86-64: where a loop's code has not made the frame that it was called with the thread's current one, or has already made
//! the caller's the current one again.
//!
//! Compilers keep the two assignments on a straight path, from the function's entry and to its return. If the current frame is
//! in a structure on the stack, only the first counts: the thread's state points to the structure before it is written.

use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

use super::super::FrameLink;

/// Instructions between the entry and the first assignment.
const ENTRY_INSTRUCTIONS_MAX: usize = 64;
/// Instructions between the load of a caller's frame and its assignment.
const ASSIGNMENT_INSTRUCTIONS_MAX: usize = 16;
/// Instructions between the last assignment and the return.
const RETURN_INSTRUCTIONS_MAX: usize = 32;

/// A part of a function: its address, and its code.
pub(crate) type CodePart = (u64, Vec<u8>);

/// The code of a function whose entry is the start of the first part: from there to the first assignment, and from each
/// assignment of a caller's frame that is followed by a return. Empty if either isn't found. Sorted and disjoint.
pub(crate) fn unlinked_code(parts: &[CodePart], link: FrameLink) -> Vec<Range<u64>> {
    let Some((entry, _)) = parts.first() else { return Vec::new() };
    if let Some(cframe) = link.cframe {
        let mut written = CFrameWritten::default();
        let is_written =
            |instruction: &Instruction| written.is_complete(instruction, cframe, link.current_frame);
        return straight_path(parts, *entry, ENTRY_INSTRUCTIONS_MAX, is_written).unwrap_or_default();
    }
    let is_link = |instruction: &Instruction| stored(instruction, link.current_frame).is_some();
    let Some(mut ranges) = straight_path(parts, *entry, ENTRY_INSTRUCTIONS_MAX, is_link) else {
        return Vec::new();
    };
    let to_return: Vec<_> = parts
        .iter()
        .flat_map(|part| unlinks(part, link))
        .filter_map(|from| {
            straight_path(parts, from, RETURN_INSTRUCTIONS_MAX, |instruction| {
                instruction.flow_control() == FlowControl::Return
            })
        })
        .flatten()
        .collect();
    if to_return.is_empty() {
        return Vec::new();
    }
    ranges.extend(to_return);
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut disjoint: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match disjoint.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => disjoint.push(range),
        }
    }
    disjoint
}

/// The code from an address to an instruction at which it `ends`, that one included, if no conditional branch is taken. Code
/// that jumps to another function ends there. `None` if it doesn't end within so many instructions.
fn straight_path(
    parts: &[CodePart],
    from: u64,
    instructions_max: usize,
    mut ends: impl FnMut(&Instruction) -> bool,
) -> Option<Vec<Range<u64>>> {
    let (mut start, mut ranges) = (from, Vec::new());
    let mut decoder = decoder(parts, from)?;
    for _ in 0..instructions_max {
        let instruction = decoder.iter().next()?;
        let end = instruction.next_ip();
        if ends(&instruction) {
            ranges.push(start..end);
            return Some(ranges);
        }
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => {
                ranges.push(start..end);
                start = instruction.near_branch_target();
                match self::decoder(parts, start) {
                    Some(next) => decoder = next,
                    None => return Some(ranges),
                }
            }
            FlowControl::Next
            | FlowControl::Call
            | FlowControl::IndirectCall
            | FlowControl::ConditionalBranch => {}
            _ => return None,
        }
    }
    None
}

pub(super) fn decoder(parts: &[CodePart], at: u64) -> Option<Decoder<'_>> {
    let (start, code) = parts.iter().find(|(start, code)| at.wrapping_sub(*start) < code.len() as u64)?;
    let code = code.get(usize::try_from(at - start).ok()?..)?;
    Some(Decoder::with_ip(64, code, at, DecoderOptions::NONE))
}

/// What is known of a structure on the stack to which a thread's state is made to point.
#[derive(Default)]
struct CFrameWritten {
    /// Registers with addresses on the stack: a base register, and an offset.
    addresses: Vec<(Register, Register, u64)>,
    /// The structure's address.
    cframe: Option<(Register, u64)>,
    /// Parts of the stack that were written: a base register, an offset, and a length.
    writes: Vec<(Register, u64, u64)>,
}

impl CFrameWritten {
    /// Whether, after one more instruction, the state points to the structure and the current frame is written.
    fn is_complete(&mut self, instruction: &Instruction, cframe: u16, current_frame: u16) -> bool {
        let (base, offset) = (instruction.memory_base(), instruction.memory_displacement64());
        let is_on_stack =
            matches!(base, Register::RSP | Register::RBP) && instruction.memory_index() == Register::None;
        if is_on_stack && instruction.mnemonic() == Mnemonic::Lea {
            self.addresses.push((instruction.op0_register(), base, offset));
        } else if is_on_stack && instruction.op0_kind() == OpKind::Memory {
            self.writes.push((base, offset, instruction.memory_size().size() as u64));
        }
        if let Some((value, _)) = stored(instruction, cframe) {
            let address = self.addresses.iter().rfind(|(register, ..)| *register == value);
            self.cframe = self.cframe.or(address.map(|(_, base, offset)| (*base, *offset)));
        }
        let Some((base, offset)) = self.cframe else { return false };
        let field = offset.wrapping_add(current_frame.into());
        self.writes.iter().any(|(of, start, bytes)| *of == base && field.wrapping_sub(*start) < *bytes)
    }
}

/// The addresses behind each assignment of a caller's frame: a load of it from a frame, and a store into another structure.
fn unlinks((start, code): &CodePart, link: FrameLink) -> Vec<u64> {
    let mut found = Vec::new();
    // For each register that contains a caller's frame: how many instructions ago it was loaded, and from where.
    let mut loaded: Vec<(Register, usize, Register)> = Vec::new();
    for (number, instruction) in Decoder::with_ip(64, code, *start, DecoderOptions::NONE).iter().enumerate() {
        loaded.retain(|(_, at, _)| number - at <= ASSIGNMENT_INSTRUCTIONS_MAX);
        if let Some((value, state)) = stored(&instruction, link.current_frame)
            && loaded.iter().any(|(register, _, frame)| *register == value && *frame != state)
        {
            found.push(instruction.next_ip());
        }
        if !matches!(instruction.flow_control(), FlowControl::Next | FlowControl::ConditionalBranch) {
            loaded.clear();
        }
        if instruction.op0_kind() == OpKind::Register && instruction.mnemonic() != Mnemonic::Cmp {
            let written = instruction.op0_register().full_register();
            loaded.retain(|(register, _, frame)| *register != written && *frame != written);
        }
        if instruction.code() == Code::Mov_r64_rm64
            && let Some(frame) = field_of(&instruction, link.previous)
        {
            loaded.push((instruction.op0_register(), number, frame));
        }
    }
    found
}

/// The register that is stored into a field, and the register that points to the structure.
pub(super) fn stored(instruction: &Instruction, offset: u16) -> Option<(Register, Register)> {
    let structure = field_of(instruction, offset).filter(|_| instruction.code() == Code::Mov_rm64_r64)?;
    Some((instruction.op1_register(), structure))
}

/// The register that points to a structure, if the instruction's operand is a field of it at this offset.
fn field_of(instruction: &Instruction, offset: u16) -> Option<Register> {
    let base = instruction.memory_base();
    let is_field = [instruction.op0_kind(), instruction.op1_kind()].contains(&OpKind::Memory)
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == u64::from(offset)
        && instruction.segment_prefix() == Register::None;
    (is_field && base.is_gpr64() && base != Register::RSP).then_some(base)
}
