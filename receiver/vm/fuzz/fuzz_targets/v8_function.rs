//! Any bytes as memory with a function of JavaScript at its start, whose references lead anywhere in it, and machine code of
//! functions.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sidewinder_address::Avma;
use sidewinder_vm::Code;
use sidewinder_vm::v8::test_support::{Bytes, v8_code_layout, v8_layout};
use sidewinder_vm::v8::{BytecodeSizes, CodeLayout, CompiledFrame, Engine, ObjectLayout};

/// As Node.js 22 has it, with types that are small numbers.
fn layout(has_fixed_positions: bool) -> ObjectLayout {
    ObjectLayout {
        script_type: 0x81,
        function_types: (0x82, 0x83),
        shared_type: 0x84,
        scope_type: 0x85,
        bytecode_type: 0x86,
        array_type: 0x87,
        byte_array_types: [0x88, 0x89],
        code: Some(CodeLayout {
            stream_type: 0x8a,
            code_type: if has_fixed_positions { 0x8b } else { 0x8a },
            array_types: [0x87, 0x8c, 0x8d, 0x8e, 0x8f],
            wrapper: has_fixed_positions.then_some((0x91, 8)),
            ..v8_code_layout(has_fixed_positions)
        }),
        ..v8_layout(has_fixed_positions)
    }
}

/// Where the maps of all types begin, 16 bytes each. The function is behind them.
const MAPS: usize = 0x10;
const FUNCTION: usize = MAPS + 16 * 0x100;

fuzz_target!(|input: &[u8]| {
    let Some((version, objects)) = input.split_first() else { return };
    let mut memory = vec![0; FUNCTION];
    for kind in 0..0x100 {
        let map = MAPS + 16 * kind;
        // The map of maps is that of type 0x90.
        memory[map..map + 8].copy_from_slice(&((MAPS + 16 * 0x90) as u64 | 1).to_le_bytes());
        memory[map + 12..map + 14].copy_from_slice(&(kind as u16).to_le_bytes());
    }
    memory.extend_from_slice(objects);
    memory.resize(memory.len().max(FUNCTION + 64), 0);
    memory[FUNCTION..FUNCTION + 8].copy_from_slice(&((MAPS + 16 * 0x84) as u64 | 1).to_le_bytes());
    let (engine, memory) =
        (Engine::new(layout(version % 2 == 1), BytecodeSizes::new(&[3; 3 * 200])), Bytes(memory));
    let Ok(cookie) = engine.read_cookie(&memory, Avma(FUNCTION as u64)) else { return };
    // The code of any function may be anywhere.
    for pc in (FUNCTION as u64..).step_by(40).take(16) {
        let frame = CompiledFrame {
            shared: Avma(FUNCTION as u64),
            cookie: cookie & 0x7_ffff,
            cookie_mask: 0x7_ffff,
            pc: Some(Avma(pc)),
            is_return_address: pc % 16 == 0,
        };
        if let Ok(Code::Compiled(calls)) = engine.read_compiled(&memory, frame) {
            assert!((1..=65).contains(&calls.len()));
        }
    }
    let Ok(function) = engine.read_function(&memory, Avma(FUNCTION as u64), cookie) else { return };
    assert!(function.name().len() <= 1 << 10);
    assert!(function.path().len() <= 4 << 10);
    assert!(function.heap_bytes() <= (1 << 10) + (4 << 10) + (128 << 10));
    let _ = function.line_at(u32::from(*version));
});
