//! Rules and [states](super::state) of a frame: whether a rule is right, what it says, and which rule leads to the caller.
//!
//! A rule is right if, evaluated in the state, it yields exactly the CFA, the return address, and the caller's frame pointer.

use sidewinder_unwind_table::{
    Architecture, CalleeSaved, Cfa, PLT_ENTRY_BYTES, Register, ReturnAddress, Rule, SavedRegister,
};

use super::state::AbstractState;
use super::value::{AbstractValue, Origin, SymbolicAddress, WORD};
use crate::arch;

/// How a statement about the frame compares with the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StatementVerdict {
    Right,
    /// It names another value of this frame.
    Wrong,
    /// It names a value that doesn't belong to this frame.
    Foreign,
    /// It names something that isn't known.
    Open,
}

impl StatementVerdict {
    fn compare(value: AbstractValue, wanted: AbstractValue) -> Self {
        match value {
            AbstractValue::Unknown => Self::Open,
            AbstractValue::Other | AbstractValue::Constant(_) => Self::Foreign,
            value if value == wanted => Self::Right,
            _ => Self::Wrong,
        }
    }
}

/// The outcomes of checking a rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RuleVerdict {
    pub(crate) cfa: StatementVerdict,
    pub(crate) frame_pointer: StatementVerdict,
    pub(crate) return_address: StatementVerdict,
}

/// Why a frame has no rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UnknownPart {
    Cfa,
    ReturnAddress,
}

impl AbstractState {
    /// The address `register + offset`, if it is one of this frame.
    fn sum(&self, register: Register, offset: i32) -> Option<SymbolicAddress> {
        self.get(register).address()?.checked_add(i64::from(offset))
    }

    /// The value of `register + offset`.
    fn sum_value(&self, register: Register, offset: i32) -> AbstractValue {
        match self.get(register) {
            AbstractValue::Address(address) => {
                address.checked_add(i64::from(offset)).map_or(AbstractValue::Unknown, AbstractValue::Address)
            }
            AbstractValue::Unknown => AbstractValue::Unknown,
            _ => AbstractValue::Other,
        }
    }

    fn load_at(&self, register: Register, offset: i32) -> AbstractValue {
        self.sum(register, offset).map_or(AbstractValue::Unknown, |at| self.load(at))
    }

    /// Checks a rule at the instruction at `pc`. Of `pc`, only the offset within an entry of a linkage table matters.
    pub(crate) fn check_rule(&self, rule: &Rule, pc: u64) -> RuleVerdict {
        let origin = self.caller_frame();
        let cfa = match rule.cfa {
            Cfa::Register { register, offset } => self.sum_value(register, offset),
            Cfa::Deref { register, offset, addend } => match self.load_at(register, offset) {
                AbstractValue::Address(address) => address
                    .checked_add(i64::from(addend))
                    .map_or(AbstractValue::Unknown, AbstractValue::Address),
                value => value,
            },
            // Lengths of arrays aren't tracked.
            Cfa::DerefIndexed { .. } => AbstractValue::Unknown,
            Cfa::Plt { threshold } => {
                let pushed = if pc % u64::from(PLT_ENTRY_BYTES) >= u64::from(threshold) { WORD } else { 0 };
                self.sum_value(self.architecture.stack_pointer(), WORD + pushed)
            }
        };
        let frame_pointer = match rule.frame_pointer {
            SavedRegister::Undefined => AbstractValue::CallerFramePointer,
            SavedRegister::Same => self.frame_pointer(),
            SavedRegister::InRegister(register) => self.get(register),
            SavedRegister::AtCfa(offset) => self.load(SymbolicAddress { origin, offset }),
            SavedRegister::At { register, offset } => self.load_at(register, offset),
        };
        let return_address = match rule.return_address {
            ReturnAddress::Undefined => AbstractValue::ReturnAddress,
            ReturnAddress::InRegister(register) => self.get(register),
            ReturnAddress::AtCfa(offset) | ReturnAddress::OfParent(offset) => {
                self.load(SymbolicAddress { origin, offset })
            }
            ReturnAddress::At { register, offset } => self.load_at(register, offset),
        };
        RuleVerdict {
            cfa: StatementVerdict::compare(
                cfa,
                AbstractValue::Address(SymbolicAddress { origin, offset: 0 }),
            ),
            frame_pointer: StatementVerdict::compare(frame_pointer, AbstractValue::CallerFramePointer),
            return_address: StatementVerdict::compare(return_address, AbstractValue::ReturnAddress),
        }
    }

