//! Options of exporters over gRPC.

use std::fmt;
use std::time::Duration;

use sidewinder_config::{Compression, Keepalive, TlsClient};

use crate::send::connect::Resolver;
use crate::send::credentials::ExporterCredentials;

/// Options of an exporter over gRPC.
#[derive(Clone)]
pub struct GrpcOptions {
    /// `host:port`, `https://host:port`, `dns:///host:port` or `unix:///path`.
    pub endpoint: String,
    /// TLS settings; an endpoint that starts with `https://` always uses TLS.
    pub tls: TlsClient,
    /// The compression of requests.
    pub compression: Compression,
    /// Headers of each request. The values may be secrets.
    pub headers: Vec<(String, String)>,
    /// Credentials for each request, which are only sent over TLS.
    pub credentials: Option<ExporterCredentials>,
    /// The timeout of one attempt; zero for none.
    pub timeout: Duration,
    /// The `:authority` of each request, if it isn't the endpoint's host and port.
    pub authority: Option<String>,
    /// Whether an attempt waits for a connection instead of failing immediately.
    pub wait_for_ready: bool,
    /// Keepalive settings of a connection; disabled if absent.
    pub keepalive: Option<Keepalive>,
    /// Resolves the endpoint's host.
    pub resolver: Resolver,
}

impl GrpcOptions {
    /// The default options for this endpoint.
    #[must_use]
    pub fn new(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: TlsClient::default(),
            compression: Compression::default(),
            headers: Vec::new(),
            credentials: None,
            timeout: Duration::from_secs(5),
            authority: None,
            wait_for_ready: false,
            keepalive: None,
            resolver: Resolver::default(),
        }
    }
}

impl fmt::Debug for GrpcOptions {
    /// Shows the names of headers, never their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("GrpcOptions")
            .field("endpoint", &self.endpoint)
            .field("tls", &self.tls)
            .field("compression", &self.compression)
            .field("headers", &names)
            .field("credentials", &self.credentials)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
