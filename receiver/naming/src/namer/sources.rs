//! Where the names of a file come from.

use std::sync::Arc;

use sidewinder_debug_files::DebugRoots;
use sidewinder_debug_files::debuginfod::Fetched;
use sidewinder_process::{OpenedFile, ReadAt as _};
use sidewinder_symbolize::{BinaryFiles, Image};

use sidewinder_message::FileInfo;

/// The sources of a file's names: the file itself, and its debug files.
pub(super) struct SymbolSources<'a> {
    pub(super) info: &'a FileInfo,
    pub(super) roots: &'a DebugRoots,
    /// The debug file of a server.
    pub(super) downloaded: Option<&'a Fetched>,
}

impl BinaryFiles for SymbolSources<'_> {
    fn content(&self) -> std::io::Result<Image> {
        self.info.content.as_ref().map_or(Err(std::io::ErrorKind::NotFound.into()), open_image)
    }

    fn debug_file(&self) -> Option<Image> {
        self.downloaded.map(Fetched::image).or_else(|| self.info.companions.debug_image())
    }

    fn alternate(&self) -> Option<Image> {
        match self.downloaded {
            Some(downloaded) => downloaded.alternate_image(),
            None => self.info.companions.alternate_image(),
        }
    }

    fn package(&self) -> Option<Image> {
        self.split_unit(format!("{}.dwp", self.info.path).as_bytes())
    }

    fn split_unit(&self, path: &[u8]) -> Option<Image> {
        self.info.companions.open_split(path, self.roots).map(Image::from)
    }
}

fn open_image(content: &OpenedFile) -> std::io::Result<Image> {
    match content.file() {
        Some(file) => Ok(Image::from(Arc::clone(file))),
        None => {
            let mut bytes = vec![0; usize::try_from(content.size_bytes()).unwrap_or(0)];
            content.read_exact_at(&mut bytes, 0)?;
            Ok(Image::from(bytes))
        }
    }
}
