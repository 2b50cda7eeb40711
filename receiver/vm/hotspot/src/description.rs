//! What is said of Java virtual machines.

use std::sync::Arc;

use sidewinder_profile::FrameType;
use sidewinder_vm_runtime::{LanguageRuntime, Runtime, RuntimeDescription, Unsupported, WalkedDescription};

use super::machine::JvmLibrary;

/// What is said of it.
pub const DESCRIPTION: RuntimeDescription = RuntimeDescription {
    runtime: Some(Runtime::Jvm),
    id: "jvm",
    label: "Java",
    name: "Java: HotSpot of OpenJDK 8 to 26",
    frames: "each compiled, inlined or interpreted method, in order with the native frames",
    names: "read from the process's memory: class, method, types of parameters, file and line",
    frames_advice: None,
    advice: None,
    parts: None,
    frame_type: FrameType::Jvm,
    symbols: &[b"JNI_CreateJavaVM"],
    version: None,
};

/// What is said of its frames.
pub const WALKED: WalkedDescription = WalkedDescription {
    key: "hotspot",
    language: "Java",
    function: |_| "Java method",
    detect: |file| Ok(JvmLibrary::read(&file)?.map(|found| Arc::new(found) as Arc<dyn LanguageRuntime>)),
    is_walked_here: true,
    needs_pthread: false,
    unsupported: Some(Unsupported {
        why: "this JVM does not export its layout",
        next: || "use HotSpot of OpenJDK".to_owned(),
    }),
};
