//! The endpoint, as the Collector's configuration writes it, and its protection.

use std::fs;

use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use super::{GrpcError, GrpcOptions, Pem, TlsOptions};

/// The name that we go by at the receiver.
const USER_AGENT: &str = concat!("sidewinder/", env!("CARGO_PKG_VERSION"));

/// Where an endpoint leads.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Address {
    /// `host:port`.
    Tcp { authority: String, asks_for_tls: bool },
    /// The path of a socket.
    Unix(String),
}

pub(super) fn endpoint(options: &GrpcOptions) -> Result<Endpoint, GrpcError> {
    let wrong = |problem| GrpcError::Endpoint { endpoint: options.endpoint.clone(), problem };
    let (uri, protected) = match address(&options.endpoint).map_err(wrong)? {
        Address::Unix(_) if !options.tls.insecure => {
            return Err(wrong("is a Unix socket, which takes no TLS: set tls::insecure"));
        }
        Address::Unix(path) => (format!("unix://{path}"), false),
        Address::Tcp { authority, asks_for_tls } => {
            let protected = asks_for_tls || !options.tls.insecure;
            (format!("{}://{authority}", if protected { "https" } else { "http" }), protected)
        }
    };
    let unparsed = |_| wrong("is no host and port");
    let mut endpoint =
        Endpoint::from_shared(uri).and_then(|endpoint| endpoint.user_agent(USER_AGENT)).map_err(unparsed)?;
    if !options.timeout.is_zero() {
        endpoint = endpoint.connect_timeout(options.timeout);
    }
    if protected {
        endpoint = endpoint
            .tls_config(tls(&options.tls)?)
            .map_err(|source| GrpcError::Tls { endpoint: options.endpoint.clone(), source })?;
    }
    Ok(endpoint)
}

/// Reads the forms that the Collector's client knows. As there, `http://` says nothing about TLS.
fn address(endpoint: &str) -> Result<Address, &'static str> {
    if let Some(path) = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:")) {
        return match path.starts_with('/') {
            true => Ok(Address::Unix(path.to_owned())),
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
    let port = authority.rsplit_once(':').map(|(_, port)| port);
    match port.and_then(|port| port.parse::<u16>().ok()) {
        Some(_) => Ok(Address::Tcp { authority: authority.to_owned(), asks_for_tls }),
        None => Err("has no port"),
    }
}

fn tls(options: &TlsOptions) -> Result<ClientTlsConfig, GrpcError> {
    let mut tls = ClientTlsConfig::new();
    if let Some(ca) = &options.ca {
        tls = tls.ca_certificate(Certificate::from_pem(read("ca_file", ca)?));
    }
    if options.ca.is_none() || options.include_system_ca_certs_pool {
        tls = tls.with_native_roots();
    }
    match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => {
            tls = tls.identity(Identity::from_pem(read("cert_file", cert)?, read("key_file", key)?));
        }
        (None, None) => {}
        _ => return Err(GrpcError::HalfIdentity),
    }
    if let Some(name) = &options.server_name_override {
        tls = tls.domain_name(name);
    }
    Ok(tls)
}

fn read(setting: &'static str, pem: &Pem) -> Result<Vec<u8>, GrpcError> {
    match pem {
        Pem::File(path) => {
            fs::read(path).map_err(|source| GrpcError::ReadTls { setting, path: path.clone(), source })
        }
        Pem::Text(text) => Ok(text.clone().into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_forms_of_an_endpoint_are_told_apart() {
        let tcp = |authority: &str, asks_for_tls| {
            Ok(Address::Tcp { authority: authority.to_owned(), asks_for_tls })
        };
        assert_eq!(address("collector:4317"), tcp("collector:4317", false));
        assert_eq!(address("[::1]:4317"), tcp("[::1]:4317", false));
        assert_eq!(address("https://collector:4317/"), tcp("collector:4317", true));
        assert_eq!(address("http://collector:4317"), tcp("collector:4317", false));
        assert_eq!(address("dns:///collector:4317"), tcp("collector:4317", false));
        assert_eq!(address("unix:///run/otlp.sock"), Ok(Address::Unix("/run/otlp.sock".to_owned())));
        for unknown in ["collector", "collector:http", "", "ftp://collector:1", "unix://run", "a:1/path"] {
            assert!(address(unknown).is_err(), "{unknown}");
        }
    }

    #[test]
    fn plaintext_is_only_used_where_tls_is_switched_off() {
        let uri = |endpoint_text: &str, insecure| {
            let tls = TlsOptions { insecure, ..TlsOptions::default() };
            endpoint(&GrpcOptions { tls, ..GrpcOptions::to(endpoint_text) }).unwrap().uri().to_string()
        };
        assert_eq!(uri("localhost:4317", true), "http://localhost:4317/");
        assert_eq!(uri("https://localhost:4317", true), "https://localhost:4317/");
        assert_eq!(uri("http://localhost:4317", false), "https://localhost:4317/");
    }

    #[test]
    fn a_file_that_cannot_be_read_is_named() {
        let tls = TlsOptions { ca: Some(Pem::File("/nowhere/ca.pem".into())), ..TlsOptions::default() };
        let error = endpoint(&GrpcOptions { tls, ..GrpcOptions::to("localhost:4317") }).unwrap_err();
        assert_eq!(error.to_string(), "cannot read tls::ca_file \"/nowhere/ca.pem\"");
    }
}
