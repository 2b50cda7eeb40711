//! Layouts for unit tests and fuzz targets.

#[cfg(target_arch = "x86_64")]
pub mod wasm;

pub use sidewinder_vm_runtime::test_support::Bytes;

use crate::{CodeLayout, ObjectLayout, PositionForm, WasmLayout};

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
