//! Language runtimes: which one a file contains, where its state is, how its frames are laid out, and the names of its functions.
//!
//! Each runtime whose frames walks find has a folder, where it implements [`LanguageRuntime`] and [`RuntimeFunctions`]. `registry.rs`
//! names them; what they share is beside their folders. A [`RuntimeDescription`] has what is said of a runtime in words.
//!
//! Bytes and layouts in, names out; no I/O of its own: files are read through
//! [`ReadAt`](sidewinder_process::ReadAt), processes through [`ForeignMemory`](sidewinder_process::ForeignMemory). Both belong
//! to untrusted processes: sizes are bounded, and whatever they contain, the result is a value or an error.
#![forbid(unsafe_code)]

mod arch;
mod chunks;
mod code;
mod cookie;
pub mod cpython;
mod description;
mod file_range;
mod function;
mod function_cache;
mod function_error;
pub mod hotspot;
mod inspection;
mod language_runtime;
mod line_ends;
mod lines;
mod pthread;
mod recent;
mod registry;
mod runtime;
mod runtime_set;
pub mod source_map;
mod split;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod tls;
mod unwalked;
pub mod v8;

pub use code::{Code, CompiledCall, SharedFunctions};
pub use description::{RuntimeDescription, RuntimeParts, VersionSymbols, WalkedDescription};
pub use file_range::FileRange;
pub use function::Function;
pub use function_cache::{CachedCode, FunctionCache, SharedTexts};
pub use function_error::FunctionError;
pub use inspection::{Finding, Inspection, Unsupported};
pub use language_runtime::{
    DetectResult, GroupLink, LanguageRuntime, LocateError, LocatedRuntime, LoopCode, RuntimeFunctions,
    TargetProcess, detect,
};
pub use pthread::PthreadLayout;
pub use registry::{GENERATORS, RUNTIMES};
pub use runtime::{Runtime, find_runtimes};
pub use runtime_set::RuntimeSet;
pub use tls::published_location;
