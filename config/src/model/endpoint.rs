//! Where an OTLP exporter sends.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The address of an OTLP receiver over gRPC, as the user wrote it and as it is dialled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endpoint {
    text: String,
    target: EndpointTarget,
    scheme: Scheme,
}

/// What is dialled.
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

/// Why a text is no endpoint.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum EndpointError {
    /// Nothing is there.
    #[error("it is empty")]
    Empty,
    /// A scheme that gRPC exporters here do not dial.
    #[error("its scheme is not one of http, https, dns, unix")]
    Scheme,
    /// No host stands before the port.
    #[error("it has no host")]
    Host,
    /// No port, or none between 1 and 65535.
    #[error("it needs a port between 1 and 65535, as in collector:4317")]
    Port,
    /// Something follows the port.
    #[error("a gRPC endpoint has no path, query or user")]
    Path,
    /// `unix://` without a path.
    #[error("unix:// needs the socket's absolute path, as in unix:///run/otlp.sock")]
    SocketPath,
}

impl Endpoint {
    /// What is dialled.
    #[must_use]
    pub const fn target(&self) -> &EndpointTarget {
        &self.target
    }

    /// The text as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the text asks for TLS by its scheme: then `tls::insecure` does not switch it off.
    #[must_use]
    pub fn demands_tls(&self) -> bool {
        self.scheme == Scheme::Https
    }

    /// Whether the text starts with `http://`, which does not switch TLS off.
    #[must_use]
    pub fn looks_plaintext(&self) -> bool {
        self.scheme == Scheme::Http
    }

    /// `localhost:4317`, where OTLP over gRPC listens by convention.
    #[must_use]
    pub fn local() -> Self {
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
            // dns://authority/host:port: the resolver's own address comes before the slash.
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
        assert!("https://a:1".parse::<Endpoint>().unwrap().demands_tls());
        assert!(!"http://a:1".parse::<Endpoint>().unwrap().demands_tls());
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
}
