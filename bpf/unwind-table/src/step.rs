//! One step of a walk: from a frame to its caller, by a rule.

use sidewinder_address::Avma;

use crate::arch::{PLT_ENTRY_BYTES, Register};
use crate::rule::{CalleeSaved, Cfa, ReturnAddress, Rule, SavedRegister};

/// The stack of a thread.
pub trait Memory {
    /// The word at an address; `None` if it can't be read.
    fn word(&self, address: u64) -> Option<u64>;
}

/// The known registers of a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FrameRegisters {
    /// The address of the next instruction in the interrupted frame; in callers, the return address.
    pub pc: Avma,
    /// The stack pointer.
    pub sp: u64,
    /// Whether the stack pointer is unknown, but not below `sp`: in a caller that was guessed where the frame pointer doesn't
    /// lead to the end of a frame.
    pub sp_is_bound: bool,
    /// The frame pointer.
    pub fp: u64,
    /// [`Register::CALLEE_SAVED`], if every rule so far said where it is.
    pub callee_saved: Option<u64>,
    /// All general registers by DWARF number; only for an interrupted frame, since those of callers are lost.
    pub general: Option<[u64; Register::COUNT]>,
}

/// Why a step found no caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StepError {
    /// This is the outermost frame.
    #[error("the stack begins here")]
    Outermost,
    /// The rule needs a register that isn't known in a caller's frame.
    #[error("the rule needs {0:?}, which only an interrupted frame has")]
    RegisterLost(Register),
    /// A word of the stack can't be read.
    #[error("no word at {0:#x}")]
    Unreadable(u64),
}

impl FrameRegisters {
    /// The registers of an interrupted thread, by DWARF number, followed by the pc.
    #[must_use]
    pub fn interrupted(registers: &[u64; Register::COUNT + 1]) -> Self {
        let mut general = [0; Register::COUNT];
        general.copy_from_slice(&registers[..Register::COUNT]);
        let value = |register: Register| general[usize::from(register.dwarf())];
        Self {
            pc: Avma(registers[Register::COUNT]),
            sp: value(Register::STACK_POINTER),
            sp_is_bound: false,
            fp: value(Register::FRAME_POINTER),
            callee_saved: Some(value(Register::CALLEE_SAVED)),
            general: Some(general),
        }
    }

    fn register(&self, register: Register) -> Result<u64, StepError> {
        if register.is_stack_pointer() {
            return if self.sp_is_bound { Err(StepError::RegisterLost(register)) } else { Ok(self.sp) };
        }
        if register.is_frame_pointer() {
            return Ok(self.fp);
        }
        let value = if register == register.architecture().tracked() {
            self.callee_saved
        } else {
            let general = self.general.as_ref();
            general.and_then(|general| general.get(usize::from(register.dwarf())).copied())
        };
        value.ok_or(StepError::RegisterLost(register))
    }
}

