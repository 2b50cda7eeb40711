//! What is said of V8.

use std::sync::Arc;

use sidewinder_bpf::VmForm;
use sidewinder_profile::FrameType;
use sidewinder_vm_runtime::{
    LanguageRuntime, Runtime, RuntimeDescription, RuntimeParts, VersionSymbols, WalkedDescription,
};

use super::constants::{MAJOR, MINOR};
use super::library::Library;
use crate::arch;

/// What is said of it.
pub const DESCRIPTION: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::V8),
    id: "v8",
    label: "V8",
    name: "V8: Node.js, Deno, Electron",
    frames: "Node.js 18 to 26: each compiled, inlined or interpreted function, in order with the native frames. Others: generated code, by its frame pointers",
    names: "Node.js: read from the process's memory: name, file and line. Others: from a perf map or jitdump, if the runtime writes one",
    frames_advice: None,
    advice: Some("run it with --perf-basic-prof (Node.js: NODE_OPTIONS=--perf-basic-prof)"),
    parts: Some(RuntimeParts {
        complete: "Node.js 18 to 26",
        others: "V8 of Deno, Electron and other programs",
    }),
    frame_type: FrameType::V8js,
    // The first is `v8::Isolate::GetCurrent()`.
    symbols: &[b"_ZN2v87Isolate10GetCurrentEv", MAJOR],
    version: Some(VersionSymbols { names: &[MAJOR, MINOR], bytes: size_of::<u32>(), parse: version }),
};

/// What is said of its frames.
pub const WALKED: WalkedDescription = WalkedDescription {
    key: "v8",
    language: "JavaScript",
    function,
    detect: |file| Ok(Library::read(&file)?.map(|found| Arc::new(found) as Arc<dyn LanguageRuntime>)),
    is_walked_here: arch::IS_WALKED,
    needs_pthread: false,
    unsupported: None,
};

const fn function(form: VmForm) -> &'static str {
    match form {
        VmForm::WebAssembly { .. } => "WebAssembly function",
        _ => "JavaScript function",
    }
}

fn version(values: &[Vec<u8>]) -> Option<String> {
    let [major, minor] = values else { return None };
    let number = |value: &[u8]| value.first_chunk().map(|bytes| u32::from_le_bytes(*bytes));
    Some(format!("{}.{}", number(major)?, number(minor)?))
}
