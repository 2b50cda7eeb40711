//! Any bytes as a function's table of lines, in the format of each version.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm::cpython::Layout;

/// A code object at 0, with its type behind it, and what it refers to: its name and path are one string.
struct Memory {
    code: [u8; 320],
    name: [u8; 128],
    table: Vec<u8>,
}

const TYPE: usize = 256;
const NAME: u64 = 0x1000;
const TABLE: u64 = 0x2000;

impl ForeignMemory for Memory {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let (bytes, start) = match at.0 {
            ..NAME => (&self.code[..], 0),
            NAME..TABLE => (&self.name[..], NAME),
            TABLE.. => (&self.table[..], TABLE),
        };
        let from = usize::try_from(at.0 - start).unwrap_or(usize::MAX);
        let bytes = bytes.get(from..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((version, lines)) = input.split_first() else { return };
    let layout = Layout::of_minor(8 + version % 5).expect("a version that has a layout");
    let mut code = [0; 320];
    let mut put = |at: usize, word: u64| code[at..][..8].copy_from_slice(&word.to_le_bytes());
    // One reference: it has not been freed.
    put(0, 1);
    put(8, TYPE as u64);
    put(TYPE + 24, TYPE as u64 + 32);
    put(TYPE + 32, u64::from_le_bytes(*b"code\0\0\0\0"));
    for (at, object) in layout.pointers().into_iter().zip([NAME, NAME, TABLE]) {
        put(at.into(), object);
    }
    // An empty string: compact, of one byte, ASCII.
    let mut name = [0; 128];
    name[32] = 1 << 2 | 1 << 5 | 1 << 6;
    let table = [&[0; 16][..], &(lines.len() as u64).to_le_bytes(), &[0; 8], lines, &[0; 256]].concat();
    let memory = Memory { code, name, table };
    let cookie = layout.read_cookie(&memory, Avma(0)).expect("a code object");
    let function = layout.read_function(&memory, Avma(0), cookie).expect("a function");
    // A line is found for a place or not, whatever the place is.
    for place in (0..1 << 12).chain([u32::MAX, i32::MAX as u32]) {
        let _ = function.line_at(place);
    }
});
