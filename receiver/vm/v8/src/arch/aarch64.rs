//! arm64. Code is not read, so this is not walked, and what is looked for in it isn't found.

use super::WasmStart;

/// Whether walks can look up the code that it generates.
pub(crate) const IS_WALKED: bool = false;

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
