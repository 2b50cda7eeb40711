//! One decoded instruction, as far as the control flow of a function depends on it.

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Mnemonic, OpKind};

/// An instruction of 64-bit code. Addresses are in bytes from the lowest code of its file, which fit 32 bits.
#[derive(Clone, Copy)]
pub(crate) struct Instruction {
    pub(super) decoded: iced_x86::Instruction,
}

impl Instruction {
    /// Decodes the instruction at the start of `bytes`, located at `at`. Zeros are not decoded, though they could be:
    /// they fill what was never written.
    pub(crate) fn decode(bytes: &[u8], at: u32) -> Option<Self> {
        if bytes.starts_with(&[0, 0]) {
            return None;
        }
        let decoded = Decoder::with_ip(64, bytes, u64::from(at), DecoderOptions::NONE).decode();
        (!decoded.is_invalid()).then_some(Self { decoded })
    }

    /// Its first byte.
    pub(crate) fn start(&self) -> u32 {
        self.decoded.ip() as u32
    }

    /// The first byte after it.
    pub(crate) fn end(&self) -> u32 {
        self.decoded.next_ip() as u32
    }

    /// Its length in bytes.
    pub(crate) fn len(&self) -> u32 {
        self.decoded.len() as u32
    }

    fn near_target(&self) -> Option<u64> {
        (self.decoded.op_count() == 1 && self.decoded.op0_kind() == OpKind::NearBranch64)
            .then(|| self.decoded.near_branch_target())
    }

    /// The target of a direct jump or call.
    pub(crate) fn target(&self) -> Option<u32> {
        self.near_target().and_then(|target| u32::try_from(target).ok())
    }

    /// Whether it calls anything but the instruction after it, which is how code obtains its own address.
    pub(crate) fn is_call(&self) -> bool {
        self.decoded.mnemonic() == Mnemonic::Call && self.near_target() != Some(self.decoded.next_ip())
    }

    /// Whether it jumps to an address in its operand, always or on a condition.
    pub(crate) fn is_direct_jump(&self) -> bool {
        matches!(
            self.decoded.flow_control(),
            FlowControl::ConditionalBranch | FlowControl::UnconditionalBranch
        )
    }

    /// Whether it jumps to an address held in a register or a word of memory.
    pub(crate) fn is_indirect_jump(&self) -> bool {
        self.decoded.flow_control() == FlowControl::IndirectBranch
    }

    /// Whether it returns to the caller.
    pub(crate) fn is_return(&self) -> bool {
        self.decoded.flow_control() == FlowControl::Return
    }

    /// The address of the word that it reads, writes or jumps through, where the code contains that address.
    pub(crate) fn stated_word(&self) -> Option<u64> {
        self.decoded.is_ip_rel_memory_operand().then(|| self.decoded.ip_rel_memory_address())
    }

    /// The address that it computes, where the code contains that: of data, or of a function that is called through a pointer.
    pub(crate) fn stated_address(&self) -> Option<u32> {
        let address = self.stated_word().filter(|_| self.decoded.mnemonic() == Mnemonic::Lea)?;
        u32::try_from(address).ok()
    }

    /// Whether user programs may not execute it.
    pub(crate) fn is_privileged(&self) -> bool {
        self.decoded.is_privileged()
    }

    /// Whether it does nothing, like the instructions used to align code.
    pub(crate) fn is_padding(&self) -> bool {
        match self.decoded.mnemonic() {
            Mnemonic::Nop | Mnemonic::Int3 => true,
            Mnemonic::Xchg => self.decoded.op0_register() == self.decoded.op1_register(),
            _ => false,
        }
    }

    /// Whether execution never continues with the next instruction.
    pub(crate) fn is_last(&self) -> bool {
        match self.decoded.flow_control() {
            FlowControl::UnconditionalBranch
            | FlowControl::IndirectBranch
            | FlowControl::Return
            | FlowControl::Exception => true,
            FlowControl::Interrupt => self.decoded.code() == Code::Int3,
            _ => self.decoded.mnemonic() == Mnemonic::Hlt,
        }
    }
}
