use thiserror::Error;

/// Why a text is not a probe.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum InvalidProbe {
    /// It has no type, or an unknown one.
    #[error(
        "{0:?} is not a probe; use uprobe:PATH:FUNCTION[+OFFSET], uretprobe:PATH:FUNCTION, usdt:PATH:PROVIDER:NAME or tracepoint:CATEGORY:NAME"
    )]
    Form(String),
    /// A probe of a function of the kernel.
    #[error(
        "kernel function probes ({0}) are not supported: use tracepoint:CATEGORY:NAME, or probe the function that \
         calls the kernel"
    )]
    Kernel(String),
    /// The events that the kernel's tracing makes of `sys_enter` and `sys_exit`, one for each system call.
    #[error(
        "there is no tracepoint {0}: for all system calls, use tracepoint:raw_syscalls:sys_enter, whose arg1 is the number \
         of the call, and tracepoint:raw_syscalls:sys_exit, whose arg1 is its result"
    )]
    SystemCall(String),
    /// The path is not absolute.
    #[error("the path {0:?} is not absolute: give the one that the profiled process sees")]
    RelativePath(String),
    /// The offset is not a number.
    #[error("the offset {0:?} is not a number of bytes; examples: 16, 0x10")]
    Offset(String),
    /// Returns have no offset.
    #[error("a uretprobe is hit when the function returns, and takes no offset")]
    OffsetOfReturn,
    /// The value is none.
    #[error(
        "{0:?} is not a value; use argN, retval or %REGISTER, optionally with a type such as :u32 or :s64"
    )]
    Value(String),
    /// Not at this place.
    #[error("{value} is known {known}")]
    ValueElsewhere {
        /// The value.
        value: &'static str,
        /// Where it is known.
        known: &'static str,
    },
    /// The unit is none of OTLP's.
    #[error("a unit is bytes, nanoseconds or count, and needs a value")]
    Unit,
    /// The overhead is not a share.
    #[error("max_overhead is a share of a CPU above 0 and up to 1, such as 0.02")]
    Overhead,
}
