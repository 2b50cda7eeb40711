//! Messages that are encoded already, and their answers.

use bytes::{Buf, BufMut, Bytes};
use prost::Message;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

use crate::wire::ExportProfilesServiceResponse;

/// Sends bytes as they are: a second attempt is identical to the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExportCodec;

impl Codec for ExportCodec {
    type Encode = Bytes;
    type Decode = ExportProfilesServiceResponse;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ExportCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
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
