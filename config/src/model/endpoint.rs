//! Endpoints: addresses of OTLP receivers, and addresses to listen on.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of an OTLP receiver over gRPC, as the user wrote it and as it is dialled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    text: String,
    target: EndpointTarget,
    scheme: Scheme,
}

/// The address to dial.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EndpointTarget {
    /// A TCP port.
    Tcp {
        /// A host name, an IPv4 address or an IPv6 address without brackets.
        host: String,
        /// The port, never 0.
        port: u16,
    },
    /// A unix socket.
    Unix(PathBuf),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Scheme {
    Absent,
    Http,
    Https,
    Dns,
    Unix,
}

/// Why a text is not an endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is empty.
    #[error("it is empty")]
    Empty,
    /// It has a scheme that gRPC exporters do not support.
    #[error("its scheme is not one of http, https, dns, unix")]
    Scheme,
    /// It has no host before the port.
    #[error("it has no host")]
    Host,
    /// It has no port, or none between 1 and 65535.
    #[error("it needs a port between 1 and 65535, for example collector:4317")]
    Port,
    /// It has text after the port.
    #[error("a gRPC endpoint has no path, query or user")]
    Path,
    /// It is `unix://` without an absolute path.
    #[error("unix:// needs the socket's absolute path, for example unix:///run/otlp.sock")]
    SocketPath,
}

impl Endpoint {
    /// The address to dial.
    #[must_use]
    pub const fn target(&self) -> &EndpointTarget {
        &self.target
    }

    /// The text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the scheme requires TLS: then `tls::insecure` does not disable it.
    #[must_use]
    pub fn requires_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Whether the text starts with `http://`, which does not disable TLS.
    #[must_use]
    pub fn looks_plaintext(&self) -> bool {
        self.scheme == Scheme::Http
    }

    /// `localhost:4317`, the conventional address for OTLP over gRPC.
    #[must_use]
    pub fn localhost() -> Self {
        Self {
            text: "localhost:4317".to_owned(),
            target: EndpointTarget::Tcp { host: "localhost".to_owned(), port: 4317 },
            scheme: Scheme::Absent,
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let (scheme, rest) = match text.split_once("://") {
            None => (Scheme::Absent, text),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            // dns://authority/host:port: the address of the resolver is before the slash.
            Some(("dns", rest)) => (Scheme::Dns, rest.split_once('/').map_or(rest, |(_, target)| target)),
            Some(("unix", path)) => (Scheme::Unix, path),
            Some(_) => return Err(EndpointError::Scheme),
        };
        let target = match scheme {
            Scheme::Unix if Path::new(rest).is_absolute() => EndpointTarget::Unix(PathBuf::from(rest)),
            Scheme::Unix => return Err(EndpointError::SocketPath),
            _ => host_and_port(rest)?,
        };
        Ok(Self { text: text.to_owned(), target, scheme })
    }
}

fn host_and_port(text: &str) -> Result<EndpointTarget, EndpointError> {
    let text = text.strip_suffix('/').unwrap_or(text);
    if text.is_empty() {
        return Err(EndpointError::Empty);
    }
    if text.contains(['/', '?', '#', '@']) {
        return Err(EndpointError::Path);
    }
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once("]:").ok_or(EndpointError::Port)?,
        None => text.rsplit_once(':').ok_or(EndpointError::Port)?,
    };
    let bracketed = text.starts_with('[');
    if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return Err(EndpointError::Host);
    }
    if bracketed != host.contains(':') {
        return Err(EndpointError::Host);
    }
    match port.parse::<u16>() {
        Ok(port) if port != 0 => Ok(EndpointTarget::Tcp { host: host.to_owned(), port }),
        _ => Err(EndpointError::Port),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The URL of an OTLP receiver over HTTP.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HttpEndpoint {
    text: String,
    target: EndpointTarget,
}

impl HttpEndpoint {
    /// The text as given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The host and port to dial.
    #[must_use]
    pub const fn target(&self) -> &EndpointTarget {
        &self.target
    }

    /// Whether the connection is encrypted.
    #[must_use]
    pub fn uses_tls(&self) -> bool {
        self.text.starts_with("https://")
    }

    /// Whether the text contains a port; otherwise the scheme determines it.
    #[must_use]
    pub fn has_port(&self) -> bool {
        names_port(self.rest().split('/').next().unwrap_or_default())
    }

    /// The path, with its slash; empty if there is none.
    #[must_use]
    pub fn path(&self) -> &str {
        let rest = self.rest();
        rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default()
    }

    /// The text after the scheme.
    fn rest(&self) -> &str {
        self.text.split_once("://").map_or("", |(_, rest)| rest)
    }
}

/// Why a text is not a URL of an OTLP receiver.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HttpEndpointError {
    /// It does not begin with `http://` or `https://`.
    #[error("it does not begin with http:// or https://")]
    Scheme,
    /// It has a part that requests don't use, or that may be secret.
    #[error("it must not have a user, a query or a fragment")]
    Part,
    /// Its host and port are not valid.
    #[error(transparent)]
    Authority(#[from] EndpointError),
}

impl FromStr for HttpEndpoint {
    type Err = HttpEndpointError;

    fn from_str(text: &str) -> Result<Self, HttpEndpointError> {
        let (rest, default_port) = match text.split_once("://") {
            Some(("http", rest)) => (rest, 80),
            Some(("https", rest)) => (rest, 443),
            _ => return Err(HttpEndpointError::Scheme),
        };
        if rest.contains(['@', '?', '#']) || rest.contains(char::is_whitespace) {
            return Err(HttpEndpointError::Part);
        }
        let authority = rest.split('/').next().unwrap_or_default();
        let target = match names_port(authority) {
            true => host_and_port(authority)?,
            false => host_and_port(&format!("{authority}:{default_port}"))?,
        };
        Ok(Self { text: text.to_owned(), target })
    }
}

fn names_port(authority: &str) -> bool {
    authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'))
}

impl fmt::Display for HttpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// An address to listen on: `localhost:13133`, `[::1]:0`, `:8888` for every interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListenAddress {
    /// A name or an address without brackets; empty for every interface.
    pub host: String,
    /// The port; 0 for any free one.
    pub port: u16,
}

