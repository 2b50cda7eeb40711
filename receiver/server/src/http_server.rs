//! A small HTTP server for read-only pages, with limits on connections, sizes and times.
//!
//! Runs on the runtime of its caller: one task accepts connections, and one task serves each. How connections are accepted, and
//! which one gives way to another, is in [`connections`]: the same for all listeners.

pub mod connections;
pub(crate) mod host;
pub(crate) mod slots;

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sidewinder_base::lock::lock;
use sidewinder_config::ListenAddress;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::warn;

use self::connections::ConnectionLimits;
use self::slots::{PeerClock, Slot, Slots};

const LIMITS: ConnectionLimits = ConnectionLimits { connections: 64, idle: CONNECTION_TIMEOUT };
/// The longest time from a connection to its request, and from there to the end of the response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The most responses that are sent at a time. Each is in memory until its peer has read it.
const RESPONSES_MAX: usize = 8;
/// The size limit of a request's line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How often binding a port that is in use is tried again.
const BIND_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The content security policy of pages without scripts.
const STRICT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// The policy of a document that declares its own: only this directive can't be declared in a document.
const SELF_DECLARED_POLICY: &str = "frame-ancestors 'none'";

/// The response for a path.
pub struct PageResponse {
    /// The status of the response.
    pub status: StatusCode,
    /// Its media type.
    pub content_type: &'static str,
    /// Its body.
    pub body: Bytes,
    /// The content security policy.
    pub policy: &'static str,
}

impl PageResponse {
    /// A page that there is.
    pub fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type, body: body.into(), policy: STRICT_POLICY }
    }

    /// A document that declares its own content security policy.
    pub fn with_own_policy(body: impl Into<Bytes>) -> Self {
        Self { policy: SELF_DECLARED_POLICY, ..Self::ok("text/html; charset=utf-8", body) }
    }

    pub(crate) fn text(status: StatusCode, text: &str) -> Self {
        Self { status, ..Self::ok("text/plain; charset=utf-8", format!("{text}\n")) }
    }
}

/// Returns the response for a path; `None` if there is no such page.
pub type Handler = dyn Fn(&str) -> Option<PageResponse> + Send + Sync;

/// A server that listens until it is dropped.
#[derive(Debug)]
pub struct Server {
    accept_task: JoinHandle<()>,
}

impl Server {
    /// Listens at `address`, now or as soon as the port is free. Logs a warning while another program uses the port.
    pub fn start(what: String, address: ListenAddress, handler: Arc<Handler>, runtime: &Handle) -> Self {
        let accept_task = runtime.spawn(async move {
            let listener = listener(&what, &address).await;
            accept(listener, address, handler).await;
        });
        Self { accept_task }
    }

    /// Listens on a free port of the loopback interface, and returns the address.
    pub fn start_on_free_port(handler: Arc<Handler>, runtime: &Handle) -> io::Result<(Self, SocketAddr)> {
        let host = Ipv4Addr::LOCALHOST;
        let listener = runtime.block_on(TcpListener::bind((host, 0)))?;
        let local = listener.local_addr()?;
        let address = ListenAddress { host: host.to_string(), port: local.port() };
        let accept_task = runtime.spawn(accept(listener, address, handler));
        Ok((Self { accept_task }, local))
    }
}

async fn accept(listener: TcpListener, address: ListenAddress, handler: Arc<Handler>) {
    let responses = Slots::new(RESPONSES_MAX);
    let address = Arc::new(address);
    connections::accept(listener, LIMITS, move |stream, clock| {
        serve(stream, clock, Arc::clone(&responses), Arc::clone(&address), Arc::clone(&handler))
    })
    .await;
}

impl Drop for Server {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

async fn listener(what: &str, address: &ListenAddress) -> TcpListener {
    let mut has_warned = false;
    loop {
        match bind(address).await {
            Ok(listener) => {
                if has_warned {
                    warn!(what, %address, "the port is free now: listening");
                }
                return listener;
            }
            Err(error) if !std::mem::replace(&mut has_warned, true) => {
                warn!(what, %address, error = &error as &dyn std::error::Error, "can't listen, trying again");
            }
            Err(_) => {}
        }
        tokio::time::sleep(BIND_RETRY_INTERVAL).await;
    }
}

/// Binds a port of an interface, or of every one.
pub(crate) async fn bind(address: &ListenAddress) -> io::Result<TcpListener> {
    if !address.host.is_empty() {
        return TcpListener::bind((address.host.as_str(), address.port)).await;
    }
    // Every interface: a socket of IPv6 takes connections of IPv4 too. Without IPv6, fall back to IPv4.
    match TcpListener::bind(("::", address.port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", address.port)).await
        }
        bound => bound,
    }
}

/// Answers one request.
async fn serve(
    stream: TcpStream,
    clock: Arc<PeerClock>,
    responses: Arc<Slots>,
    address: Arc<ListenAddress>,
    handler: Arc<Handler>,
) {
    let Ok(local) = stream.local_addr() else { return };
    let (slot_sender, slot) = oneshot::channel();
    let slot_sender = Mutex::new(Some(slot_sender));
    let service = service_fn(|request: Request<Incoming>| {
        let received = clock.begin_request();
        let slot_sender = lock(&slot_sender).take();
        let (responses, clock) = (&responses, &clock);
        let (address, handler) = (&address, &handler);
        async move {
            let slot = responses.take(Arc::clone(clock)).await;
            // Fails only if the connection has ended.
            let _ = slot_sender.map(|sender| sender.send(slot));
            received.complete();
            Ok::<_, Infallible>(response(page(&request, address, local, &**handler)))
        }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Errors of a connection are the client's problem.
        _ = connection => {}
        () = lost(slot) => {}
    }
}

/// Returns once the slot of the response, which is held as long as this runs, has been given to another one.
async fn lost(slot: oneshot::Receiver<Slot>) {
    match slot.await {
        Ok(slot) => slot.revoked().await,
        Err(_) => pending().await,
    }
}

fn page<B>(
    request: &Request<B>,
    address: &ListenAddress,
    local: SocketAddr,
    handler: &Handler,
) -> PageResponse {
    if !host::names_listener(request, address, local) {
        return PageResponse::text(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not one of Sidewinder's",
        );
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return PageResponse::text(StatusCode::METHOD_NOT_ALLOWED, "only GET and HEAD");
    }
    handler(request.uri().path()).unwrap_or_else(|| PageResponse::text(StatusCode::NOT_FOUND, "no such page"))
}

fn response(page: PageResponse) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(page.body));
    *response.status_mut() = page.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(page.content_type));
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    headers.insert("content-security-policy", HeaderValue::from_static(page.policy));
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    // No other site may embed this, not even as an image or a script.
    headers.insert("cross-origin-resource-policy", HeaderValue::from_static("same-origin"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if page.status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
pub(crate) mod tests;
