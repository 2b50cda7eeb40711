//! Any bytes as a function's table of lines, in the format of each version.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm::cpython::{Layout, cookie};

/// A code object at 0, whose pointers all lead to one object at [`OBJECT`], which is a string and a table of lines.
struct Memory {
    code: [u8; 256],
    object: Vec<u8>,
}

const OBJECT: u64 = 0x1000;

impl ForeignMemory for Memory {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let (bytes, start) = if at.0 < OBJECT { (&self.code[..], 0) } else { (&self.object[..], OBJECT) };
        let from = usize::try_from(at.0 - start).unwrap_or(usize::MAX);
        let bytes = bytes.get(from..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((version, table)) = input.split_first() else { return };
    let layout = Layout::of_minor(8 + version % 5).expect("a version that has a layout");
    let mut object = vec![0; 16];
    object.extend((table.len() as u64).to_le_bytes());
    object.extend([0; 8]);
    // A bytes object has its content here, a string its state: compact, of one byte, ASCII.
    object.extend(table);
    object.resize(object.len().max(32 + 96), 0);
    object[32] = 1 << 2 | 1 << 5 | 1 << 6;
    object.extend([0; 64]);
    let mut code = [0; 256];
    for word in code[96..].chunks_exact_mut(8) {
        word.copy_from_slice(&OBJECT.to_le_bytes());
    }
    // One reference: it has not been freed.
    code[0] = 1;
    let memory = Memory { code, object };
    let (start, bytes) = layout.identity;
    let identity = &memory.code[usize::from(start)..][..usize::from(bytes)];
    let function = layout.read_function(&memory, Avma(0), cookie(identity)).expect("a function");
    // A line is found for a place or not, whatever the place is.
    for place in (0..1 << 12).chain([u32::MAX, i32::MAX as u32]) {
        let _ = function.line_at(place);
    }
});
