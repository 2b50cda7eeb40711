//! V8, the JavaScript engine of Node.js 18 to 26.
//!
//! Its file describes the objects of its heap for debuggers, in constants whose names begin with `v8dbg_`. Stripping keeps them.
//!
//! - [`Library`] is what an ELF file says: the layout of objects, and where the interpreter's code is.
//! - [`Engine`] reads functions in a process: their names, files and lines, and functions of WebAssembly.

mod bytecodes;
mod code_layout;
mod compiled;
mod description;
mod function;
mod layout;
mod lines;
mod named;
mod published;
mod runtime;
mod scope;
mod script;
mod text;
mod wasm;

pub use bytecodes::BytecodeSizes;
pub use code_layout::CodeLayout;
pub(crate) use description::{DESCRIPTION, WALKED};
pub use function::{CompiledFrame, Engine, regular_expression};
pub use layout::{Library, ObjectLayout};
pub use lines::PositionForm;
pub use wasm::{WasmFrame, WasmLayout};

#[cfg(test)]
mod tests;
