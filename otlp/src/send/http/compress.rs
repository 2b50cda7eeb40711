//! Compression of request bodies.

use std::io::{self, Write};

use bytes::Bytes;
use flate2::write::GzEncoder;
use http::HeaderValue;

use sidewinder_config::Compression;

/// As for gRPC: profiles are sent every few seconds, and higher levels gain little.
const GZIP_LEVEL: u32 = 6;
const ZSTD_LEVEL: i32 = 3;

pub(super) fn compress(message: Bytes, compression: Compression) -> io::Result<Bytes> {
    Ok(match compression {
        Compression::None => message,
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), flate2::Compression::new(GZIP_LEVEL));
            encoder.write_all(&message)?;
            encoder.finish()?.into()
        }
        Compression::Zstd => zstd::bulk::compress(&message, ZSTD_LEVEL)?.into(),
    })
}

pub(super) fn content_encoding(compression: Compression) -> Option<HeaderValue> {
    match compression {
        Compression::None => None,
        Compression::Gzip => Some(HeaderValue::from_static("gzip")),
        Compression::Zstd => Some(HeaderValue::from_static("zstd")),
    }
}
