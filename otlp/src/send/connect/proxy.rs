//! Proxies, as the environment names them for curl, and with it for elfutils' client.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Uri};
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tower::Service;

use super::{ConnectError, ConnectTarget, Connector, Stream, Tls, handshake};

/// The port of a proxy whose URL has none, as for curl.
const DEFAULT_PORT: u16 = 1080;

/// Which proxy leads to which server.
#[derive(Clone, Default)]
pub struct Proxies {
    /// Absent if there is no proxy at all.
    matcher: Option<Arc<Matcher>>,
}

impl fmt::Debug for Proxies {
    /// Without the passwords in URLs of proxies.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.matcher.fmt(f)
    }
}

/// A variable that should name a proxy, and does not. Its value can hold a password, and is not shown.
#[derive(PartialEq, Eq, Debug, thiserror::Error)]
#[error("{variable} is not the URL of an HTTP proxy (http://HOST:PORT or https://HOST:PORT)")]
pub struct ProxyError {
    /// The environment variable.
    pub variable: &'static str,
}

impl Proxies {
    /// The proxies in `http_proxy`, `https_proxy`, `all_proxy` and, but for the first, the same in capital letters; small letters
    /// win. `no_proxy` has the hosts to which none leads. An empty variable means no proxy.
    ///
    /// # Errors
    /// If a variable is not a URL, or the URL of an unsupported kind of proxy.
    pub fn from_environment() -> Result<Self, ProxyError> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// As [`Self::from_environment`], with these values of the variables.
    ///
    /// # Errors
    /// As [`Self::from_environment`].
    pub fn from_variables(value_of: impl Fn(&str) -> Option<String>) -> Result<Self, ProxyError> {
        let first = |names: &[&'static str]| {
            names.iter().find_map(|name| Some((*name, value_of(name)?.trim().to_owned())))
        };
        // A web server sets HTTP_PROXY from a header of each request to its CGI programs, so curl ignores it.
        let [http, https, all, no] = [
            first(&["http_proxy"]),
            first(&["https_proxy", "HTTPS_PROXY"]),
            first(&["all_proxy", "ALL_PROXY"]),
            first(&["no_proxy", "NO_PROXY"]),
        ];
        let url = |variable: Option<(&'static str, String)>| match variable.or_else(|| all.clone()) {
            Some((variable, url)) if !url.is_empty() && !is_proxy(&url) => Err(ProxyError { variable }),
            Some((_, url)) => Ok(url),
            None => Ok(String::new()),
        };
        let [http, https] = [url(http)?, url(https)?];
        if http.is_empty() && https.is_empty() {
            return Ok(Self::default());
        }
        // curl takes blanks between hosts, too.
        let no =
            no.map_or_else(String::new, |(_, hosts)| hosts.split_whitespace().collect::<Vec<_>>().join(","));
        let matcher = Matcher::builder().http(http).https(https).no(no).build();
        Ok(Self { matcher: Some(Arc::new(matcher)) })
    }

    /// The proxy that leads to this URL.
    pub(in crate::send) fn intercept(&self, uri: &Uri) -> Option<Intercept> {
        self.matcher.as_ref()?.intercept(uri)
    }
}

fn is_proxy(url: &str) -> bool {
    let intercept = Matcher::builder().http(url).build().intercept(&Uri::from_static("http://server"));
    intercept.is_some_and(|proxy| matches!(proxy.uri().scheme_str(), Some("http" | "https")))
}

/// The URL of a proxy with its port.
pub(in crate::send) fn proxy_url(proxy: &Intercept) -> String {
    let uri = proxy.uri();
    let (scheme, host) = (uri.scheme_str().unwrap_or("http"), uri.host().unwrap_or_default());
    format!("{scheme}://{host}:{}", uri.port_u16().unwrap_or(DEFAULT_PORT))
}

/// The way to one server.
#[derive(Clone)]
pub(in crate::send) enum Route {
    Direct(Connector),
    /// Requests go to a proxy, which sends them on.
    Forwarded {
        proxy: Connector,
        authorization: Option<HeaderValue>,
    },
    /// A connection with TLS, through a proxy that sees the server's name and port only.
    Tunnelled {
        proxy: Connector,
        authorization: Option<HeaderValue>,
        host: String,
        tls: Arc<Tls>,
    },
}

impl Route {
    pub(in crate::send) fn through(
        proxy: Connector,
        authorization: Option<HeaderValue>,
        server: Connector,
    ) -> Self {
        match (&*server.target, server.tls) {
            (ConnectTarget::Tcp { host, .. }, Some(tls)) => {
                Self::Tunnelled { proxy, authorization, host: host.clone(), tls }
            }
            _ => Self::Forwarded { proxy, authorization },
        }
    }

