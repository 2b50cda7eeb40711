//! Architecture-dependent code, in addition to `c/arch`.

mod x86_64;

pub(crate) use self::x86_64::{PREEMPT_COUNTS, THREAD_POINTER};
