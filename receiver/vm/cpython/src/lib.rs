//! CPython 3.8 to 3.14.
//!
//! - [`Interpreter`] is what an ELF file says: the version, the ranges of the evaluation loop's code, the layout of frames, and
//!   where threads have their state.
//! - [`Layout`] is what the walk of a thread's frames needs. [`Layout::read_function`] reads the function of a frame.
//!
//! With and, from 3.13 on, without the global interpreter lock.
#![forbid(unsafe_code)]

mod arch;
mod cookie;
mod debug_offsets;
mod description;
mod function;
mod interpreter;
mod layout;
mod lines;
mod published;
mod runtime;
mod split;
mod tail_calls;
mod text;
mod thread_list;
mod thread_state;

pub use description::{DESCRIPTION, WALKED};
pub use function::CodeCopy;
pub use interpreter::{Interpreter, Version};
pub use layout::{BytecodeCopies, Groups, InstructionForm, Layout};
