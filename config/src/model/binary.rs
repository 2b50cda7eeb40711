//! Selects a binary by name, path or build ID.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// The binaries that a rule applies to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BinaryMatch {
    /// The last component of the path equals this.
    Name(String),
    /// The whole path, as the process sees it, equals this.
    Path(PathBuf),
    /// The GNU build ID equals this.
    BuildId(GnuBuildId),
}

/// A GNU build ID: 1 to 64 bytes, written in hexadecimal.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct GnuBuildId(Vec<u8>);

impl GnuBuildId {
    const MAX_BYTES: usize = 64;

    /// The bytes of the note's descriptor.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Why a text is not a build ID.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a build ID is 1 to 64 bytes in hexadecimal, two digits each")]
pub struct BuildIdError;

impl FromStr for GnuBuildId {
    type Err = BuildIdError;

    fn from_str(text: &str) -> Result<Self, BuildIdError> {
        if text.is_empty() || text.len() > 2 * Self::MAX_BYTES {
            return Err(BuildIdError);
        }
        hex::decode(text).map(Self).map_err(|_| BuildIdError)
    }
}

impl fmt::Display for GnuBuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for GnuBuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_build_id_is_whole_bytes_of_hexadecimal() {
        let id: GnuBuildId = "00aBff".parse().unwrap();
        assert_eq!(id.as_bytes(), [0x00, 0xab, 0xff]);
        assert_eq!(id.to_string(), "00abff");
        for text in ["", "a", "xy", "0x12", &"00".repeat(65)] {
            assert_eq!(text.parse::<GnuBuildId>(), Err(BuildIdError), "{text:?}");
        }
    }
}
