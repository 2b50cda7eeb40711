//! Small pages over HTTP: one listener each, bounded in everything.

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

/// Requests that are answered at a time; more wait.
const CONNECTIONS_MAX: usize = 8;
/// From a connection to the end of its answer.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// A request's line and headers.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// A port that is taken is tried again this often.
const BIND_RETRY_INTERVAL: Duration = Duration::from_secs(10);

/// What pages without scripts may do.
const STRICT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'";
/// A page that states its own policy is in no other site's frame; that a page can't state.
const SELF_DECLARED_POLICY: &str = "frame-ancestors 'none'";

/// What a path is answered with.
pub(crate) struct PageResponse {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
    /// What the browser lets it do.
    pub(crate) policy: &'static str,
}

impl PageResponse {
    pub(crate) fn ok(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        Self { status: StatusCode::OK, content_type, body: body.into(), policy: STRICT_POLICY }
    }

    /// A document that states its own policy.
    pub(crate) fn with_own_policy(body: impl Into<Bytes>) -> Self {
        Self { policy: SELF_DECLARED_POLICY, ..Self::ok("text/html; charset=utf-8", body) }
    }

    pub(crate) fn text(status: StatusCode, words: &str) -> Self {
        Self { status, ..Self::ok("text/plain; charset=utf-8", format!("{words}\n")) }
    }
}

/// Answers for a path; `None`: there is no such page.
pub(crate) type Handler = dyn Fn(&str) -> Option<PageResponse> + Send + Sync;

/// Listens until it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    accept_task: JoinHandle<()>,
}

impl Server {
    /// Listens at `address`, now or as soon as the port is free: a port that another program has is a warning.
    pub(crate) fn start(
        what: String,
        address: ListenAddress,
        answer: Arc<Handler>,
        runtime: &Handle,
    ) -> Self {
        let accepting = runtime.spawn(async move {
            let listener = listener(&what, &address).await;
            accept(listener, address, answer).await;
        });
        Self { accept_task: accepting }
    }

    /// Listens on a free port of this machine, for nobody else, and says which.
    pub(crate) fn start_on_free_port(
        answer: Arc<Handler>,
        runtime: &Handle,
    ) -> io::Result<(Self, SocketAddr)> {
        let host = Ipv4Addr::LOCALHOST;
        let listener = runtime.block_on(TcpListener::bind((host, 0)))?;
        let local = listener.local_addr()?;
        let address = ListenAddress { host: host.to_string(), port: local.port() };
        let accepting = runtime.spawn(accept(listener, address, answer));
        Ok((Self { accept_task: accepting }, local))
    }
}

async fn accept(listener: TcpListener, address: ListenAddress, answer: Arc<Handler>) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let address = Arc::new(address);
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let connection = serve(stream, Arc::clone(&address), Arc::clone(&answer));
                tokio::spawn(async move {
                    // Who asks too slowly gets no answer.
                    let _ = tokio::time::timeout(CONNECTION_TIMEOUT, connection).await;
                    drop(turn);
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
    let mut is_told = false;
    loop {
        match bind(address).await {
            Ok(listener) => {
                if is_told {
                    warn!(what, %address, "the port is free now: listening");
                }
                return listener;
            }
            Err(error) if !std::mem::replace(&mut is_told, true) => {
                warn!(what, %address, error = &error as &dyn std::error::Error, "can't listen, trying again");
            }
            Err(_) => {}
        }
        tokio::time::sleep(BIND_RETRY_INTERVAL).await;
    }
}

async fn bind(address: &ListenAddress) -> io::Result<TcpListener> {
    if !address.host.is_empty() {
        return TcpListener::bind((address.host.as_str(), address.port)).await;
    }
    // Every interface: that of IPv6 takes IPv4 too, where there is one.
    match TcpListener::bind(("::", address.port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            TcpListener::bind(("0.0.0.0", address.port)).await
        }
        bound => bound,
    }
}

async fn serve(stream: TcpStream, address: Arc<ListenAddress>, answer: Arc<Handler>) {
    let Ok(local) = stream.local_addr() else { return };
    let service = service_fn(move |request: Request<Incoming>| {
        let page = page(&request, &address, local, &*answer);
        async move { Ok::<_, Infallible>(response(page)) }
    });
    let connection = http1::Builder::new()
        .keep_alive(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    // What goes wrong here is the caller's.
    let _ = connection.await;
}

fn page<B>(
    request: &Request<B>,
    address: &ListenAddress,
    local: SocketAddr,
    answer: &Handler,
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
    answer(request.uri().path()).unwrap_or_else(|| PageResponse::text(StatusCode::NOT_FOUND, "no such page"))
}

/// Whether the header `Host` names this listener: a page that some site makes a browser ask for under that site's name
/// (DNS rebinding) is not answered.
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
    // What is here is no other site's, not even as a picture or a script.
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

    fn ask(port: u16, request: &str) -> String {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn only_its_own_pages_are_served_and_only_to_who_calls_it_by_its_name() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = ListenAddress { host: "127.0.0.1".to_owned(), port };
        let answer: Arc<Handler> =
            Arc::new(|path| (path == "/page").then(|| PageResponse::ok("text/plain", "it".to_owned())));
        let _server = Server::start("test".to_owned(), address, answer, runtime.handle());
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let page =
            |path: &str, host: &str| ask(port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        for host in ["127.0.0.1", "localhost:1", &format!("127.0.0.1:{port}")] {
            let answer = page("/page", host);
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("it"), "{host}: {answer}");
            assert!(!answer.to_lowercase().contains("access-control"), "no other site reads it: {answer}");
            for header in ["cross-origin-resource-policy: same-origin", "x-content-type-options: nosniff"] {
                assert!(answer.contains(header), "{header}: {answer}");
            }
        }
        for host in ["evil.example", "127.0.0.2", "", "[::1]"] {
            assert!(page("/page", host).starts_with("HTTP/1.1 421"), "{host}");
        }
        assert!(page("/../etc/passwd", "localhost").starts_with("HTTP/1.1 404"));
        let posted = ask(port, "POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
        assert!(posted.starts_with("HTTP/1.1 405"), "{posted}");
        let long =
            format!("GET /page HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "x".repeat(2 * HEAD_BYTES_MAX));
        assert!(!ask(port, &long).starts_with("HTTP/1.1 200"));
    }

    #[test]
    fn a_host_is_ours_by_name_or_by_the_address_that_was_reached() {
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
