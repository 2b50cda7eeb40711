//! What sampling tells those that name and count: [`Message`]s, which are events with their stacks, and the files and processes
//! that they refer to. Neither side knows the other.
//!
//! | Module           | Contents                                                                              |
//! |------------------|---------------------------------------------------------------------------------------|
//! | `message`        | the messages, and what they consist of                                                |
//! | `jit_source`     | where a process publishes the names of the code that it generates, read with          |
//! | `gdb_interface`  | the interface by which debuggers find generated code                                  |
//! | `runtime_source` | what reads the functions of a language runtime that a process runs                    |
#![forbid(unsafe_code)]

mod gdb_interface;
mod jit_source;
mod message;
mod runtime_source;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;

pub use gdb_interface::GdbJitInterface;
pub use jit_source::{JitSource, PublishedNames};
pub use message::{
    EndedWait, FileInfo, Labels, LockId, LockSample, Message, SampleEvent, Stack, file_location,
    is_process_specific,
};
pub use runtime_source::RuntimeSource;
