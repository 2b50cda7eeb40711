//! What walks need of V8, in the form in which the programs have it.

use sidewinder_bpf::{FileRange as PublishedRange, PublishedRuntime, PublishedV8, V8Layout};
use sidewinder_process::FileId;
use sidewinder_vm_runtime::file_range::published_ranges;

use super::library::Library;

pub(super) fn published(file: FileId, library: &Library) -> PublishedRuntime {
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
