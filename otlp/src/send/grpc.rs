//! OTLP over gRPC.

mod codec;
mod endpoint;
mod exchange;
mod verdict;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tokio::runtime::Handle;
use tonic::Status;
use tonic::codec::CompressionEncoding;
use tonic::metadata::{Ascii, MetadataKey, MetadataMap, MetadataValue};
use tonic::transport::Channel;

use super::exporter::{Exporter, ExporterOptions, Transport, Verdict};
use super::retry::RetryError;
use codec::ExportCodec;
use exchange::{Exchange, StatusRecorder};

/// The method that takes profiles.
const EXPORT: &str = "/opentelemetry.proto.collector.profiles.v1development.ProfilesService/Export";

/// The version of the signal, which receivers refuse when it is not theirs.
const DEVELOPMENT_VERSION_KEY: &str = "otlp-profiles-development-version";
const DEVELOPMENT_VERSION: &str = "1";

/// A longer answer is not read.
const MAX_RESPONSE_BYTES: usize = 4 << 20;

/// How requests are compressed.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Compression {
    /// Not at all.
    None,
    /// gzip.
    #[default]
    Gzip,
    /// Zstandard.
    Zstd,
}

/// A text in PEM form.
#[derive(Clone, PartialEq, Eq)]
pub enum Pem {
    /// In a file, read when the exporter starts.
    File(PathBuf),
    /// As it is.
    Text(String),
}

impl fmt::Debug for Pem {
    /// Never shows a text: it may be a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Text(_) => f.write_str("Text(...)"),
        }
    }
}

/// How the connection is protected, with the Collector's settings and meanings.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TlsOptions {
    /// No TLS. An endpoint that starts with `https://` has TLS nevertheless.
    pub insecure: bool,
    /// Certificates (PEM) that a receiver's must be signed by; the system's where there is none.
    pub ca: Option<Pem>,
    /// The system's certificates beside those of `ca`.
    pub include_system_ca_certs_pool: bool,
    /// Our own certificate (PEM); goes with `key`.
    pub cert: Option<Pem>,
    /// Its key (PEM).
    pub key: Option<Pem>,
    /// The name that the receiver's certificate must have, where it is not the endpoint's host.
    pub server_name_override: Option<String>,
}

/// Where and how to send.
#[derive(Clone, PartialEq, Eq)]
pub struct GrpcOptions {
    /// `host:port`, `https://host:port`, `dns:///host:port` or `unix:///path`.
    pub endpoint: String,
    /// How the connection is protected.
    pub tls: TlsOptions,
    /// How requests are compressed.
    pub compression: Compression,
    /// Sent with each request. The values may be secrets.
    pub headers: Vec<(String, String)>,
    /// How long one attempt may take; zero for as long as the receiver likes.
    pub timeout: Duration,
}

