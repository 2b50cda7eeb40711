use std::io;

use thiserror::Error;

/// Why a function can't be read.
#[derive(Debug, Error)]
pub enum FunctionError {
    /// Its memory can't be read, or not with our privileges.
    #[error("can't read a code object")]
    Unreadable(#[from] io::Error),
    /// At its address is another code object, or none.
    #[error("the code object has been replaced")]
    Replaced,
    /// An object that it refers to is not of the type that it should have.
    #[error("a malformed code object: {0}")]
    Malformed(&'static str),
    /// The source map of its script is not loaded so far ([`SourceMaps`](crate::source_map::SourceMaps)).
    #[error("the source map of its script is not loaded")]
    SourceMapNotLoaded,
}
