//! HotSpot, the Java virtual machine of OpenJDK 8 to 26 and their derivatives.
//!
//! Its library describes itself for debuggers: `gHotSpotVMStructs` and related tables name the fields of its objects, with
//! their offsets, and the addresses of its variables. Nothing else is needed, and nothing in the process is changed: no agent,
//! no signal, no option.
//!
//! - [`JvmLibrary`] is what an ELF file says: where these tables are.
//! - [`VirtualMachine`] is what they say in a process: where the code cache is, and the layout of what is in it.
//!   [`VirtualMachine::read_interpreted`] reads the method of a frame of the interpreter, and
//!   [`VirtualMachine::read_blob`] what is at an instruction of compiled code.
#![forbid(unsafe_code)]

mod arch;
mod code;
mod description;
mod function;
mod interrupted;
mod layout;
mod lines;
mod machine;
mod named_fields;
mod object;
mod published;
mod runtime;
mod scopes;
mod structs;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
mod text;

pub use code::CodePlace;
pub use description::{DESCRIPTION, WALKED};
pub use layout::{BlobLayout, DebugLayout, DebugPlace, MethodLayout};
pub use machine::{CodeHeap, JvmLibrary, VirtualMachine};
pub use named_fields::MachineError;

pub use arch::InterpretedFrame;
