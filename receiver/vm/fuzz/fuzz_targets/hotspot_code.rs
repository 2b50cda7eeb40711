//! Any bytes as the memory of a Java virtual machine, with compiled code in its first half, whose pointers lead anywhere in it.
#![no_main]

use std::io;

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;
use sidewinder_vm::Code;
use sidewinder_vm::hotspot::{
    BlobLayout, CodeHeap, CodePlace, DebugLayout, DebugPlace, MethodLayout, VirtualMachine,
};

/// Where the blob, the method and the name of the blob are.
const BLOB: u64 = 16;
const METHOD: u64 = 0x1000;
const NAME: u64 = 0xfff0;

struct Bytes(Vec<u8>);

impl ForeignMemory for Bytes {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        // Small addresses, so that many pointers lead somewhere.
        let from = usize::from(at.0 as u16);
        let bytes = self.0.get(from..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(bytes.ok_or(io::ErrorKind::NotFound)?);
        Ok(())
    }
}

/// With the layout of 17, or of 25 with its code in other memory than its debug information.
fn machine(is_new: bool) -> VirtualMachine {
    let place = if is_new {
        DebugPlace::Own { memory: 96, bytes: 160, scopes: 200, mutable: 16, relocation_bytes: 28 }
    } else {
        DebugPlace::Blob { pcs_end: 272, scopes: 120, scopes_is_pointer: true, metadata: 260 }
    };
    VirtualMachine {
        version: (if is_new { 25 } else { 17 }, 0),
        heaps: vec![CodeHeap { start: Avma(0), bytes: 0x800, segments: Avma(0x8000) }],
        segment_shift: 7,
        interpreter: (Avma(0x400), 0x100),
        call_stub_return: Avma(0x10),
        blob: BlobLayout {
            header_bytes: 16,
            used: 8,
            name: if is_new { 8 } else { 96 },
            size: if is_new { 24 } else { 12 },
            frame_size: 28,
            frame_complete: 20,
            frame_complete_is_short: is_new,
            code: 32,
            method: if is_new { 80 } else { 112 },
            compile_id: if is_new { 212 } else { 304 },
            deopt_handlers: [128, 136],
            has_offsets: is_new,
            original_pc: 300,
        },
        method: MethodLayout {
            const_method: 8,
            const_method_bytes: 48,
            constants: 8,
            const_method_words: 24,
            flags: 28,
            has_lines: 1,
            code_bytes: 32,
            name: 34,
            signature: 36,
            pool_bytes: 72,
            pool_holder: 24,
            pool_length: 60,
            source_file: 54,
            class_has_source_file: false,
            class_name: 24,
            symbol_length: 4,
            symbol_body: 6,
        },
        debug: Some(DebugLayout { place, pcs: if is_new { 196 } else { 268 } }),
        has_debug_everywhere: false,
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&[selector, offset], memory)) = input.split_first_chunk() else { return };
    let machine = machine(selector & 1 != 0);
    let mut memory = memory.to_vec();
    memory.resize(1 << 16, selector);
    // It is in use, a compiled method, and has a method.
    memory[8] = 1;
    memory[NAME as usize..][..8].copy_from_slice(b"nmethod\0");
    for (field, value) in [(machine.blob.name, NAME), (machine.blob.method, METHOD)] {
        memory[BLOB as usize + usize::from(field)..][..8].copy_from_slice(&value.to_le_bytes());
    }
    let memory = Bytes(memory);
    if let Ok(cookie) = machine.method_cookie(&memory, Avma(METHOD))
        && let Ok(Code::Function(function)) = machine.read_interpreted(&memory, Avma(METHOD), cookie)
    {
        assert!(function.heap_bytes() <= 1 << 18);
        let _ = function.line_at(u32::from(offset));
    }
    let cookie = machine.blob_cookie(&memory.0[BLOB as usize..]).expect("a whole header");
    let place = CodePlace { offset: u32::from(offset), is_return_address: selector & 2 != 0 };
    match machine.read_blob(&memory, Avma(BLOB), cookie, place) {
        Ok(Code::Compiled(calls)) => assert!((1..=64).contains(&calls.len())),
        Ok(Code::Function(_)) => unreachable!("a compiled method"),
        Err(_) => {}
    }
});
