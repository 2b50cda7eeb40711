//! Downloads, directly and through proxies.

use sidewinder_config::TlsClient;
use sidewinder_otlp::send::{DownloadError, DownloadLimits, DownloadOptions, Downloader, Proxies};
use time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::PATIENCE;
use super::http::CONTINUE;
use super::http_receiver::{HttpReceiver, Reply};
use super::tls::Authority;

const FILE: &[u8] = b"debug information";
/// Of user `user` with the password `secret`.
const AUTHORIZATION: &str = "basic dxnlcjpzzwnyzxq=";

fn options(tls: TlsClient, variables: &[(&str, String)]) -> DownloadOptions {
    let limits = DownloadLimits { connect: PATIENCE, silence: PATIENCE, total: PATIENCE, bytes: 1 << 20 };
    let value_of = |name: &str| Some(variables.iter().find(|(variable, _)| *variable == name)?.1.clone());
    DownloadOptions { limits, tls, proxies: Proxies::from_variables(value_of).unwrap() }
}

async fn get(url: &str, options: DownloadOptions) -> Result<Vec<u8>, DownloadError> {
    let mut file = Vec::new();
    Downloader::new(url, options).unwrap().get("/file", &mut file).await?;
    Ok(file)
}

fn served() -> Reply {
    Reply::Status(200, Vec::new(), FILE.to_vec())
}

fn port(url: &str) -> &str {
    url.rsplit(':').next().unwrap().split('/').next().unwrap()
}

/// A proxy that opens tunnels to one server, whatever its clients name, and answers other requests itself.
struct TunnelProxy {
    port: u16,
    requests: tokio::sync::mpsc::UnboundedReceiver<String>,
    _tasks: JoinSet<()>,
}

impl TunnelProxy {
    /// `refusal` is the status with which it opens none.
    async fn before(server: &HttpReceiver, refusal: Option<u16>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, server) =
            (listener.local_addr().unwrap().port(), format!("127.0.0.1:{}", port(&server.url)));
        let (sender, requests) = tokio::sync::mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            loop {
                let (mut client, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(client.read_u8().await.unwrap());
                }
                sender.send(String::from_utf8(head).unwrap().to_ascii_lowercase()).unwrap();
                let status = refusal.unwrap_or(200);
                client.write_all(format!("HTTP/1.1 {status} Reason\r\n\r\n").as_bytes()).await.unwrap();
                if refusal.is_none() {
                    let mut server = TcpStream::connect(&server).await.unwrap();
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                }
            }
        });
        Self { port, requests, _tasks: tasks }
    }
}

#[tokio::test]
async fn a_proxy_is_asked_for_the_whole_url_and_resolves_its_host() {
    let proxy = HttpReceiver::start([served()]).await;
    let variable = format!("http://user:secret@localhost:{}", port(&proxy.url));
    let options = options(TlsClient::default(), &[("http_proxy", variable)]);
    assert_eq!(get("http://files.invalid:8002/debug", options).await.unwrap(), FILE);
    let [request] = <[_; 1]>::try_from(proxy.received()).unwrap();
    assert!(
        request.head.starts_with("get http://files.invalid:8002/debug/file http/1.1\r\n"),
        "{}",
        request.head
    );
    assert_eq!(request.all("host"), ["files.invalid:8002"]);
    assert_eq!(request.all("proxy-authorization"), [AUTHORIZATION]);
}

#[tokio::test]
async fn endless_interim_responses_end_a_download_and_its_connection() {
    let server = HttpReceiver::start([Reply::Endless(CONTINUE)]).await;
    let text = get(&server.url, options(TlsClient::default(), &[])).await.unwrap_err().to_string();
    assert!(text.contains("`100 Continue`"), "{text}");
    while server.ended_by_peer() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_large_file_needs_no_more_than_the_limit_of_its_size() {
    let large = vec![b'x'; 12 << 20];
    let server = HttpReceiver::start([Reply::Status(200, Vec::new(), large.clone())]).await;
    let mut options = options(TlsClient::default(), &[]);
    options.limits.bytes = large.len() as u64;
    assert!(get(&server.url, options).await.unwrap() == large);
}

#[tokio::test]
async fn no_proxy_leads_to_the_server_itself() {
    let server = HttpReceiver::start([served()]).await;
    let variables =
        [("http_proxy", "http://proxy.invalid:1".to_owned()), ("no_proxy", "localhost".to_owned())];
    let url = format!("http://localhost:{}", port(&server.url));
    assert_eq!(get(&url, options(TlsClient::default(), &variables)).await.unwrap(), FILE);
    let [request] = <[_; 1]>::try_from(server.received()).unwrap();
    assert!(request.head.starts_with("get /file http/1.1\r\n"), "{}", request.head);
    let elsewhere = get("http://127.0.0.1:1", options(TlsClient::default(), &variables)).await.unwrap_err();
    assert!(elsewhere.to_string().contains("through the proxy proxy.invalid:1"), "{elsewhere}");
}

#[tokio::test]
async fn a_proxy_of_https_sees_a_tunnel_to_a_host_and_nothing_within() {
    let authority = Authority::new();
    let server =
        HttpReceiver::with_tls(authority.certificate("files.invalid", Duration::days(1)), [served()]).await;
    let mut proxy = TunnelProxy::before(&server, None).await;
    let tls = TlsClient { ca: authority.ca(), ..TlsClient::default() };
    let options = options(tls, &[("HTTPS_PROXY", format!("http://user:secret@127.0.0.1:{}", proxy.port))]);
    assert_eq!(get("https://files.invalid/debug", options).await.unwrap(), FILE);
    let request = proxy.requests.recv().await.unwrap();
    assert!(request.starts_with("connect files.invalid:443 http/1.1\r\n"), "{request}");
    assert!(request.contains(&format!("\r\nproxy-authorization: {AUTHORIZATION}\r\n")), "{request}");
    let [request] = <[_; 1]>::try_from(server.received()).unwrap();
    assert!(request.head.starts_with("get /debug/file http/1.1\r\n"), "{}", request.head);
    assert!(request.all("proxy-authorization").is_empty(), "the server learns no password of the proxy");
}

#[tokio::test]
async fn a_refusal_of_the_proxy_is_the_reason() {
    let authority = Authority::new();
    let server =
        HttpReceiver::with_tls(authority.certificate("files.invalid", Duration::days(1)), [served()]).await;
    for (status, reason) in [(407, "authorization required"), (403, "unsuccessful")] {
        let proxy = TunnelProxy::before(&server, Some(status)).await;
        let variable = format!("http://127.0.0.1:{}", proxy.port);
        let options = options(TlsClient::default(), &[("all_proxy", variable)]);
        let text = get("https://files.invalid/debug", options).await.unwrap_err().to_string();
        assert!(text.contains("through the proxy 127.0.0.1:") && text.contains(reason), "{text}");
    }
    assert_eq!(server.connections(), 0);
}
