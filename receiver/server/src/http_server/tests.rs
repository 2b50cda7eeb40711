use std::io::{Read as _, Write as _};

use tokio::runtime::Runtime;

use super::*;

/// Longer than an answer takes, and shorter than any timeout of the server.
const PATIENCE: Duration = Duration::from_secs(5);

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap()
}

/// A connection on which this was sent.
pub(crate) fn connect(port: u16, bytes: &[u8]) -> std::net::TcpStream {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(bytes).unwrap();
    stream
}

/// The response to a request; what there is of it if the server stops sending.
pub(crate) fn send_request(port: u16, request: &str) -> String {
    let mut response = Vec::new();
    let _ = connect(port, request.as_bytes()).read_to_end(&mut response);
    String::from_utf8_lossy(&response).into_owned()
}

/// Serves a small and a large page.
fn serve_pages(runtime: &Runtime) -> (Server, u16) {
    let handler: Arc<Handler> = Arc::new(|path| match path {
        "/page" => Some(PageResponse::ok("text/plain", "it")),
        "/large" => Some(PageResponse::ok("text/plain", vec![b'x'; 16 << 20])),
        _ => None,
    });
    let (server, address) = Server::start_on_free_port(handler, runtime.handle()).unwrap();
    (server, address.port())
}

#[test]
fn only_own_pages_are_served_and_only_under_allowed_host_names() {
    let runtime = runtime();
    let (_server, port) = serve_pages(&runtime);
    let page =
        |path: &str, host: &str| send_request(port, &format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
    for host in ["127.0.0.1", "localhost:1", &format!("127.0.0.1:{port}")] {
        let response = page("/page", host);
        assert!(response.starts_with("HTTP/1.1 200") && response.ends_with("it"), "{host}: {response}");
        assert!(!response.to_lowercase().contains("access-control"), "no other site can read it: {response}");
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
fn connections_that_send_no_request_or_read_no_response_do_not_shut_others_out() {
    let runtime = runtime();
    let (_server, port) = serve_pages(&runtime);
    for (why, bytes) in [
        ("connections without a byte", &b""[..]),
        ("half-open requests", b"GET /page HTTP/1.1\r\n"),
        ("responses that are not read", b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n"),
    ] {
        let held: Vec<_> = (0..200).map(|_| connect(port, bytes)).collect();
        let response = send_request(port, "GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert!(response.starts_with("HTTP/1.1 200"), "{why}: {response}");
        drop(held);
    }
}
