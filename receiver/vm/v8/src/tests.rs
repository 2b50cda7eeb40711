use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use sidewinder_address::Avma;
use sidewinder_vm_runtime::source_map::{NotLoaded, ScriptFile, ScriptKey, SourceMap, SourceMaps};
use sidewinder_vm_runtime::{Code, FunctionError};

use super::lines::tests::write_rows;
use super::{BytecodeSizes, CompiledFrame, Engine};
use crate::test_support::{Bytes, v8_layout};

/// Where the function is; all that it refers to is behind it.
const SHARED: u64 = 0x800;
const SCRIPT: u64 = 0x900;
const SCOPE: u64 = 0xa00;
const BYTECODE: u64 = 0xb00;
const POSITIONS: u64 = 0xb80;
const NAME: u64 = 0xc00;
const CONS: u64 = 0xc40;
const PATH: u64 = 0xc80;
const SOURCE: u64 = 0xd00;
const SLICE: u64 = 0xd80;
/// Another function of the script, and its machine code, in which the first one is inlined.
const INNER: u64 = 0xe00;
const INNER_NAME: u64 = 0xe60;
const WRAPPER: u64 = 0xe90;
const DEOPTIMIZATION: u64 = 0xec0;
const LITERALS: u64 = 0xf40;
const INLININGS: u64 = 0xf80;
const CODE_POSITIONS: u64 = 0xfc0;
const STREAM: u64 = 0x1000;
const CODE: u64 = 0x1100;
const END: usize = 0x1200;

const TEXT: &str = "let a;\n\nfunction größe(x) {\n  return x;\n}\n";

struct Heap(Vec<u8>);

impl Heap {
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.0[at as usize..at as usize + bytes.len()].copy_from_slice(bytes);
    }

    fn word(&mut self, at: u64, word: u64) {
        self.put(at, &word.to_le_bytes());
    }

    fn number(&mut self, at: u64, number: i32) {
        self.word(at, u64::from(number.cast_unsigned()) << 32);
    }

    fn reference(&mut self, at: u64, object: u64) {
        self.word(at, object | 1);
    }

    /// Maps are below 0x800: 16 bytes for each type.
    fn object(&mut self, at: u64, kind: u16) {
        let map = 0x40 + 16 * u64::from(kind % 64);
        self.reference(map, 0x40 + 16 * 63);
        self.put(map + 12, &kind.to_le_bytes());
        self.reference(at, map);
    }

    fn string(&mut self, at: u64, kind: u16, length: usize) {
        self.object(at, kind);
        self.put(at + 12, &(length as u32).to_le_bytes());
    }
}

/// A function with the source [`TEXT`], of which each string is of another kind.
fn heap(has_fixed_positions: bool) -> Vec<u8> {
    let layout = v8_layout(has_fixed_positions);
    let mut heap = Heap(vec![0; END]);
    // The map of maps, which is its own.
    heap.object(0x40 + 16 * 63, 63);

    heap.object(SHARED, layout.shared_type);
    heap.reference(SHARED + 8, BYTECODE);
    heap.reference(SHARED + 16, SCOPE);
    heap.reference(SHARED + 32, SCRIPT);
    heap.word(SHARED + 40, 0xffff_0005_0002_0001);
    heap.word(SHARED + 48, 7 << 32 | 0xabc);

    heap.object(SCRIPT, layout.script_type);
    heap.reference(SCRIPT + 8, SLICE);
    heap.reference(SCRIPT + 16, PATH);
    heap.number(SCRIPT + 24, 10);
    heap.number(SCRIPT + 56, 0);
    heap.number(SCRIPT + 64, 88);

    heap.object(SCOPE, layout.scope_type);
    let flags: u32 = 0x71e2;
    if has_fixed_positions {
        heap.word(SCOPE + 8, flags.into());
        heap.number(SCOPE + 32, 22);
    } else {
        heap.number(SCOPE + 8, flags.cast_signed());
    }
    heap.number(SCOPE + 24, 1);
    let name_at = SCOPE + u64::from(layout.scope_variables) + 16;
    heap.reference(name_at, CONS);
    heap.number(name_at + 8, -1);
    heap.reference(name_at + 16, 0x40 + 16 * 63);
    if !has_fixed_positions {
        heap.number(name_at + 24, 22);
    }

    // The statement is at the second bytecode, in the line after the function's.
    heap.object(BYTECODE, layout.bytecode_type);
    heap.reference(BYTECODE + 24, POSITIONS);
    heap.object(POSITIONS, layout.byte_array_types[1]);
    heap.number(POSITIONS + 8, 3);
    // Offset 2, and position 32, which counts from 1 and has a bit below it: 66, twice, in groups of 7 bits.
    heap.put(POSITIONS + 16, &[4, 0x84, 1]);

    // "grö", as UTF-16, and "ße" in Latin 1.
    heap.string(CONS, 0x21, 5);
    heap.reference(CONS + 16, NAME);
    heap.reference(CONS + 24, NAME + 0x20);
    heap.string(NAME, 0x20, 3);
    let units: Vec<u8> = "grö".encode_utf16().flat_map(u16::to_le_bytes).collect();
    heap.put(NAME + 16, &units);
    heap.string(NAME + 0x20, 0x28, 2);
    heap.put(NAME + 0x30, &[0xdf, b'e']);

    let path = b"/srv/app.js";
    heap.string(PATH, 0x2d, path.len());
    heap.reference(PATH + 16, PATH + 0x20);
    heap.string(PATH + 0x20, 8, path.len());
    heap.put(PATH + 0x30, path);

    // The source is a part of a longer string.
    let text: Vec<u8> = TEXT.chars().map(|character| u32::from(character) as u8).collect();
    heap.string(SLICE, 0x2b, text.len());
    heap.reference(SLICE + 16, SOURCE);
    heap.number(SLICE + 24, 2);
    heap.string(SOURCE, 0x28, text.len() + 2);
    heap.put(SOURCE + 18, &text);
    put_code(&mut heap, has_fixed_positions);
    heap.0
}

