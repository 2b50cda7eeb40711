//! Downloads over HTTP, by the connections of the exporters: a server of debug information has the files that a machine lacks.
//!
//! Redirects are followed, a few, and never from `https://` to `http://`.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use sidewinder_config::TlsClient;

use super::connect::{Proxies, ReadBudget, Resolver, Route, proxy_url};
use super::credentials::USER_AGENT;
use super::error::ConnectionError;
use super::http::connector;
use super::outcome::with_error_chain;

/// The most redirects of one download.
const REDIRECTS_MAX: usize = 3;

/// What a download may take.
#[derive(Clone, Copy, Debug)]
pub struct DownloadLimits {
    /// The time of a connection, from the resolution of the name on.
    pub connect: Duration,
    /// The time in which nothing arrives.
    pub silence: Duration,
    /// The time of all of it.
    pub total: Duration,
    /// The size of the file.
    pub bytes: u64,
}

/// How files are downloaded.
#[derive(Clone, Debug)]
pub struct DownloadOptions {
    /// What each of them may take.
    pub limits: DownloadLimits,
    /// Whom to trust, of servers and proxies with `https://`.
    pub tls: TlsClient,
    /// The proxies on the way.
    pub proxies: Proxies,
}

/// Why a file could not be downloaded.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The server does not have it.
    #[error("the server does not have it")]
    NotFound,
    /// The server can't be reached, or stopped to answer.
    #[error("{0}")]
    NoAnswer(String),
    /// Another response than the file.
    #[error("the server responded with {0}")]
    Status(StatusCode),
    /// It leads elsewhere too often, or to where it may not.
    #[error("the server redirects to {0:?}")]
    Redirect(String),
    /// The URL, or TLS.
    #[error(transparent)]
    Connection(#[from] ConnectionError),
    /// The file is larger than the limit.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// It takes longer than the limit.
    #[error("it takes longer than {0:?}")]
    TooSlow(Duration),
    /// It can't be written.
    #[error("it can't be written")]
    Write(#[source] io::Error),
}

/// Downloads files below one URL. Connections are kept and used again.
pub struct Downloader {
    /// Without a slash at its end.
    base: String,
    client: DownloadClient,
    options: DownloadOptions,
}

impl std::fmt::Debug for Downloader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Downloader").field("base", &self.base).field("options", &self.options).finish()
    }
}

impl Downloader {
    /// Downloads files below this URL, `http://` or `https://`.
    ///
    /// # Errors
    /// If it is no such URL, or TLS can't be set up.
    pub fn new(url: &str, options: DownloadOptions) -> Result<Self, ConnectionError> {
        let base = url.trim_end_matches('/').to_owned();
        let client = DownloadClient::new(&base, &options)?;
        Ok(Self { base, client, options })
    }

    /// The URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Writes the file at a path below the URL, which begins with a slash. Returns its size. A part of the file may have been
    /// written if it fails.
    ///
    /// # Errors
    /// If the server doesn't have the file, or doesn't send all of it within the limits.
    pub async fn get(&self, path: &str, out: &mut impl Write) -> Result<u64, DownloadError> {
        let total = self.options.limits.total;
        let downloaded = tokio::time::timeout(total, self.follow(format!("{}{path}", self.base), out));
        downloaded.await.unwrap_or(Err(DownloadError::TooSlow(total)))
    }

    async fn follow(&self, url: String, out: &mut impl Write) -> Result<u64, DownloadError> {
        let mut uri = parse(&url)?;
        let mut elsewhere = None;
        for _ in 0..=REDIRECTS_MAX {
            let there = elsewhere.as_ref().unwrap_or(&self.client);
            let request = there.request(&uri).map_err(|error| DownloadError::NoAnswer(error.to_string()))?;
            there.read_budget.refill();
            let response = self.within_silence(there.http.request(request)).await?;
            let response =
                response.map_err(|error| DownloadError::NoAnswer(with_error_chain("no answer", &error)))?;
            match response.status() {
                StatusCode::OK => return self.receive(response.into_body(), &there.read_budget, out).await,
                StatusCode::NOT_FOUND | StatusCode::GONE => return Err(DownloadError::NotFound),
                status if status.is_redirection() => {
                    let location = response.headers().get(header::LOCATION);
                    let location = location.and_then(|location| location.to_str().ok()).unwrap_or_default();
                    uri = redirected(&uri, location)
                        .ok_or_else(|| DownloadError::Redirect(location.to_owned()))?;
                    elsewhere = Some(DownloadClient::new(&uri.to_string(), &self.options)?);
                }
                status => return Err(DownloadError::Status(status)),
            }
        }
        Err(DownloadError::Redirect(uri.to_string()))
    }

