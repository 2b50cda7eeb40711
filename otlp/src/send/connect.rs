//! Connections to receivers: name resolution, TCP or Unix sockets, and TLS.
//!
//! Names are resolved and certificates are read for each connection, so that a new connection picks up changes.

mod pem;
mod proxy;
mod read_budget;
mod resolve;
mod tls;
mod tls_error;

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use sidewinder_text::ExternalText;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{CertificateError, Error as RustlsError, OtherError};
use tower::Service;

pub use proxy::{Proxies, ProxyError};
pub(super) use proxy::{Route, proxy_url};
pub(super) use read_budget::ReadBudget;
pub use resolve::{Resolve, ResolveFuture, Resolver};
pub(super) use tls::Tls;
pub use tls::check_tls;
pub use tls_error::{PemProblem, TlsConfigError};

/// The address of a receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum ConnectTarget {
    /// A host name, or an IP address without brackets, and a port.
    Tcp { host: String, port: u16 },
    /// The path of a Unix socket.
    Unix(PathBuf),
}

impl ConnectTarget {
    /// Parses `host:port`, with brackets around an IPv6 address.
    pub(super) fn from_authority(authority: &str) -> Result<Self, &'static str> {
        let (host, port) = authority.rsplit_once(':').ok_or("has no port")?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        match port.parse() {
            Ok(_) if host.is_empty() => Err("has no host"),
            Ok(port) => Ok(Self::Tcp { host: host.to_owned(), port }),
            Err(_) => Err("has no port"),
        }
    }
}

/// Why a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot resolve {host:?}")]
    Resolve { host: String, source: io::Error },
    #[error("{host:?} has no address")]
    NoAddress { host: String },
    #[error("cannot connect to {target}")]
    Connect { target: String, source: io::Error },
    #[error("no connection to {target} within {timeout:?}")]
    Timeout { target: String, timeout: Duration },
    #[error("TLS with {host:?} failed")]
    Handshake { host: String, source: io::Error },
    #[error(
        "TLS with {host:?} failed: its certificate is a certificate authority's; create it with basicConstraints=CA:FALSE"
    )]
    AuthorityAsServer { host: String },
    #[error("cannot connect through the proxy {proxy}")]
    Proxy { proxy: String, source: Box<dyn std::error::Error + Send + Sync> },
    #[error("{0:?} is not a valid name for a certificate")]
    ServerName(String),
}

/// Connects to one receiver, regardless of the URI it is called with.
#[derive(Clone, Debug)]
pub(super) struct Connector {
    pub(super) target: Arc<ConnectTarget>,
    pub(super) resolver: Resolver,
    /// Plaintext if absent.
    pub(super) tls: Option<Arc<Tls>>,
    /// The timeout of a connection, from name resolution to the end of the handshake; zero for none.
    pub(super) timeout: Duration,
    /// Shared by all connections. Refilled by who sends a request.
    pub(super) read_budget: Arc<ReadBudget>,
}

impl Connector {
    async fn connect(self) -> Result<Stream, ConnectError> {
        let timeout = self.timeout;
        let connecting = self.connect_without_timeout();
        let mut stream = match timeout.is_zero() {
            true => connecting.await?,
            false => tokio::time::timeout(timeout, connecting)
                .await
                .unwrap_or_else(|_| Err(ConnectError::Timeout { target: self.target_name(), timeout }))?,
        };
        stream.read_budget = Some(self.read_budget);
        Ok(stream)
    }

    async fn connect_without_timeout(&self) -> Result<Stream, ConnectError> {
        let failed = |source| ConnectError::Connect { target: self.target_name(), source };
        match &*self.target {
            ConnectTarget::Unix(path) => Ok(Stream::new(UnixStream::connect(path).await.map_err(failed)?)),
            ConnectTarget::Tcp { host, port } => {
                let stream = self.tcp(host, *port).await?;
                match &self.tls {
                    None => Ok(Stream::new(stream)),
                    Some(tls) => handshake(tls, host, stream).await,
                }
            }
        }
    }

