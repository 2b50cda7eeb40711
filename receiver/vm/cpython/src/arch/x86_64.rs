//! x86-64: short functions of the interpreter, followed instruction by instruction.
//!
//! Source of the sequences: Drepper, "ELF Handling For Thread-Local Storage"; Oliva, "RFC TLSDESC x86-64".

use iced_x86::{Decoder, DecoderOptions, Instruction, Mnemonic, OpKind, Register};
use sidewinder_address::Svma;
use sidewinder_process::tls::TlsGotEntry;

use super::value::{Value, moved};
use super::{Argument, ThreadLocal};

mod tail_calls;
mod unlinked;

pub(crate) use tail_calls::{TABLE_CALL_BYTES, activations, calls_through, dispatch_table};
pub(crate) use unlinked::{CodePart, unlinked_code};

/// The rule for the canonical frame address at the entry of a function: a register by its number in DWARF, and an offset.
pub(crate) const ENTRY_CFA: (u16, i64) = (7, 8);

/// Bytes of a short function that are looked at.
pub(crate) const FUNCTION_BYTES_MAX: usize = 96;
const INSTRUCTIONS_MAX: usize = 24;

/// Code that makes a frame the thread's current one is read for all versions.
pub(crate) const READS_ASSIGNMENTS: bool = true;

/// The values of the general registers that are known.
#[derive(Default)]
struct Registers([Option<Value>; 16]);

impl Registers {
    fn get(&self, register: Register) -> Option<Value> {
        *self.0.get(register.full_register().number()).filter(|_| register.is_gpr())?
    }

    fn set(&mut self, register: Register, value: Option<Value>) {
        if let Some(held) = self.0.get_mut(register.full_register().number()).filter(|_| register.is_gpr()) {
            *held = value;
        }
    }
}

/// The thread-local variable whose value a function returns, from the function's code.
pub(crate) fn thread_local(code: &[u8], start: Svma) -> Option<ThreadLocal> {
    let mut registers = Registers::default();
    for instruction in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE).iter().take(INSTRUCTIONS_MAX)
    {
        let written = match instruction.mnemonic() {
            Mnemonic::Endbr64 | Mnemonic::Push | Mnemonic::Pop | Mnemonic::Nop => continue,
            Mnemonic::Sub | Mnemonic::Add if instruction.op0_register() == Register::RSP => continue,
            Mnemonic::Mov
                if instruction.op1_kind() == OpKind::Memory && instruction.memory_size().size() == 8 =>
            {
                match loaded(&instruction, &registers)? {
                    Load::Value(value) => Some(value),
                    Load::Variable(found) => return Some(found),
                }
            }
            Mnemonic::Mov => registers.get(instruction.op1_register()),
            Mnemonic::Lea => address(&instruction, &registers),
            Mnemonic::Add => sum(&instruction, &registers),
            Mnemonic::Call => {
                let block = called(&instruction, &registers)?;
                registers = Registers::default();
                registers.set(Register::RAX, Some(block));
                continue;
            }
            _ => return None,
        };
        registers.set(instruction.op0_register(), written);
    }
    None
}

enum Load {
    Value(Value),
    Variable(ThreadLocal),
}

/// What a load of 8 bytes reads.
fn loaded(instruction: &Instruction, registers: &Registers) -> Option<Load> {
    let distance = instruction.memory_displacement64() as i64;
    if instruction.memory_index() != Register::None {
        return indexed(instruction, registers).map(Load::Variable);
    }
    let base = instruction.memory_base();
    if instruction.segment_prefix() == Register::FS {
        return match (base, registers.get(base)) {
            (Register::None, _) if distance == 0 => Some(Load::Value(Value::Thread(0))),
            (Register::None, _) => Some(Load::Variable(ThreadLocal::Static(distance))),
            (_, Some(Value::Word(word, before))) => {
                Some(Load::Variable(offset_in_word(word, before.checked_add(distance)?)))
            }
            (_, Some(Value::OffsetOf(entry))) => {
                Some(Load::Variable(ThreadLocal::Got(moved(entry, distance)?)))
            }
            _ => None,
        };
    }
    if instruction.is_ip_rel_memory_operand() {
        return Some(Load::Value(Value::Word(instruction.ip_rel_memory_address(), 0)));
    }
    registers.get(base)?.variable(distance).map(Load::Variable)
}

