//! Architecture-dependent code, in addition to `c/arch`. Each module defines all of these:
//!
//! - `THREAD_POINTER`: the field that `thread_pointer` reads;
//! - `PREEMPT_COUNTS`: the variables of a CPU that have its preempt count, of which a kernel has one; none where that is a field of
//!   the task;
//! - `ALLOWS_TAIL_CALLS`: whether kernels allow tail calls from programs with functions;
//! - `code_address`: as in `c/arch.bpf.h`;
//! - `set_constants`: sets those of the programs that depend on this machine.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

pub use host::code_address;
pub(crate) use host::{ALLOWS_TAIL_CALLS, PREEMPT_COUNTS, THREAD_POINTER, set_constants};
