//! Machine code of WebAssembly, as V8 10 to 14 generates it.

use iced_x86::{Code, Decoder, DecoderOptions, Instruction, Mnemonic, Register};

use super::WasmStart;

/// Whether walks can look up the code that it generates.
pub(crate) const IS_WALKED: bool = true;

/// Functions, and the tables of jumps to them, begin at addresses that are multiples of this (`kCodeAlignment`).
pub(crate) const WASM_ALIGNMENT: usize = 64;
/// How many bytes at the start of a function [`wasm_start`] looks at.
pub(crate) const WASM_START_BYTES: usize = 11;

const PUSH_RBP: &[u8] = &[0x55, 0x48, 0x89, 0xe5, 0x6a];
const LOAD_R12D: &[u8] = &[0x41, 0xbc];
const CLEAR_R12D: &[u8] = &[0x45, 0x31, 0xe4];
const CALL: u8 = 0xe8;
const JUMP: u8 = 0xe9;
const JUMP_BYTES: usize = 5;
const TRAP: u8 = 0xcc;

/// How a function begins: `push rbp; mov rbp, rsp; push imm8`, or, for the baseline compiler since V8 12, `mov r12d, imm32` or
/// `xor r12d, r12d`, and the call of the builtin that makes the frame.
pub(crate) fn wasm_start(code: &[u8]) -> Option<WasmStart> {
    if let Some(rest) = code.strip_prefix(PUSH_RBP) {
        return rest.first().map(|marker| WasmStart::Frame((*marker).into()));
    }
    let (number, rest) = match code.strip_prefix(LOAD_R12D) {
        Some(rest) => {
            let (number, rest) = rest.split_first_chunk()?;
            (u32::from_le_bytes(*number), rest)
        }
        None => (0, code.strip_prefix(CLEAR_R12D)?),
    };
    (rest.first() == Some(&CALL)).then_some(WasmStart::Numbered(number))
}

/// The number of a function of the baseline compiler of V8 11 and 12, which counts down in an array with a word for each function
/// until it is compiled again: `mov array(instance),A; sub $cost,4*number(A); js`, or with a register for the word. `code` begins
/// with the function, at an address. `None`: it doesn't count, or in more than one word.
pub(crate) fn wasm_counted_number(code: &[u8], start: u64) -> Option<u32> {
    let (mut array, mut word, mut found) = (Register::None, None, None);
    for instruction in &mut Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
        let offset = usize::try_from(instruction.ip() - start).ok()?;
        let begins_another = offset > 0
            && offset.is_multiple_of(WASM_ALIGNMENT)
            && code.get(offset..).is_some_and(|code| wasm_start(code).is_some());
        if begins_another {
            break;
        }
        match instruction.code() {
            Code::Mov_r64_rm64 if is_field_of_object(&instruction) => {
                (array, word) = (instruction.op0_register(), None);
            }
            Code::Mov_r32_rm32 | Code::Sub_rm32_imm8 | Code::Sub_rm32_imm32
                if array != Register::None && instruction.memory_base() == array =>
            {
                let place = u32::try_from(instruction.memory_displacement64()).ok();
                word = place.filter(|place| instruction.memory_index() == Register::None && place % 4 == 0);
                array = Register::None;
            }
            Code::Sub_rm32_imm8 | Code::Sub_rm32_imm32 if instruction.memory_base() == Register::None => {}
            _ if instruction.mnemonic() == Mnemonic::Js => {
                let number = word.take().map(|place| place / 4);
                if number.is_some() && found.is_some() && number != found {
                    return None;
                }
                found = number.or(found);
                array = Register::None;
            }
            _ => (array, word) = (Register::None, None),
        }
    }
    found
}

/// Whether a word is loaded from an address in a register, at a distance, and not from the stack.
fn is_field_of_object(instruction: &Instruction) -> bool {
    let on_stack = [Register::RBP, Register::RSP].contains(&instruction.memory_base());
    instruction.memory_base().is_gpr64() && !on_stack && instruction.memory_index() == Register::None
}

