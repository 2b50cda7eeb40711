//! The effect of one instruction on a frame, and the frame that a call leaves to the called function.

use iced_x86::{
    ConditionCode, Instruction as Decoded, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    OpAccess, OpKind, Register as Iced,
};
use sidewinder_unwind_table::{Architecture, Register};

use super::Instruction;
use crate::code::state::AbstractState;
use crate::code::value::{AbstractValue, Origin, SymbolicAddress, WORD};

/// The most bytes written by an instruction whose operand has no size (`xsave`, `fxsave`).
const UNSIZED_OPERAND_BYTES: i32 = 4096;

/// Executes instructions on an [`AbstractState`].
pub(crate) struct Stepper {
    info: InstructionInfoFactory,
}

impl Stepper {
    pub(crate) fn new() -> Self {
        Self { info: InstructionInfoFactory::new() }
    }

    /// Applies an instruction after which execution continues with the next one.
    pub(crate) fn step(&mut self, instruction: &Instruction, state: &mut AbstractState) {
        let decoded = &instruction.decoded;
        if decoded.condition_code() == ConditionCode::ne {
            assume_equal(state);
        }
        let popped = state.stack_pointer().filter(|_| state.has_popped_return_address());
        if !self.step_known(decoded, state) {
            self.step_any(instruction, state);
        }
        let is_push_or_pop = matches!(decoded.mnemonic(), Mnemonic::Push | Mnemonic::Pop);
        if popped.is_some_and(|top| state.stack_pointer() != Some(top)) && !is_push_or_pop {
            state.drop_arguments(instruction.start());
        }
        state.compared = compared_with_stack_pointer(decoded);
    }

    /// The state after a jump that is taken.
    pub(crate) fn jump(&mut self, instruction: &Instruction, state: &AbstractState) -> AbstractState {
        let mut taken = state.clone();
        if instruction.decoded.condition_code() == ConditionCode::e {
            assume_equal(&mut taken);
        }
        taken.compared = None;
        taken
    }

    /// Handles instructions that move addresses and saved values. Returns whether this is one.
    fn step_known(&mut self, instruction: &Decoded, state: &mut AbstractState) -> bool {
        let destination = word_register(instruction, 0);
        match instruction.mnemonic() {
            Mnemonic::Nop | Mnemonic::Endbr64 => true,
            Mnemonic::Push if instruction.stack_pointer_increment() == -8 => {
                push(state, operand_value(instruction, 0, state));
                true
            }
            Mnemonic::Pop if instruction.stack_pointer_increment() == 8 => {
                let value = pop(state);
                if let Some(register) = destination {
                    state.set(register, value);
                } else if instruction.op0_kind() == OpKind::Memory {
                    write_memory(instruction, state, value);
                } else {
                    return false;
                }
                true
            }
            Mnemonic::Mov => match (destination, instruction.op0_kind()) {
                (Some(register), _) => {
                    let value = operand_value(instruction, 1, state);
                    write_register(state, register, value);
                    true
                }
                (None, OpKind::Memory) => {
                    let value = operand_value(instruction, 1, state);
                    write_memory(instruction, state, value);
                    true
                }
                _ => false,
            },
            Mnemonic::Lea => destination.is_some_and(|register| {
                let value = match effective_address(instruction, state) {
                    Some(address) => AbstractValue::Address(address),
                    None if reads_address(instruction, state) => AbstractValue::Unknown,
                    None => AbstractValue::Other,
                };
                write_register(state, register, value);
                true
            }),
            Mnemonic::Add | Mnemonic::Sub => destination.is_some_and(|register| {
                let value = sum(instruction, register, state);
                write_register(state, register, value);
                true
            }),
            Mnemonic::And => destination.is_some_and(|register| align(instruction, register, state)),
            Mnemonic::Xchg => match (destination, word_register(instruction, 1)) {
                (Some(one), Some(other)) => {
                    let (first, second) = (state.get(one), state.get(other));
                    write_register(state, one, second);
                    write_register(state, other, first);
                    true
                }
                _ => false,
            },
            Mnemonic::Leave => {
                state.set(Register::Rsp, address_or_unknown(state.get(Register::Rbp)));
                let frame_pointer = pop(state);
                state.set(Register::Rbp, frame_pointer);
                true
            }
            Mnemonic::Enter if instruction.stack_pointer_increment() <= -8 => {
                let size = -8 - instruction.stack_pointer_increment();
                push(state, state.get(Register::Rbp));
                state.set(Register::Rbp, state.get(Register::Rsp));
                let top = state.stack_pointer().and_then(|top| top.checked_add(-i64::from(size)));
                state.set(Register::Rsp, top.map_or(AbstractValue::Unknown, AbstractValue::Address));
                instruction.immediate8_2nd() == 0
            }
            Mnemonic::Cmp | Mnemonic::Test => true,
            _ => false,
        }
    }

