//! What walks need of HotSpot, in the form in which the programs have it.

use sidewinder_bpf::{CODE_HEAPS_MAX, CodeHeap, HotSpotLayout, PublishedRuntime};

use super::machine::VirtualMachine;

pub(super) fn published(machine: &VirtualMachine) -> PublishedRuntime {
    let mut heaps = [CodeHeap::default(); CODE_HEAPS_MAX];
    for (to, heap) in heaps.iter_mut().zip(&machine.heaps) {
        *to = CodeHeap { start: heap.start.0, bytes: heap.bytes, segments: heap.segments.0 };
    }
    let code_start = machine.heaps.iter().map(|heap| heap.start.0).min().unwrap_or(0);
    let code_end =
        machine.heaps.iter().map(|heap| heap.start.0.saturating_add(heap.bytes)).max().unwrap_or(0);
    let blob = machine.blob;
    let interpreted = machine.interpreted_frame();
    PublishedRuntime::HotSpot(HotSpotLayout {
        heaps,
        code_start,
        code_bytes: code_end - code_start,
        call_stub_return: machine.call_stub_return.0,
        interpreter: machine.interpreter.0.0,
        interpreter_bytes: machine.interpreter.1,
        name: blob.name,
        size: blob.size,
        frame_size: blob.frame_size,
        frame_complete: blob.frame_complete,
        code: blob.code,
        method: blob.method,
        compile_id: blob.compile_id,
        deopt_handlers: blob.deopt_handlers,
        original_pc: blob.original_pc,
        const_method: machine.method.const_method,
        bytecodes: machine.method.const_method_bytes,
        constants: machine.method.constants,
        pool_holder: machine.method.pool_holder,
        class_name: machine.method.class_name,
        symbol_length: machine.method.symbol_length,
        symbol_body: machine.method.symbol_body,
        segment_shift: machine.segment_shift,
        block_header_bytes: blob.header_bytes,
        has_offsets: blob.has_offsets.into(),
        frame_complete_is_short: blob.frame_complete_is_short.into(),
        bytecode: interpreted.bytecode,
        sender_sp: interpreted.sender_sp,
        reserved: [0; 4],
    })
}
