//! What is said of V8.

use std::sync::Arc;

use sidewinder_bpf::VmForm;
use sidewinder_profile::FrameType;

use super::layout::Library;
use crate::description::{RuntimeDescription, RuntimeParts, VersionSymbols, WalkedDescription};
use crate::{LanguageRuntime, Runtime};

/// `v8::internal::Version::major_`, which not all builds export.
pub(super) const MAJOR: &[u8] = b"_ZN2v88internal7Version6major_E";
pub(super) const MINOR: &[u8] = b"_ZN2v88internal7Version6minor_E";

pub(crate) const DESCRIPTION: RuntimeDescription = RuntimeDescription {
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

pub(crate) const WALKED: WalkedDescription = WalkedDescription {
    runtime: Runtime::V8,
    key: "v8",
    language: "JavaScript",
    function,
    detect: |file| Ok(Library::read(&file)?.map(|found| Arc::new(found) as Arc<dyn LanguageRuntime>)),
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
