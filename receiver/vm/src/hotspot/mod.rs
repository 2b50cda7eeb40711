//! HotSpot, the Java virtual machine of OpenJDK 17 to 25 and their derivatives.
//!
//! Its library describes itself for debuggers: `gHotSpotVMStructs` and related tables name the fields of its objects, with
//! their offsets, and the addresses of its variables. Nothing else is needed, and nothing in the process is changed: no agent,
//! no signal, no option.
//!
//! - [`Library`] is what an ELF file says: where these tables are.
//! - [`VirtualMachine`] is what they say in a process: where the code cache is, and the layout of what is in it.
//!   [`VirtualMachine::read_function`] reads the method, or other code, of a frame.

mod function;
mod lines;
mod machine;
mod structs;

pub use machine::{BlobLayout, CodeHeap, Library, MachineError, MethodLayout, VirtualMachine};
