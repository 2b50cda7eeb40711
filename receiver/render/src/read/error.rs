//! Why a file is no profile.

use std::io;

/// Files of more bytes than this, compressed or not, are not read.
pub(super) const BYTES_MAX: u64 = 256 << 20;

/// Why a file is no profile that can be shown.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file, or what is compressed in it, can't be read.
    #[error("it can't be read")]
    Read(#[from] io::Error),
    /// There is more than is read.
    #[error("it holds more than {} MiB", BYTES_MAX >> 20)]
    TooLarge,
    /// Not pprof's message.
    #[error("it is no pprof profile")]
    Pprof(#[from] prost::DecodeError),
    /// The message has no kind of value.
    #[error("this pprof profile says of no value what it is")]
    NoSampleType,
    /// A line of folded stacks has no count.
    #[error("line {line} does not end in a number of samples, as folded stacks do")]
    NoCount {
        /// Counted from 1.
        line: usize,
    },
    /// Neither of them.
    #[error("it is neither pprof's nor folded stacks")]
    UnknownFormat,
}
