//! Any bytes as the memory of a Java virtual machine, with compiled code in its first half, whose pointers lead anywhere in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_vm::Code;
use sidewinder_vm::hotspot::test_support::{self, Bytes};
use sidewinder_vm::hotspot::{BlobLayout, CodePlace, DebugLayout, DebugPlace, VirtualMachine};

/// Where the blob, the method and the name of the blob are.
const BLOB: u64 = 16;
const METHOD: u64 = 0x1000;
const NAME: u64 = 0xfff0;

/// With the layout of 17, or of 25 with its code in other memory than its debug information.
fn machine(is_new: bool) -> VirtualMachine {
    let old = test_support::machine(17);
    if !is_new {
        return old;
    }
    let place = DebugPlace::Own { memory: 96, bytes: 160, scopes: 200, mutable: 16, relocation_bytes: 28 };
    VirtualMachine {
        version: (25, 0),
        blob: BlobLayout {
            name: 8,
            size: 24,
            frame_complete_is_short: true,
            method: 80,
            compile_id: 212,
            has_offsets: true,
            ..old.blob
        },
        debug: Some(DebugLayout { place, pcs: 196 }),
        ..old
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
