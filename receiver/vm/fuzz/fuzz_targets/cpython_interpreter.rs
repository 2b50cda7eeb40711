//! Any bytes as an ELF file that may contain CPython, and as the memory of a process that runs it.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm::cpython::Interpreter;

struct Bytes<'bytes>(&'bytes [u8]);

impl ForeignMemory for Bytes<'_> {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let from = usize::try_from(at.0).unwrap_or(usize::MAX);
        let bytes = self.0.get(from..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

fuzz_target!(|file: &[u8]| {
    let Ok(Some(interpreter)) = Interpreter::read(&file) else { return };
    assert!(interpreter.layout.frame_bytes <= 128);
    assert!(interpreter.layout.identity.1 <= 96 && interpreter.layout.identity.1.is_multiple_of(8));
    assert!(interpreter.loops.iter().all(|range| range.bytes > 0));
    let _ = interpreter.locate_thread_state(0, &Bytes(file), None);
    let _ = interpreter.locate_attached_thread_state(0, &Bytes(file));
});
