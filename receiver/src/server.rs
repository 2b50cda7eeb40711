//! A small HTTP server for read-only pages, with limits on connections, sizes and times.
//!
//! Runs on the runtime of its caller: one task accepts connections, and one task serves each.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use sidewinder_config::ListenAddress;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

/// The most connections that are served at a time; others wait.
const CONNECTIONS_MAX: usize = 8;
/// The longest time from a connection to the end of its response.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of a request's line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// How often binding a port that is in use is tried again.
const BIND_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// The content security policy of pages without scripts.
const STRICT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// The policy of a document that declares its own: only this directive can't be declared in a document.
const SELF_DECLARED_POLICY: &str = "frame-ancestors 'none'";

/// The response for a path.
pub(crate) struct PageResponse {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// The content security policy.
    pub(crate) policy: &'static str,
}

impl PageResponse {
    pub(crate) fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type, body: body.into(), policy: STRICT_POLICY }
    }

    /// A document that declares its own content security policy.
    pub(crate) fn with_own_policy(body: impl Into<Bytes>) -> Self {
        Self { policy: SELF_DECLARED_POLICY, ..Self::ok("text/html; charset=utf-8", body) }
    }

    pub(crate) fn text(status: StatusCode, text: &str) -> Self {
        Self { status, ..Self::ok("text/plain; charset=utf-8", format!("{text}\n")) }
    }
}

/// Returns the response for a path; `None` if there is no such page.
pub(crate) type Handler = dyn Fn(&str) -> Option<PageResponse> + Send + Sync;

/// A server that listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    accept_task: JoinHandle<()>,
}

impl Server {
    /// Listens at `address`, now or as soon as the port is free. Logs a warning while another program uses the port.
    pub(crate) fn start(
        what: String,
        address: ListenAddress,
        handler: Arc<Handler>,
        runtime: &Handle,
    ) -> Self {
        let accept_task = runtime.spawn(async move {
            let listener = listener(&what, &address).await;
            accept(listener, address, handler).await;
        });
        Self { accept_task }
    }

    /// Listens on a free port of the loopback interface, and returns the address.
    pub(crate) fn start_on_free_port(
        handler: Arc<Handler>,
        runtime: &Handle,
    ) -> io::Result<(Self, SocketAddr)> {
        let host = Ipv4Addr::LOCALHOST;
        let listener = runtime.block_on(TcpListener::bind((host, 0)))?;
        let local = listener.local_addr()?;
        let address = ListenAddress { host: host.to_string(), port: local.port() };
        let accept_task = runtime.spawn(accept(listener, address, handler));
        Ok((Self { accept_task }, local))
    }
}

async fn accept(listener: TcpListener, address: ListenAddress, handler: Arc<Handler>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let address = Arc::new(address);
    loop {
        let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, Arc::clone(&address), Arc::clone(&handler));
                tokio::spawn(async move {
                    // A request that takes too long gets no response.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                    drop(permit);
                });
            }
            Err(error) => {
                debug!(%address, error = &error as &dyn std::error::Error, "no connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
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

async fn serve(stream: TcpStream, address: Arc<ListenAddress>, handler: Arc<Handler>) {
    let Ok(local) = stream.local_addr() else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let page = page(&request, &address, local, &*handler);
        async move { Ok::<_, Infallible>(response(page)) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // Errors of a connection are the client's problem.
    let _ = connection.await;
}

fn page<B>(
    request: &Request<B>,
    address: &ListenAddress,
    local: SocketAddr,
    handler: &Handler,
) -> PageResponse {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| is_allowed_host(host, address, local.ip())) {
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

/// Whether the header `Host` names this listener. Other names are refused, which prevents DNS rebinding: a site that makes a
/// browser send requests here under the site's own name.
fn is_allowed_host(host: &str, address: &ListenAddress, local: IpAddr) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    match name.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical() == local.to_canonical(),
        Err(_) => name.eq_ignore_ascii_case("localhost") || name.eq_ignore_ascii_case(&address.host),
    }
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
mod tests {
    use std::io::{Read as _, Write as _};

    use super::*;

    fn send_request(port: u16, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        response
    }

    #[test]
    fn only_own_pages_are_served_and_only_under_allowed_host_names() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = ListenAddress { host: "127.0.0.1".to_owned(), port };
        let handler: Arc<Handler> =
            Arc::new(|path| (path == "/page").then(|| PageResponse::ok("text/plain", "it".to_owned())));
        let _server = Server::start("test".to_owned(), address, handler, runtime.handle());
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let page = |path: &str, host: &str| {
            send_request(port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"))
        };
        for host in ["127.0.0.1", "localhost:1", &format!("127.0.0.1:{port}")] {
            let response = page("/page", host);
            assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("it"), "{host}: {response}");
            assert!(
                !response.to_lowercase().contains("access-control"),
                "no other site can read it: {response}"
            );
            for header in ["cross-origin-resource-policy: same-origin", "x-content-type-options: nosniff"] {
                assert!(response.contains(header), "{header}: {response}");
            }
        }
        for host in ["evil.example", "127.0.0.2", "", "[::1]"] {
            assert!(page("/page", host).starts_with("HTTP/1.1 421"), "{host}");
        }
        assert!(page("/../etc/passwd", "localhost").starts_with("HTTP/1.1 404"));
        let post_response =
            send_request(port, "POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert!(post_response.starts_with("HTTP/1.1 405"), "{post_response}");
        let long =
            format!("GET /page HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
        assert!(!send_request(port, &long).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_host_is_allowed_by_name_or_by_local_address() {
        let address = ListenAddress { host: "node-7".to_owned(), port: 1 };
        let local = "10.0.0.7".parse().unwrap();
        for host in ["node-7:8888", "NODE-7", "localhost", "10.0.0.7:8888", "[::ffff:10.0.0.7]:8888"] {
            assert!(is_allowed_host(host, &address, local), "{host}");
        }
        for host in ["10.0.0.8", "node-7.evil.example", "[::1]:8888", "127.0.0.1"] {
            assert!(!is_allowed_host(host, &address, local), "{host}");
        }
    }
}
