//! The effect of one instruction on a frame, and the frame that a call leaves to the called function.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.1, "A64 instruction set encoding".

use sidewinder_unwind_table::{Architecture, Register};

use super::Instruction;
use super::access::Access;
use super::fields::{LINK, STACK_POINTER, base, constant, first, moved, register_sum, sum, third};
use super::writes::{is_call, may_write};
use crate::code::state::AbstractState;
use crate::code::value::{AbstractValue, Origin, SymbolicAddress};

const PACIASP: u32 = 0xd503_233f;
const PACIBSP: u32 = 0xd503_237f;

const ARCHITECTURE: Architecture = Architecture::Aarch64;

/// The most bytes that a vector store of structures writes: `st4` of whole registers.
const STRUCTURES_BYTES: i32 = 64;
/// The most that other stores without a [constant distance](Access) write: `stxp`.
const PAIR_BYTES: i32 = 16;

impl Instruction {
    /// Applies an instruction after which execution continues with the next one.
    pub(crate) fn step(&self, state: &mut AbstractState) {
        let word = self.word;
        // A loop that touches each page of a new frame has ended.
        if is_jump_if_unequal(word)
            && let Some(register) = state.compared
        {
            let value = state.get(register);
            set(state, STACK_POINTER, value);
        }
        if is_call(word) {
            state.after_call();
        } else if let Some(access) = Access::of(word) {
            step_access(&access, state);
        } else if let Some((to, from, addend)) = sum_in(word, state) {
            set(state, to, sum_value(get(state, from), addend));
        } else if let Some((to, value)) = constant_value(word, state) {
            set_unless_zero(state, to, value);
        } else if let Some(from) = moved(word) {
            let value = if from == STACK_POINTER { AbstractValue::Other } else { get(state, from) };
            set_unless_zero(state, first(word), value);
        } else if clears_low_bits(word) && get(state, base(word)).address().is_some() {
            align(state, first(word), self.at);
        } else if !signs_or_authenticates(word) {
            step_any(word, state);
        }
        state.compared = compared_with_stack_pointer(word);
    }
}

/// The register that `cmp sp, xN` names.
fn compared_with_stack_pointer(word: u32) -> Option<Register> {
    let is_comparison = word & 0xffe0_ffff == 0xeb20_63ff;
    register(third(word)).filter(|_| is_comparison)
}

/// `b.ne`.
fn is_jump_if_unequal(word: u32) -> bool {
    word & 0xff00_001f == 0x5400_0001
}

/// A sum with a constant, which may be in a register: to, from, and what is added.
fn sum_in(word: u32, state: &AbstractState) -> Option<(u32, u32, i64)> {
    if let Some((to, from, addend)) = sum(word) {
        return Some((to, from, addend.into()));
    }
    let (to, from, by, is_difference) = register_sum(word)?;
    let AbstractValue::Constant(constant) = get(state, by) else { return None };
    Some((to, from, if is_difference { constant.checked_neg()? } else { constant }))
}

/// The value of a register that an instruction sets to a constant, whole or in part.
fn constant_value(word: u32, state: &AbstractState) -> Option<(u32, AbstractValue)> {
    let (to, kept, set) = constant(word)?;
    let value = match get(state, to) {
        AbstractValue::Constant(old) => old.cast_unsigned() & kept | set,
        _ if kept == 0 => set,
        _ => return None,
    };
    Some((to, AbstractValue::Constant(value.cast_signed())))
}

impl Instruction {
    /// Whether it signs or saves the return address after a call has overwritten the register that has it.
    pub(crate) fn begins_function(&self, state: &AbstractState) -> bool {
        let is_push = |access: &Access| {
            let [one, other] = access.registers;
            let saves_link = one == Some(LINK) && access.before < 0 || other == Some(LINK);
            access.is_store && access.base == STACK_POINTER && access.is_of_words() && saves_link
        };
        let signs = matches!(self.word, PACIASP | PACIBSP);
        (signs || Access::of(self.word).as_ref().is_some_and(is_push))
            && get(state, LINK) == AbstractValue::Other
    }
}

