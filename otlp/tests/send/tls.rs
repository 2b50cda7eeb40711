//! Connections with real certificates.

use std::sync::atomic::{AtomicUsize, Ordering};

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use sidewinder_config::{ClientIdentity, Pem, TlsClient, TlsVersion};
use sidewinder_otlp::send::{Exporter, GrpcOptions, HttpOptions, State, check_tls};
use tempfile::TempDir;
use time::{Duration, OffsetDateTime};
use tokio::net::TcpListener;
use tonic::transport::{Certificate, Identity, ServerTlsConfig};

use super::receiver::Receiver;
use super::{PATIENCE, assert_all, options, report, settled, start};

/// A certificate authority, and a directory for its files.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
    directory: TempDir,
}

impl Authority {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mut params = CertificateParams::new([]).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem, directory: tempfile::tempdir().unwrap() }
    }

    /// A certificate and its key for this name, valid for this time from now.
    pub(crate) fn certificate(&self, name: &str, valid: Duration) -> (String, String) {
        self.certificate_from(name, Duration::days(-10), valid)
    }

    /// `from` and `to` are relative to now.
    fn certificate_from(&self, name: &str, from: Duration, to: Duration) -> (String, String) {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.not_before = OffsetDateTime::now_utc() + from;
        params.not_after = OffsetDateTime::now_utc() + to;
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// A certificate for this name that its own key has signed.
    fn self_signed(name: &str, is_authority: bool) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        if is_authority {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn file(&self, name: &str, pem: &str) -> Pem {
        let path = self.directory.path().join(name);
        std::fs::write(&path, pem).unwrap();
        Pem::File(path)
    }

    pub(crate) fn ca(&self) -> Option<Pem> {
        Some(self.file("ca.pem", &self.pem))
    }
}

const VALID: Duration = Duration::days(1);

async fn receiver(certificate: (String, String)) -> Receiver {
    let identity = Identity::from_pem(certificate.0, certificate.1);
    Receiver::with_tls(ServerTlsConfig::new().identity(identity)).await
}

fn to(receiver: &Receiver, tls: TlsClient) -> GrpcOptions {
    let port = receiver.endpoint.rsplit_once(':').unwrap().1;
    GrpcOptions { tls, timeout: PATIENCE, ..GrpcOptions::new(format!("localhost:{port}")) }
}

/// One report ends in `state`; the receiver gets it only if that is `Delivered`.
async fn assert_ends(receiver: &Receiver, tls: TlsClient, state: State) {
    let exporter = start(options(), &to(receiver, tls));
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, state, &report);
    let expected = usize::from(state == State::Delivered);
    assert_eq!(receiver.received().len(), expected);
}

#[tokio::test]
async fn a_receiver_of_a_trusted_authority_gets_the_events() {
    let authority = Authority::new();
    let receiver = receiver(authority.certificate("localhost", VALID)).await;
    let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    assert_ends(&receiver, tls, State::Delivered).await;
}

#[tokio::test]
async fn a_receiver_of_another_authority_gets_nothing() {
    let receiver = receiver(Authority::new().certificate("localhost", VALID)).await;
    let other = Authority::new();
    let tls = TlsClient { ca: other.ca(), ..TlsClient::default() };
    assert_ends(&receiver, tls, State::DroppedRetriesExhausted).await;
}

#[tokio::test]
async fn a_certificate_that_has_expired_is_refused() {
    let authority = Authority::new();
    let receiver = receiver(authority.certificate("localhost", Duration::days(-1))).await;
    let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    assert_ends(&receiver, tls, State::DroppedRetriesExhausted).await;
}

#[tokio::test]
async fn a_certificate_of_another_name_is_refused_unless_that_name_is_asked_for() {
    let authority = Authority::new();
    let receiver = receiver(authority.certificate("collector.example", VALID)).await;
    let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    assert_ends(&receiver, tls.clone(), State::DroppedRetriesExhausted).await;
    let server_name_override = Some("collector.example".to_owned());
    assert_ends(&receiver, TlsClient { server_name_override, ..tls }, State::Delivered).await;
}

