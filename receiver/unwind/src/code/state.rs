//! The abstract state of a frame at one instruction.
//!
//! Values are symbolic: all addresses of a frame are relative to the CFA of the running function, and the return
//! address and the caller's frame pointer are tracked wherever they are copied. A rule is right if, evaluated in this
//! state, it yields exactly those three.

use sidewinder_unwind_table::{
    CalleeSaved, Cfa, PLT_ENTRY_BYTES, Register, ReturnAddress, Rule, SavedRegister,
};

use crate::arch::ANALYZED;

/// Stack words whose values are tracked. Functions save two or three that matter.
const MAX_SLOTS: usize = 8;

/// The largest distance of an address from its origin, in bytes.
const MAX_DISTANCE: i32 = 1 << 30;

/// Bytes of a stack word.
pub(crate) const WORD: i32 = 8;

/// The origin that addresses of a frame are relative to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Origin {
    /// The CFA.
    Cfa,
    /// The result of the instruction at `by`, which cleared the lowest bits of an address.
    Aligned {
        /// The instruction, in bytes from the lowest code.
        by: u32,
    },
    /// The stack pointer after the instruction at `by` moved it once the return address had been popped: past arguments
    /// that the function removes, often by an amount in a register.
    Dropped {
        /// The instruction, in bytes from the lowest code.
        by: u32,
    },
}

impl Origin {
    fn is_dropped(self) -> bool {
        matches!(self, Self::Dropped { .. })
    }
}

/// `origin + offset`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct SymbolicAddress {
    pub(crate) origin: Origin,
    pub(crate) offset: i32,
}

impl SymbolicAddress {
    pub(crate) const fn cfa(offset: i32) -> Self {
        Self { origin: Origin::Cfa, offset }
    }

    pub(crate) fn checked_add(self, by: i64) -> Option<Self> {
        let offset = i32::try_from(i64::from(self.offset).checked_add(by)?).ok()?;
        (offset.abs() <= MAX_DISTANCE).then_some(Self { offset, ..self })
    }
}

/// The content of a register or of a word of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AbstractValue {
    /// Anything: paths to this instruction disagree, or the value can't be tracked.
    Unknown,
    /// Something that was computed or passed in, and is none of the below.
    Other,
    /// An address of this frame.
    Address(SymbolicAddress),
    /// The function's return address.
    ReturnAddress,
    /// The value of the frame pointer at the function's entry.
    CallerFramePointer,
}

impl AbstractValue {
    pub(crate) fn address(self) -> Option<SymbolicAddress> {
        match self {
            Self::Address(address) => Some(address),
            _ => None,
        }
    }

    fn join(self, other: Self) -> Self {
        if self == other { self } else { Self::Unknown }
    }
}

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
            AbstractValue::Other => Self::Foreign,
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

/// Registers and stack words, as far as their values are tracked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AbstractState {
    /// Indexed by DWARF register number.
    registers: [AbstractValue; ANALYZED.registers().len()],
    slots: [Option<(SymbolicAddress, AbstractValue)>; MAX_SLOTS],
    /// The register that the previous instruction compared with the stack pointer.
    pub(crate) compared: Option<Register>,
}

impl AbstractState {
    /// Nothing is known.
    pub(crate) const UNKNOWN: Self = Self::with_registers(AbstractValue::Unknown);

    /// All registers hold `value`, and nothing is known of the stack.
    pub(crate) const fn with_registers(value: AbstractValue) -> Self {
        Self { registers: [value; ANALYZED.registers().len()], slots: [None; MAX_SLOTS], compared: None }
    }

    pub(crate) fn get(&self, register: Register) -> AbstractValue {
        self.registers.get(register as usize).copied().unwrap_or(AbstractValue::Unknown)
    }

    pub(crate) fn set(&mut self, register: Register, value: AbstractValue) {
        if let Some(held) = self.registers.get_mut(register as usize) {
            *held = value;
        }
    }

    pub(crate) fn stack_pointer(&self) -> Option<SymbolicAddress> {
        self.get(ANALYZED.stack_pointer()).address()
    }

    /// The end of the caller's frame: the CFA or, once the arguments are dropped, the resulting stack pointer.
    fn caller_frame(&self) -> Origin {
        self.stack_pointer().map(|top| top.origin).filter(|origin| origin.is_dropped()).unwrap_or(Origin::Cfa)
    }

