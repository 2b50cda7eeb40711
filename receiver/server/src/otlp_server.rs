//! Receives OTLP for profiles, over gRPC and HTTP at the same port, with limits on connections, requests and times. Messages have
//! theirs in [`sidewinder_otlp::receive`].
//!
//! Runs on the runtime of its caller: one task accepts connections, and one task serves each. A request whose rest doesn't arrive
//! gives way to another one, as connections do: see [`connections`].

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sidewinder_config::ListenAddress;
use sidewinder_otlp::receive::{MAX_RECEIVED_BYTES, ProfilesService, Refusal};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tracing::debug;

use crate::http_server::connections::{self, ConnectionLimits};
use crate::http_server::slots::{PeerClock, PeerRequest, Slots};
use crate::http_server::{bind, host};

const LIMITS: ConnectionLimits = ConnectionLimits { connections: 64, idle: Duration::from_secs(90) };
/// The most requests at a time of one connection.
const STREAMS_MAX: u32 = 8;
/// The most memory for messages that are arriving or wait to be decoded, in bytes.
const REQUEST_BYTES_MAX: usize = 64 << 20;
/// The most requests at a time of all connections.
const REQUESTS_MAX: usize = REQUEST_BYTES_MAX / MAX_RECEIVED_BYTES;
/// How long a connection may take to its first bytes, and over the headers of a request of HTTP/1.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of headers, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How every connection of HTTP/2 begins; no method of HTTP/1 does.
const HTTP2_PREFACE: &[u8] = b"PRI";

/// A receiver that listens until it is dropped.
#[derive(Debug)]
pub struct OtlpServer {
    accept_task: JoinHandle<()>,
}

impl OtlpServer {
    /// Listens, and returns the address.
    pub fn start(
        address: &ListenAddress,
        service: ProfilesService,
        runtime: &Handle,
    ) -> io::Result<(Self, SocketAddr)> {
        let listener = runtime.block_on(bind(address))?;
        let local = listener.local_addr()?;
        let endpoint = Endpoint { address: address.clone(), service, requests: Slots::new(REQUESTS_MAX) };
        Ok((Self { accept_task: runtime.spawn(accept(listener, Arc::new(endpoint))) }, local))
    }
}

