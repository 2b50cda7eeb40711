//! arm64: short functions of interpreters, followed instruction by instruction.
//!
//! Source of the sequences: "ELF for the Arm 64-bit Architecture", section "Thread Local Storage", and the output of gcc and
//! clang.

use sidewinder_address::Svma;
use sidewinder_process::tls::TlsGotEntry;
use sidewinder_vm_runtime::arch::Flow;
use sidewinder_vm_runtime::arch::aarch64::{INSTRUCTION_BYTES_MAX, step};

use super::super::value::Value;
use super::super::{Argument, ThreadLocal};

const INSTRUCTIONS_MAX: usize = 24;
/// The register of the first argument and of the result.
const FIRST: u8 = 0;
/// As a base register, the stack pointer.
const SP: u8 = 31;

/// An instruction, as far as values are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Instruction {
    /// Changes no general register.
    Nothing,
    /// `adr` and `adrp`.
    Address { to: u8, address: u64 },
    /// `mrs` of the thread pointer.
    ThreadPointer { to: u8 },
    /// `mov` of a register.
    Move { to: u8, from: u8 },
    /// `add` of a constant.
    Plus { to: u8, from: u8, distance: i64 },
    /// `add` of two registers.
    Sum { to: u8, a: u8, b: u8 },
    /// `ldr` of 8 bytes.
    Load { to: u8, base: u8, distance: i64 },
    /// The same of 4 bytes.
    LoadHalf { to: u8, base: u8, distance: i64 },
    /// `ldr` of 8 bytes at the sum of two registers.
    LoadIndexed { to: u8, base: u8, index: u8 },
    /// `ldp` of 8 bytes each.
    LoadPair { to: [u8; 2] },
    /// `bl`.
    Call,
    /// `blr`.
    CallRegister { target: u8 },
}

/// The instruction at an address; `None`: another one.
fn decode(word: u32, at: u64) -> Option<Instruction> {
    let field = |low: u32| (word >> low & 31) as u8;
    let (to, base, other) = (field(0), field(5), field(16));
    let immediate = i64::from(word >> 10 & 0xfff);
    // That of `add` and `sub`, which may be shifted by 12 bits.
    let constant = if word >> 22 & 1 == 1 { immediate << 12 } else { immediate };
    Some(match word {
        // Hints, `bti`, `paciasp` and `autiasp` among them.
        _ if word & 0xffff_f01f == 0xd503_201f => Instruction::Nothing,
        // Compares, which are subtractions into no register; `cbz`, `cbnz`, `tbz`, `tbnz`, `b.cond`.
        _ if word & 0x7f00_001f == 0x7100_001f || word & 0x7f20_001f == 0x6b00_001f => Instruction::Nothing,
        _ if word & 0x7c00_0000 == 0x3400_0000 || word & 0xff00_0010 == 0x5400_0000 => Instruction::Nothing,
        // Stores of one register and of two, by any addressing; the base that some of them move is the stack pointer's.
        _ if word & 0x3e40_0000 == 0x2800_0000 && base == SP => Instruction::Nothing,
        _ if word & 0xbfc0_0000 == 0xb900_0000 => Instruction::Nothing,
        _ if word & 0xbfe0_0400 == 0xb800_0400 && base == SP => Instruction::Nothing,
        _ if word & 0x1f00_0000 == 0x1000_0000 => {
            let distance = (word >> 5 & 0x7_ffff) << 2 | word >> 29 & 3;
            let distance = i64::from((distance << 11).cast_signed() >> 11);
            let is_of_pages = word >> 31 == 1;
            let address = if is_of_pages {
                (at >> 12 << 12).wrapping_add_signed(distance << 12)
            } else {
                at.wrapping_add_signed(distance)
            };
            Instruction::Address { to, address }
        }
        _ if word & 0xffff_ffe0 == 0xd53b_d040 => Instruction::ThreadPointer { to },
        _ if word & 0xffe0_ffe0 == 0xaa00_03e0 => Instruction::Move { to, from: other },
        _ if word & 0xff80_0000 == 0x9100_0000 => Instruction::Plus { to, from: base, distance: constant },
        // `sub` of a constant.
        _ if word & 0xff80_0000 == 0xd100_0000 => Instruction::Plus { to, from: base, distance: -constant },
        _ if word & 0xffe0_fc00 == 0x8b00_0000 => Instruction::Sum { to, a: base, b: other },
        _ if word & 0xffc0_0000 == 0xf940_0000 => Instruction::Load { to, base, distance: immediate * 8 },
        _ if word & 0xffc0_0000 == 0xb940_0000 => Instruction::LoadHalf { to, base, distance: immediate * 4 },
        _ if word & 0xffe0_fc00 == 0xf860_6800 => Instruction::LoadIndexed { to, base, index: other },
        // Moves of the base, which is the stack pointer.
        _ if word & 0xfe40_0000 == 0xa840_0000 && base == SP => Instruction::LoadPair { to: [to, field(10)] },
        _ if word >> 26 == 0b10_0101 => Instruction::Call,
        _ if word & 0xffff_fc1f == 0xd63f_0000 => Instruction::CallRegister { target: base },
        _ => return None,
    })
}