    /// Whether the function may return now, that is, whether its return address is on top of the stack; `None` if the
    /// top of the stack is unknown.
    pub(crate) fn may_return(&self) -> Option<bool> {
        let top = self.stack_pointer()?;
        let is_right = top == SymbolicAddress::cfa(-WORD) || self.load(top) == AbstractValue::ReturnAddress;
        (is_right || !top.origin.is_dropped()).then_some(is_right)
    }

    /// Whether the stack pointer is above the return address, which was popped.
    pub(crate) fn has_popped_return_address(&self) -> bool {
        self.stack_pointer()
            .is_some_and(|top| top.origin.is_dropped() || (top.origin == Origin::Cfa && top.offset >= 0))
    }

    /// Makes the current stack pointer the origin of stack addresses from now on.
    pub(crate) fn drop_arguments(&mut self, by: u32) {
        let origin = Origin::Dropped { by };
        self.forget_origin(origin);
        self.set(ANALYZED.stack_pointer(), AbstractValue::Address(SymbolicAddress { origin, offset: 0 }));
    }

    /// The word at an address.
    pub(crate) fn load(&self, at: SymbolicAddress) -> AbstractValue {
        self.slots()
            .find_map(|(place, value)| (place == at).then_some(value))
            .unwrap_or(AbstractValue::Unknown)
    }

    /// Writes a word.
    pub(crate) fn store(&mut self, at: SymbolicAddress, value: AbstractValue) {
        self.overwrite(at, WORD);
        if !matches!(value, AbstractValue::Unknown | AbstractValue::Other)
            && let Some(free) = self.slots.iter_mut().find(|slot| slot.is_none())
        {
            *free = Some((at, value));
        }
    }

    /// Forgets the words that a write of `bytes` bytes touches.
    pub(crate) fn overwrite(&mut self, at: SymbolicAddress, bytes: i32) {
        self.forget(|place| {
            place.origin == at.origin
                && place.offset < at.offset.saturating_add(bytes)
                && at.offset < place.offset.saturating_add(WORD)
        });
    }

    /// Forgets what a called function may have overwritten: the words below the stack pointer, and the registers that
    /// it needn't preserve. Assembly also has functions that do preserve them.
    pub(crate) fn after_call(&mut self) {
        if let Some(top) = self.stack_pointer() {
            self.forget(|place| place.origin == top.origin && place.offset < top.offset);
        }
        for register in Register::CALL_CLOBBERED {
            self.set(register, AbstractValue::Unknown);
        }
    }

    /// Forgets an origin that is about to denote another address.
    pub(crate) fn forget_origin(&mut self, origin: Origin) {
        let gone = |value: AbstractValue| value.address().is_some_and(|address| address.origin == origin);
        self.registers
            .iter_mut()
            .filter(|value| gone(**value))
            .for_each(|value| *value = AbstractValue::Unknown);
        for slot in &mut self.slots {
            if slot.is_some_and(|(place, value)| place.origin == origin || gone(value)) {
                *slot = None;
            }
        }
    }

    fn forget(&mut self, mut which: impl FnMut(SymbolicAddress) -> bool) {
        for slot in &mut self.slots {
            if slot.is_some_and(|(place, _)| which(place)) {
                *slot = None;
            }
        }
    }

