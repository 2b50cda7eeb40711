//! arm64: short functions of the interpreter.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.

mod getters;
mod unlinked;

use sidewinder_address::Svma;
use sidewinder_vm_runtime::arch::Flow;
use sidewinder_vm_runtime::arch::aarch64::{INSTRUCTION_BYTES_MAX, step};

use super::Activation;

pub(crate) use getters::{first_argument, thread_local};
pub(crate) use unlinked::{CodePart, unlinked_code};

/// The rule for the canonical frame address at the entry of a function: a register by its number in DWARF, and an offset.
pub(crate) const ENTRY_CFA: (u16, i64) = (31, 0);

/// Bytes of a short function that are looked at.
pub(crate) const FUNCTION_BYTES_MAX: usize = 96;

/// Where a frame is linked when it becomes the thread's current one, without a structure on the stack (until 3.10), is not read.
pub(crate) const READS_ASSIGNMENTS: bool = false;

/// Bytes of a call through a table: an instruction.
pub(crate) const TABLE_CALL_BYTES: usize = INSTRUCTION_BYTES_MAX;

pub(crate) fn dispatch_table(_code: &[u8], _start: Svma) -> Option<Svma> {
    None
}

pub(crate) fn calls_through(_code: &[u8], _start: Svma, _table: Svma) -> impl Iterator<Item = Svma> {
    std::iter::empty()
}

pub(crate) fn activations(_parts: &[CodePart], _table: Svma, _current_frame: u16) -> Vec<Activation> {
    Vec::new()
}

/// The targets of a function's direct jumps to other code, sorted.
pub(crate) fn jumps_out(code: &[u8], start: Svma) -> Vec<Svma> {
    let own = start.0..start.0.saturating_add(code.len() as u64);
    let places = (start.0..).step_by(INSTRUCTION_BYTES_MAX);
    let mut targets: Vec<Svma> = (code.chunks_exact(INSTRUCTION_BYTES_MAX).zip(places))
        .filter_map(|(word, at)| match step(word, at)?.flow {
            Flow::Jump(target) | Flow::Branch(target) => Some(Svma(target)),
            Flow::Next | Flow::Call | Flow::End => None,
        })
        .filter(|target| !own.contains(&target.0))
        .collect();
    targets.sort_unstable();
    targets.dedup();
    targets
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jumps_to_other_code_are_found() {
        // `b` 16 ahead, beyond the end; `cbz` to the start; `tbz` 32 back; `bl` somewhere; `b` 12 ahead, to the same place.
        let words: [u32; 5] = [0x1400_0008, 0xb4ff_ffe0, 0x3607_fec0, 0x9400_0100, 0x1400_0004];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(jumps_out(&code, Svma(0x1000)), [Svma(0xfe0), Svma(0x1020)]);
        assert_eq!(jumps_out(&code[..3], Svma(0x1000)), [], "no whole instruction");
    }
}