/// A load at the sum of two registers: the thread pointer, and an offset.
fn indexed(instruction: &Instruction, registers: &Registers) -> Option<ThreadLocal> {
    if instruction.memory_index_scale() != 1 {
        return None;
    }
    let distance = instruction.memory_displacement64() as i64;
    match (registers.get(instruction.memory_base())?, registers.get(instruction.memory_index())?) {
        (Value::Thread(a), Value::Word(word, b)) | (Value::Word(word, b), Value::Thread(a)) => {
            Some(offset_in_word(word, a.checked_add(b)?.checked_add(distance)?))
        }
        _ => None,
    }
}

fn offset_in_word(word: u64, distance: i64) -> ThreadLocal {
    ThreadLocal::Got(TlsGotEntry::Offset(Svma(word), distance))
}

/// What `lea` writes.
fn address(instruction: &Instruction, registers: &Registers) -> Option<Value> {
    if instruction.is_ip_rel_memory_operand() {
        return Some(Value::Address(instruction.ip_rel_memory_address()));
    }
    if instruction.memory_index() != Register::None {
        return None;
    }
    registers.get(instruction.memory_base())?.plus(instruction.memory_displacement64() as i64)
}

/// What `add` to a register writes: the sum of the thread pointer and an offset.
fn sum(instruction: &Instruction, registers: &Registers) -> Option<Value> {
    let added = match instruction.op1_kind() {
        OpKind::Register => registers.get(instruction.op1_register())?,
        OpKind::Memory => match loaded(instruction, registers)? {
            Load::Value(value) => value,
            Load::Variable(_) => return None,
        },
        _ => return None,
    };
    registers.get(instruction.op0_register())?.sum(added)
}

/// What a call returns: that of `__tls_get_addr` the variable, that of a descriptor its offset.
fn called(instruction: &Instruction, registers: &Registers) -> Option<Value> {
    let is_by_descriptor =
        instruction.op0_kind() == OpKind::Memory && instruction.memory_base() == Register::RAX;
    match (is_by_descriptor, registers.get(Register::RAX), registers.get(Register::RDI)) {
        (true, Some(Value::Address(at)), _) => Some(Value::OffsetOf(TlsGotEntry::Descriptor(Svma(at), 0))),
        (false, _, Some(Value::Address(at))) => Some(Value::Variable(TlsGotEntry::Module(Svma(at), 0))),
        _ => None,
    }
}

/// The first argument that a function passes to another, from the function's code: the first value that it puts into the
/// register for that.
pub(crate) fn first_argument(code: &[u8], start: Svma) -> Option<Argument> {
    let mut registers = Registers::default();
    for instruction in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE).iter().take(INSTRUCTIONS_MAX)
    {
        let to = instruction.op0_register();
        let is_argument = to.full_register() == Register::RDI;
        let is_load =
            instruction.op1_kind() == OpKind::Memory && instruction.segment_prefix() == Register::None;
        match instruction.mnemonic() {
            Mnemonic::Lea => {
                let value = address(&instruction, &registers);
                if is_argument {
                    return value?.passed();
                }
                registers.set(to, value);
            }
            // Code at a fixed address.
            Mnemonic::Mov if is_argument && instruction.op1_kind() == OpKind::Immediate32 => {
                return Some(Argument::Address(Svma(instruction.immediate32().into())));
            }
            Mnemonic::Mov if is_load && is_argument && instruction.memory_size().size() == 4 => {
                return address(&instruction, &registers)?.half()?.passed();
            }
            Mnemonic::Mov if is_load && instruction.is_ip_rel_memory_operand() => {
                registers.set(to, Some(Value::Word(instruction.ip_rel_memory_address(), 0)));
            }
            Mnemonic::Mov if instruction.op1_kind() == OpKind::Register => {
                let value = registers.get(instruction.op1_register());
                if is_argument {
                    return value?.passed();
                }
                registers.set(to, value);
            }
            Mnemonic::Ret | Mnemonic::Jmp | Mnemonic::Call | Mnemonic::INVALID => return None,
            Mnemonic::Mov => registers.set(to, None),
            _ => {}
        }
    }
    None
}

/// The targets of a function's direct jumps to other code, sorted.
pub(crate) fn jumps_out(code: &[u8], start: Svma) -> Vec<Svma> {
    let own = start.0..start.0.saturating_add(code.len() as u64);
    let mut targets: Vec<Svma> = Decoder::with_ip(64, code, start.0, DecoderOptions::NONE)
        .iter()
        .filter(|instruction| instruction.is_jmp_short_or_near() || instruction.is_jcc_short_or_near())
        .map(|instruction| Svma(instruction.near_branch_target()))
        .filter(|target| !own.contains(&target.0))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

#[cfg(test)]
mod tests;
