//! V8, the JavaScript engine of Node.js 18 to 26.
//!
//! Its file describes the objects of its heap for debuggers, in constants whose names begin with `v8dbg_`. Stripping keeps them.
//!
//! - [`Library`] is what an ELF file says: the layout of objects, and where the interpreter's code is.
//! - [`Engine`] reads functions in a process: their names, files and lines, and functions of WebAssembly.
#![forbid(unsafe_code)]

mod arch;
mod bytecodes;
mod code_layout;
mod compiled;
mod constants;
mod description;
mod function;
mod layout;
mod library;
mod lines;
mod named;
mod published;
mod runtime;
mod scope;
mod script;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod text;
mod wasm;

pub use bytecodes::BytecodeSizes;
pub use code_layout::CodeLayout;
pub use description::{DESCRIPTION, WALKED};
pub use function::{CompiledFrame, Engine, regular_expression};
pub use layout::{ObjectLayout, WasmLayout};
pub use library::Library;
pub use lines::PositionForm;
pub use wasm::WasmFrame;

#[cfg(test)]
mod tests;