impl ListenAddress {
    /// A port on the loopback interface.
    #[must_use]
    pub fn localhost(port: u16) -> Self {
        Self { host: "localhost".to_owned(), port }
    }

    /// Whether only this machine can connect to it.
    #[must_use]
    pub fn is_local(&self) -> bool {
        let is_loopback = |ip: IpAddr| ip.to_canonical().is_loopback();
        self.host.eq_ignore_ascii_case("localhost") || self.host.parse().is_ok_and(is_loopback)
    }
}

/// Why a text is not an address to listen on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is not host:port, for example localhost:13133 or [::1]:13133")]
pub struct ListenAddressError;

impl FromStr for ListenAddress {
    type Err = ListenAddressError;

    fn from_str(text: &str) -> Result<Self, ListenAddressError> {
        let (host, port) = text.rsplit_once(':').ok_or(ListenAddressError)?;
        let inner = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let host = inner.unwrap_or(host);
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:%".contains(c);
        if (inner.is_none() && host.contains(':')) || !host.chars().all(is_plain) {
            return Err(ListenAddressError);
        }
        Ok(Self { host: host.to_owned(), port: port.parse().map_err(|_| ListenAddressError)? })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> EndpointTarget {
        EndpointTarget::Tcp { host: host.to_owned(), port }
    }

    #[test]
    fn every_form_of_the_collector_names_the_same_port() {
        for text in [
            "collector:4317",
            "http://collector:4317",
            "https://collector:4317",
            "https://collector:4317/",
            "dns:///collector:4317",
            "dns://1.1.1.1/collector:4317",
        ] {
            assert_eq!(text.parse::<Endpoint>().unwrap().target(), &tcp("collector", 4317), "{text}");
        }
        assert_eq!("[::1]:4317".parse::<Endpoint>().unwrap().target(), &tcp("::1", 4317));
        assert_eq!(
            "unix:///run/otlp.sock".parse::<Endpoint>().unwrap().target(),
            &EndpointTarget::Unix("/run/otlp.sock".into())
        );
    }

    #[test]
    fn only_https_demands_tls() {
        assert!("https://a:1".parse::<Endpoint>().unwrap().requires_tls());
        assert!(!"http://a:1".parse::<Endpoint>().unwrap().requires_tls());
        assert!("http://a:1".parse::<Endpoint>().unwrap().looks_plaintext());
    }

    #[test]
    fn a_text_that_names_no_port_is_refused_for_its_reason() {
        for (text, reason) in [
            ("", EndpointError::Empty),
            ("https://", EndpointError::Empty),
            ("collector", EndpointError::Port),
            ("collector:0", EndpointError::Port),
            ("collector:65536", EndpointError::Port),
            ("[::1]", EndpointError::Port),
            ("::1:4317", EndpointError::Host),
            (":4317", EndpointError::Host),
            ("a b:4317", EndpointError::Host),
            ("https://collector:4317/v1", EndpointError::Path),
            ("https://user@collector:4317", EndpointError::Path),
            ("xds:///collector:4317", EndpointError::Scheme),
            ("unix://", EndpointError::SocketPath),
            ("unix://relative", EndpointError::SocketPath),
        ] {
            assert_eq!(text.parse::<Endpoint>(), Err(reason), "{text:?}");
        }
    }

    #[test]
    fn a_url_has_a_scheme_and_no_secrets() {
        for (text, target) in [
            ("http://collector:4318", tcp("collector", 4318)),
            ("https://collector", tcp("collector", 443)),
            ("https://[::1]/otlp/", tcp("::1", 443)),
            ("http://[::1]:4318/otlp", tcp("::1", 4318)),
        ] {
            assert_eq!(text.parse::<HttpEndpoint>().unwrap().target(), &target, "{text}");
        }
        for (text, reason) in [
            ("collector:4318", HttpEndpointError::Scheme),
            ("ftp://collector", HttpEndpointError::Scheme),
            ("http://me:secret@collector", HttpEndpointError::Part),
            ("http://collector/?token=a", HttpEndpointError::Part),
            ("http://", HttpEndpointError::Authority(EndpointError::Host)),
            ("http://collector:0", HttpEndpointError::Authority(EndpointError::Port)),
        ] {
            assert_eq!(text.parse::<HttpEndpoint>(), Err(reason), "{text}");
        }
    }

    #[test]
    fn an_address_to_listen_on_has_a_port() {
        for text in ["localhost:13133", "[::1]:13133", ":8888", "0.0.0.0:0"] {
            assert_eq!(text.parse::<ListenAddress>().unwrap().to_string(), text);
        }
        for text in ["localhost", "::1:80", "a b:80", "localhost:65536", "localhost:", "http://x:1"] {
            assert_eq!(text.parse::<ListenAddress>(), Err(ListenAddressError), "{text}");
        }
    }
}
