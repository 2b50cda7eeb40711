use std::io;

use thiserror::Error;

/// Why a source map can't be used.
#[derive(Debug, Error)]
pub enum SourceMapError {
    /// It can't be read.
    #[error("can't read a source map")]
    Unreadable(#[from] io::Error),
    /// It needs more memory than there is for it.
    #[error("a source map is too big")]
    TooBig,
    /// It is none.
    #[error("a malformed source map: {0}")]
    Malformed(&'static str),
}
