//! Differences between architectures: the machine code of WebAssembly.

#[cfg(any(target_arch = "aarch64", test))]
#[cfg_attr(not(target_arch = "aarch64"), expect(unused, reason = "tests only compile it"))]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

#[cfg(all(any(test, feature = "test-support"), target_arch = "x86_64"))]
pub(crate) use host::wasm_code;
pub(crate) use host::{
    IS_WALKED, JumpTable, WASM_ALIGNMENT, WASM_START_BYTES, wasm_counted_number, wasm_start,
};

/// How a function of WebAssembly begins.
#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "only code of x86-64 is read"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum WasmStart {
    /// It makes a frame with this number in the place of a context, which says what the function is.
    Frame(u16),
    /// It says its number among the functions that its module declares.
    Numbered(u32),
}
