//! Encoded messages, before their content is read: where they are in a file, how large they may be, and why one can't be read.

mod size;

/// The maximum size of a message.
pub const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// The memory that decoding may take for each byte of a message: three times as much as messages of profilers.
const DECODED_BYTES_PER_BYTE: usize = 32;

/// The memory in bytes that decoding may take in any case.
const DECODED_BYTES_MIN: usize = 32 << 20;

/// Why bytes could not be decoded.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// Not a protobuf message of this type.
    #[error("not a ProfilesData message")]
    NotProfiles(#[from] prost::DecodeError),
    /// More than [`MAX_MESSAGE_BYTES`].
    #[error("a message of {0} bytes exceeds {MAX_MESSAGE_BYTES}")]
    TooLong(usize),
    /// Decoded, it would take more memory than its size allows.
    #[error(
        "a message of {bytes} bytes has so many entries that it takes more than {limit_mib} MiB, the limit for its size"
    )]
    Expands {
        /// The size of the message.
        bytes: usize,
        /// The limit for a message of this size.
        limit_mib: usize,
    },
    /// The file ends within a message or its length prefix.
    #[error("the message at byte {offset} needs {needed} bytes, but the file has only {left} left")]
    CutOff {
        /// The offset of the message or its length prefix.
        offset: usize,
        /// The number of bytes required from there.
        needed: usize,
        /// The number of bytes available.
        left: usize,
    },
    /// An index outside its table.
    #[error("index {index} lies outside of the {table} table of {len}")]
    IndexOutOfRange {
        /// The table.
        table: &'static str,
        /// The index.
        index: i32,
        /// The length of the table.
        len: usize,
    },
    /// Its profiles are of more types than are told apart.
    #[error("its profiles are of more than {0} types")]
    TooManyTypes(usize),
    /// A sample has values and timestamps, but not the same number of each.
    #[error("a sample has {values} values for {timestamps} timestamps")]
    UnequalLengths {
        /// The number of values.
        values: usize,
        /// The number of timestamps.
        timestamps: usize,
    },
}

/// Refuses messages of one document that are too large or expand to too much. They share the limits of one.
pub(crate) fn check_sizes<'a>(
    messages: impl Iterator<Item = Result<&'a [u8], DecodeError>>,
) -> Result<(), DecodeError> {
    let (mut bytes, mut decoded_bytes) = (0_usize, 0_usize);
    for message in messages {
        let message = message?;
        bytes = bytes.saturating_add(message.len());
        if bytes > MAX_MESSAGE_BYTES {
            return Err(DecodeError::TooLong(bytes));
        }
        decoded_bytes = decoded_bytes.saturating_add(size::decoded_bytes(message));
    }
    let limit_bytes = DECODED_BYTES_MIN.saturating_add(bytes.saturating_mul(DECODED_BYTES_PER_BYTE));
    if decoded_bytes > limit_bytes {
        return Err(DecodeError::Expands { bytes, limit_mib: limit_bytes >> 20 });
    }
    Ok(())
}

/// Whether a file is in the format of the Collector's file exporter, rather than one message: that begins with the number of a
/// field, which is at least 1, and the other with the highest byte of a length, which is less than 8 for up to 128 MiB.
#[must_use]
pub fn is_collector_file(bytes: &[u8]) -> bool {
    const FIELD_SHIFT: u32 = 3;
    bytes.first().is_some_and(|first| first >> FIELD_SHIFT == 0)
}

/// Splits a file in the format of the Collector's file exporter with `format: proto` into its messages: each follows its
/// length in four bytes, big-endian.
///
/// A file that ends within a message, such as one still being written, ends with an error.
pub fn file_messages(bytes: &[u8]) -> impl Iterator<Item = Result<&[u8], DecodeError>> + Clone {
    let mut offset = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(offset..).filter(|rest| !rest.is_empty())?;
        let cut_off = |needed| DecodeError::CutOff { offset, needed, left: rest.len() };
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            let error = cut_off(4);
            offset = bytes.len();
            return Some(Err(error));
        };
        let length = u32::from_be_bytes(*length) as usize;
        let Some(message) = rest.get(..length) else {
            let error = cut_off(length.saturating_add(4));
            offset = bytes.len();
            return Some(Err(error));
        };
        offset += 4 + length;
        Some(Ok(message))
    })
}

/// The element of a table at `index`.
pub(crate) fn at<'a, T>(table: &'static str, values: &'a [T], index: i32) -> Result<&'a T, DecodeError> {
    let len = values.len();
    usize::try_from(index).ok().and_then(|index| values.get(index)).ok_or(DecodeError::IndexOutOfRange {
        table,
        index,
        len,
    })
}