/// A table of jumps: one for each function that the module declares, to its newest code. No jump crosses the end of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JumpTable {
    slot_bytes: u32,
}

impl JumpTable {
    /// The bytes of a line.
    pub(crate) const LINE_BYTES: usize = 64;

    /// The form of a table that begins with this line; `None`: it is none. Since V8 13, a jump is padded to 8 bytes.
    pub(crate) fn of(line: &[u8; Self::LINE_BYTES]) -> Option<Self> {
        let is_padded = line[JUMP_BYTES..8].iter().all(|byte| *byte == TRAP);
        (line[0] == JUMP).then_some(Self { slot_bytes: if is_padded { 8 } else { 5 } })
    }

    /// How many jumps a line has.
    pub(crate) fn jumps_of_line(self) -> u32 {
        Self::LINE_BYTES as u32 / self.slot_bytes
    }

    /// Where the jump with a number in a line at an address leads to.
    pub(crate) fn target(self, line: &[u8; Self::LINE_BYTES], number: u32, address: u64) -> Option<u64> {
        let at = number.checked_mul(self.slot_bytes)? as usize;
        let (opcode, distance) = line.get(at..at.checked_add(JUMP_BYTES)?)?.split_first()?;
        let distance = i32::from_le_bytes(*distance.first_chunk()?);
        let next = address.wrapping_add((at + JUMP_BYTES) as u64);
        (*opcode == JUMP).then(|| next.wrapping_add_signed(distance.into()))
    }
}

/// Code for tests.
#[cfg(any(test, feature = "test-support"))]
pub(crate) mod wasm_code {
    use super::{CALL, JUMP, JUMP_BYTES, JumpTable, LOAD_R12D, PUSH_RBP, TRAP};

    /// The start of a function whose frame has this marker.
    pub(crate) fn function(marker: u8) -> Vec<u8> {
        [PUSH_RBP, &[marker, 0x56]].concat()
    }

    /// The start of a function that says its number.
    pub(crate) fn numbered(number: u32) -> Vec<u8> {
        [LOAD_R12D, &number.to_le_bytes(), &[CALL, 0, 0, 0, 0]].concat()
    }

