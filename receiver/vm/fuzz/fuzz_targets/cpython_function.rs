//! Any bytes as memory with a code object at its start, whose pointers lead anywhere in it.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm::cpython::Layout;

struct Bytes<'bytes>(&'bytes [u8]);

impl ForeignMemory for Bytes<'_> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        // Small addresses, so that many pointers lead somewhere.
        let from = usize::from(at.0 as u16);
        let bytes = self.0.get(from..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((version, memory)) = input.split_first() else { return };
    let layout = Layout::of_minor(8 + version % 5).expect("a version that has a layout");
    let (start, bytes) = layout.identity;
    if memory.len() < usize::from(start) + usize::from(bytes) {
        return;
    }
    let mut memory = memory.to_vec();
    // One reference: it has not been freed. Its type is that of code objects.
    let code_type = memory.len();
    memory[..8].copy_from_slice(&1_u64.to_le_bytes());
    memory[8..16].copy_from_slice(&(code_type as u64).to_le_bytes());
    memory.extend([0; 24]);
    memory.extend((code_type as u64 + 32).to_le_bytes());
    memory.extend(b"code\0");
    let Ok(cookie) = layout.read_cookie(&Bytes(&memory), Avma(0)) else { return };
    let Ok(function) = layout.read_function(&Bytes(&memory), Avma(0), cookie) else { return };
    assert!(function.name().len() <= 1 << 10);
    assert!(function.path().len() <= 4 << 10);
    assert!(function.heap_bytes() <= (1 << 10) + (4 << 10) + (128 << 10));
    let _ = function.line_at(u32::from(*version));
});
