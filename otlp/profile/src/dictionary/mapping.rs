//! Mappings and links.

use crate::attributes::{Value, key};
use crate::index::{AttributeSetIndex, StringIndex};

/// A range of a file that is mapped into memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Mapping {
    /// The address of its first byte. Less than `memory_limit`, or both are 0 if it has no addresses.
    pub memory_start: u64,
    /// The address after its last byte.
    pub memory_limit: u64,
    /// The file offset of its first byte.
    pub file_offset: u64,
    /// The path of the file as the profiled process sees it; `[kernel]`, `[vdso]` or `[module]` if it has none.
    pub filename: StringIndex,
    /// Its [`BuildIds`].
    pub attributes: AttributeSetIndex,
}

/// What identifies the file of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BuildIds<'a> {
    /// In hexadecimal digits: the first 16 bytes of SHA-256 over the first 4096 bytes of the file, its last 4096 bytes
    /// and its length as a big-endian `u64`. A mapping of a message needs it.
    pub htlhash: Option<&'a str>,
    /// The GNU build ID in hexadecimal digits.
    pub gnu: Option<&'a str>,
    /// The Go build ID.
    pub go: Option<&'a str>,
}

impl<'a> BuildIds<'a> {
    pub(super) fn attributes(&self) -> impl Iterator<Item = (&'a str, Value<'a>)> + use<'a> {
        let all = [
            (key::BUILD_ID_HTLHASH, self.htlhash),
            (key::BUILD_ID_GNU, self.gnu),
            (key::BUILD_ID_GO, self.go),
        ];
        all.into_iter().filter_map(|(key, id)| Some((key, Value::Str(id?))))
    }
}

/// The span of a trace that was active.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Link {
    /// The trace ID; never all zero.
    pub trace_id: [u8; 16],
    /// The span ID; never all zero.
    pub span_id: [u8; 8],
}

impl Link {
    /// Whether both IDs are valid.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        self.trace_id != [0; 16] && self.span_id != [0; 8]
    }
}