    /// Handles an instruction of which only the operands it writes are known.
    fn step_any(&mut self, instruction: &Instruction, state: &mut AbstractState) {
        let decoded = &instruction.decoded;
        if decoded.mnemonic() == Mnemonic::Call {
            if instruction.is_call() {
                state.after_call();
            } else {
                push(state, AbstractValue::Other);
            }
            return;
        }
        let moved = state.stack_pointer().zip(Some(decoded.stack_pointer_increment()));
        let info = self.info.info_options(decoded, InstructionInfoOptions::NO_MEMORY_USAGE);
        for used in info.used_registers() {
            let certain = match used.access() {
                OpAccess::Write | OpAccess::ReadWrite => true,
                OpAccess::CondWrite | OpAccess::ReadCondWrite => false,
                OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess => continue,
            };
            if let Some(register) = general(used.register().full_register()) {
                write_register(
                    state,
                    register,
                    if certain { AbstractValue::Other } else { AbstractValue::Unknown },
                );
            }
        }
        for operand in 0..decoded.op_count() {
            let writes = matches!(
                info.op_access(operand),
                OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
            );
            if writes && decoded.op_kind(operand) == OpKind::Memory {
                write_memory(decoded, state, AbstractValue::Unknown);
            }
        }
        // Pushes and pops of flags, segments and half words.
        if let Some((top, by)) = moved.filter(|(_, by)| *by != 0)
            && let Some(moved) = top.checked_add(i64::from(by))
        {
            state.overwrite(moved, by.saturating_neg());
            state.set(Register::Rsp, AbstractValue::Address(moved));
        }
    }
}

/// The state at a function's first instruction, right after the call.
pub(crate) fn at_entry() -> AbstractState {
    let mut state = AbstractState::with_registers(Architecture::X86_64, AbstractValue::Other);
    state.set(Register::Rsp, AbstractValue::Address(SymbolicAddress::cfa(-WORD)));
    state.set(Register::Rbp, AbstractValue::CallerFramePointer);
    state.store(SymbolicAddress::cfa(-WORD), AbstractValue::ReturnAddress);
    state
}

/// Records that the register compared with the stack pointer equals it.
fn assume_equal(state: &mut AbstractState) {
    if let Some(register) = state.compared {
        state.set(Register::Rsp, address_or_unknown(state.get(register)));
    }
}

/// The register that a comparison with the stack pointer names, as in loops that touch each page of a new frame.
fn compared_with_stack_pointer(instruction: &Decoded) -> Option<Register> {
    if instruction.mnemonic() != Mnemonic::Cmp {
        return None;
    }
    match (word_register(instruction, 0)?, word_register(instruction, 1)?) {
        (Register::Rsp, other) | (other, Register::Rsp) => Some(other),
        _ => None,
    }
}

fn push(state: &mut AbstractState, value: AbstractValue) {
    let top = state.stack_pointer().and_then(|top| top.checked_add(-8));
    state.set(Register::Rsp, top.map_or(AbstractValue::Unknown, AbstractValue::Address));
    if let Some(top) = top {
        state.store(top, value);
    }
}

fn pop(state: &mut AbstractState) -> AbstractValue {
    let Some(top) = state.stack_pointer() else {
        state.set(Register::Rsp, AbstractValue::Unknown);
        return AbstractValue::Unknown;
    };
    state.set(Register::Rsp, top.checked_add(8).map_or(AbstractValue::Unknown, AbstractValue::Address));
    state.load(top)
}

/// Values of the stack pointer are either addresses of the frame or unknown: it always points to some stack.
fn address_or_unknown(value: AbstractValue) -> AbstractValue {
    value.address().map_or(AbstractValue::Unknown, AbstractValue::Address)
}

fn write_register(state: &mut AbstractState, register: Register, value: AbstractValue) {
    let value = if register == Register::Rsp { address_or_unknown(value) } else { value };
    state.set(register, value);
}

