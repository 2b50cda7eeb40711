//! What walks need of an interpreter, in the form in which the programs have it.

use sidewinder_address::FileOffset;
use sidewinder_bpf::{
    CODE_HEAPS_MAX, CPythonLayout, CodeHeap, FileRange as PublishedRange, HotSpotLayout, PublishedCPython,
    PublishedRuntime, PublishedTlsLocation, PublishedV8, V8Layout, cpython_group_form, cpython_instruction,
};
use sidewinder_process::FileId;
use sidewinder_vm::cpython::{self, Groups, InstructionForm, Layout};
use sidewinder_vm::hotspot::VirtualMachine;
use sidewinder_vm::{FileRange, v8};

pub(super) fn published_ranges(ranges: &[FileRange]) -> Vec<(FileOffset, u64)> {
    ranges.iter().map(|range| (range.start, range.bytes)).collect()
}

pub(super) fn published_cpython(
    file: FileId,
    interpreter: &cpython::Interpreter,
    state: [Option<PublishedTlsLocation>; 2],
) -> PublishedRuntime {
    PublishedRuntime::CPython(PublishedCPython {
        file: file.0,
        loop_ranges: published_ranges(&interpreter.loops),
        unlinked_ranges: published_ranges(&interpreter.unlinked),
        state,
        cpython: published_layout(interpreter.layout),
    })
}

pub(super) fn published_hotspot(machine: &VirtualMachine) -> PublishedRuntime {
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

pub(super) fn published_v8(file: FileId, library: &v8::Library) -> PublishedRuntime {
    let layout = library.layout;
    let builtins = library.builtins.and_then(|range| {
        Some(PublishedRange { start: range.start.0.try_into().ok()?, bytes: range.bytes.try_into().ok()? })
    });
    PublishedRuntime::V8(PublishedV8 {
        file: file.0,
        loop_ranges: published_ranges(&library.loops),
        layout: V8Layout {
            builtins: builtins.unwrap_or_default(),
            map_type: layout.map_type,
            shared: layout.shared,
            script: layout.script,
            positions: layout.positions,
            literal: layout.literal,
            script_id: layout.script_id,
            script_type: layout.script_type,
            first_function_type: layout.function_types.0,
            last_function_type: layout.function_types.1,
            wasm_frame: layout.wasm.map_or(0, |wasm| wasm.function_frame),
            wasm_to_js_frame: layout.wasm.map_or(0, |wasm| wasm.to_javascript_frame),
            regexp_frame: layout.regexp_frame.unwrap_or(0),
        },
    })
}

fn published_layout(layout: Layout) -> CPythonLayout {
    let (identity, identity_bytes) = layout.identity;
    let [name, path, lines] = layout.pointers();
    CPythonLayout {
        thread_id: layout.thread_id,
        cframe: layout.cframe.unwrap_or(0),
        current_frame: layout.current_frame,
        previous: layout.previous,
        code: layout.code,
        instruction: layout.instruction,
        owner: layout.owner,
        copy: layout.copies.map_or(0, |copies| copies.number),
        frame_bytes: layout.frame_bytes,
        bytecode: layout.bytecode,
        copies: layout.copies.map_or(0, |copies| copies.array),
        identity,
        identity_bytes,
        name,
        path,
        lines,
        group_form: match layout.groups {
            Groups::OneFrame => cpython_group_form::ONE_FRAME,
            Groups::LastIsEntry => cpython_group_form::LAST_IS_ENTRY,
            Groups::EndsAtShim => cpython_group_form::ENDS_AT_SHIM,
        } as u8,
        instruction_form: match layout.instruction_form {
            InstructionForm::ByteIndex => cpython_instruction::INDEX,
            InstructionForm::UnitIndex => cpython_instruction::INDEX_BY_2,
            InstructionForm::Pointer => cpython_instruction::POINTER,
        } as u8,
        identity_has_texts: layout.identity_has_texts.into(),
        reserved: [0; 5],
    }
}
