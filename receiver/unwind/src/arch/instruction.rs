//! An instruction of any architecture, and the effect of one on a frame.

use sidewinder_address::Svma;
use sidewinder_unwind_table::Architecture;

use super::{aarch64, x86_64};
use crate::code::state::AbstractState;

/// A decoded instruction, as far as the control flow of a function depends on it. Addresses are in bytes from the lowest code of
/// its file, which fit 32 bits.
#[derive(Clone, Copy)]
pub(crate) enum Instruction {
    X86_64(x86_64::Instruction),
    Aarch64(aarch64::Instruction),
}

/// Calls a method that the instructions of all architectures have.
macro_rules! delegate {
    ($instruction:expr, $method:ident) => {
        match $instruction {
            Self::X86_64(instruction) => instruction.$method(),
            Self::Aarch64(instruction) => instruction.$method(),
        }
    };
}

impl Instruction {
    /// Decodes the instruction at the start of `bytes`, located at `at`. Zeros are not decoded, though they could be:
    /// they fill what was never written.
    pub(crate) fn decode(architecture: Architecture, bytes: &[u8], at: u32) -> Option<Self> {
        match architecture {
            Architecture::X86_64 => x86_64::Instruction::decode(bytes, at).map(Self::X86_64),
            Architecture::Aarch64 => aarch64::Instruction::decode(bytes, at).map(Self::Aarch64),
        }
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> u32 {
        delegate!(self, start)
    }

    /// The first byte after it.
    pub(crate) fn end(&self) -> u32 {
        delegate!(self, end)
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u32 {
        delegate!(self, len)
    }

    /// The target of a direct jump or call.
    pub(crate) fn target(&self) -> Option<u32> {
        delegate!(self, target)
    }

    /// Whether it calls anything but the instruction after it, which is how code obtains its own address.
    pub(crate) fn is_call(&self) -> bool {
        delegate!(self, is_call)
    }

    /// Whether it jumps to an address in its operand, always or on a condition.
    pub(crate) fn is_direct_jump(&self) -> bool {
        delegate!(self, is_direct_jump)
    }

    /// Whether it jumps to an address held in a register or a word of memory.
    pub(crate) fn is_indirect_jump(&self) -> bool {
        delegate!(self, is_indirect_jump)
    }

    /// Whether it returns to the caller.
    pub(crate) fn is_return(&self) -> bool {
        delegate!(self, is_return)
    }

    /// The address of the word that it reads, writes or jumps through, where the code contains that address.
    pub(crate) fn stated_word(&self) -> Option<u64> {
        delegate!(self, stated_word)
    }

    /// Whether it saves what a call has left of the return address, as only another function's first instructions do: the call
    /// before doesn't return.
    pub(crate) fn begins_function(&self, state: &AbstractState) -> bool {
        match self {
            Self::X86_64(_) => false,
            Self::Aarch64(instruction) => instruction.begins_function(state),
        }
    }

    /// Whether user programs may not execute it.
    pub(crate) fn is_privileged(&self) -> bool {
        delegate!(self, is_privileged)
    }

    /// Whether it does nothing, like the instructions used to align code.
    pub(crate) fn is_padding(&self) -> bool {
        delegate!(self, is_padding)
    }

    /// Whether execution never continues with the next instruction.
    pub(crate) fn is_last(&self) -> bool {
        delegate!(self, is_last)
    }
}

/// The addresses that code computes, where it contains them: of data, or of functions that are called through a pointer.
#[derive(Default)]
pub(crate) struct StatedAddresses {
    aarch64: aarch64::Pages,
}

impl StatedAddresses {
    /// The address that the next instruction in the order of addresses computes. `base` is that of the lowest code.
    pub(crate) fn next(&mut self, instruction: &Instruction, base: Svma) -> Option<u32> {
        match instruction {
            Instruction::X86_64(instruction) => instruction.stated_address(),
            Instruction::Aarch64(instruction) => self.aarch64.next(instruction, base),
        }
    }
}

/// Executes instructions on an [`AbstractState`].
pub(crate) struct Stepper {
    x86_64: x86_64::Stepper,
}

impl Stepper {
    pub(crate) fn new() -> Self {
        Self { x86_64: x86_64::Stepper::new() }
    }

    /// Applies an instruction after which execution continues with the next one.
    pub(crate) fn step(&mut self, instruction: &Instruction, state: &mut AbstractState) {
        match instruction {
            Instruction::X86_64(instruction) => self.x86_64.step(instruction, state),
            Instruction::Aarch64(instruction) => instruction.step(state),
        }
    }

    /// The state after a jump that is taken.
    pub(crate) fn jump(&mut self, instruction: &Instruction, state: &AbstractState) -> AbstractState {
        match instruction {
            Instruction::X86_64(instruction) => self.x86_64.jump(instruction, state),
            Instruction::Aarch64(_) => {
                let mut taken = state.clone();
                taken.compared = None;
                taken
            }
        }
    }
}
