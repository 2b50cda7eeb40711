//! Where GCC's unwinder passes control to the handler of an exception.
//!
//! A function such as `_Unwind_RaiseException` then overwrites the words in which its own frame has saved registers, the return
//! address among them, with what the handler's frame is to find in them, and restores these as if it returned. Its unwind
//! information goes on to state where its own registers were. But it has begun by filling in a description of its caller,
//! whose return address it keeps.
//!
//! Source: GCC, `libgcc/unwind-dw2.c`, `uw_init_context` and `uw_install_context`.

use std::ops::Range;

use sidewinder_unwind_table::{Cfa, Register, ReturnAddress, Rule, SavedRegister};

use super::branch::{Next, is_return};
use super::fields::{LINK, STACK_POINTER, base, first, moved, sum};
use super::instructions;
use super::writes::{is_call, may_write};

/// A `struct _Unwind_Context` of GCC 8 and later: the places of 98 registers, the canonical frame address, the return address,
/// and more.
const CONTEXT_BYTES: i32 = 0x3c0;
const CFA_AT: i32 = 98 * 8;
const RETURN_ADDRESS_AT: i32 = CFA_AT + 8;

/// Instructions from the call that overwrites the words to the loads of what the handler is entered with, and between these.
const DISTANCE_MAX: usize = 4;
/// Jumps on the way from there to the end of the frame.
const JUMPS_MAX: usize = 4;

/// What a register is known to hold.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Value {
    /// The stack pointer and a distance.
    Stack(i32),
    ReturnAddress,
}

/// The parts of a function, by offsets of bytes in it, in which its frame may already have been overwritten, and the rule there.
/// The caller's frame pointer is lost.
pub(crate) fn hand_over(function: &[u8]) -> Option<(Vec<Range<u32>>, Rule)> {
    let words: Vec<u32> = instructions(function).collect();
    let (described, frame_bytes, context) = describe_caller(&words)?;
    let install = install_call(&words, described, context.checked_add(CONTEXT_BYTES)?)?;
    let rule = Rule {
        cfa: Cfa::Register { register: Register::Sp, offset: frame_bytes },
        frame_pointer: SavedRegister::Undefined,
        return_address: ReturnAddress::At {
            register: Register::Sp,
            offset: context.checked_add(RETURN_ADDRESS_AT)?,
        },
        ..super::linkage::LEAF
    };
    Some((to_the_frames_end(&words, install)?, rule))
}

/// The first call of a function, if it passes a structure in the frame, the canonical frame address and the return address: the
/// number of its instruction, the size of the frame, and where the structure is above the stack pointer.
fn describe_caller(words: &[u32]) -> Option<(usize, i32, i32)> {
    let mut registers = [None; 31];
    *registers.get_mut(LINK as usize)? = Some(Value::ReturnAddress);
    let mut frame_bytes = 0_i32;
    for (at, word) in words.iter().enumerate() {
        if is_call(*word) {
            let [Some(Value::Stack(context)), cfa, Some(Value::ReturnAddress), ..] = registers else {
                return None;
            };
            return (cfa == Some(Value::Stack(frame_bytes))).then_some((at, frame_bytes, context));
        }
        let next = Next::of(*word);
        if !next.falls_through || next.branch.is_some() {
            return None;
        }
        if let Some((STACK_POINTER, STACK_POINTER, addend)) = sum(*word) {
            frame_bytes = frame_bytes.checked_sub(addend)?;
            continue;
        }
        if may_write(*word, STACK_POINTER) {
            return None;
        }
        let value = match (sum(*word), moved(*word)) {
            (Some((_, STACK_POINTER, distance)), _) => Some(Value::Stack(distance)),
            (_, Some(from)) => registers.get(from as usize).copied().flatten(),
            _ => None,
        };
        for (register, held) in (0..).zip(&mut registers) {
            if may_write(*word, register) {
                *held = value;
            }
        }
    }
    None
}

/// The offset from the stack pointer of a word that `ldr` loads.
fn loaded(word: u32) -> Option<i32> {
    let is_load =
        word & 0xffc0_0000 == 0xf940_0000 && base(word) == STACK_POINTER && first(word) != STACK_POINTER;
    is_load.then(|| i32::try_from((word >> 10 & 0xfff) * 8).ok()).flatten()
}