/// Code of `größe`: from its byte 16 on it is that of the other function, which `größe` calls in its second line, and from 40 on
/// its own again. At 60 it ends.
fn put_code(heap: &mut Heap, has_streams: bool) {
    let layout = v8_layout(has_streams);
    let code_layout = layout.code.unwrap();
    heap.object(INNER, layout.shared_type);
    heap.reference(INNER + 16, INNER_NAME);
    heap.reference(INNER + 32, SCRIPT);
    heap.word(INNER + 48, 9 << 32);
    heap.string(INNER_NAME, 8, 5);
    heap.put(INNER_NAME + 16, b"inner");

    let code = if has_streams { CODE } else { STREAM };
    heap.object(STREAM, code_layout.stream_type);
    heap.object(code, code_layout.code_type);
    if let Some(start) = code_layout.start {
        heap.reference(STREAM + 8, CODE);
        heap.word(CODE + u64::from(start), STREAM + u64::from(code_layout.instructions));
    }
    heap.put(code + u64::from(code_layout.size), &80_u32.to_le_bytes());
    heap.reference(code + u64::from(code_layout.deoptimization), DEOPTIMIZATION);
    heap.reference(code + u64::from(code_layout.positions), CODE_POSITIONS);

    let at = |index: u16| DEOPTIMIZATION + 16 + 8 * u64::from(index);
    heap.object(DEOPTIMIZATION, code_layout.array_types[if has_streams { 2 } else { 0 }]);
    heap.number(DEOPTIMIZATION + 8, 12);
    heap.number(at(code_layout.inlined_count), 1);
    heap.reference(at(code_layout.literals), LITERALS);
    heap.reference(at(code_layout.inlinings), INLININGS);
    heap.number(at(code_layout.inlinings + 1), 60);
    match code_layout.wrapper {
        Some((kind, field)) => {
            heap.object(WRAPPER, kind);
            heap.reference(WRAPPER + u64::from(field), SHARED);
            heap.reference(at(code_layout.function), WRAPPER);
        }
        None => heap.reference(at(code_layout.function), SHARED),
    }
    heap.object(LITERALS, code_layout.array_types[if has_streams { 4 } else { 3 }]);
    heap.number(LITERALS + 8, 1);
    // Weak.
    heap.word(LITERALS + 16, INNER | 3);
    heap.object(INLININGS, layout.byte_array_types[usize::from(has_streams)]);
    heap.number(INLININGS + 8, 16);
    heap.word(INLININGS + 16, 33 << 1);

    let rows = [(0, 23 << 1, false), (16, 1 << 31 | 1 << 1, true), (40, 33 << 1, true)];
    let rows = write_rows(layout.position_form.unwrap(), &rows);
    heap.object(CODE_POSITIONS, layout.byte_array_types[usize::from(has_streams)]);
    heap.number(CODE_POSITIONS + 8, rows.len() as i32);
    heap.put(CODE_POSITIONS + 16, &rows);
}

