//! Certificates and keys in PEM, from files or from the configuration.

use sidewinder_config::{Pem, read_bounded};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject as _};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::tls_error::{PemProblem, TlsConfigError};

/// The maximum size of a file with certificates or keys.
const MAX_PEM_BYTES: u64 = 1 << 20;

/// A setting that is a certificate or a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PemSetting {
    Authority,
    Certificate,
    Key,
}

impl PemSetting {
    /// The key of the configuration that has this text.
    pub(super) const fn key(self, pem: &Pem) -> &'static str {
        match (self, pem) {
            (Self::Authority, Pem::File(_)) => "ca_file",
            (Self::Authority, Pem::Text(_)) => "ca_pem",
            (Self::Certificate, Pem::File(_)) => "cert_file",
            (Self::Certificate, Pem::Text(_)) => "cert_pem",
            (Self::Key, Pem::File(_)) => "key_file",
            (Self::Key, Pem::Text(_)) => "key_pem",
        }
    }
}

/// The content of a setting, and the key of the configuration that it is from.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct PemText {
    pub(super) key: &'static str,
    text: Vec<u8>,
}

impl PemText {
    /// # Errors
    ///
    /// If a file can't be read.
    pub(super) fn read(setting: PemSetting, pem: &Pem) -> Result<Self, TlsConfigError> {
        let key = setting.key(pem);
        let text =
            match pem {
                Pem::File(path) => read_bounded(path, MAX_PEM_BYTES)
                    .map_err(|source| TlsConfigError::Read { key, path: path.clone(), source })?,
                Pem::Text(text) => text.reveal().as_bytes().to_vec(),
            };
        Ok(Self { key, text })
    }

    /// All certificates, at least one.
    pub(super) fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsConfigError> {
        let read = CertificateDer::pem_slice_iter(&self.text).collect::<Result<Vec<_>, _>>();
        let certificates = read.map_err(|error| self.problem(PemProblem::Damaged(error)))?;
        if certificates.is_empty() {
            return Err(self.problem(PemProblem::NoCertificate { has_key: self.has_section("PRIVATE KEY") }));
        }
        Ok(certificates)
    }

    /// The first private key.
    pub(super) fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsConfigError> {
        PrivateKeyDer::from_pem_slice(&self.text).map_err(|error| {
            self.problem(match error {
                pem::Error::NoItemsFound if self.has_section("ENCRYPTED PRIVATE KEY") => {
                    PemProblem::EncryptedKey
                }
                pem::Error::NoItemsFound => {
                    PemProblem::NoKey { has_certificate: self.has_section("CERTIFICATE") }
                }
                error => PemProblem::Damaged(error),
            })
        })
    }

    pub(super) const fn problem(&self, problem: PemProblem) -> TlsConfigError {
        TlsConfigError::Pem { key: self.key, problem }
    }

    /// Whether there is a section whose label ends so: `RSA PRIVATE KEY` does in `PRIVATE KEY`.
    fn has_section(&self, label: &str) -> bool {
        let end = format!("{label}-----");
        let text = String::from_utf8_lossy(&self.text);
        text.lines().any(|line| line.starts_with("-----BEGIN ") && line.trim_end().ends_with(&end))
    }
}
