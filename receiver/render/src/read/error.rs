//! Why a file is not a valid profile.

use std::io;

use crate::expansion::ExpansionError;

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
    /// It is not a protobuf message, as pprof files are.
    #[error("it is not a pprof profile")]
    Protobuf,
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
    /// A line of perf's text is neither a sample nor a frame.
    #[error("line {line} is neither a sample nor a frame of perf script")]
    NoSample {
        /// The line number, from 1.
        line: usize,
    },
    /// The file has perf's first bytes, and can't be read.
    #[error("it is not a perf.data file that can be read: {0}")]
    PerfData(&'static str),
    /// The file has samples of other types only.
    #[error("none of its profiles has samples of the type {wanted}; it holds {}", .found.join(", "))]
    NoSuchType {
        /// The requested type.
        wanted: String,
        /// The types in the file.
        found: Vec<String>,
    },
    /// A type is requested of a format that holds one profile.
    #[error("only OTLP and perf files can hold several types of profile to choose from")]
    NothingToChoose,
    /// It is larger in memory than its size allows.
    #[error(transparent)]
    Expansion(#[from] ExpansionError),
    /// It is in no known format.
    #[error("its format is unknown: not pprof, folded stacks, perf.data or the output of perf script")]
    UnknownFormat,
    /// It is a page.
    #[error("HTML pages can't be read; use .otlp")]
    Page,
}
