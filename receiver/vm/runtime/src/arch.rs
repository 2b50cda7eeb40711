//! Differences between architectures: where instructions lead, and the C library's layout of a thread.

pub mod aarch64;
mod flow;
#[cfg(target_arch = "x86_64")]
pub mod x86_64;

#[cfg(target_arch = "aarch64")]
use self::aarch64 as host;
#[cfg(target_arch = "x86_64")]
use self::x86_64 as host;

pub use self::flow::{Flow, Step};
#[cfg(any(test, feature = "test-support"))]
pub use host::instructions;
pub use host::{INSTRUCTION_BYTES_MAX, offset_of_pthread, pthread_layout, step};