    /// The state in which only what `rule` says is known.
    pub(crate) fn from_rule(architecture: Architecture, rule: &Rule) -> Self {
        if *rule == architecture.leaf() {
            return arch::at_entry(architecture);
        }
        let mut state = Self::unknown(architecture);
        state.assume(rule);
        state
    }

    /// Assumes what a rule says about values that aren't known.
    pub(crate) fn assume(&mut self, rule: &Rule) {
        match rule.cfa {
            Cfa::Register { register, offset } => {
                self.assume_register(
                    register,
                    AbstractValue::Address(SymbolicAddress::cfa(offset.saturating_neg())),
                );
            }
            Cfa::Deref { register, offset, addend } => {
                self.assume_word(
                    self.sum(register, offset),
                    AbstractValue::Address(SymbolicAddress::cfa(addend.saturating_neg())),
                );
            }
            Cfa::DerefIndexed { .. } | Cfa::Plt { .. } => {}
        }
        match rule.frame_pointer {
            SavedRegister::Undefined => {}
            SavedRegister::Same => {
                self.assume_register(self.architecture.frame_pointer(), AbstractValue::CallerFramePointer);
            }
            SavedRegister::InRegister(register) => {
                self.assume_register(register, AbstractValue::CallerFramePointer);
            }
            SavedRegister::AtCfa(offset) => {
                self.assume_word(Some(SymbolicAddress::cfa(offset)), AbstractValue::CallerFramePointer);
            }
            SavedRegister::At { register, offset } => {
                self.assume_word(self.sum(register, offset), AbstractValue::CallerFramePointer);
            }
        }
        match rule.return_address {
            ReturnAddress::Undefined => {}
            ReturnAddress::InRegister(register) => {
                self.assume_register(register, AbstractValue::ReturnAddress);
            }
            ReturnAddress::AtCfa(offset) | ReturnAddress::OfParent(offset) => {
                self.assume_word(Some(SymbolicAddress::cfa(offset)), AbstractValue::ReturnAddress);
            }
            ReturnAddress::At { register, offset } => {
                self.assume_word(self.sum(register, offset), AbstractValue::ReturnAddress);
            }
        }
    }

    fn assume_register(&mut self, register: Register, value: AbstractValue) {
        if self.get(register) == AbstractValue::Unknown {
            self.set(register, value);
        }
    }

    fn assume_word(&mut self, at: Option<SymbolicAddress>, value: AbstractValue) {
        if let Some(at) = at
            && self.load(at) == AbstractValue::Unknown
        {
            self.store(at, value);
        }
    }

    /// The rule that leads from this state to the caller.
    pub(crate) fn rule(&self) -> Result<Rule, UnknownPart> {
        Ok(Rule {
            cfa: self.cfa().ok_or(UnknownPart::Cfa)?,
            frame_pointer: self.saved_frame_pointer(),
            return_address: self.return_address().ok_or(UnknownPart::ReturnAddress)?,
            callee_saved: CalleeSaved::Unknown,
            signal_frame: false,
        })
    }

