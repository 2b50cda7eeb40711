//! A receiver over HTTP with scripted replies, byte by byte.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

/// A receiver's reply to one request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Accepts it.
    Accept,
    /// A status, further header lines, and a body.
    Status(u16, Vec<String>, Vec<u8>),
    /// These bytes, followed by the end of the connection.
    Raw(Vec<u8>),
    /// Never replies.
    Silence,
    /// These bytes again and again, until the connection ends.
    Endless(&'static [u8]),
    /// Sends nothing more, but keeps the connection open.
    HalfClose,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self::Status(status, Vec::new(), Vec::new())
    }

    pub(crate) fn retry_after(status: u16, value: &str) -> Self {
        Self::Status(status, vec![format!("retry-after: {value}")], Vec::new())
    }
}

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct HttpReceived {
    /// The request line and the headers, in lower case.
    pub(crate) head: String,
    /// Uncompressed.
    pub(crate) message: Vec<u8>,
    /// Whether the receiver has it: true unless its reply says otherwise.
    pub(crate) is_taken: bool,
}

impl HttpReceived {
    /// All values of a header.
    pub(crate) fn all(&self, name: &str) -> Vec<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.filter(|(key, _)| *key == name).map(|(_, value)| value).collect()
    }
}

#[derive(Default)]
struct Progress {
    replies: VecDeque<Reply>,
    received: Vec<HttpReceived>,
    connections: usize,
    ended_by_peer: usize,
}

/// Runs until it is dropped. Accepts everything when there are no replies left.
pub(crate) struct HttpReceiver {
    pub(crate) url: String,
    progress: Arc<Mutex<Progress>>,
    _tasks: JoinSet<()>,
}

impl HttpReceiver {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::serve(replies, None).await
    }

    pub(crate) async fn with_tls(
        certificate: (String, String),
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        Self::with_mutual_tls(certificate, None, replies).await
    }

    /// `client_ca`: the authority, in PEM, whose certificates clients must have.
    pub(crate) async fn with_mutual_tls(
        (cert, key): (String, String),
        client_ca: Option<&str>,
        replies: impl IntoIterator<Item = Reply>,
    ) -> Self {
        let certificates = CertificateDer::pem_slice_iter(cert.as_bytes()).collect::<Result<_, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let clients = match client_ca {
            None => WebPkiClientVerifier::no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()).unwrap();
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
                verifier.build().unwrap()
            }
        };
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(certificates, key)
            .unwrap();
        Self::serve(replies, Some(TlsAcceptor::from(Arc::new(config)))).await
    }

    async fn serve(replies: impl IntoIterator<Item = Reply>, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://localhost:{port}/v1development/profiles");
        let progress =
            Arc::new(Mutex::new(Progress { replies: replies.into_iter().collect(), ..Progress::default() }));
        let shared = Arc::clone(&progress);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                shared.lock().unwrap().connections += 1;
                let (progress, tls) = (Arc::clone(&shared), tls.clone());
                connections.spawn(async move {
                    match tls {
                        None => converse(stream, &progress).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                converse(stream, &progress).await;
                            }
                        }
                    }
                });
            }
        });
        Self { url, progress, _tasks: tasks }
    }

    pub(crate) fn received(&self) -> Vec<HttpReceived> {
        self.progress.lock().unwrap().received.clone()
    }

    pub(crate) fn connections(&self) -> usize {
        self.progress.lock().unwrap().connections
    }

    /// How many connections with an endless reply the peer has ended.
    pub(crate) fn ended_by_peer(&self) -> usize {
        self.progress.lock().unwrap().ended_by_peer
    }
}

async fn converse(mut stream: impl AsyncRead + AsyncWrite + Unpin, progress: &Mutex<Progress>) {
    while let Some(mut received) = read_request(&mut stream).await {
        let reply = {
            let mut progress = progress.lock().unwrap();
            let reply = progress.replies.pop_front().unwrap_or(Reply::Accept);
            received.is_taken = !matches!(reply, Reply::Status(300.., ..));
            progress.received.push(received);
            reply
        };
        let (status, lines, body) = match reply {
            Reply::Accept => (200, Vec::new(), Vec::new()),
            Reply::Status(status, lines, body) => (status, lines, body),
            Reply::Raw(bytes) => {
                let _ = stream.write_all(&bytes).await;
                return;
            }
            Reply::Silence => std::future::pending().await,
            Reply::Endless(bytes) => {
                let many = bytes.repeat(1000);
                while stream.write_all(&many).await.is_ok() {}
                progress.lock().unwrap().ended_by_peer += 1;
                return;
            }
            Reply::HalfClose => {
                let _ = stream.shutdown().await;
                std::future::pending().await
            }
        };
        let mut head = format!("HTTP/1.1 {status} Reason\r\ncontent-length: {}\r\n", body.len());
        lines.iter().for_each(|line| head += &format!("{line}\r\n"));
        let answer = [head.as_bytes(), b"\r\n", &body].concat();
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Option<HttpReceived> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap().to_ascii_lowercase();
    let mut received = HttpReceived { head, message: Vec::new(), is_taken: true };
    let length = received.all("content-length").first().map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    received.message = match received.all("content-encoding").first() {
        None => body,
        Some(&"gzip") => {
            let mut message = Vec::new();
            flate2::read::GzDecoder::new(&*body).read_to_end(&mut message).unwrap();
            message
        }
        Some(&"zstd") => zstd::stream::decode_all(&*body).unwrap(),
        Some(other) => unreachable!("encoding {other}"),
    };
    Some(received)
}
