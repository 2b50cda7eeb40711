//! Follows a function from its start, and tracks where its frame ends and where it has saved x29 and x30.
//!
//! Only what compilers write is understood: constant sums on the stack pointer, stores of x29 and x30 relative to it, and a copy of
//! it in x29. A function with anything else, or whose paths disagree where they meet, or that returns with a frame, has no
//! rows; nor has code that is reached by computed branches alone.

use std::ops::Range;

use sidewinder_unwind_table::{Architecture, Cfa, Register, ReturnAddress, Rule, SavedRegister};

use super::access::Access;
use super::branch::Next;
use super::fields::{FRAME_POINTER, LINK, STACK_POINTER, sum};
use super::leaf::may_write;
use super::{instructions, is_return};

/// The size of an instruction.
const WORD_BYTES: u32 = 4;

/// Larger functions are generated, and would take much memory to follow.
const FUNCTION_BYTES_MAX: usize = 256 << 10;
/// Larger frames overflow the usual stack of a thread.
const FRAME_BYTES_MAX: i32 = 8 << 20;

/// Where the value that a register had at the function's start is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Register,
    /// At this distance from the canonical frame address.
    Saved(i32),
    /// There, and still or again in the register.
    Reloaded(i32),
}

impl Place {
    /// Once the register may have another value.
    fn overwritten(self) -> Option<Self> {
        match self {
            Self::Register => None,
            Self::Saved(at) | Self::Reloaded(at) => Some(Self::Saved(at)),
        }
    }

    /// Where paths meet.
    fn joined(self, other: Self) -> Option<Self> {
        match (self == other, self.overwritten(), other.overwritten()) {
            (true, ..) => Some(self),
            (false, Some(one), Some(other)) if one == other => Some(one),
            _ => None,
        }
    }

    /// Once the stack pointer is so far below the canonical frame address: what is below it is lost.
    fn released(self, distance: i32) -> Option<Self> {
        match self {
            Self::Saved(at) if at < -distance => None,
            Self::Reloaded(at) if at < -distance => Some(Self::Register),
            place => Some(place),
        }
    }
}

/// What is known before an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct State {
    /// The canonical frame address is this far above the stack pointer; `None`: the distance isn't constant.
    from_stack_pointer: Option<i32>,
    /// The same for x29, where it holds a copy of the stack pointer.
    from_frame_pointer: Option<i32>,
    frame_pointer: Place,
    link: Place,
}

const AT_START: State = State {
    from_stack_pointer: Some(0),
    from_frame_pointer: None,
    frame_pointer: Place::Register,
    link: Place::Register,
};

/// The rules of a function, by ranges of offsets of bytes in it; `None` if it isn't understood. `take_step` is asked before each
/// instruction that is followed.
pub(crate) fn rules(function: &[u8], mut take_step: impl FnMut() -> bool) -> Option<Vec<(Range<u32>, Rule)>> {
    if function.len() > FUNCTION_BYTES_MAX {
        return None;
    }
    let words: Vec<u32> = instructions(function).collect();
    let mut states: Vec<Option<State>> = vec![None; words.len()];
    let mut left = vec![(0_usize, AT_START)];
    // That the function begins here and is called is shown by a return, or by saving the return address.
    let mut is_called = false;
    while let Some((at, state)) = left.pop() {
        // Behind the end: after a call that doesn't return, or in another function.
        let (Some(word), Some(known)) = (words.get(at), states.get_mut(at)) else { continue };
        let state = match *known {
            None => state,
            Some(known) => match known.joined(state)? {
                joined if joined == known => continue,
                joined => joined,
            },
        };
        *known = Some(state);
        if !take_step() {
            return None;
        }
        if is_return(*word) {
            let is_as_at_start = state == State { from_frame_pointer: None, ..AT_START };
            is_called = true;
            if !is_as_at_start {
                return None;
            }
            continue;
        }
        let after = state.after(*word)?;
        is_called |= after.link != Place::Register;
        let next = Next::of(*word);
        if next.falls_through {
            left.push((at + 1, after));
        }
        if let Some(target) = next.branch.and_then(|distance| at.checked_add_signed(distance as isize)) {
            left.push((target, after));
        }
    }
    is_called.then(|| ranges(&states)).flatten()
}

/// The rules of all instructions that were reached.
fn ranges(states: &[Option<State>]) -> Option<Vec<(Range<u32>, Rule)>> {
    let mut ranges: Vec<(Range<u32>, Rule)> = Vec::new();
    for (start, state) in (0..).step_by(WORD_BYTES as usize).zip(states) {
        let Some(state) = state else { continue };
        let rule = state.rule()?;
        match ranges.last_mut() {
            Some((range, last)) if *last == rule && range.end == start => range.end += WORD_BYTES,
            _ => ranges.push((start..start + WORD_BYTES, rule)),
        }
    }
    Some(ranges)
}

