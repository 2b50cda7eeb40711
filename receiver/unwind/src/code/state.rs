//! The abstract state of a frame at one instruction.
//!
//! Values are symbolic: all addresses of a frame are relative to the CFA of the running function, and the return
//! address and the caller's frame pointer are tracked wherever they are copied.

use sidewinder_unwind_table::{Architecture, Register};

use super::value::{AbstractValue, Origin, SymbolicAddress, WORD};

/// Stack words whose values are tracked. Functions save two or three that matter.
const MAX_SLOTS: usize = 8;

/// At least as many as any architecture has.
pub(super) const MAX_REGISTERS: usize = 32;

/// Registers and stack words, as far as their values are tracked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct AbstractState {
    pub(super) architecture: Architecture,
    /// Indexed by DWARF register number.
    pub(super) registers: [AbstractValue; MAX_REGISTERS],
    pub(super) slots: [Option<(SymbolicAddress, AbstractValue)>; MAX_SLOTS],
    /// The register that the previous instruction compared with the stack pointer.
    pub(crate) compared: Option<Register>,
}

impl AbstractState {
    /// Nothing is known.
    pub(crate) const fn unknown(architecture: Architecture) -> Self {
        Self::with_registers(architecture, AbstractValue::Unknown)
    }

    /// All registers hold `value`, and nothing is known of the stack.
    pub(crate) const fn with_registers(architecture: Architecture, value: AbstractValue) -> Self {
        Self { architecture, registers: [value; MAX_REGISTERS], slots: [None; MAX_SLOTS], compared: None }
    }

    /// The value of a register. That of another architecture's is unknown.
    pub(crate) fn get(&self, register: Register) -> AbstractValue {
        let held = self.registers.get(usize::from(register.dwarf())).copied();
        held.filter(|_| register.architecture() == self.architecture).unwrap_or(AbstractValue::Unknown)
    }

    pub(crate) fn set(&mut self, register: Register, value: AbstractValue) {
        if register.architecture() == self.architecture
            && let Some(held) = self.registers.get_mut(usize::from(register.dwarf()))
        {
            *held = value;
        }
    }

    pub(crate) fn stack_pointer(&self) -> Option<SymbolicAddress> {
        self.get(self.architecture.stack_pointer()).address()
    }

    pub(crate) fn frame_pointer(&self) -> AbstractValue {
        self.get(self.architecture.frame_pointer())
    }

    /// The end of the caller's frame: the CFA or, once the arguments are dropped, the resulting stack pointer.
    pub(super) fn caller_frame(&self) -> Origin {
        self.stack_pointer().map(|top| top.origin).filter(|origin| origin.is_dropped()).unwrap_or(Origin::Cfa)
    }

    /// Whether the function may return now, that is, whether its return address is where a call left it; `None` if that isn't
    /// known.
    pub(crate) fn may_return(&self) -> Option<bool> {
        let top = self.stack_pointer()?;
        if let Some(link) = self.architecture.link() {
            let held = Some(self.get(link)).filter(|held| *held != AbstractValue::Unknown)?;
            return Some(held == AbstractValue::ReturnAddress && top == SymbolicAddress::cfa(0));
        }
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
        self.set(
            self.architecture.stack_pointer(),
            AbstractValue::Address(SymbolicAddress { origin, offset: 0 }),
        );
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
        if value.is_of_frame()
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
        self.forget_below_stack_pointer();
        for register in self.architecture.call_clobbered() {
            self.set(*register, AbstractValue::Unknown);
        }
        if let Some(link) = self.architecture.link() {
            self.set(link, AbstractValue::Other);
        }
    }

    /// Forgets the words that no longer belong to the stack, and may be overwritten at any time.
    pub(crate) fn forget_below_stack_pointer(&mut self) {
        if let Some(top) = self.stack_pointer() {
            self.forget(|place| place.origin == top.origin && place.offset < top.offset);
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

    pub(super) fn slots(&self) -> impl Iterator<Item = (SymbolicAddress, AbstractValue)> + '_ {
        self.slots.iter().flatten().copied()
    }

    /// Whether the two can't be the same frame at the same instruction.
    pub(crate) fn contradicts(&self, other: &Self) -> bool {
        let differ = |register| match (self.get(register), other.get(register)) {
            (AbstractValue::Unknown, _) | (_, AbstractValue::Unknown) => false,
            (one, another) => one != another && (one.is_of_frame() || another.is_of_frame()),
        };
        let has_dropped = [self, other].iter().any(|state| state.caller_frame().is_dropped());
        (differ(self.architecture.stack_pointer()) && !has_dropped)
            || differ(self.architecture.frame_pointer())
    }

    /// Whether stack pointer and frame pointer are the same in both.
    pub(crate) fn has_frame_of(&self, other: &Self) -> bool {
        [self.architecture.stack_pointer(), self.architecture.frame_pointer()]
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
}
