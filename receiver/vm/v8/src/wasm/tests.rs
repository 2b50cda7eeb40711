use proptest::prelude::*;
use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory as _;
use sidewinder_vm_runtime::FunctionError;
use sidewinder_vm_runtime::cookie::hash;

use super::WasmFrame;
use crate::Engine;
use crate::test_support::wasm::{
    DATA, FIRST, MODULE_BYTES, MODULE_LENGTH, NUMBERED, REPLACED, SCRIPT_OF_MODULE, SECOND, TO_JAVASCRIPT,
    process,
};
use crate::test_support::{Bytes, v8_layout};

/// One import, and three functions, of which the second has a name.
const MODULE_CONTENT: [u8; 45] =
    *b"\0asm\x01\0\0\0\x02\x07\x01\x01a\x01b\0\0\x03\x04\x03\0\0\0\0\x14\x04name\0\x02\x01m\x01\x09\x01\x02\x06second";

fn frame(memory: &Bytes, pc: u64) -> WasmFrame {
    let code = memory.word(Avma(pc - 8)).unwrap_or(0);
    let cookie_mask = 0x7_ffff;
    WasmFrame {
        instance: Avma(DATA),
        pc: Avma(pc),
        is_return_address: false,
        cookie: hash([code].into_iter()) & cookie_mask,
        cookie_mask,
    }
}

fn engine() -> Engine {
    Engine::new(v8_layout(true), None)
}

#[test]
fn functions_have_the_names_of_their_module_or_their_numbers() {
    for has_instance in [false, true] {
        let (memory, engine) = (process(has_instance, &MODULE_CONTENT), engine());
        let names = [FIRST, SECOND, NUMBERED].map(|start| {
            let function = engine.read_wasm(&memory, frame(&memory, start + 0x40)).unwrap();
            assert_eq!((function.path(), function.first_line), ("wasm://wasm/m", 0));
            assert!(!function.is_internal());
            function.name().into_owned()
        });
        assert_eq!(names.each_ref().map(|name| &**name), ["wasm-function[1]", "second", "second"]);
        // At its first instruction, and what is returned to at its end.
        let function = engine.read_wasm(&memory, frame(&memory, SECOND)).unwrap();
        assert_eq!(&*function.name(), "second");
        let end = WasmFrame { is_return_address: true, ..frame(&memory, NUMBERED) };
        assert_eq!(&*engine.read_wasm(&memory, end).unwrap().name(), "second");
        assert!(engine.read_wasm(&memory, frame(&memory, TO_JAVASCRIPT + 8)).unwrap().is_internal());
    }
}

#[test]
fn what_is_not_certain_has_no_name() {
    let (mut memory, engine) = (process(true, &MODULE_CONTENT), engine());
    let replaced = engine.read_wasm(&memory, frame(&memory, REPLACED + 8));
    assert!(matches!(replaced, Err(FunctionError::Replaced)), "no jump leads to it: {replaced:?}");
    assert!(engine.read_wasm(&memory, frame(&memory, FIRST - 16)).is_err(), "no function begins before it");
    // Other code in front of the instruction.
    let seen = frame(&memory, SECOND + 0x40);
    assert!(engine.read_wasm(&memory, seen).is_ok());
    memory.0[SECOND as usize + 0x3f] ^= 1;
    assert!(matches!(engine.read_wasm(&memory, seen), Err(FunctionError::Replaced)));
}

#[test]
fn another_module_in_the_place_of_one_has_its_own_names() {
    let (mut memory, engine) = (process(true, &MODULE_CONTENT), engine());
    let seen = frame(&memory, SECOND + 0x40);
    assert_eq!(&*engine.read_wasm(&memory, seen).unwrap().name(), "second");
    // Without the section of names.
    memory.0[MODULE_LENGTH as usize] -= 22;
    assert_eq!(&*engine.read_wasm(&memory, seen).unwrap().name(), "wasm-function[2]");
    memory.0[SCRIPT_OF_MODULE as usize..][..8].copy_from_slice(&[0; 8]);
    assert_eq!(&*engine.read_wasm(&memory, seen).unwrap().name(), "wasm-function[2]", "it is remembered");
    memory.0[MODULE_BYTES as usize] = 1;
    assert!(engine.read_wasm(&memory, seen).is_err());
}

proptest! {
    #[test]
    fn any_memory_is_read_in_bounded_time_and_without_a_panic(
        changes in prop::collection::vec((0..0x2020_usize, any::<u8>()), 1..40),
    ) {
        let mut memory = process(true, &MODULE_CONTENT);
        for (at, byte) in changes {
            memory.0[at] = byte;
        }
        let engine = engine();
        for pc in [FIRST + 0x40, SECOND + 0x40, NUMBERED + 0x40, REPLACED + 0x40] {
            if let Ok(function) = engine.read_wasm(&memory, frame(&memory, pc)) {
                prop_assert!(function.name().len() <= 3 << 10);
            }
        }
    }
}