    /// A frame pointer in its standard location, right above which a call pushed the return address, comes first, as in compiled
    /// code and so that fewer rows are needed, then the stack pointer. Registers that calls change come last, since only interrupted frames have known values
    /// in them.
    fn cfa(&self) -> Option<Cfa> {
        let origin = self.caller_frame();
        let standard = SymbolicAddress::cfa(-16);
        let has_frame_pointer = self.architecture.link().is_none()
            && self.frame_pointer() == AbstractValue::Address(standard)
            && self.load(standard) == AbstractValue::CallerFramePointer;
        let order = if has_frame_pointer {
            [self.architecture.frame_pointer(), self.architecture.stack_pointer()]
        } else {
            [self.architecture.stack_pointer(), self.architecture.frame_pointer()]
        };
        let above = |register| match self.get(register) {
            AbstractValue::Address(address) if address.origin == origin => {
                Some(Cfa::Register { register, offset: -address.offset })
            }
            _ => None,
        };
        let saved = |register| {
            let base = self.get(register).address()?;
            self.slots().filter(|(place, _)| self.is_live(*place)).find_map(|(place, value)| match value {
                AbstractValue::Address(SymbolicAddress { origin: Origin::Cfa, offset })
                    if place.origin == base.origin =>
                {
                    let offset_of_place = place.offset.checked_sub(base.offset)?;
                    Some(Cfa::Deref { register, offset: offset_of_place, addend: -offset })
                }
                _ => None,
            })
        };
        order
            .into_iter()
            .find_map(above)
            .or_else(|| order.into_iter().find_map(saved))
            .or_else(|| self.architecture.registers().iter().copied().find_map(above))
    }

    /// Whether a word may lie at or above the stack pointer. Below it, a signal may overwrite the word.
    fn is_live(&self, place: SymbolicAddress) -> bool {
        self.stack_pointer().is_none_or(|top| top.origin != place.origin || top.offset <= place.offset)
    }

    fn saved_frame_pointer(&self) -> SavedRegister {
        let place = |origin: Option<Origin>| {
            self.slots()
                .filter(|(place, value)| *value == AbstractValue::CallerFramePointer && self.is_live(*place))
                .map(|(place, _)| place)
                .filter(|place| origin.is_none_or(|origin| place.origin == origin))
                .max()
        };
        if let Some(place) = place(Some(self.caller_frame())) {
            return SavedRegister::AtCfa(place.offset);
        }
        if self.frame_pointer() == AbstractValue::CallerFramePointer {
            return SavedRegister::Same;
        }
        let at = |place: SymbolicAddress| {
            [self.architecture.frame_pointer(), self.architecture.stack_pointer()].into_iter().find_map(
                |register| {
                    let base = self.get(register).address().filter(|base| base.origin == place.origin)?;
                    Some(SavedRegister::At { register, offset: place.offset.checked_sub(base.offset)? })
                },
            )
        };
        place(None)
            .and_then(at)
            .or_else(|| {
                self.register_holding(AbstractValue::CallerFramePointer).map(SavedRegister::InRegister)
            })
            .unwrap_or(SavedRegister::Undefined)
    }

    /// Where functions save the return address themselves, that is beside the caller's frame pointer, if that is saved. They may
    /// have copied it elsewhere, too.
    fn return_address(&self) -> Option<ReturnAddress> {
        let origin = self.caller_frame();
        let places = || {
            self.slots()
                .filter(|(place, value)| *value == AbstractValue::ReturnAddress && self.is_live(*place))
                .filter(|(place, _)| place.origin == origin)
                .map(|(place, _)| place.offset)
        };
        let is_beside = |place: &i32| {
            let below = SymbolicAddress { origin, offset: place.saturating_sub(WORD) };
            self.architecture.link().is_some() && self.load(below) == AbstractValue::CallerFramePointer
        };
        let place = places().find(is_beside).or_else(|| places().max()).map(ReturnAddress::AtCfa);
        place.or_else(|| self.register_holding(AbstractValue::ReturnAddress).map(ReturnAddress::InRegister))
    }

    /// The one in which a call leaves the return address comes first.
    fn register_holding(&self, value: AbstractValue) -> Option<Register> {
        let link = self.architecture.link().filter(|link| self.get(*link) == value);
        link.or_else(|| {
            self.architecture.registers().iter().copied().find(|register| self.get(*register) == value)
        })
    }
}