/// A frame of `größe` at an offset in its code.
fn frame(engine: &Engine, memory: &Bytes, offset: u64, is_return_address: bool) -> CompiledFrame {
    let instructions = engine.layout().code.unwrap().instructions;
    CompiledFrame {
        shared: Avma(SHARED),
        cookie: engine.read_cookie(memory, Avma(SHARED)).unwrap() & 0x7_ffff,
        cookie_mask: 0x7_ffff,
        pc: Some(Avma(STREAM + u64::from(instructions) + offset)),
        is_return_address,
    }
}

/// The names and lines of compiled code, `None` if that is not known.
fn calls(engine: &Engine, memory: &Bytes, frame: CompiledFrame) -> Option<Vec<(String, u32)>> {
    match engine.read_compiled(memory, frame).unwrap() {
        Code::Compiled(calls) => {
            Some(calls.iter().map(|call| (call.function.name().into_owned(), call.line)).collect())
        }
        Code::Function(function) => {
            assert_eq!((&*function.name(), function.line_at(0)), ("größe", Some(13)));
            None
        }
    }
}

fn own(line: u32) -> Vec<(String, u32)> {
    vec![("größe".to_owned(), line)]
}

#[test]
fn compiled_code_has_its_inlined_functions_and_lines() {
    for has_streams in [false, true] {
        let engine = Engine::new(v8_layout(has_streams), None);
        let memory = Bytes(heap(has_streams));
        let at = |offset, is_return_address| {
            calls(&engine, &memory, frame(&engine, &memory, offset, is_return_address)).unwrap()
        };
        let inner = vec![("inner".to_owned(), 11), ("größe".to_owned(), 14)];
        assert_eq!([at(0, false), at(15, false), at(16, true)], [own(13), own(13), own(13)]);
        assert_eq!([at(16, false), at(17, true), at(40, true)], [inner.clone(), inner.clone(), inner]);
        assert_eq!([at(40, false), at(59, false), at(60, false)], [own(14), own(14), own(13)]);
        // Behind the code is nothing of it.
        assert_eq!(calls(&engine, &memory, frame(&engine, &memory, 80, false)), None);
        let unknown = CompiledFrame { pc: None, ..frame(&engine, &memory, 0, false) };
        assert_eq!(calls(&engine, &memory, unknown), None);
    }
}

#[test]
fn code_of_the_baseline_compiler_has_the_lines_of_its_bytecode() {
    for has_streams in [false, true] {
        let code_layout = v8_layout(has_streams).code.unwrap();
        let code = if has_streams { CODE } else { STREAM };
        let mut changed = Heap(heap(has_streams));
        // It is in the place of the bytecode.
        changed.reference(SHARED + 8, code);
        changed.reference(code + u64::from(code_layout.deoptimization), BYTECODE);
        changed.number(BYTECODE + 8, 3);
        changed.put(BYTECODE + 64, &[4, 5, 0]);
        // The prologue and two bytecodes.
        changed.number(CODE_POSITIONS + 8, 3);
        changed.put(CODE_POSITIONS + 16, &[10, 4, 4]);
        let memory = Bytes(changed.0);
        let sizes = BytecodeSizes::new(&[1, 1, 1, 1, 1, 2, 1, 1, 1, 1, 1, 3, 1, 1, 1, 1, 1, 5]);
        let engine = Engine::new(v8_layout(has_streams), sizes);
        let at = |offset, is_return_address| {
            calls(&engine, &memory, frame(&engine, &memory, offset, is_return_address)).unwrap()
        };
        assert_eq!([at(9, false), at(10, true), at(14, false), at(18, true)], [13, 13, 14, 14].map(own));
        let engine = Engine::new(v8_layout(has_streams), None);
        assert_eq!(calls(&engine, &memory, frame(&engine, &memory, 14, false)), Some(own(13)));
        let cookie = engine.read_cookie(&memory, Avma(SHARED)).unwrap();
        let interpreted = engine.read_function(&memory, Avma(SHARED), cookie).unwrap();
        assert_eq!(interpreted.line_at(63 + 2), Some(14));
    }
}

