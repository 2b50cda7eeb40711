//! Errors in settings with which sending is impossible.

use std::io;
use std::path::PathBuf;

use super::connect::TlsConfigError;
use super::credentials::{CredentialsError, HeaderError};

/// An error in the settings of a connection, with which sending is impossible.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The endpoint has an unknown form.
    #[error("endpoint {endpoint:?} {problem}")]
    Endpoint {
        /// The endpoint as configured.
        endpoint: String,
        /// The problem.
        problem: &'static str,
    },
    /// Certificates or keys can't be read or aren't valid.
    #[error("cannot set up TLS for {endpoint:?}")]
    Tls {
        /// The endpoint as configured.
        endpoint: String,
        /// The cause.
        source: TlsConfigError,
    },
    /// A header can't be sent.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// Credentials can't be sent.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// The output file can't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Credentials over gRPC without TLS, which gRPC refuses as well.
    #[error("credentials are only sent over TLS: remove tls::insecure, or auth")]
    CredentialsInPlaintext,
}

/// A file can't be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path:?}")]
pub struct FileError {
    pub(super) action: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}