impl Drop for OtlpServer {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

/// What all connections share.
#[derive(Debug)]
struct Endpoint {
    address: ListenAddress,
    service: ProfilesService,
    requests: Arc<Slots>,
}

async fn accept(listener: TcpListener, endpoint: Arc<Endpoint>) {
    connections::accept(listener, LIMITS, move |stream, clock| {
        let connection = serve(stream, clock, Arc::clone(&endpoint));
        async {
            if let Err(error) = connection.await {
                debug!(error = &*error as &dyn std::error::Error, "a connection ended");
            }
        }
    })
    .await;
}

async fn serve(
    stream: TcpStream,
    clock: Arc<PeerClock>,
    endpoint: Arc<Endpoint>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let local = stream.local_addr()?;
    let is_http2 = tokio::time::timeout(HEAD_TIMEOUT, begins_as_http2(&stream)).await??;
    let service = service_fn(move |request: Request<Incoming>| {
        let (endpoint, connection) = (Arc::clone(&endpoint), Arc::clone(&clock));
        async move { Ok::<_, Infallible>(endpoint.answer(request, &connection, local).await) }
    });
    let stream = TokioIo::new(stream);
    if is_http2 {
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .serve_connection(stream, service)
            .await?;
    } else {
        http1::Builder::new()
            .timer(TokioTimer::new())
            .max_buf_size(HEAD_BYTES_MAX)
            .header_read_timeout(HEAD_TIMEOUT)
            .serve_connection(stream, service)
            .await?;
    }
    Ok(())
}

/// Whether the first bytes are those of HTTP/2, which clients of gRPC send without asking first.
async fn begins_as_http2(stream: &TcpStream) -> io::Result<bool> {
    let mut first = [0; HTTP2_PREFACE.len()];
    loop {
        let length = stream.peek(&mut first).await?;
        if length == 0 || length == first.len() || !HTTP2_PREFACE.starts_with(&first[..length]) {
            return Ok(first[..length] == *HTTP2_PREFACE);
        }
        // Part of the three bytes: the rest is on its way.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

impl Endpoint {
    async fn answer(
        &self,
        request: Request<Incoming>,
        connection: &Arc<PeerClock>,
        local: SocketAddr,
    ) -> Response<Body> {
        let is_for_us = host::may_send(&request, &self.address, local);
        let clock = PeerClock::start();
        let progress = Arc::new([connection.begin_request(), clock.begin_request()]);
        let body_progress = Arc::clone(&progress);
        let request = request.map(|body| Body::new(WatchedBody { body, progress: body_progress }));
        if !is_for_us {
            return ProfilesService::refuse(&request, Refusal::Misdirected);
        }
        let slot = self.requests.take(clock).await;
        let busy = ProfilesService::refuse(&request, Refusal::Busy);
        tokio::select! {
            answer = self.service.answer(request) => answer,
            () = slot.revoked() => busy,
        }
    }
}

/// The body of a request, which tells how far it has arrived.
struct WatchedBody {
    body: Incoming,
    progress: Arc<[PeerRequest; 2]>,
}

impl hyper::body::Body for WatchedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => self.progress.iter().for_each(PeerRequest::complete),
            Poll::Ready(Some(_)) => self.progress.iter().for_each(PeerRequest::note_progress),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use sidewinder_otlp::receive::Taken;
    use tokio::runtime::Runtime;

    use super::*;
    use crate::http_server::tests::{connect, runtime, send_request};

    /// What a client of HTTP/2 sends first: the preface and empty settings.
    const HTTP2_BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const HEAD: &str = "POST /v1development/profiles HTTP/1.1\r\nContent-Type: application/x-protobuf\r\n";

    /// A server that counts what arrives.
    struct TestServer {
        port: u16,
        received: Arc<AtomicUsize>,
        _server: OtlpServer,
        _runtime: Runtime,
    }

    impl TestServer {
        fn start() -> Self {
            let received = Arc::<AtomicUsize>::default();
            let counted = Arc::clone(&received);
            let service = ProfilesService::new(Arc::new(move |_| {
                counted.fetch_add(1, Ordering::Relaxed);
                Ok(Taken::default())
            }));
            let runtime = runtime();
            let address = ListenAddress { host: "127.0.0.1".to_owned(), port: 0 };
            let (server, local) = OtlpServer::start(&address, service, runtime.handle()).unwrap();
            Self { port: local.port(), received, _server: server, _runtime: runtime }
        }

        fn attack(&self, connections: usize, bytes: &[u8]) -> Vec<TcpStream> {
            (0..connections).map(|_| connect(self.port, bytes)).collect()
        }

        fn send(&self, headers: &str) -> String {
            send_request(self.port, &format!("{HEAD}{headers}Content-Length: 0\r\nConnection: close\r\n\r\n"))
        }

        fn assert_takes_a_request(&self, why: &str) {
            let before = self.received.load(Ordering::Relaxed);
            let response = self.send("Host: localhost\r\n");
            assert!(response.starts_with("HTTP/1.1 200"), "{why}: {response}");
            assert_eq!(self.received.load(Ordering::Relaxed), before + 1, "{why}");
        }
    }

    #[test]
    fn idle_connections_and_requests_that_never_end_do_not_shut_senders_out() {
        let server = TestServer::start();
        let half = format!("{HEAD}Host: localhost\r\nContent-Length: 9\r\n\r\n12345");
        for (why, bytes) in [
            ("connections without a byte", &b""[..]),
            ("part of HTTP/2's preface", b"PR"),
            ("idle connections of HTTP/2", HTTP2_BEGIN),
            ("half of a head", HEAD.as_bytes()),
            ("half of a body", half.as_bytes()),
        ] {
            let held = server.attack(191, bytes);
            server.assert_takes_a_request(why);
            drop(held);
        }
    }

    #[test]
    fn requests_are_taken_only_under_allowed_host_names_and_never_from_web_pages() {
        let server = TestServer::start();
        server.assert_takes_a_request("localhost");
        for headers in ["Host: evil.example\r\n", "", "Host: localhost\r\nOrigin: http://localhost\r\n"] {
            let response = server.send(headers);
            assert!(response.starts_with("HTTP/1.1 421") && response.contains("--listen"), "{response}");
        }
        assert_eq!(server.received.load(Ordering::Relaxed), 1);
    }
}
