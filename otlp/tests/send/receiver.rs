//! A receiver of profiles with scripted replies, over a real connection.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{TcpListenerStream, UnixListenerStream};
use tonic::body::Body;
use tonic::server::NamedService;
use tonic::transport::{Server, ServerTlsConfig};
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};
use tower::Service;

/// A receiver's reply to one request.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// Accepts it.
    Accept,
    /// Accepts it, in a response that is compressed like the request.
    AcceptInKind,
    /// Accepts it except for this number of profiles.
    Partial(i64, &'static str),
    /// Refuses it.
    Refuse(Code, &'static str),
    /// Refuses it and asks for a retry after a delay.
    RefuseFor(Code, Duration),
    /// Refuses it after the headers of a successful response.
    RefuseLate(Code),
    /// Never replies.
    Silence,
    /// A response that isn't a valid message.
    Garbage,
    /// A response that announces this length.
    Announce(u32),
    /// A response that expands to 64 MiB of zeros.
    Bomb,
    /// A response that ends before its status.
    CutOff,
    /// A success status without a message.
    StatusOnly,
    /// An HTTP status, as from a proxy.
    Http(u16),
}

/// One received request.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) headers: HeaderMap,
    pub(crate) authority: Option<String>,
    /// Whether the receiver has it: true unless its reply says otherwise.
    pub(crate) is_taken: bool,
    /// Uncompressed.
    pub(crate) message: Bytes,
}

/// Runs until it is dropped. Accepts everything when there are no replies left.
pub(crate) struct Receiver {
    pub(crate) endpoint: String,
    script: Script,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Receiver {
    pub(crate) async fn start(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::on_tcp(answers, Server::builder(), "127.0.0.1:0").await
    }

    pub(crate) async fn at(address: &str, answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::on_tcp(answers, Server::builder(), address).await
    }

    pub(crate) async fn with_tls(tls: ServerTlsConfig) -> Self {
        Self::with_tls_at(tls, "127.0.0.1:0").await
    }

    pub(crate) async fn with_tls_at(tls: ServerTlsConfig, address: &str) -> Self {
        Self::on_tcp([], Server::builder().tls_config(tls).unwrap(), address).await
    }

    async fn on_tcp(answers: impl IntoIterator<Item = Answer>, mut server: Server, address: &str) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let script = Script::new(answers);
        let router = server.add_service(script.clone());
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async { drop(stopped.await) };
        let server = tokio::spawn(async move {
            let incoming = TcpListenerStream::new(listener);
            router.serve_with_incoming_shutdown(incoming, stopped).await.unwrap();
        });
        Self { endpoint: address.to_string(), script, stop: Some(stop), server }
    }

    pub(crate) fn on_unix_socket(path: &Path) -> Self {
        let listener = UnixListener::bind(path).unwrap();
        let script = Script::new([]);
        let router = Server::builder().add_service(script.clone());
        let server = tokio::spawn(async move {
            router.serve_with_incoming(UnixListenerStream::new(listener)).await.unwrap();
        });
        Self { endpoint: format!("unix://{}", path.to_string_lossy()), script, stop: None, server }
    }

    /// Shuts down all connections gracefully, and ends.
    pub(crate) async fn disconnect(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        (&mut self.server).await.unwrap();
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.script.0.lock().unwrap().received.clone()
    }
}

#[derive(Clone)]
struct Script(Arc<Mutex<Progress>>);

struct Progress {
    answers: VecDeque<Answer>,
    received: Vec<Received>,
}

