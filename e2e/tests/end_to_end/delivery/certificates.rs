//! Real certificates, made on the spot.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sidewinder_config::{ClientIdentity, Pem, TlsClient};
use sidewinder_e2e_support::collector::ServerTls;
use time::{Duration, OffsetDateTime};

/// Until when a certificate of these tests is valid, from now.
pub(crate) const VALID: Duration = Duration::days(1);
pub(crate) const EXPIRED: Duration = Duration::days(-1);

/// An authority that signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Result<Self> {
        // Two authorities of one name would be told apart by their signatures alone.
        static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);
        let mut params = CertificateParams::new([])?;
        let name = format!("authority {}", AUTHORITIES.fetch_add(1, Ordering::Relaxed));
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let pem = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), pem })
    }

    /// Writes `ca.pem`, and a certificate of that name with its key, into a folder.
    pub(crate) fn place(&self, folder: &Path, name: &str, valid: Duration) -> Result<()> {
        let mut params = CertificateParams::new([name.to_owned()])?;
        params.not_before = OffsetDateTime::now_utc() - Duration::days(10);
        params.not_after = OffsetDateTime::now_utc() + valid;
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        for (file, text) in
            [("ca.pem", &self.pem), ("cert.pem", &certificate), ("key.pem", &key.serialize_pem())]
        {
            fs::write(folder.join(file), text)?;
        }
        Ok(())
    }
}

/// What a server shows of what [`Authority::place`] has written.
pub(crate) fn of_server(folder: &Path, client_ca_file: Option<PathBuf>) -> ServerTls {
    ServerTls { cert_file: folder.join("cert.pem"), key_file: folder.join("key.pem"), client_ca_file }
}

/// What a client trusts and shows of that.
pub(crate) fn of_client(folder: &Path, shows_itself: bool) -> TlsClient {
    let file = |name: &str| Pem::File(folder.join(name));
    TlsClient {
        ca: Some(file("ca.pem")),
        identity: shows_itself
            .then(|| ClientIdentity { certificate: file("cert.pem"), key: file("key.pem") }),
        ..TlsClient::default()
    }
}
