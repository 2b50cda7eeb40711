//! Where and how to send over gRPC.

use std::fmt;
use std::time::Duration;

use sidewinder_config::{Compression, Keepalive, TlsClient};

use crate::send::connect::Resolver;
use crate::send::credentials::ExporterCredentials;

/// Where and how to send.
#[derive(Clone)]
pub struct GrpcOptions {
    /// `host:port`, `https://host:port`, `dns:///host:port` or `unix:///path`.
    pub endpoint: String,
    /// How the connection is protected; an endpoint that starts with `https://` is so in any case.
    pub tls: TlsClient,
    /// How requests are compressed.
    pub compression: Compression,
    /// Sent with each request. The values may be secrets.
    pub headers: Vec<(String, String)>,
    /// Sent with each request, over TLS only.
    pub credentials: Option<ExporterCredentials>,
    /// How long one attempt may take; zero for as long as the receiver likes.
    pub timeout: Duration,
    /// The `:authority` of each request, where it is not the endpoint's host and port.
    pub authority: Option<String>,
    /// Whether an attempt waits for a connection instead of failing at once where there is none.
    pub wait_for_ready: bool,
    /// When a connection is tried; never where absent.
    pub keepalive: Option<Keepalive>,
    /// What finds the addresses of the endpoint's host.
    pub resolver: Resolver,
}

impl GrpcOptions {
    /// The defaults, for that endpoint.
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
