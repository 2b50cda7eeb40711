use std::fmt;
use std::io;
use std::path::PathBuf;

use tokio_rustls::rustls::Error as RustlsError;
use tokio_rustls::rustls::pki_types::pem;

/// Certificates, keys or settings with which no connection is possible. Messages begin with the key of the configuration.
#[derive(Debug, thiserror::Error)]
pub enum TlsConfigError {
    /// A file could not be read.
    #[error("tls::{key}: cannot read {path:?}")]
    Read {
        /// The key, such as `ca_file`.
        key: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content isn't valid.
    #[error("tls::{key}: {problem}")]
    Pem {
        /// The key.
        key: &'static str,
        /// What is wrong.
        problem: PemProblem,
    },
    /// The private key is another certificate's.
    #[error("tls::{key}: it is not the private key of the first certificate in tls::{certificate_key}")]
    OtherKey {
        /// The key with the private key.
        key: &'static str,
        /// The key with the certificate.
        certificate_key: &'static str,
    },
    /// There are no trusted root certificates, as in an image without certificates.
    #[error(
        "tls::ca_file: there is no certificate authority to trust: it is not set, and the system has none (in \
         SSL_CERT_FILE, SSL_CERT_DIR, or where distributions keep them); set it, or mount \
         certificates, as at /etc/ssl/certs"
    )]
    NoAuthority,
    /// The maximum version is older than the minimum.
    #[error("tls::max_version: it is older than tls::min_version")]
    Versions,
    /// The settings don't fit together.
    #[error("tls: the settings do not fit together")]
    Settings(#[from] RustlsError),
}

/// What is wrong with the content of a setting.
#[derive(Debug)]
pub enum PemProblem {
    /// There is no certificate.
    NoCertificate {
        /// Whether there is a private key instead.
        has_key: bool,
    },
    /// There is no private key.
    NoKey {
        /// Whether there is a certificate instead.
        has_certificate: bool,
    },
    /// The private key is encrypted with a passphrase.
    EncryptedKey,
    /// A section is not valid PEM.
    Damaged(pem::Error),
    /// A certificate is not valid DER, or a private key has an unknown type.
    Unusable,
}

impl fmt::Display for PemProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoCertificate { has_key: true } => "it is a private key, not a certificate",
            Self::NoCertificate { has_key: false } => {
                "it has no certificate in PEM (-----BEGIN CERTIFICATE-----)"
            }
            Self::NoKey { has_certificate: true } => "it is a certificate, not a private key",
            Self::NoKey { has_certificate: false } => {
                "it has no private key in PEM (-----BEGIN PRIVATE KEY-----)"
            }
            Self::EncryptedKey => {
                "the private key has a passphrase, which is not supported: remove it with `openssl pkey`"
            }
            Self::Damaged(error) => return write!(f, "it is not valid PEM: {error}"),
            Self::Unusable => "it has a certificate or a key that can't be used",
        })
    }
}
