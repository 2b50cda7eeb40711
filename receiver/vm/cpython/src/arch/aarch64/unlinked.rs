//! arm64: where a loop's code has not written the structure on its stack that leads to its frame, to which the thread's state
//! points.

use std::ops::Range;

use sidewinder_vm_runtime::arch::Flow;
use sidewinder_vm_runtime::arch::aarch64::{INSTRUCTION_BYTES_MAX, step};

use super::super::FrameLink;

/// Instructions between the entry and the last of the two assignments.
const ENTRY_INSTRUCTIONS_MAX: usize = 64;
/// The registers that point to the stack: x29 and the stack pointer.
const STACK: [u8; 2] = [29, 31];

/// A part of a function: its address, and its code.
pub(crate) type CodePart = (u64, Vec<u8>);

/// The code of a function whose entry is the start of the first part, until both the thread's state points to the structure and the
/// current frame is written into it, if no conditional branch is taken. Empty if that isn't found, or the current frame is not in
/// such a structure.
pub(crate) fn unlinked_code(parts: &[CodePart], link: FrameLink) -> Vec<Range<u64>> {
    until_written(parts, link).unwrap_or_default()
}

fn until_written(parts: &[CodePart], link: FrameLink) -> Option<Vec<Range<u64>>> {
    let cframe = link.cframe?;
    let (mut at, _) = *parts.first()?;
    let (mut start, mut ranges) = (at, Vec::new());
    let mut written = CFrameWritten::default();
    for _ in 0..ENTRY_INSTRUCTIONS_MAX {
        let code = instruction(parts, at)?;
        let next = step(&code, at)?;
        if written.is_complete(u32::from_le_bytes(code), cframe, link.current_frame) {
            ranges.push(start..next.next);
            return Some(ranges);
        }
        at = match next.flow {
            Flow::Next | Flow::Call | Flow::Branch(_) => next.next,
            Flow::Jump(target) => {
                ranges.push(start..next.next);
                start = target;
                target
            }
            Flow::End => return None,
        };
    }
    None
}

fn instruction(parts: &[CodePart], at: u64) -> Option<[u8; INSTRUCTION_BYTES_MAX]> {
    let (start, code) = parts.iter().find(|(start, code)| at.wrapping_sub(*start) < code.len() as u64)?;
    code.get(usize::try_from(at - start).ok()?..)?.first_chunk().copied()
}

/// What is known of the structure.
#[derive(Default)]
struct CFrameWritten {
    /// Registers with addresses on the stack: a base register, and an offset.
    addresses: Vec<(u8, u8, u64)>,
    /// The structure's address.
    cframe: Option<(u8, u64)>,
    /// Parts of the stack that were written: a base register, an offset, and a length.
    writes: Vec<(u8, u64, u64)>,
}

impl CFrameWritten {
    /// Whether, after one more instruction, the state points to the structure and the current frame is written.
    fn is_complete(&mut self, word: u32, cframe: u16, current_frame: u16) -> bool {
        // `add` of a constant, not shifted.
        if word & 0xffc0_0000 == 0x9100_0000 && STACK.contains(&field(word, 5)) {
            self.addresses.push((field(word, 0), field(word, 5), u64::from(word >> 10 & 0xfff)));
        }
        if let Some(store) = Store::of(word) {
            if STACK.contains(&store.base) {
                self.writes.push((store.base, store.offset, store.bytes));
            } else if store.offset == u64::from(cframe)
                && let Some(value) = store.value
            {
                let address = self.addresses.iter().rfind(|(register, ..)| *register == value);
                self.cframe = self.cframe.or(address.map(|(_, base, offset)| (*base, *offset)));
            }
        }
        let Some((base, offset)) = self.cframe else { return false };
        let field = offset.wrapping_add(current_frame.into());
        self.writes.iter().any(|(of, start, bytes)| *of == base && field.wrapping_sub(*start) < *bytes)
    }
}

/// A register's number in an instruction.
fn field(word: u32, low: u32) -> u8 {
    (word >> low & 31) as u8
}

