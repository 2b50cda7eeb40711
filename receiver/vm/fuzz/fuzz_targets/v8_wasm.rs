//! Any bytes as a module of WebAssembly that a process runs.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_vm::v8::test_support::v8_layout;
use sidewinder_vm::v8::test_support::wasm::{DATA, FIRST, NUMBERED, SECOND, process};
use sidewinder_vm::v8::{Engine, WasmFrame};

fuzz_target!(|input: &[u8]| {
    let Some((version, module)) = input.split_first() else { return };
    let module = [b"\0asm\x01\0\0\0", module].concat();
    let (engine, memory) = (Engine::new(v8_layout(true), None), process(version % 2 == 1, &module));
    for start in [FIRST, SECOND, NUMBERED] {
        // Any code in front of the instruction is right.
        let pc = Avma(start + 0x40);
        let frame =
            WasmFrame { instance: Avma(DATA), pc, is_return_address: false, cookie: 0, cookie_mask: 0 };
        if let Ok(function) = engine.read_wasm(&memory, frame) {
            assert!(function.name().len() <= 3 << 10 && function.path() == "wasm://wasm/m");
        }
    }
});