#[test]
fn a_function_that_was_moved_is_found_by_its_code() {
    for has_streams in [false, true] {
        let engine = Engine::new(v8_layout(has_streams), None);
        let memory = Bytes(heap(has_streams));
        let moved = CompiledFrame { shared: Avma(0x700), ..frame(&engine, &memory, 0, false) };
        assert_eq!(calls(&engine, &memory, moved), Some(own(13)));
        let other = CompiledFrame { cookie: moved.cookie ^ 1, ..moved };
        assert!(engine.read_compiled(&memory, other).is_err());
        let other = CompiledFrame { shared: Avma(SHARED), ..other };
        assert!(matches!(engine.read_compiled(&memory, other), Err(FunctionError::Replaced)));
    }
}

/// What is changed, and how.
type Change<'change> = (&'change str, &'change dyn Fn(&mut Heap));

#[test]
fn code_that_is_not_the_functions_leaves_the_function_alone() {
    for has_streams in [false, true] {
        let engine = Engine::new(v8_layout(has_streams), None);
        let code_layout = v8_layout(has_streams).code.unwrap();
        let function_at = match code_layout.wrapper {
            Some((_, field)) => WRAPPER + u64::from(field),
            None => DEOPTIMIZATION + 16 + 8 * u64::from(code_layout.function),
        };
        let changes: [Change<'_>; 4] = [
            ("another function's", &|heap| heap.reference(function_at, INNER)),
            // The first call is inlined in itself.
            ("endless", &|heap| heap.word(INLININGS + 16, 1 << 31 | 33 << 1)),
            ("an inlined function that is missing", &|heap| heap.put(INLININGS + 24, &[7])),
            ("a reference that was cleared", &|heap| heap.word(LITERALS + 16, 3)),
        ];
        for (what, change) in changes {
            let mut changed = Heap(heap(has_streams));
            change(&mut changed);
            let memory = Bytes(changed.0);
            assert_eq!(calls(&engine, &memory, frame(&engine, &memory, 20, false)), None, "{what}");
        }
    }
}

#[test]
fn a_function_is_read_with_its_line() {
    for has_fixed_positions in [false, true] {
        let engine = Engine::new(v8_layout(has_fixed_positions), None);
        let memory = Bytes(heap(has_fixed_positions));
        let cookie = engine.read_cookie(&memory, Avma(SHARED)).unwrap();
        let function = engine.read_function(&memory, Avma(SHARED), cookie).unwrap();
        assert_eq!((&*function.name(), function.path(), function.first_line), ("größe", "/srv/app.js", 13));
        // Before its first instruction it is in its first line.
        assert_eq!(
            [-1, 63 + 2].map(|place: i32| function.line_at(place.cast_unsigned())),
            [Some(13), Some(14)]
        );
        let other = engine.read_function(&memory, Avma(SHARED), cookie ^ 1);
        assert!(matches!(other, Err(FunctionError::Replaced)));
    }
}

#[test]
fn another_function_at_the_address_has_another_cookie() {
    let engine = Engine::new(v8_layout(false), None);
    let cookie_of = |change: &dyn Fn(&mut Heap)| {
        let mut heap = Heap(heap(false));
        change(&mut heap);
        engine.read_cookie(&Bytes(heap.0), Avma(SHARED)).unwrap()
    };
    let own = cookie_of(&|_| {});
    // What changes while a function is in use does not belong to it.
    assert_eq!(cookie_of(&|heap| heap.put(SHARED + 46, &[1, 2])), own);
    assert_eq!(cookie_of(&|heap| heap.put(SHARED + 48, &[1, 2])), own);
    for (at, what) in [(SCRIPT + 68, "script"), (SHARED + 52, "literal"), (SHARED + 44, "position")] {
        assert_ne!(cookie_of(&|heap| heap.put(at, &[99])), own, "{what}");
    }
}

#[test]
fn objects_of_another_layout_are_not_read() {
    let mut changed = Heap(heap(false));
    // The map of the map of functions is not its own.
    changed.reference(0x40 + 16 * 63, SCOPE);
    let engine = Engine::new(v8_layout(false), None);
    let result = engine.read_cookie(&Bytes(changed.0), Avma(SHARED));
    assert!(matches!(result, Err(FunctionError::Malformed(_))), "{result:?}");
    let mut moved = Heap(heap(false));
    // The garbage collector has left its new address there.
    moved.word(SHARED, 0x9000);
    assert!(matches!(engine.read_cookie(&Bytes(moved.0), Avma(SHARED)), Err(FunctionError::Replaced)));
}

/// The map of the script, with the last line of the script left out.
#[derive(Debug)]
struct OneMap {
    path: &'static str,
    map: Mutex<Option<Arc<SourceMap>>>,
}

