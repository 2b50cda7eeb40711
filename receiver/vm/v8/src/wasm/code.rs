//! The code of WebAssembly around an instruction, and which function it is.
//!
//! V8 keeps an ordered list of code, but where it has that differs from version to version. The machine code itself says as
//! much: each function begins in a way that nothing else has there, and a table of jumps leads to the newest code of each. What an
//! earlier compiler has made, and still runs, says its number itself.

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm_runtime::FunctionError;

use crate::arch::{JumpTable, WASM_ALIGNMENT, WASM_START_BYTES, WasmStart, wasm_counted_number, wasm_start};

/// How much is read at a time, aligned to it: a block lies in one page, whatever their size.
const BLOCK_BYTES: usize = 4096;
/// How far before an instruction the start of its function is looked for.
const FUNCTION_BYTES_MAX: u64 = 4 << 20;

/// How much of a function is looked at for the word in which it counts: it does so wherever it loops or returns.
const COUNTING_BYTES_MAX: usize = 64 << 10;

/// Where the code of a function begins, and how.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct CodeStart {
    address: u64,
    pub(super) start: WasmStart,
}

impl CodeStart {
    /// The nearest one at or before an address.
    ///
    /// # Errors
    /// When there is none, or the code can't be read.
    pub(super) fn find(memory: &impl ForeignMemory, pc: u64) -> Result<Self, FunctionError> {
        let lowest = pc.saturating_sub(FUNCTION_BYTES_MAX);
        let mut block = [0; BLOCK_BYTES];
        let mut first = pc & !(BLOCK_BYTES as u64 - 1);
        while first >= lowest.max(BLOCK_BYTES as u64) {
            memory.read_exact(Avma(first), &mut block)?;
            for (number, code) in block.chunks(WASM_ALIGNMENT).enumerate().rev() {
                let address = first + (number * WASM_ALIGNMENT) as u64;
                if address <= pc
                    && let Some(start) = wasm_start(code.get(..WASM_START_BYTES).unwrap_or_default())
                {
                    return Ok(Self { address, start });
                }
            }
            first -= BLOCK_BYTES as u64;
        }
        Err(FunctionError::Malformed("no start of a function"))
    }

    /// The number of this function among those that its module declares, by the word in which its code counts.
    pub(super) fn counted_number(self, memory: &impl ForeignMemory) -> Option<u32> {
        let (mut code, mut at) = (Vec::new(), self.address);
        while code.len() < COUNTING_BYTES_MAX {
            let (read, bytes) = (code.len(), BLOCK_BYTES - at as usize % BLOCK_BYTES);
            code.resize(read + bytes, 0);
            if memory.read_exact(Avma(at), code.get_mut(read..)?).is_err() {
                code.truncate(read);
                break;
            }
            at = at.checked_add(bytes as u64)?;
        }
        wasm_counted_number(&code, self.address)
    }

    /// The same, by a table of jumps. `None`: no jump leads here, as to code of an earlier compiler that has been replaced.
    pub(super) fn number_in(
        self,
        memory: &impl ForeignMemory,
        table: Avma,
        declared: u32,
    ) -> Result<Option<u32>, FunctionError> {
        let mut block = [0; BLOCK_BYTES];
        memory
            .read_exact(table, block.first_chunk_mut::<{ JumpTable::LINE_BYTES }>().unwrap_or(&mut [0; _]))?;
        let (lines, _) = block.as_chunks();
        let form = lines.first().and_then(JumpTable::of);
        let form = form.ok_or(FunctionError::Malformed("no table of jumps"))?;
        let (mut at, mut number) = (table, 0);
        while number < declared {
            let lines_left = (declared - number).div_ceil(form.jumps_of_line()) as usize;
            let bytes = BLOCK_BYTES.min(lines_left * JumpTable::LINE_BYTES);
            let lines = block.get_mut(..bytes).unwrap_or_default();
            memory.read_exact(at, lines)?;
            for line in lines.as_chunks().0 {
                for jump in 0..form.jumps_of_line().min(declared - number) {
                    if form.target(line, jump, at.0) == Some(self.address) {
                        return Ok(Some(number + jump));
                    }
                }
                number = number.saturating_add(form.jumps_of_line()).min(declared);
                at = Avma(at.0.wrapping_add(JumpTable::LINE_BYTES as u64));
            }
        }
        Ok(None)
    }
}
