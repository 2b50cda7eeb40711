//! Recognises calls by their bits: the same test as in `bpf/c/arch/aarch64.bpf.h`.

use sidewinder_address::Avma;

use crate::call::Call;

/// Bytes before a return address that decide whether a call ends there: an instruction.
pub const CALL_BYTES: usize = 4;

/// The call that `code` ends with, if any; `code` is the bytes right before a return address.
#[must_use]
pub fn call_before(return_address: Avma, code: [u8; CALL_BYTES]) -> Option<Call> {
    let word = u32::from_le_bytes(code);
    // `blr`, also with authentication.
    if word & 0xfeff_f000 == 0xd63f_0000 {
        return Some(Call::Indirect);
    }
    // `bl`: a signed number of instructions in the lowest 26 bits.
    let distance = i64::from((word << 6).cast_signed() >> 6) * CALL_BYTES as i64;
    let target = return_address.0.wrapping_sub(CALL_BYTES as u64).wrapping_add_signed(distance);
    (word >> 26 == 0b10_0101).then_some(Call::Direct(Avma(target)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Avma = Avma(0x40_0004);

    fn found(word: u32) -> Option<Call> {
        call_before(AT, word.to_le_bytes())
    }

    #[test]
    fn a_direct_call_tells_its_target() {
        assert_eq!(found(0x9400_0000), Some(Call::Direct(Avma(0x40_0000))));
        assert_eq!(found(0x9400_0010), Some(Call::Direct(Avma(0x40_0040))));
        assert_eq!(found(0x97ff_ffff), Some(Call::Direct(Avma(0x3f_fffc))));
        assert_eq!(found(0x9600_0000), Some(Call::Direct(Avma(0x40_0000_u64.wrapping_sub(0x800_0000)))));
    }

    #[test]
    fn every_form_of_an_indirect_call_is_found_and_no_other_branch_is() {
        // `blr x3`, `blraa x2, x3`, `blraaz x1`, `blrabz x1`.
        for call in [0xd63f_0060, 0xd73f_0843, 0xd63f_083f, 0xd63f_0c3f] {
            assert_eq!(found(call), Some(Call::Indirect), "{call:#x}");
        }
        // `b`, `br`, `ret`, `svc`, `cbz`, `nop`.
        for other in [0x1400_0010, 0xd61f_0060, 0xd65f_03c0, 0xd400_0001, 0xb400_0040, 0xd503_201f] {
            assert_eq!(found(other), None, "{other:#x}");
        }
    }
}
