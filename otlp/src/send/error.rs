//! Settings with which nothing could ever be sent.

use std::io;
use std::path::PathBuf;

use super::connect::TlsConfigError;
use super::credentials::{CredentialsError, HeaderError};

/// Settings of a connection with which nothing could ever be sent.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The endpoint has none of the known forms.
    #[error("endpoint {endpoint:?} {problem}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Certificates or keys that cannot be read or do not make sense.
    #[error("cannot set up TLS for {endpoint:?}")]
    Tls {
        /// As given.
        endpoint: String,
        /// Why.
        source: TlsConfigError,
    },
    /// A header that cannot be sent.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Credentials that cannot be sent.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The file that is written to.
    #[error(transparent)]
    File(#[from] FileError),
    /// Credentials over gRPC without TLS, which gRPC refuses as well.
    #[error("credentials are only sent over TLS: remove tls::insecure, or auth")]
    CredentialsInPlaintext,
}

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path:?}")]
pub struct FileError {
    pub(super) action: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}