/// The state at a function's first instruction, right after the call.
pub(crate) fn at_entry() -> AbstractState {
    let mut state = AbstractState::with_registers(ARCHITECTURE, AbstractValue::Other);
    state.set(Register::Sp, AbstractValue::Address(SymbolicAddress::cfa(0)));
    state.set(Register::X29, AbstractValue::CallerFramePointer);
    state.set(Register::X30, AbstractValue::ReturnAddress);
    state
}

fn get(state: &AbstractState, number: u32) -> AbstractValue {
    register(number).map_or(AbstractValue::Unknown, |register| state.get(register))
}

/// Values of the stack pointer are either addresses of the frame or unknown: it always points to some stack.
fn set(state: &mut AbstractState, number: u32, value: AbstractValue) {
    let Some(register) = register(number) else { return };
    let is_address = value.address().is_some();
    let value = if number == STACK_POINTER && !is_address { AbstractValue::Unknown } else { value };
    state.set(register, value);
    // A larger frame of the function that is jumped to would have them again.
    if number == STACK_POINTER {
        state.forget_below_stack_pointer();
    }
}

/// The same for an operand in which that number is no register but zero.
fn set_unless_zero(state: &mut AbstractState, number: u32, value: AbstractValue) {
    if number != STACK_POINTER {
        set(state, number, value);
    }
}

fn register(number: u32) -> Option<Register> {
    ARCHITECTURE.register(u16::try_from(number).ok()?)
}

fn sum_value(value: AbstractValue, addend: i64) -> AbstractValue {
    match value {
        AbstractValue::Address(address) => {
            address.checked_add(addend).map_or(AbstractValue::Unknown, AbstractValue::Address)
        }
        // A copy.
        value if addend == 0 => value,
        AbstractValue::Unknown => AbstractValue::Unknown,
        _ => AbstractValue::Other,
    }
}

fn step_access(access: &Access, state: &mut AbstractState) {
    let base = get(state, access.base);
    let place = |index: i32| {
        let offset = access.before + access.offset + index * access.bytes;
        base.address().and_then(|at| at.checked_add(i64::from(offset)))
    };
    if access.is_store {
        for (register, index) in access.registers.into_iter().zip(0..access.count) {
            let Some(place) = place(index) else { continue };
            match register.filter(|_| access.is_of_words()) {
                Some(STACK_POINTER) => state.store(place, AbstractValue::Other), // zero
                Some(register) => state.store(place, get(state, register)),
                None => state.overwrite(place, access.bytes),
            }
        }
    } else {
        let loaded = [0, 1].map(|index| match place(index) {
            _ if !access.is_of_words() => AbstractValue::Other,
            None => AbstractValue::Unknown,
            Some(place) => state.load(place),
        });
        for (register, value) in access.registers.into_iter().zip(loaded) {
            if let Some(register) = register {
                set_unless_zero(state, register, value);
            }
        }
    }
    match access.before + access.after {
        0 => {}
        by => set(state, access.base, sum_value(base, by.into())),
    }
}

/// Whether `and` with a constant clears the lowest bits and no others: the constant is a run of ones, rotated to the top.
fn clears_low_bits(word: u32) -> bool {
    let (rotated, ones) = (word >> 16 & 0b11_1111, (word >> 10 & 0b11_1111) + 1);
    word & 0xffc0_0000 == 0x9240_0000 && base(word) != STACK_POINTER && rotated == ones
}

fn align(state: &mut AbstractState, to: u32, by: u32) {
    let origin = Origin::Aligned { by };
    state.forget_origin(origin);
    set(state, to, AbstractValue::Address(SymbolicAddress { origin, offset: 0 }));
}

/// Data processing with one register that changes the signature of an address in it, and nothing else: `pacia` to `xpaci`.
fn signs_or_authenticates(word: u32) -> bool {
    word & 0xffff_0000 == 0xdac1_0000
}