/// The values of the registers that are known.
#[derive(Default)]
struct Registers([Option<Value>; SP as usize]);

impl Registers {
    fn get(&self, register: u8) -> Option<Value> {
        *self.0.get(usize::from(register))?
    }

    fn set(&mut self, register: u8, value: Option<Value>) {
        if let Some(held) = self.0.get_mut(usize::from(register)) {
            *held = value;
        }
    }

    /// Executes an instruction that doesn't refer to a thread-local variable; `None` for a call.
    fn execute(&mut self, instruction: Instruction) -> Option<()> {
        match instruction {
            Instruction::Nothing => {}
            Instruction::Address { to, address } => self.set(to, Some(Value::Address(address))),
            Instruction::ThreadPointer { to } => self.set(to, Some(Value::Thread(0))),
            Instruction::Move { to, from } => self.set(to, self.get(from)),
            Instruction::Plus { to, from, distance } => {
                self.set(to, self.get(from).and_then(|value| value.plus(distance)));
            }
            Instruction::Sum { to, a, b } => {
                let sum = self.get(a).zip(self.get(b)).and_then(|(a, b)| a.sum(b));
                self.set(to, sum);
            }
            Instruction::Load { to, base, distance } => {
                let word = match self.get(base).and_then(|value| value.plus(distance)) {
                    Some(Value::Address(at)) => Some(Value::Word(at, 0)),
                    _ => None,
                };
                self.set(to, word);
            }
            Instruction::LoadHalf { to, base, distance } => {
                let from = self.get(base).and_then(|value| value.plus(distance));
                self.set(to, from.and_then(Value::half));
            }
            Instruction::LoadIndexed { to, .. } => self.set(to, None),
            Instruction::LoadPair { to } => to.into_iter().for_each(|to| self.set(to, None)),
            Instruction::Call | Instruction::CallRegister { .. } => return None,
        }
        Some(())
    }
}

fn instructions(code: &[u8], start: Svma) -> impl Iterator<Item = (u64, [u8; INSTRUCTION_BYTES_MAX], u32)> {
    let (words, _) = code.as_chunks::<INSTRUCTION_BYTES_MAX>();
    let places = (0..).map(move |number: u64| start.0.wrapping_add(number * INSTRUCTION_BYTES_MAX as u64));
    places.zip(words).take(INSTRUCTIONS_MAX).map(|(at, word)| (at, *word, u32::from_le_bytes(*word)))
}

/// The thread-local variable whose value a function returns, from the function's code.
pub(crate) fn thread_local(code: &[u8], start: Svma) -> Option<ThreadLocal> {
    let mut registers = Registers::default();
    for (at, _, word) in instructions(code, start) {
        let instruction = decode(word, at)?;
        if let Instruction::Load { base, distance, .. } = instruction
            && let Some(found) = registers.get(base).and_then(|value| value.variable(distance))
        {
            return Some(found);
        }
        match instruction {
            Instruction::LoadIndexed { base, index, .. } => {
                return registers.get(base)?.sum(registers.get(index)?)?.variable(0);
            }
            // `__tls_get_addr`.
            Instruction::Call => {
                let Some(Value::Address(at)) = registers.get(FIRST) else { return None };
                registers = Registers::default();
                registers.set(FIRST, Some(Value::Variable(TlsGotEntry::Module(Svma(at), 0))));
            }
            // The function of a descriptor changes no register but the first.
            Instruction::CallRegister { target } => {
                let (Some(Value::Address(at)), Some(Value::Word(word, 0))) =
                    (registers.get(FIRST), registers.get(target))
                else {
                    return None;
                };
                if word != at {
                    return None;
                }
                registers.set(FIRST, Some(Value::OffsetOf(TlsGotEntry::Descriptor(Svma(at), 0))));
            }
            other => registers.execute(other)?,
        }
    }
    None
}