impl Script {
    fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers = answers.into_iter().collect();
        Self(Arc::new(Mutex::new(Progress { answers, received: Vec::new() })))
    }

    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        let encoding = head.headers.get("grpc-encoding").cloned();
        let message = unframed(body, encoding.as_ref());
        let answer = {
            let mut progress = self.0.lock().unwrap();
            let answer = progress.answers.pop_front().unwrap_or(Answer::Accept);
            let is_taken = !matches!(
                answer,
                Answer::Refuse(..) | Answer::RefuseFor(..) | Answer::RefuseLate(_) | Answer::Http(_)
            );
            progress.received.push(Received {
                headers: head.headers,
                authority: head.uri.authority().map(ToString::to_string),
                is_taken,
                message,
            });
            answer
        };
        match answer {
            Answer::Accept => grpc(framed(0, &[]), Some(Code::Ok)),
            Answer::AcceptInKind => {
                let mut response = grpc(framed(1, &compressed(&[], encoding.as_ref())), Some(Code::Ok));
                response.headers_mut().insert("grpc-encoding", encoding.unwrap());
                response
            }
            Answer::Partial(rejected, message) => {
                grpc(framed(0, &partial_success(rejected, message)), Some(Code::Ok))
            }
            Answer::Refuse(code, message) => Status::new(code, message).into_http(),
            Answer::RefuseFor(code, delay) => {
                Status::with_error_details(code, "busy", ErrorDetails::with_retry_info(Some(delay)))
                    .into_http()
            }
            Answer::RefuseLate(code) => grpc(Bytes::new(), Some(code)),
            Answer::Silence => std::future::pending().await,
            Answer::Garbage => grpc(framed(0, b"\xff\xff\xff\xff"), Some(Code::Ok)),
            Answer::Announce(length) => {
                grpc(Bytes::from([&[0], &length.to_be_bytes()[..]].concat()), Some(Code::Ok))
            }
            Answer::Bomb => {
                let gzip = HeaderValue::from_static("gzip");
                let bomb = compressed(&vec![0; 64 << 20], Some(&gzip));
                let mut response = grpc(framed(1, &bomb), Some(Code::Ok));
                response.headers_mut().insert("grpc-encoding", gzip);
                response
            }
            Answer::CutOff => grpc(framed(0, &[]).slice(..3), None),
            Answer::StatusOnly => grpc(Bytes::new(), Some(Code::Ok)),
            Answer::Http(status) => {
                Response::builder().status(status).body(Body::new(Empty::<Bytes>::new())).unwrap()
            }
        }
    }
}

/// A response with a body and possibly a status after it.
fn grpc(body: Bytes, code: Option<Code>) -> Response<Body> {
    let trailers = code.map(|code| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", HeaderValue::from(code as i32));
        Ok(trailers)
    });
    let body = Full::new(body).with_trailers(async { trailers });
    Response::builder().header("content-type", "application/grpc").body(Body::new(body)).unwrap()
}

/// A message with the gRPC message header.
fn framed(compressed: u8, message: &[u8]) -> Bytes {
    let length = (message.len() as u32).to_be_bytes();
    Bytes::from([&[compressed], &length[..], message].concat())
}

fn unframed(mut body: Bytes, encoding: Option<&HeaderValue>) -> Bytes {
    let compressed = body.get_u8();
    assert_eq!(body.get_u32() as usize, body.len());
    if compressed == 0 {
        return body;
    }
    let mut message = Vec::new();
    match encoding.unwrap().to_str().unwrap() {
        "gzip" => flate2::read::GzDecoder::new(body.reader()).read_to_end(&mut message).map(|_| ()),
        "zstd" => zstd::stream::copy_decode(body.reader(), &mut message),
        other => unreachable!("encoding {other}"),
    }
    .unwrap();
    message.into()
}

fn compressed(message: &[u8], encoding: Option<&HeaderValue>) -> Vec<u8> {
    let mut out = Vec::new();
    match encoding.unwrap().to_str().unwrap() {
        "gzip" => flate2::read::GzEncoder::new(message, flate2::Compression::fast())
            .read_to_end(&mut out)
            .map(|_| ()),
        "zstd" => zstd::stream::copy_encode(message, &mut out, 1),
        other => unreachable!("encoding {other}"),
    }
    .unwrap();
    out
}

/// An encoded `ExportProfilesServiceResponse`.
pub(crate) fn partial_success(rejected_profiles: i64, message: &str) -> Vec<u8> {
    #[derive(prost::Message)]
    struct PartialSuccess {
        #[prost(int64, tag = "1")]
        rejected_profiles: i64,
        #[prost(string, tag = "2")]
        error_message: String,
    }
    #[derive(prost::Message)]
    struct ExportResponse {
        #[prost(message, tag = "1")]
        partial_success: Option<PartialSuccess>,
    }
    let error_message = message.to_owned();
    let partial_success = Some(PartialSuccess { rejected_profiles, error_message });
    prost::Message::encode_to_vec(&ExportResponse { partial_success })
}

impl NamedService for Script {
    const NAME: &'static str = "opentelemetry.proto.collector.profiles.v1development.ProfilesService";
}

impl Service<Request<Body>> for Script {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let answer = self.clone().answer(request);
        Box::pin(async { Ok(answer.await) })
    }
}
