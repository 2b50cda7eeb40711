//! Code of Go's compiler and of its runtime's assembly, recognised by its bits.

use super::instructions;

/// Names of the functions where programs begin.
pub(crate) const PROGRAM_STARTS: [&[u8]; 2] = [b"_rt0_arm64", b"_rt0_arm64_linux"];

/// The length of `str x30, [sp, #-N]!; stur x29, [sp, #-8]; sub x29, sp, #8`.
pub(crate) const PROLOGUE_BYTES: u32 = 12;

/// `mov sp, xN`.
fn is_switch(word: u32) -> bool {
    word & 0xffff_fc1f == 0x9100_001f && word & BASE != BASE
}

/// The register that an address or a sum starts from: all bits are set for the stack pointer.
const BASE: u32 = 0x3e0;

/// The end, within `code`, of the first instruction that sets the stack pointer to a register.
pub(crate) fn first_switch(code: &[u8]) -> Option<u32> {
    let at = instructions(code).position(is_switch)?;
    u32::try_from((at + 1) * 4).ok()
}

/// Whether a function begins with the prologue, and then the frame pointer keeps pointing to its frame, on whatever stack it
/// continues: until it is back on its own, no instruction sets it to anything else.
pub(crate) fn keeps_frame_pointer(code: &[u8]) -> bool {
    let words: Vec<u32> = instructions(code).collect();
    let has_prologue =
        matches!(*words, [first, 0xf81f_83fd, 0xd100_23fd, ..] if first & 0xffe0_0fff == 0xf800_0ffe);
    let is_set = |word: &u32| {
        let is_load = word & 0xffc0_001f == 0xf940_001d && word & BASE != BASE; // `ldr x29, [xN, #n]`
        let is_move = word & 0xffe0_ffff == 0xaa00_03fd; // `mov x29, xN`
        is_load || is_move
    };
    let last_switch = words.iter().rposition(|word| is_switch(*word)).unwrap_or(0);
    has_prologue && !words.iter().take(last_switch).any(is_set)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    const PROLOGUE: [u32; 3] = [0xf81f_0ffe, 0xf81f_83fd, 0xd100_23fd];

    #[test]
    fn a_switch_of_stacks_is_found_where_its_instruction_ends() {
        assert_eq!(first_switch(&bytes(&[0xf81f_0ffe, 0x9100_007f])), Some(8), "mov sp, x3");
        assert_eq!(
            first_switch(&bytes(&[0x9100_03fd, 0x9100_83ff, 0xd100_43ff])),
            None,
            "sums, and mov x29, sp"
        );
    }

    #[test]
    fn a_frame_pointer_is_kept_unless_the_function_loads_another_before_it_is_back() {
        const SWITCH: u32 = 0x9100_007f;
        let keeps = |rest: &[u32]| keeps_frame_pointer(&bytes(&[&PROLOGUE[..], rest].concat()));
        let (restores, loads, clears) = (0xf85f_83fd, 0xf940_339d, 0xaa1f_03fd);
        assert!(keeps(&[SWITCH, SWITCH, loads, restores]), "as systemstack");
        assert!(!keeps(&[SWITCH, loads, SWITCH, restores]), "as asmcgocall");
        assert!(!keeps(&[SWITCH, clears, SWITCH]));
        assert!(!keeps_frame_pointer(&bytes(&[PROLOGUE[0], PROLOGUE[1], SWITCH])));
    }
}
