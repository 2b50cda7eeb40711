//! What is asked of servers, and what they have.

use std::fs::File;
use std::sync::Arc;

use sidewinder_symbolize::Image;

/// A build ID in hexadecimal digits: a part of URLs, and the name of a directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct BuildIdText(String);

impl BuildIdText {
    /// `None` if it is not 2 to 64 bytes in lower-case digits.
    pub fn new(text: &str) -> Option<Self> {
        let is_digit = |digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
        let is_id =
            (4..=128).contains(&text.len()) && text.len().is_multiple_of(2) && text.bytes().all(is_digit);
        is_id.then(|| Self(text.to_owned()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// What servers have of a binary.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Artifact {
    /// Its debug file.
    DebugInfo,
    /// A source file that it was compiled from, by the absolute path in its debug information.
    Source(String),
}

/// A downloaded file.
#[derive(Clone, Debug)]
pub struct Fetched {
    /// Open for reading.
    pub file: Arc<File>,
    /// The file that it shares debug information with (`.gnu_debugaltlink`).
    pub(crate) alternate: Option<Arc<File>>,
}

impl Fetched {
    /// The file, to be read for names and lines.
    pub fn image(&self) -> Image {
        Image::from(Arc::clone(&self.file))
    }

    /// The file that it shares debug information with, likewise.
    pub fn alternate_image(&self) -> Option<Image> {
        self.alternate.clone().map(Image::from)
    }
}

/// What became of one request.
pub(super) enum FetchOutcome {
    Found(Fetched),
    Absent,
    Failed,
}