/// A store at an offset from a register, which it leaves as it is.
struct Store {
    base: u8,
    offset: u64,
    bytes: u64,
    /// The general register that is stored there, first of two.
    value: Option<u8>,
}

impl Store {
    fn of(word: u32) -> Option<Self> {
        let (scaled, pair) = (u64::from(word >> 10 & 0xfff), (word << 10).cast_signed() >> 25);
        let scaled_pair = |by: i64| (i64::from(pair) * by).cast_unsigned();
        let unscaled = i64::from((word << 11).cast_signed() >> 23).cast_unsigned();
        let general = Some(field(word, 0));
        let (offset, bytes, value) = match word {
            // `str` and `stur` of 8 bytes, `stp` of twice as many; the same of 16, out of vectors.
            _ if word & 0xffc0_0000 == 0xf900_0000 => (scaled * 8, 8, general),
            _ if word & 0xffe0_0c00 == 0xf800_0000 => (unscaled, 8, general),
            _ if word & 0xffc0_0000 == 0xa900_0000 => (scaled_pair(8), 16, general),
            _ if word & 0xffc0_0000 == 0x3d80_0000 => (scaled * 16, 16, None),
            _ if word & 0xffe0_0c00 == 0x3c80_0000 => (unscaled, 16, None),
            _ if word & 0xffc0_0000 == 0xad00_0000 => (scaled_pair(16), 32, None),
            _ => return None,
        };
        Some(Self { base: field(word, 5), offset, bytes, value })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The start of `_PyEval_EvalFrameDefault` in Debian's python3.11, at 0x4a92a0.
    const ENTRY: [u32; 24] = [
        0xa9aa_7bfd,
        0x9100_03fd,
        0xa901_53f3,
        0xa902_5bf5,
        0xa903_63f7,
        0xa904_6bf9,
        0xa905_73fb,
        0xb407_75c0,
        0xaa01_03f9,
        0x9104_03e7,
        0xf940_1c01,
        0xaa00_03fb,
        0xf940_0803,
        0xf900_3fe3,
        0xf940_0424,
        0x5280_0023,
        0x3940_0025,
        0xf900_1c07,
        0xf900_1b24,
        0x3901_1323,
        0x3904_03e5,
        0xa910_87f9,
        0xb940_2001,
        0x3504_b982,
    ];
    const LINK: FrameLink = FrameLink { cframe: Some(56), current_frame: 8, previous: 48 };

    fn code(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn code_before_the_structure_is_written_is_found() {
        let of = |link| unlinked_code(&[(0x4a_92a0, code(&ENTRY))], link);
        // To the end of `stp x25, x1, [sp, #264]`: the structure is at 256, and `str x7, [x0, #56]` came before.
        assert_eq!(of(LINK), vec![(0x4a_92a0..0x4a_92f8)]);
        assert_eq!(of(FrameLink { current_frame: 24, ..LINK }), [], "never written");
        assert_eq!(of(FrameLink { cframe: Some(64), ..LINK }), [], "no such field");
        assert_eq!(of(FrameLink { cframe: None, ..LINK }), [], "no structure");
        assert_eq!(unlinked_code(&[], LINK), []);
    }

    #[test]
    fn jumps_to_other_parts_are_followed() {
        // `b` 0x1000 ahead, in place of the compare.
        let (first, second) = (&ENTRY[..7], &ENTRY[8..]);
        let first: Vec<u32> = first.iter().copied().chain([0x1400_0000 + (0x1000 - 28) / 4]).collect();
        let parts = [(0x1000, code(&first)), (0x2000, code(second))];
        assert_eq!(unlinked_code(&parts, LINK), [0x1000..0x1020, 0x2000..0x2000 + 14 * 4]);
    }

    proptest! {
        #[test]
        fn any_code_is_followed_to_its_end(words in prop::collection::vec(any::<u32>(), 0..80), start: u64) {
            let _ = unlinked_code(&[(start, code(&words))], LINK);
        }
    }
}
