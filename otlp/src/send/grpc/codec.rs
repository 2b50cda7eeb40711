//! A codec for messages that are already encoded, and for their responses.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use super::exchange::Exchange;
use crate::wire::ExportProfilesServiceResponse;

/// Sends bytes unchanged: a retry is identical to the first attempt.
#[derive(Clone, Debug)]
pub(super) struct ExportCodec(pub(super) Exchange);

impl Codec for ExportCodec {
    type Encode = Bytes;
    type Decode = ExportProfilesServiceResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for ExportCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        // The connection polls this when it is established.
        self.0.mark_started();
        to.put(message);
        Ok(())
    }
}

impl Decoder for ExportCodec {
    type Item = ExportProfilesServiceResponse;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Self::Item>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        Self::Item::decode(bytes).map(Some).map_err(|error| Status::internal(error.to_string()))
    }
}