/// The first argument that a function passes to another, from the function's code, if no conditional branch is taken: what the
/// register for that contains at the first call, or at a jump to other code.
pub(crate) fn first_argument(code: &[u8], start: Svma) -> Option<Argument> {
    let mut registers = Registers::default();
    for (at, bytes, word) in instructions(code, start) {
        if matches!(step(&bytes, at)?.flow, Flow::Call | Flow::Jump(_)) {
            return registers.get(FIRST)?.passed();
        }
        registers.execute(decode(word, at)?)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn the_variable_of_a_getter_is_found_in_each_model() {
        use ThreadLocal::{Got, Static};
        use TlsGotEntry::{Descriptor, Module, Offset};

        for (what, start, words, expected) in [
            (
                "python3.13 of Debian",
                0x6c_9970,
                &[0xd503_245f, 0xd53b_d040, 0x9140_0000, 0x9100_6000, 0xf940_0000, 0xd65f_03c0][..],
                Static(24),
            ),
            (
                "libpython3.13 of Debian",
                0x29_ac88,
                &[
                    0xd503_233f,
                    0xd53b_d041,
                    0xa9bf_7bfd,
                    0x9100_03fd,
                    0xf000_2020,
                    0xf940_5802,
                    0x9102_c000,
                    0xd63f_0040,
                    0xf860_6820,
                    0xa8c1_7bfd,
                    0xd503_23bf,
                    0xd65f_03c0,
                ],
                Got(Descriptor(Svma(0x6a_10b0), 0)),
            ),
            // `adrp x1; ldr x1, [x1, #0xfe0]; mrs x0, tpidr_el0; ldr x0, [x0, x1]`.
            (
                "initial exec",
                0x1_0600,
                &[0xf000_0081, 0xf947_f021, 0xd53b_d040, 0xf861_6800, 0xd65f_03c0],
                Got(Offset(Svma(0x2_3fe0), 0)),
            ),
            // The same, of a field: `add x0, x0, x1; ldr x0, [x0, #8]`.
            (
                "a field, initial exec",
                0x1_0600,
                &[0xf000_0081, 0xf947_f021, 0xd53b_d040, 0x8b01_0000, 0xf940_0400],
                Got(Offset(Svma(0x2_3fe0), 8)),
            ),
            // `stp x29, x30, [sp, #-16]!; adrp x0; add x0, x0, #0xfd0; bl; ldr x0, [x0]`.
            (
                "gcc -mtls-dialect=trad",
                0x1_0600,
                &[0xa9bf_7bfd, 0x9100_03fd, 0xf000_0080, 0x913f_4000, 0x97ff_fff0, 0xf940_0000],
                Got(Module(Svma(0x2_3fd0), 0)),
            ),
        ] {
            assert_eq!(thread_local(&code(words), Svma(start)), Some(expected), "{what}");
        }
        for (what, words) in [
            ("nothing", &[][..]),
            ("null", &[0xd280_0000, 0xd65f_03c0]),
            ("a global variable", &[0xf000_0080, 0xf947_f000, 0xf940_0000, 0xd65f_03c0]),
            ("a call without an argument", &[0x97ff_fff0, 0xf940_0000]),
            (
                "a call of another function than the descriptor's",
                &[0xf000_0080, 0xf940_0002, 0x9100_2000, 0xd63f_0040],
            ),
        ] {
            assert_eq!(thread_local(&code(words), Svma(0x1_0600)), None, "{what}");
        }
    }

    #[test]
    fn the_argument_of_a_getter_is_found() {
        for (what, start, words, expected) in [
            (
                "python3.13 of Debian",
                0x47_f420,
                &[0xd503_245f, 0x9000_2d40, 0x911a_6000, 0xb948_7001, 0x3400_0061, 0xb948_7400, 0x17fe_8556]
                    [..],
                Argument::Value(Svma(0xa2_7f0c)),
            ),
            (
                "libpython3.13 of Debian",
                0x2a_9ee0,
                &[
                    0xd503_233f,
                    0xa9be_7bfd,
                    0x9100_03fd,
                    0xf900_0bf3,
                    0xd000_1fb3,
                    0xf946_3a73,
                    0x9121_c260,
                    0x9400_3981,
                ],
                Argument::ThroughWord(Svma(0x69_fc70), 0x870),
            ),
            (
                "python3.11 of Debian",
                0x47_1314,
                &[0xb000_2e20, 0x9100_2000, 0xf941_2c01, 0xb400_0061, 0xb942_6400, 0x17fe_ba0e],
                Argument::Value(Svma(0xa3_626c)),
            ),
        ] {
            assert_eq!(first_argument(&code(words), Svma(start)), Some(expected), "{what}");
        }
        assert_eq!(first_argument(&code(&[0xd280_0000, 0xd65f_03c0]), Svma(0)), None);
    }

    proptest! {
        #[test]
        fn any_code_is_followed_to_its_end(words in prop::collection::vec(any::<u32>(), 0..32), start: u64) {
            let _ = thread_local(&code(&words), Svma(start));
            let _ = first_argument(&code(&words), Svma(start));
        }
    }
}
