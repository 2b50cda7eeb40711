//! Memory and layouts for unit tests and fuzz targets.

#[cfg(target_arch = "x86_64")]
pub mod wasm;

use std::io;

use sidewinder_address::Avma;
use sidewinder_process::ForeignMemory;

use crate::hotspot::{BlobLayout, CodeHeap, DebugLayout, DebugPlace, MethodLayout, VirtualMachine};
use crate::v8::{CodeLayout, ObjectLayout, PositionForm, WasmLayout};

/// The memory at the lowest addresses; higher ones are the same again, so that many pointers lead somewhere.
#[derive(Debug)]
pub struct Bytes(pub Vec<u8>);

const PAGE_BYTES: usize = 4 << 10;

impl ForeignMemory for Bytes {
    fn read_exact(&self, at: Avma, to: &mut [u8]) -> io::Result<()> {
        let from = usize::from(at.0 as u16);
        if from + to.len() > self.0.len().next_multiple_of(PAGE_BYTES) {
            return Err(io::ErrorKind::NotFound.into());
        }
        // Its last page ends with zeros.
        let rest = self.0.get(from..).unwrap_or_default();
        let bytes = rest.iter().copied().chain(std::iter::repeat(0));
        to.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        Ok(())
    }
}

/// HotSpot with the layout of 17.0.15, and a code cache at the lower half of the lowest addresses.
#[must_use]
pub fn machine(version: u8) -> VirtualMachine {
    VirtualMachine {
        version: (version, 0),
        heaps: vec![CodeHeap { start: Avma(0), bytes: 0x800, segments: Avma(0x8000) }],
        segment_shift: 7,
        interpreter: (Avma(0x400), 0x100),
        call_stub_return: Avma(0x10),
        blob: BlobLayout {
            header_bytes: 16,
            used: 8,
            name: 96,
            size: 12,
            frame_size: 28,
            frame_complete: 20,
            frame_complete_is_short: false,
            code: 32,
            method: 112,
            compile_id: 304,
            deopt_handlers: [128, 136],
            has_offsets: false,
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
        debug: Some(DebugLayout {
            place: DebugPlace::Blob { pcs_end: 272, scopes: 120, scopes_is_pointer: true, metadata: 260 },
            pcs: 268,
        }),
        has_debug_everywhere: false,
    }
}

/// V8's of Node.js 22 or 24.
#[must_use]
pub fn v8_layout(has_fixed_positions: bool) -> ObjectLayout {
    ObjectLayout {
        map_type: 12,
        shared: 32,
        script: 32,
        positions: 40,
        literal: 52,
        script_id: 64,
        script_type: 167,
        function_types: (2066, 2082),
        shared_type: 274,
        scope_type: 272,
        bytecode_type: 205,
        array_type: 174,
        byte_array_types: [186, 212],
        data: 8,
        name: 16,
        source: 8,
        source_name: 16,
        line_offset: 24,
        line_ends: 56,
        scope_variables: if has_fixed_positions { 48 } else { 32 },
        has_fixed_positions,
        bytecodes: 64,
        bytecode_positions: 24,
        position_form: Some(if has_fixed_positions { PositionForm::Flagged } else { PositionForm::Signed }),
        code: Some(v8_code_layout(has_fixed_positions)),
        regexp_frame: None,
        wasm: Some(WasmLayout {
            function_frame: 8,
            to_javascript_frame: 10,
            module_type: 2163,
            native_module: 80,
        }),
    }
}

/// That of objects of machine code of Node.js 24, or of Node.js 18, which has the instructions in the object that describes them.
#[must_use]
pub fn v8_code_layout(has_streams: bool) -> CodeLayout {
    let code_type = 187;
    let array_types = [174, 197, 193, 247, 199];
    if has_streams {
        CodeLayout {
            stream_type: 192,
            instructions: 32,
            code_type,
            start: Some(40),
            size: 56,
            deoptimization: 8,
            positions: 16,
            array_types,
            inlined_count: 1,
            literals: 3,
            function: 7,
            inlinings: 8,
            wrapper: Some((195, 8)),
        }
    } else {
        CodeLayout {
            stream_type: code_type,
            instructions: 128,
            code_type,
            start: None,
            size: 40,
            deoptimization: 16,
            positions: 24,
            array_types,
            inlined_count: 1,
            literals: 2,
            function: 6,
            inlinings: 7,
            wrapper: None,
        }
    }
}
