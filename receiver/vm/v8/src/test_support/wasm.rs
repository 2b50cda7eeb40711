//! A process with an instance of a module of WebAssembly, whose code is that of the machine.

use super::{Bytes, v8_layout};
use crate::arch::wasm_code;

/// Where the data of the instance is.
pub const DATA: u64 = 0x400;
/// Where functions begin: the two to which jumps lead, one that says its number, which is 1, what calls JavaScript, and one
/// to which no jump leads.
pub const FIRST: u64 = 0x1100;
/// See [`FIRST`].
pub const SECOND: u64 = 0x1200;
/// See [`FIRST`].
pub const NUMBERED: u64 = 0x1300;
/// See [`FIRST`].
pub const TO_JAVASCRIPT: u64 = 0x1400;
/// See [`FIRST`].
pub const REPLACED: u64 = 0x1500;
/// Where the bytes of the module are, at the end.
pub const MODULE_BYTES: u64 = 0x2000;
/// Where their length is.
pub const MODULE_LENGTH: u64 = OWNED_BYTES + 8;
/// Where the module refers to its script.
pub const SCRIPT_OF_MODULE: u64 = MODULE + 0x20;
const MAP_OF_MAPS: u64 = 0x100;
const INSTANCE: u64 = 0x700;
const MODULE: u64 = 0x800;
const SCRIPT: u64 = 0x900;
const FOREIGN: u64 = 0xa00;
const URL: u64 = 0xa40;
const MANAGED: u64 = 0xa80;
const SHARED_POINTER: u64 = 0xac0;
const NATIVE_MODULE: u64 = 0xb00;
const OWNED_BYTES: u64 = 0xd80;
const TABLE: u64 = 0x1000;

struct Process(Vec<u8>);

impl Process {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    fn reference(&mut self, at: u64, object: u64) {
        self.word(at, object | 1);
    }

    /// Maps of types are 16 bytes each.
    fn object(&mut self, at: u64, kind: u16) {
        let map = MAP_OF_MAPS + 16 * u64::from(kind % 32);
        self.reference(map, MAP_OF_MAPS);
        self.put(map + 12, &kind.to_le_bytes());
        self.reference(at, map);
    }
}

/// `has_instance`: the data is not the instance, but refers to it.
#[must_use]
pub fn process(has_instance: bool, module: &[u8]) -> Bytes {
    let layout = v8_layout(true);
    let Some(wasm) = layout.wasm else { return Bytes(Vec::new()) };
    let mut process = Process(vec![0; MODULE_BYTES as usize + module.len()]);
    // Types whose maps are apart.
    process.object(DATA, 191);
    process.word(DATA + 0x38, TABLE);
    let instance = if has_instance { INSTANCE } else { DATA };
    if has_instance {
        process.object(INSTANCE, 2160);
        process.reference(DATA + 0x98, INSTANCE);
        process.reference(INSTANCE + 0x18, DATA);
    }
    process.reference(instance + 0x20, MODULE);
    process.object(MODULE, wasm.module_type);
    process.reference(SCRIPT_OF_MODULE, SCRIPT);
    process.object(SCRIPT, layout.script_type);
    process.reference(SCRIPT + u64::from(layout.source_name), URL);
    process.reference(SCRIPT + u64::from(wasm.native_module), FOREIGN);
    process.object(FOREIGN, 204);
    process.word(FOREIGN + 8, MANAGED);
    process.word(MANAGED + 24, SHARED_POINTER);
    process.word(SHARED_POINTER, NATIVE_MODULE);
    process.word(NATIVE_MODULE + 0xc8, OWNED_BYTES);
    process.word(OWNED_BYTES, MODULE_BYTES);
    process.word(MODULE_LENGTH, module.len() as u64);
    process.put(MODULE_BYTES, module);
    // A sequential string of one byte a character.
    process.object(URL, 8);
    process.put(URL + 12, &13_u32.to_le_bytes());
    process.put(URL + 16, b"wasm://wasm/m");

    process.put(TABLE, &wasm_code::jumps(TABLE, &[FIRST, SECOND, FIRST]));
    process.put(FIRST, &wasm_code::function(wasm.function_frame as u8));
    process.put(SECOND, &wasm_code::function(wasm.function_frame as u8));
    process.put(NUMBERED, &wasm_code::numbered(1));
    process.put(TO_JAVASCRIPT, &wasm_code::function(wasm.to_javascript_frame as u8));
    process.put(REPLACED, &wasm_code::function(wasm.function_frame as u8));
    Bytes(process.0)
}