    /// Connects to the first address of `host` that accepts; each gets its share of the timeout.
    async fn tcp(&self, host: &str, port: u16) -> Result<TcpStream, ConnectError> {
        let resolved = self.resolver.resolve(host, port).await;
        let addresses = resolved.map_err(|source| ConnectError::Resolve { host: host.to_owned(), source })?;
        let share = self.timeout.checked_div(addresses.len() as u32).unwrap_or_default();
        let mut failure = ConnectError::NoAddress { host: host.to_owned() };
        for address in addresses {
            let connecting = TcpStream::connect(address);
            let connected = match share.is_zero() {
                true => connecting.await,
                false => tokio::time::timeout(share, connecting)
                    .await
                    .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())),
            };
            match connected {
                Ok(stream) => {
                    // Requests are written whole, so delaying small writes gains nothing.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(source) => failure = ConnectError::Connect { target: address.to_string(), source },
            }
        }
        Err(failure)
    }

    fn target_name(&self) -> String {
        match &*self.target {
            ConnectTarget::Tcp { host, port } => format!("{host}:{port}"),
            ConnectTarget::Unix(path) => ExternalText::new(path).to_string(),
        }
    }
}

async fn handshake(tls: &Tls, host: &str, stream: impl Duplex + 'static) -> Result<Stream, ConnectError> {
    let name = tls.server_name().unwrap_or(host);
    let server =
        ServerName::try_from(name.to_owned()).map_err(|_| ConnectError::ServerName(name.to_owned()))?;
    let stream = TlsConnector::from(tls.client_config()).connect(server, stream).await;
    let stream = stream.map_err(|source| match is_authority_as_server(&source) {
        true => ConnectError::AuthorityAsServer { host: host.to_owned() },
        false => ConnectError::Handshake { host: host.to_owned(), source },
    })?;
    Ok(Stream::new(stream))
}

/// Whether the server's certificate is the kind that `openssl req -x509` creates by default: the TLS library does not accept a
/// certificate authority's as a server's, and its error does not say so in words.
fn is_authority_as_server(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<RustlsError>());
    matches!(
        error,
        Some(RustlsError::InvalidCertificate(CertificateError::Other(OtherError(cause))))
            if matches!(cause.downcast_ref(), Some(webpki::Error::CaUsedAsEndEntity))
    )
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let connecting = self.clone().connect();
        Box::pin(async { connecting.await.map(TokioIo::new) })
    }
}

trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A connection of any kind.
pub(super) struct Stream {
    duplex: Box<dyn Duplex>,
    /// Absent if what it consists of has one.
    read_budget: Option<Arc<ReadBudget>>,
    /// Whether requests have to say for which server they are.
    is_to_proxy: bool,
}

impl Stream {
    fn new(duplex: impl Duplex + 'static) -> Self {
        Self { duplex: Box::new(duplex), read_budget: None, is_to_proxy: false }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.is_to_proxy)
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.duplex).poll_read(cx, buffer))?;
        let received = buffer.filled().len() - before;
        Poll::Ready(self.read_budget.as_ref().map_or(Ok(()), |budget| budget.spend(received)))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.duplex).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.duplex).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.duplex).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.duplex).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.duplex.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_a_host_and_a_port() {
        let tcp = |host: &str, port| Ok(ConnectTarget::Tcp { host: host.to_owned(), port });
        assert_eq!(ConnectTarget::from_authority("collector:4317"), tcp("collector", 4317));
        assert_eq!(ConnectTarget::from_authority("[::1]:4317"), tcp("::1", 4317));
        for text in ["collector", "collector:http", "", ":4317", "a:65536"] {
            assert!(ConnectTarget::from_authority(text).is_err(), "{text}");
        }
    }
}
