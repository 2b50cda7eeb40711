//! What is said of CPython.

use std::sync::Arc;

use sidewinder_profile::FrameType;
use sidewinder_vm_runtime::{
    LanguageRuntime, Runtime, RuntimeDescription, Unsupported, VersionSymbols, WalkedDescription,
};

use super::interpreter::{Interpreter, Version};

/// What is said of it.
pub const DESCRIPTION: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::CPython),
    id: "cpython",
    label: "CPython",
    name: "CPython 3.8 to 3.14, 3.13t, 3.14t",
    frames: "each function, in order with the native frames",
    names: "read from the process's memory: qualified name (before 3.11, the plain name), file, line",
    frames_advice: None,
    advice: None,
    parts: None,
    frame_type: FrameType::CPython,
    // Since 3.7, and before.
    symbols: &[b"_PyRuntime", b"_PyThreadState_Current"],
    version: Some(VersionSymbols { names: &[b"Py_Version"], bytes: size_of::<u32>(), parse: version }),
};

/// What is said of its frames.
pub const WALKED: WalkedDescription = WalkedDescription {
    key: "python",
    language: "Python",
    function: |_| "Python function",
    detect: |file| Ok(Interpreter::read(&file)?.map(|found| Arc::new(found) as Arc<dyn LanguageRuntime>)),
    is_walked_here: true,
    needs_pthread: true,
    unsupported: Some(Unsupported {
        why: "this build of CPython is not supported",
        next: || format!("use a build of 3.{} to 3.14, 3.13t or 3.14t", Version::OLDEST.minor),
    }),
};

/// By `PY_VERSION_HEX`.
fn version(values: &[Vec<u8>]) -> Option<String> {
    let [_, micro, minor, major] = values.first()?.first_chunk::<4>()?;
    Some(format!("{major}.{minor}.{micro}"))
}
