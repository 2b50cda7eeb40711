//! OTLP over gRPC.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request, Response};
use prost::Message as _;
use tonic::body::Body;
use tonic::codec::{Codec, CompressionEncoding, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::{Code, Status};

use super::service::{MAX_RECEIVED_BYTES, MISDIRECTED, ProfilesService, Refusal};
use crate::wire::{EXPORT_METHOD, ExportProfilesServiceResponse};

pub(super) async fn answer(service: ProfilesService, request: Request<Body>) -> Response<Body> {
    if request.uri().path() != EXPORT_METHOD {
        return Status::unimplemented("only profiles are received here").into_http();
    }
    let headers = request.headers().clone();
    let mut grpc = tonic::server::Grpc::new(ReceiveCodec)
        .accept_compressed(CompressionEncoding::Gzip)
        .accept_compressed(CompressionEncoding::Zstd)
        .max_decoding_message_size(MAX_RECEIVED_BYTES);
    grpc.unary(Export { service, headers }, request).await
}

pub(super) fn refusal(why: Refusal) -> Response<Body> {
    Status::from(why).into_http()
}

impl From<Refusal> for Status {
    fn from(why: Refusal) -> Self {
        match why {
            Refusal::Invalid(reason) => Self::new(Code::InvalidArgument, reason),
            Refusal::Misdirected => Self::permission_denied(MISDIRECTED),
            Refusal::Busy => Self::unavailable("too many requests at a time"),
        }
    }
}

/// The method, for the headers of one request.
struct Export {
    service: ProfilesService,
    headers: HeaderMap,
}

impl tower::Service<tonic::Request<Bytes>> for Export {
    type Response = tonic::Response<ExportProfilesServiceResponse>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: tonic::Request<Bytes>) -> Self::Future {
        let (service, headers) = (self.service.clone(), std::mem::take(&mut self.headers));
        Box::pin(async move {
            let taken = service.take(&headers, request.get_ref()).await;
            taken.map(tonic::Response::new).map_err(Status::from)
        })
    }
}

/// Leaves messages encoded.
#[derive(Clone, Copy, Debug)]
struct ReceiveCodec;

impl Codec for ReceiveCodec {
    type Encode = ExportProfilesServiceResponse;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ReceiveCodec {
    type Item = ExportProfilesServiceResponse;
    type Error = Status;

    fn encode(&mut self, message: Self::Item, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        message.encode(to).map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for ReceiveCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}
