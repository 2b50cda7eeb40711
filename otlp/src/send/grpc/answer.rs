//! Whether a receiver has answered.
//!
//! An error of the client library may be the receiver's own status or the library's opinion about
//! what came, or did not come, over the connection. Only the first says that a request was refused.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt;
use tonic::Code;
use tonic::body::Body;
use tower::Service;

/// The status that the receiver of one request gave, if it came that far.
///
/// Travels with the request as an extension.
#[derive(Clone, Default, Debug)]
pub(super) struct Answered(Arc<OnceLock<Code>>);

impl Answered {
    pub(super) fn code(&self) -> Option<Code> {
        self.0.get().copied()
    }

    fn look_at(&self, headers: &HeaderMap) {
        if let Some(status) = headers.get("grpc-status") {
            // The first one counts, as for the client library.
            let _ = self.0.set(Code::from_bytes(status.as_bytes()));
        }
    }
}

/// A service that notes the status of each response in the request's [`Answered`].
#[derive(Clone, Debug)]
pub(super) struct AnswerRecorder<S>(pub(super) S);

impl<S> Service<Request<Body>> for AnswerRecorder<S>
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
        let answered = request.extensions().get::<Answered>().cloned().unwrap_or_default();
        let response = self.0.call(request);
        Box::pin(async move {
            let response = response.await?;
            answered.look_at(response.headers());
            Ok(response.map(|body| {
                Body::new(body.map_frame(move |frame| {
                    if let Some(trailers) = frame.trailers_ref() {
                        answered.look_at(trailers);
                    }
                    frame
                }))
            }))
        })
    }
}