    /// What the proxy wants to see in each request that it sends on.
    pub(in crate::send) fn request_authorization(&self) -> Option<HeaderValue> {
        match self {
            Self::Forwarded { authorization, .. } => authorization.clone(),
            Self::Direct(_) | Self::Tunnelled { .. } => None,
        }
    }

    async fn connect(self, uri: Uri) -> Result<Stream, ConnectError> {
        match self {
            Self::Direct(server) => server.connect().await,
            Self::Forwarded { proxy, .. } => {
                let name = proxy.target_name();
                let mut stream = proxy.connect().await.map_err(|source| through(&name, source))?;
                stream.is_to_proxy = true;
                Ok(stream)
            }
            Self::Tunnelled { proxy, authorization, host, tls } => {
                let name = proxy.target_name();
                // Only the connector knows the proxy's address.
                let mut tunnel = Tunnel::new(Uri::default(), proxy);
                if let Some(authorization) = authorization {
                    tunnel = tunnel.with_auth(authorization);
                }
                let connected = tunnel.call(uri).await.map_err(|source| through(&name, source))?;
                handshake(&tls, &host, connected.into_inner()).await
            }
        }
    }
}

fn through(proxy: &str, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ConnectError {
    ConnectError::Proxy { proxy: proxy.to_owned(), source: source.into() }
}

impl Service<Uri> for Route {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let connecting = self.clone().connect(uri);
        Box::pin(async { connecting.await.map(TokioIo::new) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxies(variables: &[(&str, &str)]) -> Result<Proxies, ProxyError> {
        Proxies::from_variables(|name| {
            variables.iter().find(|(variable, _)| *variable == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn proxy(variables: &[(&str, &str)], url: &str) -> Option<String> {
        proxies(variables).unwrap().intercept(&url.parse().unwrap()).as_ref().map(proxy_url)
    }

    #[test]
    fn each_scheme_has_its_variable_and_all_proxy_stands_for_those_that_are_not_set() {
        let both = [("http_proxy", "http://plain:3128"), ("HTTPS_PROXY", "secure:3129")];
        assert_eq!(proxy(&both, "http://a/x").as_deref(), Some("http://plain:3128"));
        assert_eq!(proxy(&both, "https://a/x").as_deref(), Some("http://secure:3129"));
        let all = [("ALL_PROXY", "https://all"), ("http_proxy", "")];
        assert_eq!(proxy(&all, "https://a/x").as_deref(), Some("https://all:1080"));
        assert_eq!(proxy(&all, "http://a/x"), None, "set, and empty");
        assert_eq!(proxy(&[("HTTP_PROXY", "http://header:80")], "http://a/x"), None);
        let cases = [("https_proxy", "http://small:1"), ("HTTPS_PROXY", "http://capital:1")];
        assert_eq!(proxy(&cases, "https://a/x").as_deref(), Some("http://small:1"));
        assert_eq!(proxy(&[], "https://a/x"), None);
    }

    #[test]
    fn no_proxy_names_hosts_domains_and_networks() {
        let hosts = "localhost, .corp.example 10.0.0.0/8,::1";
        let variables = [("ALL_PROXY", "http://p:1"), ("NO_PROXY", hosts)];
        for direct in ["localhost", "corp.example", "debug.corp.example:8002", "10.1.2.3:8002", "[::1]:8002"]
        {
            assert_eq!(proxy(&variables, &format!("http://{direct}/x")), None, "{direct}");
        }
        for other in ["elsewhere.example", "notcorp.example", "11.0.0.1"] {
            assert!(proxy(&variables, &format!("http://{other}/x")).is_some(), "{other}");
        }
        assert_eq!(proxy(&[("ALL_PROXY", "http://p:1"), ("no_proxy", "*")], "http://a/x"), None);
    }

    #[test]
    fn what_is_no_http_proxy_is_an_error_without_its_value() {
        for wrong in ["socks5h://user:secret@p:1080", "ftp://p", "http://", "not a url"] {
            let error = proxies(&[("HTTPS_PROXY", wrong)]).unwrap_err();
            assert_eq!(error, ProxyError { variable: "HTTPS_PROXY" }, "{wrong}");
            assert!(!error.to_string().contains("secret"));
        }
        let shown = format!("{:?}", proxies(&[("all_proxy", "http://user:secret@p:1")]).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
