//! Why a process has no context.

use std::io;

use thiserror::Error;

/// Why there is no context.
#[derive(Debug, Error)]
pub enum ContextError {
    /// No mapping has the name, or none with the name has the signature.
    #[error("no process context is published")]
    Absent,
    /// It was being changed during each of our reads.
    #[error("the process context is being changed")]
    Busy,
    /// Written in another version of the specification.
    #[error("process context version {0} is not supported")]
    Version(u32),
    /// Longer than any valid context.
    #[error("a process context of {0} bytes exceeds the limit")]
    TooLong(u32),
    /// It is not a valid `ProcessContext` message.
    #[error("a malformed process context")]
    Malformed(#[from] prost::DecodeError),
    /// Its memory can't be read, or not with our privileges.
    #[error("can't read the process context")]
    Unreadable(#[source] io::Error),
}