/// The call after which a function loads both the canonical frame address and the return address of a context.
fn install_call(words: &[u32], from: usize, context: i32) -> Option<usize> {
    let is_load_of =
        |at: usize, offset| words.get(at).copied().and_then(loaded) == context.checked_add(offset);
    let loads_both = |at: &usize| {
        let nearby = at.saturating_sub(DISTANCE_MAX)..=at.saturating_add(DISTANCE_MAX);
        is_load_of(*at, CFA_AT) && nearby.clone().any(|other| is_load_of(other, RETURN_ADDRESS_AT))
    };
    let at = (from..words.len()).find(loads_both)?;
    (at.saturating_sub(2 * DISTANCE_MAX).max(from + 1)..at)
        .rev()
        .find(|before| words.get(*before).is_some_and(|word| is_call(*word)))
}

/// From an instruction on to the end of the frame, which is where the stack pointer is moved.
fn to_the_frames_end(words: &[u32], from: usize) -> Option<Vec<Range<u32>>> {
    let bytes = |at: usize| u32::try_from(at * 4).ok();
    let mut parts = Vec::new();
    let (mut start, mut at) = (from, from);
    loop {
        let word = *words.get(at)?;
        if matches!(sum(word), Some((STACK_POINTER, STACK_POINTER, _))) {
            parts.push(bytes(start)?..bytes(at + 1)?);
            parts.sort_unstable_by_key(|part| part.start);
            return Some(parts);
        }
        let next = Next::of(word);
        if is_return(word) {
            return None;
        }
        if !next.falls_through {
            let target = at.checked_add_signed(isize::try_from(next.branch?).ok()?)?;
            if !(start..=at).contains(&target) {
                parts.push(bytes(start)?..bytes(at + 1)?);
                if parts.len() > JUMPS_MAX {
                    return None;
                }
                (start, at) = (target, target);
                continue;
            }
        }
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMCPY: u32 = 0x97ff_d041;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    /// `_Unwind_ForcedUnwind` of GCC 12, without most of the saved registers.
    const FORCED: [u32; 24] = [
        0xd121_43ff, // sub sp, sp, #0x850
        0xa900_7bfd, // stp x29, x30, [sp]
        0x9100_03fd, // mov x29, sp
        0xd503_20ff, // xpaclri
        0x9103_43f6, // add x22, sp, #0xd0
        0xaa16_03e0, // mov x0, x22
        0x9121_43e1, // add x1, sp, #0x850
        0xaa1e_03e2, // mov x2, x30
        MEMCPY,      // bl uw_init_context_1
        MEMCPY,      // bl _Unwind_ForcedUnwind_Phase2
        0x7100_1c1f, // cmp w0, #7
        0x5400_00a0, // b.eq 16
        0xa940_7bfd, // ldp x29, x30, [sp]
        0x9121_43ff, // add sp, sp, #0x850
        0x8b24_63ff, // add sp, sp, x4
        0xd65f_03c0, // ret
        0xaa16_03e0, // mov x0, x22
        MEMCPY,      // bl uw_install_context_1
        0xaa00_03e4, // mov x4, x0
        0xf943_d3e0, // ldr x0, [sp, #1952]
        0xf943_d7e1, // ldr x1, [sp, #1960]
        MEMCPY,      // bl _Unwind_DebugHook
        0xf900_07a1, // str x1, [x29, #8]
        0x17ff_fff5, // b 12
    ];

    #[test]
    fn from_the_call_that_overwrites_the_frame_to_its_end_the_kept_return_address_is_taken() {
        let (parts, rule) = hand_over(&bytes(&FORCED)).unwrap();
        assert_eq!(parts, [12 * 4..14 * 4, 17 * 4..24 * 4]);
        assert_eq!(rule.cfa, Cfa::Register { register: Register::Sp, offset: 0x850 });
        assert_eq!(rule.return_address, ReturnAddress::At { register: Register::Sp, offset: 0xd0 + 99 * 8 });
        assert_eq!(rule.frame_pointer, SavedRegister::Undefined);
    }

    #[test]
    fn a_function_that_does_anything_else_is_left_as_it_is() {
        let with = |at: usize, word: u32| {
            let mut words = FORCED;
            words[at] = word;
            hand_over(&bytes(&words))
        };
        assert_eq!(with(6, 0x9121_03e1), None, "passes another address than that of the frame's end");
        assert_eq!(with(7, 0xaa16_03e2), None, "passes no return address");
        assert_eq!(with(5, 0xaa13_03e0), None, "passes an unknown structure");
        assert_eq!(with(4, 0x5400_00a0), None, "branches before");
        assert_eq!(with(20, 0xf943_dbe1), None, "loads something else");
        assert_eq!(with(13, 0xd65f_03c0), None, "returns without the end of the frame");
        assert_eq!(with(23, 0x1400_00ff), None, "jumps elsewhere");
        assert_eq!(hand_over(&bytes(&FORCED[..12])), None);
        assert_eq!(hand_over(&[]), None);
    }
}
