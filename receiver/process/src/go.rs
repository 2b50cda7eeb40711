//! Go programs: their Go version, and the offsets of goroutine data in the runtime's structures.

use std::io;

use crate::arch;
use crate::read_at::ReadAt;
use crate::tls::{TlsSymbol, read_section};

/// `cmd/internal/buildinfo`: the first bytes of the section.
const MAGIC: &[u8] = b"\xff Go buildinf:";
/// The flag for strings that follow in the section (Go 1.18).
const HAS_STRINGS: u8 = 2;
const HEADER_BYTES: usize = 32;
const SECTION_BYTES_MAX: usize = 4096;

/// Offsets that lead to the labels of the goroutine that a thread runs: `g.m`, `m.curg`, `g.labels`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GoLabels {
    /// The offset of the thread's `g` from the thread pointer; `None`: it is in a register alone.
    pub g: Option<i64>,
    /// The offset of `curg` in an `m`.
    pub curg: u16,
    /// The offset of `labels` in a `g`.
    pub labels: u16,
    /// Whether labels are a slice, or a map.
    pub is_slice: bool,
}

impl GoLabels {
    /// Reads a file; `None` if it isn't a Go program, or its version is not supported: 1.21 to 1.26 are.
    ///
    /// # Errors
    /// Any I/O error of the file.
    pub fn read(file: &impl ReadAt) -> io::Result<Option<Self>> {
        let Some(info) = read_section(file, b".go.buildinfo", SECTION_BYTES_MAX)? else { return Ok(None) };
        let Some((curg, labels, is_slice)) = minor_version(&info).and_then(offsets) else { return Ok(None) };
        // If another linker was involved, as with cgo, that linker has placed the word.
        let g = match TlsSymbol::read_any(file, arch::GO_G_SYMBOL)? {
            Some(symbol) => symbol.offset_in_program(),
            None => None,
        };
        Ok(Some(Self { g: g.or(arch::GO_G_OFFSET), curg, labels, is_slice }))
    }
}

/// The version of Go that a program was compiled with, for example `go1.23.1`; `None` if it isn't a Go program, or one of a version
/// before 1.18.
///
/// # Errors
/// Any I/O error of the file.
pub fn read_go_version(file: &impl ReadAt) -> io::Result<Option<String>> {
    let info = read_section(file, b".go.buildinfo", SECTION_BYTES_MAX)?;
    Ok(info.and_then(|info| version(&info).map(str::to_owned)))
}

/// The `N` of version `1.N`.
fn minor_version(info: &[u8]) -> Option<u32> {
    let minor = version(info)?.strip_prefix("go1.")?;
    minor.split(|digit: char| !digit.is_ascii_digit()).next()?.parse().ok()
}

/// The version, in the format of `debug/buildinfo`: a header, followed by the version as a length-prefixed string.
fn version(info: &[u8]) -> Option<&str> {
    let rest = info.strip_prefix(MAGIC)?;
    if rest.get(1)? & HAS_STRINGS == 0 {
        return None;
    }
    let strings = info.get(HEADER_BYTES..)?;
    let (length, text) = strings.split_first()?;
    std::str::from_utf8(text.get(..usize::from(*length).min(32))?).ok()
}

/// The offsets of `m.curg` and `g.labels`, from the debug information of programs of each version on amd64, and whether
/// labels are a slice.
fn offsets(minor: u32) -> Option<(u16, u16, bool)> {
    match minor {
        21 | 22 => Some((192, 344, false)),
        23 => Some((192, 352, false)),
        24 => Some((192, 352, true)),
        25 => Some((184, 344, true)),
        26 => Some((184, 352, true)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_from_what_the_linker_left() {
        let info = |flags: u8, version: &[u8]| {
            let mut info = MAGIC.to_vec();
            info.extend([8, flags]);
            info.resize(HEADER_BYTES, 0);
            info.push(version.len() as u8);
            info.extend(version);
            minor_version(&info)
        };
        assert_eq!(info(2, b"go1.21.13"), Some(21));
        assert_eq!(info(2, b"go1.26"), Some(26));
        assert_eq!(info(2, b"go1.25rc1"), Some(25));
        assert_eq!(info(2, b"devel +abc"), None);
        assert_eq!(info(0, b"go1.17"), None);
        assert_eq!(minor_version(b""), None);
        assert_eq!(minor_version(MAGIC), None);
    }
}
