//! The 32-byte header that points to a payload.

use sidewinder_address::Avma;

use super::error::ContextError;
use crate::memory::ForeignMemory;

/// Bytes of a header.
pub(super) const HEADER_BYTES: usize = 32;
/// The first bytes of a header.
pub(super) const SIGNATURE: &[u8; 8] = b"OTEL_CTX";
/// The supported version of the layout.
pub(super) const VERSION: u32 = 2;
/// The longest payload that is read, in bytes.
const PAYLOAD_BYTES_MAX: u32 = 64 << 10;

/// Fields in memory order, in the byte order of the host: signature, version, length of the payload in bytes, publication
/// time, address of the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ContextHeader {
    payload_bytes: u32,
    /// 0: not published yet, or being changed.
    pub(super) published_ns: u64,
    pub(super) payload: Avma,
}

impl ContextHeader {
    /// Reads a header; `None` if the memory is not, or no longer, that of a context.
    pub(super) fn read(memory: &impl ForeignMemory, at: Avma) -> Result<Option<Self>, ContextError> {
        let mut bytes = [0; HEADER_BYTES];
        memory.read_exact(at, &mut bytes).map_err(ContextError::Unreadable)?;
        Self::parse(&bytes)
    }

    fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Option<Self>, ContextError> {
        let half =
            |at: usize| bytes[at..at + 4].iter().rev().fold(0, |half, byte| half << 8 | u32::from(*byte));
        let word = |at: usize| u64::from(half(at + 4)) << 32 | u64::from(half(at));
        if &bytes[..8] != SIGNATURE {
            return Ok(None);
        }
        match half(8) {
            VERSION => {
                Ok(Some(Self { payload_bytes: half(12), published_ns: word(16), payload: Avma(word(24)) }))
            }
            other => Err(ContextError::Version(other)),
        }
    }

    pub(super) fn is_being_changed(&self) -> bool {
        self.published_ns == 0
    }

    /// The length of the payload, if it is valid.
    pub(super) fn payload_bytes(&self) -> Result<usize, ContextError> {
        match self.payload_bytes {
            bytes @ 0..=PAYLOAD_BYTES_MAX => Ok(bytes as usize),
            bytes => Err(ContextError::TooLong(bytes)),
        }
    }
}