impl State {
    /// Where paths meet; `None`: they disagree.
    fn joined(self, other: Self) -> Option<Self> {
        let frame_pointer = self.frame_pointer.joined(other.frame_pointer)?;
        let link = self.link.joined(other.link)?;
        let of = |state| Self { frame_pointer, link, ..state };
        (of(self) == of(other)).then(|| of(self))
    }

    /// After an instruction that isn't a return; `None`: not understood.
    fn after(mut self, word: u32) -> Option<Self> {
        if let Some(access) =
            Access::of(word).filter(|access| access.base == STACK_POINTER && access.is_of_words())
        {
            return self.after_access(&access);
        }
        if let Some((to, from, addend)) = sum(word)
            && (to == STACK_POINTER || to == FRAME_POINTER)
            && (from == STACK_POINTER || from == FRAME_POINTER)
        {
            return self.after_sum(to, from, addend);
        }
        // Room of a size that isn't constant, and aligned.
        if may_write(word, STACK_POINTER) {
            self.from_frame_pointer?;
            self.from_stack_pointer = None;
        }
        self.overwrite(FRAME_POINTER, word)?.overwrite(LINK, word)
    }

    /// Where an instruction may write a register, its first value has to be elsewhere.
    fn overwrite(mut self, register: u32, word: u32) -> Option<Self> {
        if !may_write(word, register) {
            return Some(self);
        }
        if register == FRAME_POINTER {
            self.from_frame_pointer = None;
            self.from_stack_pointer?;
            self.frame_pointer = self.frame_pointer.overwritten()?;
        } else {
            self.link = self.link.overwritten()?;
        }
        Some(self)
    }

    fn after_sum(mut self, to: u32, from: u32, addend: i32) -> Option<Self> {
        let of = if from == STACK_POINTER { self.from_stack_pointer } else { self.from_frame_pointer };
        let distance = of?.checked_sub(addend).filter(|distance| (0..FRAME_BYTES_MAX).contains(distance))?;
        if to == STACK_POINTER {
            return self.with_stack_pointer(distance);
        }
        self.frame_pointer = self.frame_pointer.overwritten()?;
        self.from_frame_pointer = Some(distance);
        Some(self)
    }

    /// With the stack pointer so far below the canonical frame address.
    fn with_stack_pointer(mut self, distance: i32) -> Option<Self> {
        if !(0..FRAME_BYTES_MAX).contains(&distance) {
            return None;
        }
        self.from_stack_pointer = Some(distance);
        self.frame_pointer = self.frame_pointer.released(distance)?;
        self.link = self.link.released(distance)?;
        Some(self)
    }

    fn moved(self, bytes: i32) -> Option<Self> {
        match bytes {
            0 => Some(self),
            bytes => self.with_stack_pointer(self.from_stack_pointer?.checked_sub(bytes)?),
        }
    }

    fn after_access(mut self, access: &Access) -> Option<Self> {
        self = self.moved(access.before)?;
        for (register, index) in access.registers.into_iter().flatten().zip(0..) {
            let at = self.from_stack_pointer.map(|distance| access.offset + index * 8 - distance);
            let place = match register {
                FRAME_POINTER => &mut self.frame_pointer,
                LINK => &mut self.link,
                _ => continue,
            };
            match (access.is_store, *place) {
                // Below the stack pointer nothing is kept.
                (true, Place::Register) if access.offset >= 0 => *place = Place::Reloaded(at?),
                // What is behind a call that doesn't return: another function begins.
                (true, Place::Saved(_)) if register == LINK => return None,
                (true, _) => {}
                (false, Place::Saved(saved) | Place::Reloaded(saved)) if at == Some(saved) => {
                    *place = Place::Reloaded(saved);
                    if register == FRAME_POINTER {
                        self.from_frame_pointer = None;
                    }
                }
                (false, _) => return None,
            }
        }
        self.moved(access.after)
    }

