//! Machine code of WebAssembly, as V8 10 to 14 generates it.

use crate::arch::WasmStart;

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
pub(crate) mod code {
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
