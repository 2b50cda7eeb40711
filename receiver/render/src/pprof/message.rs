//! Writes a message of pprof's field by field, compressed, so that it is never in memory as a whole.

use std::io::{self, BufWriter, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

/// The numbers of the fields that are written one by one. Each takes one byte, with its wire type.
pub(super) mod field {
    pub(crate) const SAMPLE: u8 = 2;
    pub(crate) const MAPPING: u8 = 3;
    pub(crate) const LOCATION: u8 = 4;
    pub(crate) const FUNCTION: u8 = 5;
    pub(crate) const STRING: u8 = 6;
}

/// How many bytes are compressed at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// The wire type of strings and messages.
const LENGTH_DELIMITED: u8 = 2;

/// A message that is being written.
pub(super) struct MessageWriter<W: Write> {
    /// Compression takes its time for each piece, however short.
    out: BufWriter<GzEncoder<W>>,
    /// The field that is encoded, without its key.
    encoded: Vec<u8>,
}

impl<W: Write> MessageWriter<W> {
    pub(super) fn new(out: W) -> Self {
        let out = BufWriter::with_capacity(BUFFER_BYTES, GzEncoder::new(out, Compression::default()));
        Self { out, encoded: Vec::new() }
    }

    /// Writes the fields of this part of the message. Parts that follow each other are one message.
    pub(super) fn write(&mut self, part: &impl Message) -> io::Result<()> {
        self.out.write_all(&part.encode_to_vec())
    }

    /// Writes one of a repeated field.
    pub(super) fn write_field(&mut self, number: u8, value: &impl Message) -> io::Result<()> {
        self.encoded.clear();
        value.encode_length_delimited(&mut self.encoded)?;
        self.out.write_all(&[key(number)])?;
        self.out.write_all(&self.encoded)
    }

    /// The same for a string.
    pub(super) fn write_bytes(&mut self, number: u8, value: &[u8]) -> io::Result<()> {
        self.encoded.clear();
        prost::encode_length_delimiter(value.len(), &mut self.encoded)?;
        self.out.write_all(&[key(number)])?;
        self.out.write_all(&self.encoded)?;
        self.out.write_all(value)
    }

    pub(super) fn finish(self) -> io::Result<()> {
        self.out.into_inner()?.finish()?.flush()
    }
}

const fn key(field_number: u8) -> u8 {
    field_number << 3 | LENGTH_DELIMITED
}
