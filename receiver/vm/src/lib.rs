//! Language runtimes: which one a file contains, where its state is, how its frames are laid out, and the names of its functions.
//!
//! Each runtime whose frames walks find is a crate, where it implements [`LanguageRuntime`] and [`RuntimeFunctions`]; `registry.rs`
//! names them. What they share is in `sidewinder-vm-runtime`. A [`RuntimeDescription`] has what is said of a runtime in words.
#![forbid(unsafe_code)]

mod detection;
mod registry;
mod runtime_set;
mod unwalked;

pub use detection::{detect, find_runtimes};
pub use registry::{GENERATORS, RUNTIMES, describe, describe_walked};
pub use runtime_set::RuntimeSet;
pub use sidewinder_vm_cpython as cpython;
pub use sidewinder_vm_hotspot as hotspot;
pub use sidewinder_vm_runtime::{
    CachedCode, Code, CompiledCall, DetectResult, FileRange, Finding, Function, FunctionCache, FunctionError,
    GroupLink, Inspection, LanguageRuntime, LocateError, LocatedRuntime, LoopCode, PthreadLayout, Runtime,
    RuntimeDescription, RuntimeFunctions, RuntimeParts, SharedFunctions, SharedTexts, TargetProcess,
    Unsupported, VersionSymbols, WalkedDescription, published_location, source_map,
};
pub use sidewinder_vm_v8 as v8;