impl GrpcOptions {
    /// The defaults, for that endpoint.
    #[must_use]
    pub fn to(endpoint: impl Into<String>) -> Self {
        Self {
            endpoint: endpoint.into(),
            tls: TlsOptions::default(),
            compression: Compression::default(),
            headers: Vec::new(),
            timeout: Duration::from_secs(5),
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
            .field("timeout", &self.timeout)
            .finish()
    }
}

/// Settings with which nothing could ever be sent. What may get better with time is no error here:
/// it is retried.
#[derive(Debug, thiserror::Error)]
pub enum GrpcError {
    /// The endpoint has none of the known forms.
    #[error("endpoint {endpoint:?} {problem}")]
    Endpoint {
        /// As given.
        endpoint: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// A certificate or key could not be read.
    #[error("cannot read tls::{setting} {path:?}")]
    ReadTls {
        /// Which.
        setting: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Certificates or keys that do not make sense.
    #[error("cannot set up TLS for {endpoint:?}")]
    Tls {
        /// As given.
        endpoint: String,
        /// Why.
        source: tonic::transport::Error,
    },
    /// A certificate without its key or the reverse.
    #[error("tls::cert_file and tls::key_file are only of use together")]
    HalfIdentity,
    /// A header whose name or value cannot be sent. The value is not told.
    #[error("header {0:?} has a name or a value that cannot be sent")]
    Header(String),
    /// A retry setting that makes no sense.
    #[error(transparent)]
    Retry(#[from] RetryError),
}

impl Exporter {
    /// Starts an exporter over gRPC. It connects when there is something to send, not before.
    ///
    /// # Errors
    ///
    /// When the settings make no sense or a certificate cannot be read.
    pub fn grpc(options: ExporterOptions, grpc: &GrpcOptions, runtime: &Handle) -> Result<Self, GrpcError> {
        options.retry.check()?;
        let transport = GrpcTransport::new(grpc, runtime)?;
        Ok(Self::start(options, transport, runtime))
    }
}

struct GrpcTransport {
    client: tonic::client::Grpc<StatusRecorder<Channel>>,
    metadata: MetadataMap,
    /// Zero for none.
    timeout: Duration,
}

impl GrpcTransport {
    fn new(options: &GrpcOptions, runtime: &Handle) -> Result<Self, GrpcError> {
        let endpoint = endpoint::endpoint(options)?;
        // The channel starts a task of its own.
        let channel = {
            let _entered = runtime.enter();
            endpoint.connect_lazy()
        };
        let mut client = tonic::client::Grpc::new(StatusRecorder(channel))
            .max_decoding_message_size(MAX_RESPONSE_BYTES)
            // Servers answer in the encoding that they were asked in.
            .accept_compressed(CompressionEncoding::Gzip)
            .accept_compressed(CompressionEncoding::Zstd);
        client = match options.compression {
            Compression::None => client,
            Compression::Gzip => client.send_compressed(CompressionEncoding::Gzip),
            Compression::Zstd => client.send_compressed(CompressionEncoding::Zstd),
        };
        Ok(Self { client, metadata: metadata(&options.headers)?, timeout: options.timeout })
    }

    async fn export(&self, message: Bytes, exchange: &Exchange) -> Verdict {
        let mut client = self.client.clone();
        let mut request = tonic::Request::new(message);
        *request.metadata_mut() = self.metadata.clone();
        request.extensions_mut().insert(exchange.clone());
        if let Err(error) = client.ready().await {
            return verdict::of_error(&Status::from_error(error.into()), exchange);
        }
        let path = PathAndQuery::from_static(EXPORT);
        match client.unary(request, path, ExportCodec(exchange.clone())).await {
            Ok(response) => verdict::of_response(response.into_inner()),
            Err(status) => verdict::of_error(&status, exchange),
        }
    }
}

impl Transport for GrpcTransport {
    async fn attempt(&self, message: Bytes) -> Verdict {
        let exchange = Exchange::default();
        if self.timeout.is_zero() {
            return self.export(message, &exchange).await;
        }
        let answer = tokio::time::timeout(self.timeout, self.export(message, &exchange)).await;
        answer.unwrap_or_else(|_| Verdict::Retry {
            may_have_arrived: exchange.has_begun(),
            delay: None,
            reason: format!("no answer within {:?}", self.timeout),
        })
    }
}

/// The user's headers below the version of the signal, which is sent exactly once.
fn metadata(headers: &[(String, String)]) -> Result<MetadataMap, GrpcError> {
    let mut metadata = MetadataMap::new();
    for (name, value) in headers {
        let unfit = || GrpcError::Header(name.clone());
        let key: MetadataKey<Ascii> = name.to_ascii_lowercase().parse().map_err(|_| unfit())?;
        let mut value: MetadataValue<Ascii> = value.parse().map_err(|_| unfit())?;
        value.set_sensitive(true);
        metadata.append(key, value);
    }
    metadata.insert(DEVELOPMENT_VERSION_KEY, MetadataValue::from_static(DEVELOPMENT_VERSION));
    Ok(metadata)
}