#[tokio::test]
async fn a_plaintext_receiver_gets_nothing_where_tls_is_asked_for() {
    let receiver = Receiver::start([]).await;
    let authority = Authority::new();
    let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    assert_ends(&receiver, tls, State::DroppedRetriesExhausted).await;
}

#[tokio::test]
async fn events_cannot_have_arrived_where_no_connection_was_made() {
    // Accepts the connection and never sends anything.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = Authority::new();
    let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    let endpoint = silent.local_addr().unwrap().to_string();
    let timeout = std::time::Duration::from_millis(100);
    let exporter = start(options(), &GrpcOptions { tls, timeout, ..GrpcOptions::new(endpoint) });
    let report = report(1, 3);
    exporter.enqueue(report.clone());
    assert_all(&settled(&exporter).await.counts, State::DroppedRetriesExhausted, &report);
}

#[tokio::test]
async fn a_receiver_that_asks_for_a_certificate_gets_ours() {
    let authority = Authority::new();
    let (cert, key) = authority.certificate("localhost", VALID);
    let tls = ServerTlsConfig::new()
        .identity(Identity::from_pem(cert, key))
        .client_ca_root(Certificate::from_pem(&authority.pem));
    let receiver = Receiver::with_tls(tls).await;
    let anonymous = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    let (cert, key) = authority.certificate("sidewinder", VALID);
    let identity = ClientIdentity {
        certificate: authority.file("cert.pem", &cert),
        key: authority.file("key.pem", &key),
    };
    let known = TlsClient { identity: Some(identity), ..anonymous.clone() };
    assert_ends(&receiver, known, State::Delivered).await;
    let exporter = start(options(), &to(&receiver, anonymous));
    exporter.enqueue(report(1, 3));
    assert_eq!(settled(&exporter).await.counts.delivered.events, 0);
    assert_eq!(receiver.received().len(), 1);
}

#[tokio::test]
async fn any_certificate_will_do_where_that_is_asked_for() {
    let receiver = receiver(Authority::new().certificate("collector.example", Duration::days(-1))).await;
    let tls = TlsClient { insecure_skip_verify: true, ..TlsClient::default() };
    assert_ends(&receiver, tls, State::Delivered).await;
}

#[tokio::test]
async fn versions_that_do_not_overlap_are_refused() {
    let authority = Authority::new();
    let receiver = receiver(authority.certificate("localhost", VALID)).await;
    let tls = TlsClient { ca: authority.ca(), min_version: TlsVersion::Tls13, ..TlsClient::default() };
    assert_ends(&receiver, tls.clone(), State::Delivered).await;
    let tls = TlsClient { max_version: Some(TlsVersion::Tls12), ..tls };
    let error = Exporter::grpc(options(), &to(&receiver, tls)).unwrap_err();
    let cause = std::error::Error::source(&error).unwrap().to_string();
    assert_eq!(cause, "tls::max_version: it is older than tls::min_version");
}