/// Handles an instruction of which only the registers that it may write are known.
fn step_any(word: u32, state: &mut AbstractState) {
    // op0, which tells the groups apart.
    let group = word >> 25 & 0b1111;
    let writes_first_only = matches!(group, 0b0010 | 0b0101 | 0b0111 | 0b1000 | 0b1001 | 0b1101 | 0b1111);
    let numbers = if writes_first_only { first(word)..first(word) + 1 } else { 0..STACK_POINTER + 1 };
    // A sum with an address in a register, or a choice of one, is unknown.
    let is_other = |number| matches!(get(state, number), AbstractValue::Other | AbstractValue::Constant(_));
    let value = match writes_first_only && is_other(base(word)) && is_other(third(word)) {
        true => AbstractValue::Other,
        false => AbstractValue::Unknown,
    };
    if let Some((place, bytes)) = get(state, base(word)).address().zip(stored_bytes(word)) {
        state.overwrite(place, bytes);
    }
    for number in numbers {
        if may_write(word, number) {
            set(state, number, value);
        }
    }
}

/// The most bytes that a store without a constant distance from its base writes from there on.
fn stored_bytes(word: u32) -> Option<i32> {
    let is_store = word >> 22 & 1 == 0;
    let of_structures = word & 0xbe00_0000 == 0x0c00_0000 && is_store;
    let is_exclusive = word & 0x3f00_0000 == 0x0800_0000 && is_store;
    let is_atomic = word & 0x3b20_0c00 == 0x3820_0000;
    match (of_structures, is_exclusive || is_atomic) {
        (true, _) => Some(STRUCTURES_BYTES),
        (_, true) => Some(PAIR_BYTES),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_unwind_table::{Cfa, ReturnAddress, Rule, SavedRegister};

    use super::*;
    use crate::arch::aarch64::NOP;

    const PUSH: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
    const COPY: u32 = 0x9100_03fd; // mov x29, sp
    const POP: u32 = 0xa8c2_7bfd; // ldp x29, x30, [sp], #32
    const BL: u32 = 0x9400_0100;

    fn after(words: &[u32]) -> AbstractState {
        let mut state = at_entry();
        for (word, at) in words.iter().zip((0x100..).step_by(4)) {
            Instruction { word: *word, at }.step(&mut state);
        }
        state
    }

    fn rule_after(words: &[u32]) -> Option<Rule> {
        after(words).rule().ok()
    }

    fn rule(register: Register, offset: i32, frame_pointer: SavedRegister, link: ReturnAddress) -> Rule {
        let cfa = Cfa::Register { register, offset };
        Rule { cfa, frame_pointer, return_address: link, ..ARCHITECTURE.leaf() }
    }

    fn framed(register: Register, offset: i32) -> Rule {
        rule(register, offset, SavedRegister::AtCfa(-32), ReturnAddress::AtCfa(-24))
    }

    #[test]
    fn a_record_is_pushed_and_popped() {
        assert_eq!(rule_after(&[]), Some(ARCHITECTURE.leaf()));
        assert_eq!(rule_after(&[PUSH, COPY, BL]), Some(framed(Register::Sp, 32)));
        assert!(after(&[PUSH, COPY, BL, POP]).may_return().unwrap());
        assert_eq!(rule_after(&[PUSH, BL, POP]), Some(ARCHITECTURE.leaf()));
        assert_eq!(after(&[PUSH, BL]).may_return(), Some(false));
        let sign_and_check = [0xdac1_013e, 0xd503_23bf]; // pacia x30, x9; autiasp
        assert_eq!(rule_after(&sign_and_check), Some(ARCHITECTURE.leaf()));
    }

    #[test]
    fn a_call_overwrites_the_link_register_and_some_others() {
        let saved_in = |register: u32| 0xaa1e_03e0 | register; // mov xN, x30
        assert_eq!(rule_after(&[BL]), None);
        assert_eq!(rule_after(&[saved_in(15), BL]), None);
        let kept = rule(Register::Sp, 0, SavedRegister::Same, ReturnAddress::InRegister(Register::X19));
        assert_eq!(rule_after(&[saved_in(19), BL]), Some(kept));
        let restored = 0xaa13_03fe; // mov x30, x19
        assert_eq!(rule_after(&[saved_in(19), BL, restored]), Some(ARCHITECTURE.leaf()));
    }

    #[test]
    fn stores_of_vectors_and_parts_of_words_move_the_stack_pointer_and_overwrite() {
        let push_vectors = 0x6dbc_27e8; // stp d8, d9, [sp, #-64]!
        assert_eq!(rule_after(&[PUSH, push_vectors]), Some(framed(Register::Sp, 96)));
        for overwrites in [
            0x3d80_03e8, // str q8, [sp]
            0x3900_27e1, // strb w1, [sp, #9]
            0xf900_07ff, // str xzr, [sp, #8]
            0x4c00_0be0, // st4 {v0.4s-v3.4s}, [sp]
        ] {
            assert_eq!(rule_after(&[PUSH, BL, overwrites]), None, "{overwrites:#x}");
        }
        let above = 0x3d80_07e8; // str q8, [sp, #16]
        assert_eq!(rule_after(&[PUSH, above]), Some(framed(Register::Sp, 32)));
    }

    #[test]
    fn an_aligned_stack_pointer_leaves_the_copy() {
        let room = 0xd100_83e9; // sub x9, sp, #32
        let align = 0x927c_ed3f; // and sp, x9, #-16
        assert_eq!(rule_after(&[PUSH, COPY, room, align]), Some(framed(Register::X29, 32)));
        let other_mask = 0x9240_1d3f; // and sp, x9, #0xff
        assert_eq!(after(&[PUSH, COPY, room, other_mask]).stack_pointer(), None);
    }

    #[test]
    fn the_size_of_a_large_frame_is_in_a_register() {
        let size = [0xd282_000c, 0xf2a0_002c]; // mov x12, #0x1000; movk x12, #1, lsl #16
        let [allocate, free] = [0xcb2c_63ff, 0x8b2c_63ff]; // sub, add sp, sp, x12
        let [size, large] = [&size[..1], &size[..]].map(|size| [&[PUSH], size, &[allocate]].concat());
        assert_eq!(rule_after(&size), Some(framed(Register::Sp, 0x1020)));
        assert_eq!(rule_after(&large), Some(framed(Register::Sp, 0x1_1020)));
        let and_back = [&*large, &[free, POP]].concat();
        assert_eq!(rule_after(&and_back), Some(ARCHITECTURE.leaf()));
        let after_call = [&*large, &[BL, free]].concat();
        assert_eq!(after(&after_call).stack_pointer(), None, "a call may have changed it");
    }

    #[test]
    fn a_loop_that_touches_pages_ends_at_the_address_that_is_compared() {
        // sub x9, sp, #16, lsl #12; sub sp, sp, x1; cmp sp, x9; b.ne
        let looped = [PUSH, 0xd140_43e9, 0xcb21_63ff, 0xeb29_63ff, 0x54ff_ffa1];
        assert_eq!(after(&looped[..4]).stack_pointer(), None);
        assert_eq!(rule_after(&looped), Some(framed(Register::Sp, 0x1_0020)));
        let other = [&looped[..4], &[NOP, looped[4]]].concat();
        assert_eq!(after(&other).stack_pointer(), None, "another comparison may be between them");
    }

    #[test]
    fn room_of_any_size_leaves_the_copy() {
        let allocate = 0xcb21_63ff; // sub sp, sp, x1
        let scalable = 0x043f_57ff; // addvl sp, sp, #-1
        for moved in [allocate, scalable] {
            assert_eq!(rule_after(&[PUSH, COPY, moved]), Some(framed(Register::X29, 32)), "{moved:#x}");
            assert_eq!(rule_after(&[PUSH, moved]), None, "{moved:#x}");
        }
    }
}
