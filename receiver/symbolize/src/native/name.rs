//! Reads names from a file.

use std::io;
use std::ops::Range;

use crate::error::SymbolTableError;
use crate::image::Image;

/// Reads the name at an offset of a table's strings, and whether it is longer than `limit` bytes and was cut.
///
/// # Errors
/// [`SymbolTableError::Read`] if the name lies outside the strings or can't be read.
pub(super) fn read_name(
    image: &Image,
    strings: Range<u64>,
    offset: u32,
    limit: usize,
) -> Result<(Vec<u8>, bool), SymbolTableError> {
    let missing = |offset, source| SymbolTableError::Read { what: "symbol name", offset, source };
    let at = strings
        .start
        .checked_add(u64::from(offset))
        .filter(|at| *at < strings.end)
        .ok_or_else(|| missing(strings.start, io::ErrorKind::UnexpectedEof.into()))?;
    let room = usize::try_from(strings.end - at).unwrap_or(usize::MAX);
    image.read_c_string(at, limit.min(room)).map_err(|source| missing(at, source))
}
