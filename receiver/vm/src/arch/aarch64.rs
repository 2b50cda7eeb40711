//! arm64: where instructions lead, where CPython keeps a thread's state, and frames of HotSpot's interpreter. Code of V8 is not read,
//! so this is not walked ([`WALKED`]), and what is looked for in it isn't found.
//!
//! Source: Arm Architecture Reference Manual for A-profile, section C4.

mod getters;
mod step;
mod unlinked;

use sidewinder_address::Svma;
use sidewinder_bpf::WalkedRuntime;

use super::{Activation, Flow, InterpretedFrame, WasmStart};
use crate::RuntimeSet;
use crate::pthread::{CLibrary, PthreadLayout};

pub(crate) use getters::{first_argument, thread_local};
#[cfg(test)]
pub(crate) use step::instructions;
pub(crate) use step::{INSTRUCTION_BYTES_MAX, step};
pub(crate) use unlinked::{CodePart, unlinked_code};

/// The virtual machines whose frames can be walked.
pub(crate) const WALKED: RuntimeSet = RuntimeSet::ALL.without(WalkedRuntime::V8);

/// The rule for the canonical frame address at the entry of a function: a register by its number in DWARF, and an offset.
pub(crate) const ENTRY_CFA: (u16, i64) = (31, 0);

/// Frames of the interpreter of a JDK (`frame_aarch64.hpp`). Since 9 they have a word for the class's mirror and another one, and
/// since 20 the caller's stack pointer is in x19 instead of x13.
pub(crate) const fn interpreted_frame(jdk: u8) -> InterpretedFrame {
    InterpretedFrame { bytecode: if jdk >= 9 { 72 } else { 56 }, sender_sp: if jdk >= 20 { 19 } else { 13 } }
}

/// Bytes of a short function that are looked at.
pub(crate) const FUNCTION_BYTES_MAX: usize = 96;

/// The offset of `struct pthread` from the thread pointer, below which it ends.
pub(crate) fn offset_of_pthread(bytes: u32) -> i64 {
    -i64::from(bytes)
}

/// Its size depends on the C library's version. That of musl is not known.
pub(crate) const fn pthread_layout(_library: CLibrary) -> Option<PthreadLayout> {
    None
}

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

/// Code of WebAssembly, which is not read.
pub(crate) const WASM_ALIGNMENT: usize = 64;
pub(crate) const WASM_START_BYTES: usize = 0;

pub(crate) fn wasm_start(_code: &[u8]) -> Option<WasmStart> {
    None
}

pub(crate) fn wasm_counted_number(_code: &[u8], _start: u64) -> Option<u32> {
    None
}

/// A table of jumps to functions of WebAssembly. There is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum JumpTable {}

impl JumpTable {
    pub(crate) const LINE_BYTES: usize = 64;

    pub(crate) fn of(_line: &[u8; Self::LINE_BYTES]) -> Option<Self> {
        None
    }

    pub(crate) fn jumps_of_line(self) -> u32 {
        match self {}
    }

    pub(crate) fn target(self, _line: &[u8; Self::LINE_BYTES], _number: u32, _address: u64) -> Option<u64> {
        match self {}
    }
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
    fn frames_of_the_interpreter_are_those_of_the_jdk() {
        let frame = |bytecode, sender_sp| InterpretedFrame { bytecode, sender_sp };
        assert_eq!(interpreted_frame(8), frame(56, 13));
        assert_eq!(interpreted_frame(17), frame(72, 13));
        assert_eq!(interpreted_frame(21), frame(72, 19));
    }

    #[test]
    fn jumps_to_other_code_are_found() {
        // `b` 16 ahead, beyond the end; `cbz` to the start; `tbz` 32 back; `bl` somewhere; `b` 12 ahead, to the same place.
        let words: [u32; 5] = [0x1400_0008, 0xb4ff_ffe0, 0x3607_fec0, 0x9400_0100, 0x1400_0004];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(jumps_out(&code, Svma(0x1000)), [Svma(0xfe0), Svma(0x1020)]);
        assert_eq!(jumps_out(&code[..3], Svma(0x1000)), [], "no whole instruction");
    }
}
