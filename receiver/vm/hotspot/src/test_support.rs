//! Layouts for unit tests and fuzz targets.

use sidewinder_address::Avma;
pub use sidewinder_vm_runtime::test_support::Bytes;

use crate::{BlobLayout, CodeHeap, DebugLayout, DebugPlace, MethodLayout, VirtualMachine};

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
