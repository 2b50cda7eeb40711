//! Why the instructions of a function can't be listed.

use sidewinder_symbolize::SymbolTableError;
use sidewinder_tables::BuildError;

/// The most bytes of code that are listed for a function.
pub(super) const CODE_BYTES_MAX: u64 = 64 << 10;

/// Why the instructions of a function can't be listed.
#[derive(Debug, thiserror::Error)]
pub enum AssemblyError {
    #[error("the profile has no samples of this function")]
    NoSamples,
    #[error(
        "the profile has no address for this function: its code is in no file, or the profile has no addresses"
    )]
    NoAddresses,
    #[error("its code is in no file: {0}")]
    NoFile(String),
    #[error("the profile has neither a build ID nor a hash of its file, so another build could be shown")]
    NoBuildId,
    #[error("{path} can't be opened: {why}")]
    NotOpened { path: String, why: String },
    #[error("{path} is another build than the one that was profiled, which is identified by {wanted}")]
    AnotherBuild { path: String, wanted: String },
    #[error("the symbols of its file can't be read")]
    Symbols(#[from] SymbolTableError),
    #[error("no symbol of its file says where the function begins and ends")]
    NoSymbol,
    #[error("it has {bytes} bytes of code: only functions of at most {} are listed", CODE_BYTES_MAX)]
    TooLarge { bytes: u64 },
    #[error("the unwind information of its file can't be read")]
    Unwinding(#[from] BuildError),
}
