//! Receives OTLP for profiles, over gRPC and HTTP at the same port, with limits on connections and times. Messages have theirs in
//! [`sidewinder_otlp::receive`].
//!
//! Runs on the runtime of its caller: one task accepts connections, and one task serves each.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use sidewinder_config::ListenAddress;
use sidewinder_otlp::receive::ProfilesService;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tonic::body::Body;
use tracing::debug;

use crate::server::bind;

/// The most connections at a time; others wait.
const CONNECTIONS_MAX: usize = 64;
/// The most requests at a time on one connection.
const STREAMS_MAX: u32 = 8;
/// How long a connection may take to its first bytes, and over the headers of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How often a peer is asked whether it is still there, and how long it has for the answer.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of headers, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How every connection of HTTP/2 begins; no method of HTTP/1 does.
const HTTP2_PREFACE: &[u8] = b"PRI";

/// A receiver that listens until it is dropped.
#[derive(Debug)]
pub(crate) struct OtlpServer {
    accept_task: JoinHandle<()>,
}

impl OtlpServer {
    /// Listens, and returns the address.
    pub(crate) fn start(
        address: &ListenAddress,
        service: ProfilesService,
        runtime: &Handle,
    ) -> io::Result<(Self, SocketAddr)> {
        let listener = runtime.block_on(bind(address))?;
        let local = listener.local_addr()?;
        Ok((Self { accept_task: runtime.spawn(accept(listener, service)) }, local))
    }
}

impl Drop for OtlpServer {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

async fn accept(listener: TcpListener, service: ProfilesService) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connection = serve(stream, service.clone());
                tokio::spawn(async move {
                    if let Err(error) = connection.await {
                        debug!(%peer, error = &*error as &dyn std::error::Error, "the connection ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "no connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(
    stream: TcpStream,
    service: ProfilesService,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let is_http2 = tokio::time::timeout(HEAD_TIMEOUT, begins_as_http2(&stream)).await??;
    let service = service_fn(move |request: Request<Incoming>| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request.map(Body::new)).await) }
    });
    let stream = TokioIo::new(stream);
    if is_http2 {
        http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX as u32)
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
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