/// The receiver now shows another authority's certificate and requires another one from us; the files are replaced before
/// that, and are temporarily invalid.
#[tokio::test]
async fn the_next_connection_uses_the_files_as_they_are_then() {
    let (before, after) = (Authority::new(), Authority::new());
    let mutual = |authority: &Authority| {
        let (cert, key) = authority.certificate("localhost", VALID);
        let identity = Identity::from_pem(cert, key);
        ServerTlsConfig::new().identity(identity).client_ca_root(Certificate::from_pem(&authority.pem))
    };
    let folder = tempfile::tempdir().unwrap();
    let place = |authority: &Authority| {
        let (cert, key) = authority.certificate("sidewinder", VALID);
        for (name, pem) in [("ca.pem", &authority.pem), ("cert.pem", &cert), ("key.pem", &key)] {
            std::fs::write(folder.path().join(name), pem).unwrap();
        }
    };
    let file = |name: &str| Pem::File(folder.path().join(name));
    place(&before);
    let first = Receiver::with_tls(mutual(&before)).await;
    let tls = TlsClient {
        ca: Some(file("ca.pem")),
        identity: Some(ClientIdentity { certificate: file("cert.pem"), key: file("key.pem") }),
        ..TlsClient::default()
    };
    let exporter = start(options(), &to(&first, tls));
    exporter.enqueue(report(1, 3));
    assert_eq!(settled(&exporter).await.counts.delivered.events, 3);

    let address = first.endpoint.clone();
    std::fs::write(folder.path().join("ca.pem"), "half of it").unwrap();
    first.disconnect().await;
    let again = Receiver::with_tls_at(mutual(&before), &address).await;
    exporter.enqueue(report(1, 3));
    assert_eq!(settled(&exporter).await.counts.delivered.events, 6);

    place(&after);
    again.disconnect().await;
    let _second = Receiver::with_tls_at(mutual(&after), &address).await;
    exporter.enqueue(report(1, 3));
    assert_eq!(settled(&exporter).await.counts.delivered.events, 9);
}

#[tokio::test]
async fn http_trusts_the_same_certificates_as_grpc() {
    let authority = Authority::new();
    let server =
        super::http_receiver::HttpReceiver::with_tls(authority.certificate("localhost", VALID), []).await;
    for (ca, state) in
        [(authority.ca(), State::Delivered), (Authority::new().ca(), State::DroppedRetriesExhausted)]
    {
        let tls = TlsClient { ca, ..TlsClient::default() };
        let exporter =
            Exporter::http(options(), &HttpOptions { tls, ..HttpOptions::new(server.url.clone()) });
        let (exporter, report) = (exporter.unwrap(), report(1, 3));
        exporter.enqueue(report.clone());
        assert_all(&settled(&exporter).await.counts, state, &report);
    }
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_key() {
    let authority = Authority::new();
    let (certificate, key) = authority.certificate("client", VALID);
    let (_, other_key) = authority.certificate("other", VALID);
    let encrypted = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let damaged = certificate.replace("-----END CERTIFICATE-----", "");
    let file = |name: &str, text: &str| authority.file(name, text);
    let ca = |pem| TlsClient { ca: Some(pem), ..TlsClient::default() };
    let identity = |certificate, key| TlsClient {
        ca: authority.ca(),
        identity: Some(ClientIdentity { certificate, key }),
        ..TlsClient::default()
    };
    let text = |text: &str| Pem::Text(sidewinder_config::Secret::new(text.to_owned()));
    assert!(check_tls(&identity(file("c", &certificate), file("k", &key))).is_ok());
    let pipe = authority.directory.path().join("pipe");
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    for (tls, expected) in [
        (ca(Pem::File("/nowhere/ca.pem".into())), "tls::ca_file: cannot read \"/nowhere/ca.pem\""),
        (ca(Pem::File(pipe)), "tls::ca_file: cannot read"),
        (ca(file("a", &key)), "tls::ca_file: it is a private key, not a certificate"),
        (ca(text(&key)), "tls::ca_pem: it is a private key, not a certificate"),
        (ca(file("b", "hello")), "tls::ca_file: it has no certificate in PEM"),
        (ca(file("d", &damaged)), "tls::ca_file: it is not valid PEM"),
        (
            identity(file("c", &certificate), file("e", &certificate)),
            "tls::key_file: it is a certificate, not a private key",
        ),
        (identity(file("c", &certificate), file("f", "")), "tls::key_file: it has no private key in PEM"),
        (
            identity(file("c", &certificate), file("g", &encrypted)),
            "tls::key_file: the private key has a passphrase",
        ),
        (
            identity(file("h", &key), file("k", &key)),
            "tls::cert_file: it is a private key, not a certificate",
        ),
        (
            identity(file("c", &certificate), file("o", &other_key)),
            "tls::key_file: it is not the private key of the first certificate in tls::cert_file",
        ),
    ] {
        let error = check_tls(&tls).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}\n{expected}");
    }
}