    fn rule(&self) -> Option<Rule> {
        let (register, offset) = match (self.from_stack_pointer, self.from_frame_pointer) {
            (Some(offset), _) => (Register::Sp, offset),
            (None, Some(offset)) => (Register::X29, offset),
            (None, None) => return None,
        };
        let leaf = Architecture::Aarch64.leaf();
        Some(Rule {
            cfa: Cfa::Register { register, offset },
            frame_pointer: match self.frame_pointer {
                Place::Register => leaf.frame_pointer,
                Place::Saved(offset) | Place::Reloaded(offset) => SavedRegister::AtCfa(offset),
            },
            return_address: match self.link {
                Place::Register => leaf.return_address,
                Place::Saved(offset) | Place::Reloaded(offset) => ReturnAddress::AtCfa(offset),
            },
            ..leaf
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RET: u32 = 0xd65f_03c0;
    const PUSH: u32 = 0xa9be_7bfd; // stp x29, x30, [sp, #-32]!
    const COPY: u32 = 0x9100_03fd; // mov x29, sp
    const BL: u32 = 0x9400_0100;
    const POP: u32 = 0xa8c2_7bfd; // ldp x29, x30, [sp], #32

    fn rules_of(words: &[u32]) -> Option<Vec<(Range<u32>, Rule)>> {
        rules(&words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>(), || true)
    }

    fn leaf_at(offset: i32) -> Rule {
        Rule { cfa: Cfa::Register { register: Register::Sp, offset }, ..Architecture::Aarch64.leaf() }
    }

    fn framed(register: Register, offset: i32, size: i32) -> Rule {
        Rule {
            cfa: Cfa::Register { register, offset },
            frame_pointer: SavedRegister::AtCfa(-size),
            return_address: ReturnAddress::AtCfa(8 - size),
            ..Architecture::Aarch64.leaf()
        }
    }

    #[test]
    fn a_record_is_pushed_and_popped() {
        let inside = framed(Register::Sp, 32, 32);
        assert_eq!(
            rules_of(&[PUSH, COPY, BL, POP, RET]),
            Some(vec![(0..4, leaf_at(0)), (4..16, inside), (16..20, leaf_at(0))])
        );
    }

    #[test]
    fn both_paths_of_a_branch_are_followed_until_they_meet() {
        let return_early = 0xb400_0080; // cbz x0, 16 bytes on
        let inside = framed(Register::Sp, 32, 32);
        assert_eq!(
            rules_of(&[return_early, PUSH, BL, POP, RET]),
            Some(vec![(0..8, leaf_at(0)), (8..16, inside), (16..20, leaf_at(0))])
        );
        assert_eq!(rules_of(&[return_early, PUSH, BL, RET, RET]), None, "a return with a frame");
        let into_frame = 0xb400_0040; // cbz x0, 8 bytes on
        assert_eq!(rules_of(&[into_frame, PUSH, BL, POP, RET]), None, "paths disagree");
    }

    #[test]
    fn room_of_any_size_is_measured_from_the_copy() {
        let allocate = 0xcb21_63ff; // sub sp, sp, x1
        let free = 0x9100_03bf; // mov sp, x29
        let rules = rules_of(&[PUSH, COPY, allocate, BL, free, POP, RET]).unwrap();
        assert_eq!(rules[2], (12..20, framed(Register::X29, 32, 32)));
        assert_eq!(rules_of(&[PUSH, allocate, BL, POP, RET]), None, "without a copy");
    }

    #[test]
    fn the_return_address_alone_is_saved_and_the_stack_pointer_moved_on() {
        let push = 0xf81f_0ffe; // str x30, [sp, #-16]!
        let more = 0xd100_83ff; // sub sp, sp, #32
        let less = 0x9100_83ff; // add sp, sp, #32
        let pop = 0xf841_07fe; // ldr x30, [sp], #16
        let saved = |offset| Rule { return_address: ReturnAddress::AtCfa(-16), ..leaf_at(offset) };
        assert_eq!(
            rules_of(&[push, more, BL, less, pop, RET]),
            Some(vec![
                (0..4, leaf_at(0)),
                (4..8, saved(16)),
                (8..16, saved(48)),
                (16..20, saved(16)),
                (20..24, leaf_at(0)),
            ])
        );
    }

    #[test]
    fn a_function_that_runs_into_the_next_one_has_no_rules() {
        assert!(rules_of(&[PUSH, BL, POP, RET]).is_some());
        assert_eq!(rules_of(&[PUSH, BL, PUSH, BL, POP, RET]), None, "the first call doesn't return");
    }

    #[test]
    fn what_is_not_understood_has_no_rules() {
        assert_eq!(rules_of(&[BL, RET]), None, "a call without saving the return address");
        assert_eq!(rules_of(&[PUSH, 0xa941_7bfd, RET]), None, "x29 and x30 from elsewhere");
        assert_eq!(rules_of(&[0x9100_03bf, RET]), None, "the stack pointer from a register");
        assert_eq!(rules_of(&[0x1400_0001]), None, "a part of a function, maybe");
        assert_eq!(rules_of(&[]), None);
        assert_eq!(rules(&PUSH.to_le_bytes(), || false), None, "no steps left");
    }
}
