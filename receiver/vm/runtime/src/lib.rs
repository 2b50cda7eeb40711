//! What the language runtimes share: the traits that each implements, what is said of it in words, and what their files, lines and
//! functions have in common.
//!
//! A runtime whose frames walks find is a crate beside this one. It implements [`LanguageRuntime`] and [`RuntimeFunctions`] with what
//! is here, and `sidewinder-vm` registers it.
//!
//! Bytes and layouts in, names out; no I/O of its own: files are read through
//! [`ReadAt`](sidewinder_process::ReadAt), processes through [`ForeignMemory`](sidewinder_process::ForeignMemory). Both belong
//! to untrusted processes: sizes are bounded, and whatever they contain, the result is a value or an error.
#![forbid(unsafe_code)]

pub mod arch;
pub mod chunks;
mod code;
pub mod cookie;
pub mod description;
pub mod file_range;
mod function;
mod function_cache;
mod function_error;
mod inspection;
mod language_runtime;
pub mod line_ends;
pub mod lines;
pub mod pthread;
pub mod recent;
mod runtime;
pub mod source_map;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod tls;

pub use code::{Code, CompiledCall, SharedFunctions};
pub use description::{RuntimeDescription, RuntimeParts, VersionSymbols, WalkedDescription};
pub use file_range::FileRange;
pub use function::Function;
pub use function_cache::{CachedCode, FunctionCache, SharedTexts};
pub use function_error::FunctionError;
pub use inspection::{Finding, Inspection, Unsupported};
pub use language_runtime::{
    DetectResult, GroupLink, LanguageRuntime, LocateError, LocatedRuntime, LoopCode, RuntimeFunctions,
    TargetProcess,
};
pub use pthread::PthreadLayout;
pub use runtime::Runtime;
pub use tls::published_location;