fn write_memory(instruction: &Decoded, state: &mut AbstractState, value: AbstractValue) {
    let Some(at) = effective_address(instruction, state) else { return };
    match i32::try_from(instruction.memory_size().size()) {
        Ok(8) => state.store(at, value),
        Ok(bytes @ 1..) => state.overwrite(at, bytes),
        _ => state.overwrite(at, UNSIZED_OPERAND_BYTES),
    }
}

fn operand_value(instruction: &Decoded, operand: u32, state: &AbstractState) -> AbstractValue {
    match instruction.op_kind(operand) {
        OpKind::Register => {
            word_register(instruction, operand).map_or(AbstractValue::Other, |register| state.get(register))
        }
        OpKind::Memory if instruction.memory_size().size() == 8 => {
            effective_address(instruction, state).map_or(AbstractValue::Unknown, |at| state.load(at))
        }
        _ => AbstractValue::Other,
    }
}

/// `register ± constant`.
fn sum(instruction: &Decoded, register: Register, state: &AbstractState) -> AbstractValue {
    let by = instruction.try_immediate(1).map(u64::cast_signed);
    match (state.get(register), by) {
        (AbstractValue::Unknown, _) => AbstractValue::Unknown,
        (AbstractValue::Address(address), Ok(by)) => {
            let by = if instruction.mnemonic() == Mnemonic::Sub { by.checked_neg() } else { Some(by) };
            by.and_then(|by| address.checked_add(by)).map_or(AbstractValue::Unknown, AbstractValue::Address)
        }
        _ if reads_address(instruction, state) => AbstractValue::Unknown,
        _ => AbstractValue::Other,
    }
}

/// Whether an operand is, or may be, an address of the frame.
fn reads_address(instruction: &Decoded, state: &AbstractState) -> bool {
    let operands = (0..instruction.op_count()).filter_map(|operand| word_register(instruction, operand));
    let memory = [instruction.memory_base(), instruction.memory_index()].into_iter().filter_map(general);
    operands
        .chain(memory)
        .any(|register| matches!(state.get(register), AbstractValue::Unknown | AbstractValue::Address(_)))
}

/// Clears the lowest bits of an address. Returns whether this is what the instruction does.
fn align(instruction: &Decoded, register: Register, state: &mut AbstractState) -> bool {
    let Ok(mask) = instruction.try_immediate(1) else { return false };
    let clears_low_bits = mask.leading_ones() + mask.trailing_zeros() == u64::BITS;
    if state.get(register).address().is_none() || !clears_low_bits {
        return false;
    }
    // Addresses fit 32 bits: see `Instruction`.
    let origin = Origin::Aligned { by: instruction.ip() as u32 };
    state.forget_origin(origin);
    state.set(register, AbstractValue::Address(SymbolicAddress { origin, offset: 0 }));
    true
}

/// The address of a memory operand, if it is an address of the frame.
fn effective_address(instruction: &Decoded, state: &AbstractState) -> Option<SymbolicAddress> {
    if instruction.memory_index() != Iced::None || matches!(instruction.segment_prefix(), Iced::FS | Iced::GS)
    {
        return None;
    }
    let base = general(instruction.memory_base())?;
    state.get(base).address()?.checked_add(instruction.memory_displacement64().cast_signed())
}

/// A 64-bit general register as an operand.
fn word_register(instruction: &Decoded, operand: u32) -> Option<Register> {
    (operand < instruction.op_count() && instruction.op_kind(operand) == OpKind::Register)
        .then(|| general(instruction.op_register(operand)))?
}

fn general(register: Iced) -> Option<Register> {
    Some(match register {
        Iced::RAX => Register::Rax,
        Iced::RDX => Register::Rdx,
        Iced::RCX => Register::Rcx,
        Iced::RBX => Register::Rbx,
        Iced::RSI => Register::Rsi,
        Iced::RDI => Register::Rdi,
        Iced::RBP => Register::Rbp,
        Iced::RSP => Register::Rsp,
        Iced::R8 => Register::R8,
        Iced::R9 => Register::R9,
        Iced::R10 => Register::R10,
        Iced::R11 => Register::R11,
        Iced::R12 => Register::R12,
        Iced::R13 => Register::R13,
        Iced::R14 => Register::R14,
        Iced::R15 => Register::R15,
        _ => return None,
    })
}
