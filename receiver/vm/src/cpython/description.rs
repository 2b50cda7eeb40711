//! What is said of CPython.

use sidewinder_profile::FrameType;

use crate::Runtime;
use crate::description::{RuntimeDescription, VersionSymbols, WalkedDescription};

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
};

/// By `PY_VERSION_HEX`.
fn version(values: &[Vec<u8>]) -> Option<String> {
    let [_, micro, minor, major] = values.first()?.first_chunk::<4>()?;
    Some(format!("{major}.{minor}.{micro}"))
}
