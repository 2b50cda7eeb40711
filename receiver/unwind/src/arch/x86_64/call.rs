//! Recognises calls by their bytes: the same test as in `bpf/c/arch/x86_64.bpf.h`.

use sidewinder_address::Avma;

use crate::call::Call;

/// Bytes before a return address that decide whether a call ends there: the longest call without prefixes, `FF /2` with
/// SIB and disp32, has seven.
pub const CALL_BYTES: usize = 8;

/// Bytes of `E8 rel32`.
const REL32_BYTES: usize = 5;

/// The call that `code` ends with, if any; `code` is the bytes right before a return address.
#[must_use]
pub fn call_before(return_address: Avma, code: [u8; CALL_BYTES]) -> Option<Call> {
    let is_indirect = (2..CALL_BYTES).any(|bytes| match code[CALL_BYTES - bytes..] {
        [0xff, modrm] => indirect_call_bytes(modrm, 0) == Some(bytes),
        [0xff, modrm, sib, ..] => indirect_call_bytes(modrm, sib) == Some(bytes),
        _ => false,
    });
    if is_indirect {
        return Some(Call::Indirect);
    }
    let [0xe8, distance @ ..] = *code.last_chunk::<REL32_BYTES>()? else { return None };
    Some(Call::Direct(Avma(return_address.0.wrapping_add_signed(i32::from_le_bytes(distance).into()))))
}

/// The length of a call through a register or a word of memory, `FF /2`: Intel SDM, volume 2, section 2.1.5.
fn indirect_call_bytes(modrm: u8, sib: u8) -> Option<usize> {
    if modrm & 0x38 != 0x10 {
        return None;
    }
    let with_sib = modrm & 7 == 4;
    let without_sib = match modrm >> 6 {
        3 => return Some(2),
        2 => 6,
        1 => 3,
        _ if modrm & 7 == 5 || (with_sib && sib & 7 == 5) => 6,
        _ => 2,
    };
    Some(without_sib + usize::from(with_sib))
}

#[cfg(test)]
mod tests {
    use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};

    use super::*;

    const AT: Avma = Avma(0x40_0000);

    /// Decodes code that consists of a single call; `AT` is the address after it.
    fn decoded(call: &[u8]) -> Option<Instruction> {
        let ip = AT.0 - call.len() as u64;
        let instruction = Decoder::with_ip(64, call, ip, DecoderOptions::NONE).decode();
        let is_near_call = match instruction.flow_control() {
            FlowControl::Call => true,
            FlowControl::IndirectCall => !instruction.is_call_far_indirect(),
            _ => false,
        };
        (is_near_call && instruction.len() == call.len()).then_some(instruction)
    }

    /// The call found at the end of these bytes, with only padding before them.
    fn found(call: &[u8]) -> Option<Call> {
        let mut code = [0x90; CALL_BYTES];
        code[CALL_BYTES - call.len()..].copy_from_slice(call);
        call_before(AT, code)
    }

    #[test]
    fn every_form_of_an_indirect_call_is_found_and_nothing_else_is() {
        for (modrm, sib) in (0..=u8::MAX).flat_map(|modrm| (0..=u8::MAX).map(move |sib| (modrm, sib))) {
            let bytes = [0xff, modrm, sib, 1, 2, 3, 4];
            for length in 2..CALL_BYTES {
                let code = &bytes[..length];
                let is_call = |start| {
                    decoded(&code[start..])
                        .is_some_and(|call| call.flow_control() == FlowControl::IndirectCall)
                };
                let expected = (0..length).any(is_call);
                assert_eq!(found(code) == Some(Call::Indirect), expected, "{code:x?}");
            }
        }
    }

    #[test]
    fn a_direct_call_tells_its_target() {
        for distance in [0, 5, -5, 0x1234, i32::MIN, 0x7f00_0000] {
            let mut call = [0xe8, 0, 0, 0, 0];
            call[1..].copy_from_slice(&distance.to_le_bytes());
            let target = decoded(&call).unwrap().near_branch_target();
            assert_eq!(found(&call), Some(Call::Direct(Avma(target))));
        }
        assert_eq!(found(&[0xe9, 1, 0, 0, 0]), None, "a jump");
    }

    #[test]
    fn code_that_can_be_read_in_two_ways_tells_no_target() {
        assert_eq!(found(&[0xe8, 1, 2, 0xff, 0xd0]), Some(Call::Indirect));
    }

    #[test]
    fn an_address_at_the_end_of_the_space_is_no_danger() {
        let code = [0x90, 0x90, 0x90, 0xe8, 0xff, 0xff, 0xff, 0x7f];
        assert_eq!(call_before(Avma(u64::MAX), code), Some(Call::Direct(Avma(0x7fff_fffe))));
    }
}
