//! Why a process has no context.

use std::io;

use thiserror::Error;

/// Why there is no context.
#[derive(Debug, Error)]
pub enum ContextError {
    /// No mapping has the name, or none of those that have it has the signature.
    #[error("no process context is published")]
    Absent,
    /// The writer was at it in each of our readings.
    #[error("the process context is being changed")]
    Busy,
    /// Written by another version of the specification.
    #[error("a process context of version {0}, which is not known")]
    Version(u32),
    /// Longer than any context has to be.
    #[error("a process context of {0} bytes")]
    TooLong(u32),
    /// It isn't the message that it is said to be.
    #[error("a malformed process context")]
    Malformed(#[from] prost::DecodeError),
    /// Memory that can't be read, or not by us.
    #[error("can't read the process context")]
    Unreadable(#[source] io::Error),
}