impl Rule {
    /// The registers of the caller's frame.
    ///
    /// # Errors
    /// If this is the outermost frame, or the rule needs a register or a word that isn't available.
    pub fn step(&self, frame: &FrameRegisters, memory: &impl Memory) -> Result<FrameRegisters, StepError> {
        let word = |address: u64| memory.word(address).ok_or(StepError::Unreadable(address));
        let plus = |base: u64, offset: i32| base.wrapping_add_signed(offset.into());
        let word_at = |register, offset| word(plus(frame.register(register)?, offset));
        let is_new_thread = matches!(self.return_address, ReturnAddress::OfParent(_))
            && frame.register(Register::SYSCALL_RESULT) == Ok(0);
        if self.is_root() || is_new_thread {
            return Err(StepError::Outermost);
        }
        let cfa = match self.cfa {
            Cfa::Register { register, offset } => plus(frame.register(register)?, offset),
            Cfa::Plt { threshold } => {
                let has_pushed = frame.pc.0 % u64::from(PLT_ENTRY_BYTES) >= u64::from(threshold);
                frame.sp.wrapping_add(if has_pushed { 16 } else { 8 })
            }
            Cfa::Deref { register, offset, addend } => plus(word_at(register, offset)?, addend),
            Cfa::DerefIndexed { register, index, offset, addend } => {
                let array_end =
                    frame.register(register)?.wrapping_add(frame.register(index)?.wrapping_mul(8));
                plus(word(plus(array_end, offset))?, addend)
            }
        };
        let pc = match self.return_address {
            ReturnAddress::AtCfa(offset) => word(plus(cfa, offset))?,
            ReturnAddress::At { register, offset } => word_at(register, offset)?,
            ReturnAddress::InRegister(register) => frame.register(register)?,
            ReturnAddress::OfParent(offset) => word(plus(cfa, offset))?,
            ReturnAddress::Undefined => return Err(StepError::Outermost),
        };
        let fp = match self.frame_pointer {
            SavedRegister::Same => frame.fp,
            SavedRegister::AtCfa(offset) => word(plus(cfa, offset))?,
            SavedRegister::At { register, offset } => word_at(register, offset)?,
            SavedRegister::InRegister(register) => frame.register(register)?,
            SavedRegister::Undefined => 0,
        };
        let callee_saved = match self.callee_saved {
            CalleeSaved::Unknown => None,
            CalleeSaved::Same => frame.callee_saved,
            CalleeSaved::AtCfa(offset) => Some(word(plus(cfa, offset))?),
            CalleeSaved::AfterFramePointer => match self.frame_pointer {
                SavedRegister::At { register, offset } => Some(word_at(register, offset.saturating_add(8))?),
                _ => None,
            },
        };
        Ok(FrameRegisters { pc: Avma(pc), sp: cfa, sp_is_bound: false, fp, callee_saved, general: None })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Words, from address 0x1000 on.
    pub(crate) struct Words(pub(crate) Vec<u64>);

    impl Memory for Words {
        fn word(&self, address: u64) -> Option<u64> {
            self.0.get(usize::try_from(address.checked_sub(0x1000)? / 8).ok()?).copied()
        }
    }

    /// A register without a role.
    fn other(number: u16) -> Register {
        Register::from_dwarf(number).unwrap()
    }

    fn interrupted(sp: u64, fp: u64) -> FrameRegisters {
        let mut registers = [0; Register::COUNT + 1];
        for (number, register) in registers.iter_mut().enumerate() {
            *register = 0x2000 + number as u64;
        }
        registers[usize::from(Register::FRAME_POINTER.dwarf())] = fp;
        registers[usize::from(Register::STACK_POINTER.dwarf())] = sp;
        FrameRegisters::interrupted(&registers)
    }

    #[test]
    fn a_leaf_returns_through_the_top_of_the_stack() {
        let caller = Rule::LEAF.step(&interrupted(0x1008, 7), &Words(vec![0, 0x55])).unwrap();
        assert_eq!(
            caller,
            FrameRegisters {
                pc: Avma(0x55),
                sp: 0x1010,
                sp_is_bound: false,
                fp: 7,
                callee_saved: None,
                general: None
            }
        );
    }

    #[test]
    fn a_frame_pointer_leads_to_the_caller_and_its_frame_pointer() {
        let caller = Rule::FRAME_POINTER.step(&interrupted(0, 0x1000), &Words(vec![0x99, 0x55])).unwrap();
        assert_eq!((caller.pc, caller.sp, caller.fp), (Avma(0x55), 0x1010, 0x99));
    }

    #[test]
    fn only_an_interrupted_frame_has_all_registers() {
        let in_register = Rule { return_address: ReturnAddress::InRegister(other(5)), ..Rule::LEAF };
        let frame = interrupted(0x1000, 0);
        assert_eq!(in_register.step(&frame, &Words(vec![])).unwrap().pc, Avma(0x2005));
        let caller = FrameRegisters { general: None, ..frame };
        let lost = Err(StepError::RegisterLost(other(5)));
        assert_eq!(in_register.step(&caller, &Words(vec![])), lost);
    }

    #[test]
    fn a_callee_saved_register_leads_to_a_frame_as_long_as_each_rule_says_where_it_is() {
        let follows = |callee_saved| Rule { callee_saved, ..Rule::LEAF };
        let by_register =
            Rule { cfa: Cfa::Register { register: Register::CALLEE_SAVED, offset: 8 }, ..Rule::LEAF };
        let words = Words(vec![0x1028, 0x55, 0x66, 0x77, 0x88, 0x99]);
        let mut registers = [0; Register::COUNT + 1];
        registers[usize::from(Register::CALLEE_SAVED.dwarf())] = 0x1020;
        registers[usize::from(Register::STACK_POINTER.dwarf())] = 0x1008;
        let interrupted = FrameRegisters::interrupted(&registers);

        let same = follows(CalleeSaved::Same).step(&interrupted, &words).unwrap();
        assert_eq!(by_register.step(&same, &words).unwrap().pc, Avma(0x88));
        let saved = follows(CalleeSaved::AtCfa(-16)).step(&interrupted, &words).unwrap();
        assert_eq!(by_register.step(&saved, &words).unwrap().pc, Avma(0x99));
        let lost = follows(CalleeSaved::Unknown).step(&interrupted, &words).unwrap();
        let still_lost = follows(CalleeSaved::Same).step(&lost, &words).unwrap();
        assert_eq!(
            by_register.step(&still_lost, &words),
            Err(StepError::RegisterLost(Register::CALLEE_SAVED))
        );
    }

    #[test]
    fn the_parent_of_a_clone_has_a_caller_and_the_child_none() {
        let words = Words(vec![0x55]);
        let parent = interrupted(0x1000, 7);
        assert_eq!(Rule::AFTER_CLONE.step(&parent, &words).unwrap().pc, Avma(0x55));
        let mut child = parent;
        if let Some(general) = &mut child.general {
            general[usize::from(Register::SYSCALL_RESULT.dwarf())] = 0;
        }
        assert_eq!(Rule::AFTER_CLONE.step(&child, &words), Err(StepError::Outermost));
    }

    #[test]
    fn a_linkage_table_has_pushed_a_word_from_its_threshold_on() {
        let rule = Rule { cfa: Cfa::Plt { threshold: 11 }, ..Rule::LEAF };
        let sp_at = |pc| {
            let frame = FrameRegisters { pc: Avma(pc), ..interrupted(0x1000, 0) };
            rule.step(&frame, &Words(vec![1, 2, 3])).unwrap().sp
        };
        assert_eq!([sp_at(0x40a), sp_at(0x40b)], [0x1008, 0x1010]);
    }

    #[test]
    fn a_frame_above_an_array_is_found_by_its_length() {
        let cfa =
            Cfa::DerefIndexed { register: Register::STACK_POINTER, index: other(9), offset: 8, addend: 8 };
        let rule = Rule { cfa, ..Rule::LEAF };
        let mut frame = interrupted(0x1000, 7);
        if let Some(general) = &mut frame.general {
            general[9] = 2;
        }
        let caller = rule.step(&frame, &Words(vec![0, 0, 0, 0x1020, 0x55])).unwrap();
        assert_eq!((caller.pc, caller.sp), (Avma(0x55), 0x1028));
        let caller = FrameRegisters { general: None, ..frame };
        assert_eq!(rule.step(&caller, &Words(vec![])), Err(StepError::RegisterLost(other(9))));
    }

    #[test]
    fn a_word_that_is_not_there_and_the_start_of_a_stack_end_a_walk() {
        let beyond = Rule::LEAF.step(&interrupted(0x1000, 0), &Words(vec![]));
        assert_eq!(beyond, Err(StepError::Unreadable(0x1000)));
        let root = Rule { return_address: ReturnAddress::Undefined, ..Rule::LEAF };
        assert_eq!(root.step(&interrupted(0x1000, 0), &Words(vec![1])), Err(StepError::Outermost));
    }
}