    /// The first line of a table of jumps at an address.
    pub(crate) fn jumps(at: u64, targets: &[u64]) -> [u8; JumpTable::LINE_BYTES] {
        let mut line = [TRAP; JumpTable::LINE_BYTES];
        for ((number, slot), target) in (1..).zip(line.chunks_exact_mut(JUMP_BYTES)).zip(targets) {
            let distance = target.wrapping_sub(at + number * JUMP_BYTES as u64) as u32;
            slot[0] = JUMP;
            slot[1..].copy_from_slice(&distance.to_le_bytes());
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::wasm_code::function;
    use super::*;

    /// Of Node.js 20, 24 and 26.
    #[test]
    fn starts_of_functions_say_what_their_frame_is_or_their_number() {
        let frame = |code| match wasm_start(code) {
            Some(WasmStart::Frame(marker)) => Some(marker),
            _ => None,
        };
        assert_eq!(frame(&[0x55, 0x48, 0x89, 0xe5, 0x6a, 0x08, 0x56, 0x48, 0x83, 0xec, 0x18]), Some(8));
        assert_eq!(frame(&[0x55, 0x48, 0x89, 0xe5, 0x6a, 0x30, 0x56, 0x48, 0x83, 0xec, 0x10]), Some(0x30));
        let numbered = |code| match wasm_start(code) {
            Some(WasmStart::Numbered(number)) => Some(number),
            _ => None,
        };
        assert_eq!(numbered(&[0x45, 0x31, 0xe4, 0xe8, 0xc8, 0xf7, 0xff, 0xff, 0x48, 0x81, 0xec]), Some(0));
        assert_eq!(
            numbered(&[0x41, 0xbc, 0x02, 0x01, 0x00, 0x00, 0xe8, 0x45, 0xf6, 0xff, 0xff]),
            Some(0x102)
        );
        for other in [&[][..], &[0x55, 0x48, 0x89, 0xe5], &[0x41, 0xbc, 2, 0, 0, 0, 0x90], &[0xcc; 11]] {
            assert_eq!(wasm_start(other), None);
        }
    }

    /// Of Node.js 20 and 22.
    #[test]
    fn a_function_counts_in_a_word_with_its_number() {
        // mov -0x10(%rbp),%rax; mov 0xaf(%rax),%rax; mov 4(%rax),%edx; sub $0x49,%edx; js; mov %edx,4(%rax); mov %ecx,%eax
        let code = [
            0x48, 0x8b, 0x45, 0xf0, 0x48, 0x8b, 0x80, 0xaf, 0, 0, 0, 0x8b, 0x50, 0x04, 0x83, 0xea, 0x49,
            0x0f, 0x88, 0x17, 0, 0, 0, 0x89, 0x50, 0x04, 0x8b, 0xc1,
        ];
        assert_eq!(wasm_counted_number(&code, 0x1000), Some(1));
        // mov -0x10(%rbp),%r10; mov 0x77(%r10),%r10; subl $0x46,0x404(%r10); js
        let code = |word: u8| {
            [
                0x4c, 0x8b, 0x55, 0xf0, 0x4d, 0x8b, 0x52, 0x77, 0x41, 0x83, 0xaa, word, 0x04, 0, 0, 0x46,
                0x0f, 0x88, 0x14, 0, 0, 0,
            ]
        };
        assert_eq!(wasm_counted_number(&code(4), 0x1000), Some(0x101));
        assert_eq!(wasm_counted_number(&[code(4), code(4)].concat(), 0x1000), Some(0x101));
        assert_eq!(wasm_counted_number(&[code(4), code(8)].concat(), 0x1000), None, "two words");
        assert_eq!(wasm_counted_number(&code(4)[..16], 0x1000), None, "no branch");
        // The next function is another one.
        let mut both = code(4).to_vec();
        both.resize(WASM_ALIGNMENT, TRAP);
        both.extend(function(8));
        both.extend([0x90; 16]);
        both.extend(code(8));
        assert_eq!(wasm_counted_number(&both, 0x1000), Some(0x101));
    }

    #[test]
    fn jumps_lead_to_functions() {
        // Of Node.js 20, of four functions, and of Node.js 26.
        let mut line = [TRAP; JumpTable::LINE_BYTES];
        line[..20].copy_from_slice(&[
            0xe9, 0xbb, 0x07, 0, 0, 0xe9, 0x36, 0x08, 0, 0, 0xe9, 0xb1, 0x09, 0, 0, 0xe9, 0xca, 0xfe, 0xff,
            0xff,
        ]);
        let table = JumpTable::of(&line).unwrap();
        assert_eq!(table.jumps_of_line(), 12);
        let targets: Vec<_> = (0..5).map(|number| table.target(&line, number, 0x1000)).collect();
        assert_eq!(targets, [Some(0x17c0), Some(0x1840), Some(0x19c0), Some(0xede), None]);
        let mut line = [0; JumpTable::LINE_BYTES];
        line[..16].copy_from_slice(&[
            0xe9, 0xbb, 9, 0, 0, TRAP, TRAP, TRAP, 0xe9, 0x73, 0xa, 0, 0, TRAP, TRAP, TRAP,
        ]);
        let table = JumpTable::of(&line).unwrap();
        assert_eq!(table.jumps_of_line(), 8);
        let targets: Vec<_> = (0..9).map(|number| table.target(&line, number, 0x1000)).collect();
        assert_eq!(targets[..3], [Some(0x19c0), Some(0x1a80), None]);
        assert_eq!(targets[8], None);
        assert_eq!(JumpTable::of(&[0; JumpTable::LINE_BYTES]), None);
    }
}