    async fn receive(
        &self,
        mut body: impl BodyExt<Data = Bytes, Error: std::error::Error + 'static> + Unpin,
        read_budget: &ReadBudget,
        out: &mut impl Write,
    ) -> Result<u64, DownloadError> {
        let mut received: u64 = 0;
        while let Some(frame) = self.within_silence(body.frame()).await? {
            let frame =
                frame.map_err(|error| DownloadError::NoAnswer(with_error_chain("cut off", &error)))?;
            read_budget.refill();
            let Some(data) = frame.data_ref() else { continue };
            received = received.saturating_add(data.len() as u64);
            if received > self.options.limits.bytes {
                return Err(DownloadError::TooLarge(self.options.limits.bytes));
            }
            out.write_all(data).map_err(DownloadError::Write)?;
        }
        Ok(received)
    }

    async fn within_silence<F: Future>(&self, future: F) -> Result<F::Output, DownloadError> {
        let silence = self.options.limits.silence;
        let timed = tokio::time::timeout(silence, future).await;
        timed.map_err(|_| DownloadError::NoAnswer(format!("nothing arrived for {silence:?}")))
    }
}

/// What sends requests to one server.
struct DownloadClient {
    http: Client<Route, Empty<Bytes>>,
    read_budget: Arc<ReadBudget>,
    proxy_authorization: Option<HeaderValue>,
}

impl DownloadClient {
    fn new(url: &str, options: &DownloadOptions) -> Result<Self, ConnectionError> {
        let connector_to =
            |url: &str| connector(url, options.tls.clone(), Resolver::default(), options.limits.connect);
        let (uri, server) = connector_to(url)?;
        let (route, read_budget) = match options.proxies.intercept(&uri) {
            None => {
                let read_budget = Arc::clone(&server.read_budget);
                (Route::Direct(server), read_budget)
            }
            Some(proxy) => {
                let (_, connector) = connector_to(&proxy_url(&proxy))?;
                let read_budget = Arc::clone(&connector.read_budget);
                (Route::through(connector, proxy.basic_auth().cloned(), server), read_budget)
            }
        };
        let proxy_authorization = route.request_authorization();
        let http = Client::builder(TokioExecutor::new()).build(route);
        Ok(Self { http, read_budget, proxy_authorization })
    }

    fn request(&self, uri: &Uri) -> http::Result<Request<Empty<Bytes>>> {
        let mut request = Request::get(uri.clone());
        if let Some(authorization) = &self.proxy_authorization {
            request = request.header(header::PROXY_AUTHORIZATION, authorization);
        }
        request.header(header::USER_AGENT, HeaderValue::from_static(USER_AGENT)).body(Empty::new())
    }
}

fn parse(url: &str) -> Result<Uri, ConnectionError> {
    url.parse().map_err(|_| ConnectionError::Endpoint { endpoint: url.to_owned(), problem: "is no URL" })
}

/// Where a response with this `Location` leads; `None` if it names no host or path, or is less protected.
fn redirected(from: &Uri, location: &str) -> Option<Uri> {
    let location: Uri = location.parse().ok()?;
    let mut parts = location.into_parts();
    if parts.authority.is_none() {
        parts.authority = from.authority().cloned();
        parts.scheme = from.scheme().cloned();
    }
    // A path that does not begin with a slash is an authority to this parser, or nothing.
    parts.path_and_query.as_ref()?;
    let to = Uri::from_parts(parts).ok()?;
    let is_weaker = from.scheme_str() == Some("https") && to.scheme_str() != Some("https");
    (!is_weaker && matches!(to.scheme_str(), Some("http" | "https"))).then_some(to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_leads_to_another_path_or_host_and_never_to_less_protection() {
        let to = |from: &str, location: &str| {
            redirected(&from.parse().unwrap(), location).map(|uri| uri.to_string())
        };
        let from = "https://a:8002/buildid/00/debuginfo";
        assert_eq!(to(from, "/other").as_deref(), Some("https://a:8002/other"));
        assert_eq!(to(from, "https://b/x?y=1").as_deref(), Some("https://b/x?y=1"));
        assert_eq!(to("http://a/x", "https://a/x").as_deref(), Some("https://a/x"));
        for wrong in ["http://a/x", "ftp://a/x", "", "?"] {
            assert_eq!(to(from, wrong), None, "{wrong}");
        }
    }
}