/// The exporter of a kind to this port of the loopback interface.
fn exporter_to(port: &str, tls: TlsClient, is_grpc: bool) -> Exporter {
    let exporter = match is_grpc {
        true => Exporter::grpc(
            options(),
            &GrpcOptions { tls, timeout: PATIENCE, ..GrpcOptions::new(format!("localhost:{port}")) },
        ),
        false => Exporter::http(
            options(),
            &HttpOptions { tls, timeout: PATIENCE, ..HttpOptions::new(format!("https://localhost:{port}/")) },
        ),
    };
    exporter.unwrap()
}

fn port(url: &str) -> &str {
    url.rsplit(':').next().unwrap().split('/').next().unwrap()
}

#[tokio::test]
async fn a_wrong_certificate_is_named_and_its_owner_gets_nothing() {
    let authority = Authority::new();
    let days = Duration::days;
    for (certificate, reason) in [
        (authority.certificate("localhost", days(-1)), "expired"),
        (authority.certificate_from("localhost", days(1), days(2)), "not valid yet"),
        (authority.certificate("collector.example", VALID), "not valid for name"),
        (Authority::new().certificate("localhost", VALID), "UnknownIssuer"),
        (Authority::self_signed("localhost", false), "UnknownIssuer"),
        (Authority::self_signed("localhost", true), "is a certificate authority's"),
    ] {
        let server = super::http_receiver::HttpReceiver::with_tls(certificate, []).await;
        for is_grpc in [false, true] {
            let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
            let exporter = exporter_to(port(&server.url), tls, is_grpc);
            let report = report(1, 3);
            exporter.enqueue(report.clone());
            let stats = settled(&exporter).await;
            assert_all(&stats.counts, State::DroppedRetriesExhausted, &report);
            let failure = stats.last_failure.unwrap();
            assert_eq!(failure.matches("TLS with \"localhost\" failed").count(), 1, "{failure}");
            assert!(failure.contains(reason), "{reason}: {failure}");
        }
        assert!(server.received().is_empty());
    }
}

/// With TLS 1.3 the receiver refuses a client after the client's part of the handshake, when the request is on its way: the events
/// are unknown then.
#[tokio::test]
async fn a_missing_or_foreign_certificate_of_ours_is_named_and_nothing_arrives() {
    let authority = Authority::new();
    let certificate = authority.certificate("localhost", VALID);
    let server =
        super::http_receiver::HttpReceiver::with_mutual_tls(certificate, Some(&authority.pem), []).await;
    let stranger = Authority::new();
    let (cert, key) = stranger.certificate("sidewinder", VALID);
    let foreign =
        ClientIdentity { certificate: stranger.file("cert.pem", &cert), key: stranger.file("key.pem", &key) };
    for (identity, reason) in [(None, "CertificateRequired"), (Some(foreign), "UnknownCA")] {
        for max_version in [None, Some(TlsVersion::Tls12)] {
            let tls = TlsClient {
                ca: authority.ca(),
                identity: identity.clone(),
                max_version,
                ..TlsClient::default()
            };
            let exporter = exporter_to(port(&server.url), tls, false);
            let report = report(1, 3);
            exporter.enqueue(report.clone());
            let stats = settled(&exporter).await;
            assert_eq!(stats.counts.delivered.events, 0);
            assert_eq!(stats.counts.total(), report.tally());
            let failure = stats.last_failure.unwrap();
            // The alert may be lost after the handshake: the connection has ended by then.
            assert!(max_version.is_none() || failure.contains(reason), "{reason}: {failure}");
        }
    }
    assert!(server.received().is_empty());
}
