//! TLS of an exporter: how it verifies the server, and how it authenticates itself.

use std::path::PathBuf;
use std::time::Duration;

use super::Secret;

/// `tls` of an exporter.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsClient {
    /// Whether to connect without TLS; see [`super::OtlpGrpcExporter::uses_tls`] for when it applies.
    pub insecure: bool,
    /// Authorities that may have signed the server's certificate; absent: the system's.
    pub ca: Option<Pem>,
    /// Whether the system's authorities are trusted in addition to [`TlsClient::ca`].
    pub include_system_ca_certs_pool: bool,
    /// The client's certificate, for servers that request one.
    pub identity: Option<ClientIdentity>,
    /// The name expected in the server's certificate instead of the endpoint's host.
    pub server_name_override: Option<String>,
    /// Whether to accept any certificate.
    pub insecure_skip_verify: bool,
    /// The oldest accepted version.
    pub min_version: TlsVersion,
    /// The newest accepted version; absent: the newest that is supported.
    pub max_version: Option<TlsVersion>,
    /// How long loaded files may be reused for later connections; absent: files are read for each connection.
    pub reload_interval: Option<Duration>,
}

/// A version of TLS. Older ones are not supported.
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

/// The source of a PEM text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Pem {
    /// A file, read again for each connection.
    File(PathBuf),
    /// The text itself.
    Text(Secret),
}
