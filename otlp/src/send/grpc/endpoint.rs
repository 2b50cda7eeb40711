//! Endpoints, in the syntax of the Collector's configuration.

use std::path::PathBuf;
use std::sync::Arc;

use http::Uri;
use tonic::transport::Endpoint;

use super::options::GrpcOptions;
use crate::send::connect::{ConnectTarget, Connector, ReadBudget, Tls};
use crate::send::credentials::USER_AGENT;
use crate::send::error::ConnectionError;

/// The address of an endpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
enum GrpcAddress {
    /// `host:port`.
    Tcp { authority: String, asks_for_tls: bool },
    /// The path of a Unix socket.
    Unix(String),
}

pub(super) fn endpoint(options: &GrpcOptions) -> Result<(Endpoint, Connector), ConnectionError> {
    let wrong = |problem| ConnectionError::Endpoint { endpoint: options.endpoint.clone(), problem };
    let (target, authority, is_protected) = match address(&options.endpoint).map_err(wrong)? {
        GrpcAddress::Unix(_) if !options.tls.insecure => {
            return Err(wrong("is a Unix socket, which takes no TLS: set tls::insecure"));
        }
        GrpcAddress::Unix(path) => (ConnectTarget::Unix(PathBuf::from(path)), "localhost".to_owned(), false),
        GrpcAddress::Tcp { authority, asks_for_tls } => {
            let target = ConnectTarget::from_authority(&authority).map_err(wrong)?;
            (target, authority, asks_for_tls || !options.tls.insecure)
        }
    };
    let tls = is_protected
        .then(|| Tls::load(options.tls.clone(), &[b"h2"]))
        .transpose()
        .map_err(|source| ConnectionError::Tls { endpoint: options.endpoint.clone(), source })?;
    let connector = Connector {
        target: Arc::new(target),
        resolver: options.resolver.clone(),
        tls: tls.map(Arc::new),
        timeout: options.timeout,
        read_budget: ReadBudget::new(),
    };
    let scheme = if is_protected { "https" } else { "http" };
    let authority = options.authority.as_ref().unwrap_or(&authority);
    let origin: Uri =
        format!("{scheme}://{authority}").parse().map_err(|_| wrong("is not a host and port"))?;
    // The connector does TLS: for the library the connection is plaintext.
    let mut endpoint = Endpoint::from_static("http://receiver").origin(origin);
    endpoint = endpoint.user_agent(USER_AGENT).map_err(|_| wrong("cannot be asked"))?;
    if let Some(keepalive) = options.keepalive {
        endpoint = endpoint
            .http2_keep_alive_interval(keepalive.time)
            .keep_alive_timeout(keepalive.timeout)
            .keep_alive_while_idle(keepalive.permit_without_stream);
    }
    Ok((endpoint, connector))
}

/// Parses the forms that the Collector's client accepts. As there, `http://` doesn't affect TLS.
fn address(endpoint: &str) -> Result<GrpcAddress, &'static str> {
    if let Some(path) = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")) {
        return match path.starts_with('/') {
            true => Ok(GrpcAddress::Unix(path.to_owned())),
            false => Err("must name the socket by its whole path"),
        };
    }
    let asks_for_tls = endpoint.starts_with("https://");
    let authority = ["https://", "http://", "dns:///"]
        .iter()
        .find_map(|prefix| endpoint.strip_prefix(prefix))
        .unwrap_or(endpoint);
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    if authority.contains('/') {
        return Err("has a scheme or a path that is not known");
    }
    ConnectTarget::from_authority(authority)?;
    Ok(GrpcAddress::Tcp { authority: authority.to_owned(), asks_for_tls })
}

#[cfg(test)]
mod tests {
    use sidewinder_config::TlsClient;

    use super::*;

    #[test]
    fn the_forms_of_an_endpoint_are_told_apart() {
        let tcp = |authority: &str, asks_for_tls| {
            Ok(GrpcAddress::Tcp { authority: authority.to_owned(), asks_for_tls })
        };
        assert_eq!(address("collector:4317"), tcp("collector:4317", false));
        assert_eq!(address("[::1]:4317"), tcp("[::1]:4317", false));
        assert_eq!(address("https://collector:4317/"), tcp("collector:4317", true));
        assert_eq!(address("http://collector:4317"), tcp("collector:4317", false));
        assert_eq!(address("dns:///collector:4317"), tcp("collector:4317", false));
        assert_eq!(address("unix:///run/otlp.sock"), Ok(GrpcAddress::Unix("/run/otlp.sock".to_owned())));
        for unknown in ["collector", "collector:http", "", "ftp://collector:1", "unix://run", "a:1/path"] {
            assert!(address(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn plaintext_is_only_used_where_tls_is_switched_off() {
        let is_protected = |endpoint_text: &str, insecure| {
            let tls = TlsClient { insecure, ..TlsClient::default() };
            endpoint(&GrpcOptions { tls, ..GrpcOptions::new(endpoint_text) }).unwrap().1.tls.is_some()
        };
        assert!(!is_protected("localhost:4317", true));
        assert!(is_protected("https://localhost:4317", true));
        assert!(is_protected("http://localhost:4317", false));
    }
}
