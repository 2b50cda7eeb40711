//! The form in which the states at the beginnings of blocks are kept.
//!
//! Most registers of most states hold something that doesn't matter, or anything: they take one bit. A large function has
//! thousands of blocks.

use sidewinder_unwind_table::{Architecture, Register};

use super::state::{AbstractState, MAX_REGISTERS};
use super::value::{AbstractValue, SymbolicAddress};

/// An [`AbstractState`] that takes memory in proportion to what it knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct CompactState {
    architecture: Architecture,
    compared: Option<Register>,
    /// The registers that hold [`AbstractValue::Other`], one bit each. The rest are unknown, or listed below.
    others: u32,
    /// What is known of registers, by their DWARF numbers.
    registers: Box<[(u8, AbstractValue)]>,
    slots: Box<[(SymbolicAddress, AbstractValue)]>,
}

const _: () = assert!(MAX_REGISTERS <= u32::BITS as usize);

impl CompactState {
    pub(super) fn expand(&self) -> AbstractState {
        let mut state = AbstractState::unknown(self.architecture);
        for (number, held) in state.registers.iter_mut().enumerate() {
            if self.others & (1 << number) != 0 {
                *held = AbstractValue::Other;
            }
        }
        for (number, value) in &self.registers {
            if let Some(held) = state.registers.get_mut(usize::from(*number)) {
                *held = *value;
            }
        }
        for (held, slot) in state.slots.iter_mut().zip(&self.slots) {
            *held = Some(*slot);
        }
        state.compared = self.compared;
        state
    }

    /// The memory beside the structure itself.
    pub(super) fn heap_bytes(&self) -> usize {
        size_of_val(&*self.registers) + size_of_val(&*self.slots)
    }
}

impl From<&AbstractState> for CompactState {
    fn from(state: &AbstractState) -> Self {
        let numbered = (0_u8..).zip(&state.registers);
        let others = numbered.clone().filter(|(_, value)| **value == AbstractValue::Other);
        let is_plain = |value: AbstractValue| matches!(value, AbstractValue::Other | AbstractValue::Unknown);
        let known = numbered.filter(|(_, value)| !is_plain(**value));
        Self {
            architecture: state.architecture,
            compared: state.compared,
            others: others.fold(0, |others, (number, _)| others | 1 << number),
            registers: known.map(|(number, value)| (number, *value)).collect(),
            slots: state.slots().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compact_state_expands_to_what_it_was_made_of() {
        let architecture = Architecture::HOST;
        let mut state = AbstractState::with_registers(architecture, AbstractValue::Other);
        state.set(architecture.stack_pointer(), AbstractValue::Address(SymbolicAddress::cfa(-40)));
        state.set(architecture.frame_pointer(), AbstractValue::CallerFramePointer);
        state.set(architecture.call_clobbered()[0], AbstractValue::Unknown);
        state.store(SymbolicAddress::cfa(-16), AbstractValue::ReturnAddress);
        state.compared = Some(architecture.frame_pointer());
        for state in [state, AbstractState::unknown(architecture)] {
            let compact = CompactState::from(&state);
            assert_eq!(compact.expand(), state);
            assert!(size_of_val(&compact) + compact.heap_bytes() < size_of_val(&state) / 2);
        }
    }
}
