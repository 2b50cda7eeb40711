//! How an exporter proves who it talks to and who it is.

use std::path::PathBuf;
use std::time::Duration;

use super::Secret;

/// `tls` of an exporter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsClient {
    /// Whether to speak without TLS; see [`super::OtlpGrpcExporter::uses_tls`] for when it counts.
    pub insecure: bool,
    /// Authorities that may have signed the server's certificate; absent: the system's.
    pub ca: Option<Pem>,
    /// Whether the system's authorities are trusted besides [`TlsClient::ca`].
    pub include_system_ca_certs_pool: bool,
    /// What is shown to servers that ask who is calling.
    pub identity: Option<ClientIdentity>,
    /// The name expected in the server's certificate instead of the endpoint's host.
    pub server_name_override: Option<String>,
    /// Whether any certificate will do.
    pub insecure_skip_verify: bool,
    /// The oldest version that is spoken.
    pub min_version: TlsVersion,
    /// The newest version that is spoken; absent: the newest there is.
    pub max_version: Option<TlsVersion>,
    /// After how long files are read again where nothing tells that they have changed; absent: as soon as that is told.
    pub reload_interval: Option<Duration>,
}

/// A version of TLS. Older ones are not spoken.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum TlsVersion {
    /// 1.2, RFC 5246.
    #[default]
    Tls12,
    /// 1.3, RFC 8446.
    Tls13,
}

/// A client's certificate and its private key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    /// The certificate, followed by its chain.
    pub certificate: Pem,
    /// The private key.
    pub key: Pem,
}

/// Where a PEM text comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pem {
    /// A file, read again for each connection.
    File(PathBuf),
    /// The text itself.
    Text(Secret),
}
