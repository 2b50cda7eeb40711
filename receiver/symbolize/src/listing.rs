//! Machine code as text.

use sidewinder_address::Svma;

use crate::arch;
pub use crate::arch::ListedInstruction;

/// The instructions of code that begins at `start`. Bytes that are no instruction are listed as such.
#[must_use]
pub fn disassemble(code: &[u8], start: Svma) -> Vec<ListedInstruction> {
    arch::disassemble(code, start)
}
