//! OTLP over HTTP.
//!
//! Proxies from the environment are not used and redirects are not followed: requests only go to the configured URL.

mod compress;
mod outcome;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sidewinder_config::{Compression, TlsClient};

use super::MAX_RESPONSE_BYTES;
use super::connect::{ConnectTarget, Connector, ReadBudget, Resolver, Tls};
use super::credentials::{ExporterCredentials, RequestHeaders, USER_AGENT};
use super::delivery::Transport;
use super::error::ConnectionError;
use super::exporter::{Exporter, ExporterError};
use super::options::ExporterOptions;
use super::outcome::{SendOutcome, with_error_chain};

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");

/// Options of an exporter over HTTP.
#[derive(Clone)]
pub struct HttpOptions {
    /// The whole URL, `http://` or `https://`.
    pub url: String,
    /// TLS settings of an `https://` connection; only the URL decides whether TLS is used.
    pub tls: TlsClient,
    /// The compression of requests.
    pub compression: Compression,
    /// Headers of each request. The values may be secrets.
    pub headers: Vec<(String, String)>,
    /// Credentials for each request.
    pub credentials: Option<ExporterCredentials>,
    /// The timeout of one attempt; zero for none.
    pub timeout: Duration,
    /// Resolves the URL's host.
    pub resolver: Resolver,
}

impl HttpOptions {
    /// The default options for this URL.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            tls: TlsClient::default(),
            compression: Compression::default(),
            headers: Vec::new(),
            credentials: None,
            timeout: Duration::from_secs(30),
            resolver: Resolver::default(),
        }
    }
}

impl fmt::Debug for HttpOptions {
    /// Shows the names of headers, never their values.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("HttpOptions")
            .field("url", &self.url)
            .field("tls", &self.tls)
            .field("compression", &self.compression)
            .field("headers", &names)
            .field("credentials", &self.credentials)
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

impl Exporter {
    /// Starts an exporter over HTTP. It connects when there is something to send.
    ///
    /// # Errors
    ///
    /// As [`Self::grpc`].
    pub fn http(options: ExporterOptions, http: &HttpOptions) -> Result<Self, ExporterError> {
        Self::start(options, || HttpTransport::new(http))
    }
}

type RequestBody = http_body_util::combinators::BoxBody<Bytes, std::convert::Infallible>;

struct HttpTransport {
    uri: Uri,
    client: Client<Connector, RequestBody>,
    read_budget: Arc<ReadBudget>,
    headers: RequestHeaders,
    compression: Compression,
    /// Zero for no timeout.
    timeout: Duration,
}

/// What connects to the host of a URL, and the URL. Only the URL decides whether TLS is used. A connection takes at most
/// `timeout`, or any time if it is zero.
pub(super) fn connector(
    url: &str,
    tls: TlsClient,
    resolver: Resolver,
    timeout: Duration,
) -> Result<(Uri, Connector), ConnectionError> {
    let wrong = |problem| ConnectionError::Endpoint { endpoint: url.to_owned(), problem };
    let uri: Uri = url.parse().map_err(|_| wrong("is no URL"))?;
    let (is_protected, default_port) = match uri.scheme_str() {
        Some("https") => (true, 443),
        Some("http") => (false, 80),
        _ => return Err(wrong("does not begin with http:// or https://")),
    };
    let host = uri.host().filter(|host| !host.is_empty()).ok_or_else(|| wrong("has no host"))?;
    let port = uri.port_u16().unwrap_or(default_port);
    let target = ConnectTarget::from_authority(&format!("{host}:{port}")).map_err(wrong)?;
    let tls = is_protected.then(|| Tls::load(tls, &[b"http/1.1"])).transpose();
    let tls = tls.map_err(|source| ConnectionError::Tls { endpoint: url.to_owned(), source })?;
    let (target, tls) = (Arc::new(target), tls.map(Arc::new));
    Ok((uri, Connector { target, resolver, tls, timeout, read_budget: ReadBudget::new() }))
}

impl HttpTransport {
    fn new(options: &HttpOptions) -> Result<Self, ConnectionError> {
        let (uri, connector) =
            connector(&options.url, options.tls.clone(), options.resolver.clone(), options.timeout)?;
        let mut headers = options.headers.clone();
        headers.retain(|(name, _)| !name.eq_ignore_ascii_case("user-agent"));
        headers.push(("user-agent".to_owned(), USER_AGENT.to_owned()));
        let headers = RequestHeaders::new(&headers, options.credentials.clone())?;
        headers.current()?;
        Ok(Self {
            uri,
            read_budget: Arc::clone(&connector.read_budget),
            client: Client::builder(TokioExecutor::new()).build(connector),
            headers,
            compression: options.compression,
            timeout: options.timeout,
        })
    }

    /// `begun` is set once a connection has accepted the request, or part of it.
    async fn export(&self, message: Bytes, begun: &Arc<AtomicBool>) -> SendOutcome {
        let headers = match self.headers.current() {
            Ok(headers) => headers,
            Err(error) => {
                return SendOutcome::no_response(false, with_error_chain("no credentials", &error));
            }
        };
        let body = match compress::compress(message, self.compression) {
            Ok(body) => body,
            Err(error) => {
                return SendOutcome::Rejected { reason: with_error_chain("cannot compress", &error) };
            }
        };
        let mut request = Request::post(self.uri.clone());
        if let Some(own) = request.headers_mut() {
            *own = headers;
            own.insert(header::CONTENT_TYPE, PROTOBUF);
            own.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
            if let Some(encoding) = compress::content_encoding(self.compression) {
                own.insert(header::CONTENT_ENCODING, encoding);
            }
        }
        let taken = Arc::clone(begun);
        let body = Full::new(body).map_frame(move |frame| {
            taken.store(true, Ordering::Relaxed);
            frame
        });
        let request = match request.body(body.boxed()) {
            Ok(request) => request,
            Err(error) => {
                return SendOutcome::Rejected { reason: with_error_chain("no request", &error) };
            }
        };
        self.read_budget.refill();
        match self.client.request(request).await {
            Ok(response) => {
                let (head, body) = response.into_parts();
                let body = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
                outcome::from_response(&head, body.map(http_body_util::Collected::to_bytes))
            }
            Err(error) => {
                SendOutcome::no_response(begun.load(Ordering::Relaxed), with_error_chain("no answer", &error))
            }
        }
    }
}

impl Transport for HttpTransport {
    async fn attempt(&self, message: Bytes) -> SendOutcome {
        let begun = Arc::default();
        if self.timeout.is_zero() {
            return self.export(message, &begun).await;
        }
        // A connection without a timely response is closed, so it isn't reused.
        let answer = tokio::time::timeout(self.timeout, self.export(message, &begun)).await;
        answer.unwrap_or_else(|_| {
            let reason = format!("no answer within {:?}", self.timeout);
            SendOutcome::no_response(begun.load(Ordering::Relaxed), reason)
        })
    }
}
