//! What is said of CPython.

use std::sync::Arc;

use sidewinder_profile::FrameType;

use super::interpreter::{Interpreter, Version};
use crate::description::{RuntimeDescription, VersionSymbols, WalkedDescription};
use crate::inspection::Unsupported;
use crate::{LanguageRuntime, Runtime};

pub(crate) const DESCRIPTION: RuntimeDescription = RuntimeDescription {
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

pub(crate) const WALKED: WalkedDescription = WalkedDescription {
    runtime: Runtime::CPython,
    key: "python",
    language: "Python",
    function: |_| "Python function",
    detect: |file| Ok(Interpreter::read(&file)?.map(|found| Arc::new(found) as Arc<dyn LanguageRuntime>)),
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
