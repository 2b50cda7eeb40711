//! Why a file is not a valid profile.

use std::io;

/// The maximum size of a file in bytes, compressed or not.
pub(super) const BYTES_MAX: u64 = 256 << 20;

/// Why a file can't be read as a profile.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file, or its compressed content, can't be read.
    #[error("it can't be read")]
    Read(#[from] io::Error),
    /// The file exceeds the size limit.
    #[error("it holds more than {} MiB", BYTES_MAX >> 20)]
    TooLarge,
    /// It is not a pprof message.
    #[error("it is not a pprof profile")]
    Pprof(#[from] prost::DecodeError),
    /// The message has no value type.
    #[error("this pprof profile has no sample type")]
    NoSampleType,
    /// A line of folded stacks has no count.
    #[error("line {line} does not end in a number of samples, as folded stacks do")]
    NoCount {
        /// The line number, from 1.
        line: usize,
    },
    /// It is in neither format.
    #[error("it is neither pprof's nor folded stacks")]
    UnknownFormat,
}
