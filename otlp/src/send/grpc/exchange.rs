//! Records facts about a request that the client library's status doesn't distinguish.
//!
//! A status from the library may be the receiver's own, or a guess about what happened on the connection. Only the former
//! says that a request was refused; and only a request that was at least partly sent can have arrived.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tonic::Code;
use tonic::body::Body;
use tower::Service;

/// One request and its response. It is passed as an extension of the request.
#[derive(Clone, Default, Debug)]
pub(super) struct Exchange(Arc<ExchangeState>);

#[derive(Default, Debug)]
struct ExchangeState {
    started: AtomicBool,
    status: OnceLock<Code>,
}

impl Exchange {
    /// Records that a connection accepts the message.
    pub(super) fn mark_started(&self) {
        self.0.started.store(true, Ordering::Relaxed);
    }

    /// Whether a connection has accepted the message, or part of it.
    pub(super) fn has_started(&self) -> bool {
        self.0.started.load(Ordering::Relaxed)
    }

    /// The status that the receiver sent, if any.
    pub(super) fn status(&self) -> Option<Code> {
        self.0.status.get().copied()
    }

    fn record_status(&self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            // The first one counts, as in the client library.
            let _ = self.0.status.set(Code::from_bytes(status.as_bytes()));
        }
    }
}

/// A service that records the status of each response in the request's [`Exchange`].
#[derive(Clone, Debug)]
pub(super) struct StatusRecorder<S>(pub(super) S);

impl<S> Service<Request<Body>> for StatusRecorder<S>
where
    S: Service<Request<Body>, Response = Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = Response<Body>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let exchange = request.extensions().get::<Exchange>().cloned().unwrap_or_default();
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await?;
            exchange.record_status(response.headers());
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    if let Some(trailers) = frame.trailers_ref() {
                        exchange.record_status(trailers);
                    }
                    frame
                }))
            }))
        })
    }
}