impl SourceMaps for OneMap {
    fn find(&self, script: &ScriptKey) -> Result<Option<Arc<SourceMap>>, NotLoaded> {
        let content = ScriptFile::read(TEXT.as_bytes(), self.path, 1 << 20).unwrap().content;
        assert_eq!((&*script.path, Some(script.content)), (self.path, content));
        self.map.lock().unwrap().clone().map(Some).ok_or(NotLoaded)
    }
}

#[test]
fn functions_of_a_mapped_script_are_those_of_its_source() {
    // Lines 2 to 3 of the script are lines 102 to 103 of one source; its name there, at column 9, is another one.
    let text =
        r#"{"version":3,"sources":["src/x.ts","y.ts"],"names":["size"],"mappings":";;AAqGA,SAASA;AACA"}"#;
    let map = SourceMap::read(text.as_bytes(), "/srv", 1 << 20).unwrap();
    for has_fixed_positions in [false, true] {
        let mut changed = Heap(heap(has_fixed_positions));
        changed.number(SCRIPT + 24, 0);
        let memory = Bytes(changed.0);
        let engine = Engine::new(v8_layout(has_fixed_positions), None);
        let maps = Arc::new(OneMap { path: "/srv/app.js", map: Mutex::default() });
        engine.set_source_maps(Arc::clone(&maps) as Arc<dyn SourceMaps>);
        let cookie = engine.read_cookie(&memory, Avma(SHARED)).unwrap();
        let read = || engine.read_function(&memory, Avma(SHARED), cookie);
        assert!(matches!(read(), Err(FunctionError::SourceMapNotLoaded)));
        let compiled = engine.read_compiled(&memory, frame(&engine, &memory, 20, false));
        assert!(matches!(compiled, Err(FunctionError::SourceMapNotLoaded)));

        let map = SourceMap::read(text.as_bytes(), "/srv", 1 << 20).unwrap();
        *maps.map.lock().unwrap() = Some(Arc::new(map));
        let function = read().unwrap();
        assert_eq!((&*function.name(), function.path(), function.first_line), ("size", "/srv/src/x.ts", 102));
        assert_eq!([0, 90].map(|place| function.line_at(place)), [None, Some(103)]);
        let Code::Compiled(calls) =
            engine.read_compiled(&memory, frame(&engine, &memory, 20, false)).unwrap()
        else {
            panic!("compiled code");
        };
        let calls: Vec<_> = calls
            .iter()
            .map(|call| (call.function.name().into_owned(), call.function.path(), call.line))
            .collect();
        assert_eq!(calls, [("inner".into(), "/srv/app.js", 1), ("size".into(), "/srv/src/x.ts", 103)]);
    }
    assert!(map.find(9, 0).is_none());
}

proptest! {
    #[test]
    fn any_memory_has_a_result(
        changes in prop::collection::vec((SHARED as usize..END, any::<u8>()), 0..12),
        has_fixed_positions: bool,
    ) {
        let mut memory = heap(has_fixed_positions);
        changes.into_iter().for_each(|(at, byte)| memory[at] = byte);
        let (engine, memory) = (Engine::new(v8_layout(has_fixed_positions), None), Bytes(memory));
        if let Ok(cookie) = engine.read_cookie(&memory, Avma(SHARED))
            && let Ok(function) = engine.read_function(&memory, Avma(SHARED), cookie)
        {
            prop_assert!(function.name().len() <= 1 << 10 && function.path().len() <= 4 << 10);
            prop_assert!(function.heap_bytes() <= 1 << 18);
            for offset in [0, 20, 60] {
                let _ = engine.read_compiled(&memory, frame(&engine, &memory, offset, true));
            }
        }
    }

    /// Strings may contain themselves.
    #[test]
    fn a_cycle_of_strings_has_an_end(first in prop::sample::select(vec![CONS, NAME, PATH, SLICE]), kind in prop::sample::select(vec![0x20, 0x21, 0x22, 0x23, 0x25, 0x29, 0x2b, 0x2d])) {
        let mut changed = Heap(heap(false));
        changed.string(NAME, kind, 1 << 20);
        changed.reference(NAME + 16, first);
        changed.reference(NAME + 24, NAME);
        let (engine, memory) = (Engine::new(v8_layout(false), None), Bytes(changed.0));
        let cookie = engine.read_cookie(&memory, Avma(SHARED)).unwrap();
        if let Ok(function) = engine.read_function(&memory, Avma(SHARED), cookie) {
            prop_assert!(function.name().len() <= 1 << 10);
        }
    }
}