    fn slots(&self) -> impl Iterator<Item = (SymbolicAddress, AbstractValue)> + '_ {
        self.slots.iter().flatten().copied()
    }

    /// Whether the two can't be the same frame at the same instruction.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let differ = |register| match (self.get(register), other.get(register)) {
            (AbstractValue::Unknown, _) | (_, AbstractValue::Unknown) => false,
            (one, another) => one != another,
        };
        let has_dropped = [self, other].iter().any(|state| state.caller_frame().is_dropped());
        (differ(ANALYZED.stack_pointer()) && !has_dropped) || differ(ANALYZED.frame_pointer())
    }

    /// Whether stack pointer and frame pointer are the same in both.
    pub(crate) fn has_frame_of(&self, other: &Self) -> bool {
        [ANALYZED.stack_pointer(), ANALYZED.frame_pointer()]
            .into_iter()
            .all(|register| self.get(register) == other.get(register))
    }

    /// Keeps what both states know. Returns whether that is less than this state knew.
    pub(crate) fn join(&mut self, other: &Self) -> bool {
        let mut changed = self.compared.is_some() && self.compared != other.compared;
        if changed {
            self.compared = None;
        }
        for (held, theirs) in self.registers.iter_mut().zip(&other.registers) {
            let joined = held.join(*theirs);
            changed |= joined != *held;
            *held = joined;
        }
        for slot in &mut self.slots {
            if slot.is_some_and(|(place, value)| other.load(place) != value) {
                *slot = None;
                changed = true;
            }
        }
        changed
    }

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
            AbstractValue::Other | AbstractValue::ReturnAddress | AbstractValue::CallerFramePointer => {
                AbstractValue::Other
            }
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
                self.sum_value(ANALYZED.stack_pointer(), WORD + pushed)
            }
        };
        let frame_pointer = match rule.frame_pointer {
            SavedRegister::Undefined => AbstractValue::CallerFramePointer,
            SavedRegister::Same => self.get(ANALYZED.frame_pointer()),
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
    pub(crate) fn from_rule(rule: &Rule) -> Self {
        if *rule == ANALYZED.leaf() {
            return Self::at_entry();
        }
        let mut state = Self::UNKNOWN;
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
                self.assume_register(ANALYZED.frame_pointer(), AbstractValue::CallerFramePointer);
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
            frame_pointer: self.frame_pointer(),
            return_address: self.return_address().ok_or(UnknownPart::ReturnAddress)?,
            callee_saved: CalleeSaved::Unknown,
            signal_frame: false,
        })
    }

    /// A frame pointer in its standard location comes first, as in compiled code and so that fewer rows are needed,
    /// then the stack pointer. Registers that calls change come last, since only interrupted frames have known values
    /// in them.
    fn cfa(&self) -> Option<Cfa> {
        let origin = self.caller_frame();
        let standard = SymbolicAddress::cfa(-16);
        let has_frame_pointer = self.get(ANALYZED.frame_pointer()) == AbstractValue::Address(standard)
            && self.load(standard) == AbstractValue::CallerFramePointer;
        let order = if has_frame_pointer {
            [ANALYZED.frame_pointer(), ANALYZED.stack_pointer()]
        } else {
            [ANALYZED.stack_pointer(), ANALYZED.frame_pointer()]
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
            .or_else(|| ANALYZED.registers().iter().copied().find_map(above))
    }

    /// Whether a word may lie at or above the stack pointer. Below it, a signal may overwrite the word.
    fn is_live(&self, place: SymbolicAddress) -> bool {
        self.stack_pointer().is_none_or(|top| top.origin != place.origin || top.offset <= place.offset)
    }

    fn frame_pointer(&self) -> SavedRegister {
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
        if self.get(ANALYZED.frame_pointer()) == AbstractValue::CallerFramePointer {
            return SavedRegister::Same;
        }
        let at = |place: SymbolicAddress| {
            [ANALYZED.frame_pointer(), ANALYZED.stack_pointer()].into_iter().find_map(|register| {
                let base = self.get(register).address().filter(|base| base.origin == place.origin)?;
                Some(SavedRegister::At { register, offset: place.offset.checked_sub(base.offset)? })
            })
        };
        place(None)
            .and_then(at)
            .or_else(|| {
                self.register_holding(AbstractValue::CallerFramePointer).map(SavedRegister::InRegister)
            })
            .unwrap_or(SavedRegister::Undefined)
    }

    fn return_address(&self) -> Option<ReturnAddress> {
        let origin = self.caller_frame();
        let highest = self
            .slots()
            .filter(|(place, value)| *value == AbstractValue::ReturnAddress && place.origin == origin)
            .map(|(place, _)| ReturnAddress::AtCfa(place.offset))
            .max();
        highest.or_else(|| self.register_holding(AbstractValue::ReturnAddress).map(ReturnAddress::InRegister))
    }

    fn register_holding(&self, value: AbstractValue) -> Option<Register> {
        ANALYZED.registers().iter().copied().find(|register| self.get(*register) == value)
    }
}
