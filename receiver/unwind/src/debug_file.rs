//! Finds the separate debug file of a binary: the paths to try, and how to verify a candidate.
//!
//! Nothing here opens a file. Callers try the paths of [`DebugFileReference::candidates`], in the order in which GDB
//! tries them, and check each file found with [`DebugFileReference::verify`].

use object::{File, Object as _, ReadRef};

/// The longest build ID and the longest file name that are accepted, in bytes. Linkers write 20, and Linux allows no
/// longer name, and no longer path.
const MAX_BUILD_ID_BYTES: usize = 64;
const MAX_NAME_BYTES: usize = 255;
const MAX_PATH_BYTES: usize = 4096;

/// Where distributions install debug files.
const DEBUG_DIRECTORY: &[u8] = b"usr/lib/debug";

/// A binary's reference to its debug file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct DebugFileReference {
    /// The linker's build ID, which the debug file shares.
    build_id: Option<Vec<u8>>,
    /// The file's name, without directories, and the CRC-32 of its content (`.gnu_debuglink`).
    link: Option<(Vec<u8>, u32)>,
}

/// How to decide whether a file is the debug file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DebugFileMatch {
    /// It is the debug file: both have the same build ID.
    BuildId,
    /// It is the debug file if this is the CRC-32 (IEEE 802.3) of its content.
    Crc(u32),
    /// It is not the debug file.
    Mismatch,
}

impl DebugFileReference {
    /// The reference in a file, or `None` if it has none.
    pub fn from_file<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Option<Self> {
        let build_id = build_id(file).map(<[u8]>::to_vec);
        let link = file.gnu_debuglink().ok().flatten();
        let link = link.filter(|(name, _)| is_plain_name(name)).map(|(name, crc)| (name.to_vec(), crc));
        (build_id.is_some() || link.is_some()).then_some(Self { build_id, link })
    }

    /// The paths at which the debug file of a binary in `directory` may be, relative to the root of the file system
    /// (without a leading slash). There are at most four.
    pub fn candidates(&self, directory: &[u8]) -> impl Iterator<Item = Vec<u8>> {
        let directory = without_root(directory);
        let [by_build_id, by_link] = self.candidates_below(DEBUG_DIRECTORY, directory);
        let beside = self
            .link
            .as_ref()
            .map(|(name, _)| [joined(&[directory, name]), joined(&[directory, b".debug", name])]);
        by_build_id.into_iter().chain(beside.into_iter().flatten()).chain(by_link)
    }

    /// The paths below an additional directory of debug files, as [`candidates`](Self::candidates): by build ID and by
    /// link.
    #[must_use]
    pub fn candidates_below(&self, debug_directory: &[u8], directory: &[u8]) -> [Option<Vec<u8>>; 2] {
        let debug_directory = without_root(debug_directory);
        let by_build_id = self.build_id.as_deref().and_then(|id| by_build_id(debug_directory, id));
        let by_link =
            self.link.as_ref().map(|(name, _)| joined(&[debug_directory, without_root(directory), name]));
        [by_build_id, by_link]
    }

    /// Decides whether `candidate` is the debug file, or how to find out.
    pub fn verify<'data, R: ReadRef<'data>>(&self, candidate: &File<'data, R>) -> DebugFileMatch {
        match (self.build_id.as_deref(), build_id(candidate), &self.link) {
            (Some(ours), Some(theirs), _) if ours == theirs => DebugFileMatch::BuildId,
            (Some(_), Some(_), _) | (_, _, None) => DebugFileMatch::Mismatch,
            (_, _, Some((_, crc))) => DebugFileMatch::Crc(*crc),
        }
    }
}

/// A debug file's reference to the file that holds what it shares with other debug files (`.gnu_debugaltlink`, as dwz
/// writes it).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AlternateReference {
    path: Vec<u8>,
    build_id: Vec<u8>,
}

impl AlternateReference {
    /// The reference in a file, or `None` if it has none.
    pub fn from_file<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Option<Self> {
        let (path, build_id) = file.gnu_debugaltlink().ok().flatten()?;
        let is_sound = !path.is_empty()
            && path.len() <= MAX_PATH_BYTES
            && (2..=MAX_BUILD_ID_BYTES).contains(&build_id.len());
        is_sound.then(|| Self { path: path.to_vec(), build_id: build_id.to_vec() })
    }

    /// The paths at which the file may be for a debug file in `directory`, as [`DebugFileReference::candidates`]: by
    /// build ID, and by the path in the reference, which may lead upwards. Callers that open it must keep it inside the
    /// root.
    pub fn candidates(
        &self,
        debug_directory: Option<&[u8]>,
        directory: &[u8],
    ) -> impl Iterator<Item = Vec<u8>> {
        let debug_directory = without_root(debug_directory.unwrap_or(DEBUG_DIRECTORY));
        let by_path = match self.path.strip_prefix(b"/") {
            Some(path) => path.to_vec(),
            None => joined(&[without_root(directory), &self.path]),
        };
        by_build_id(debug_directory, &self.build_id).into_iter().chain([by_path])
    }

    /// The build ID of the file referred to.
    #[must_use]
    pub fn build_id(&self) -> &[u8] {
        &self.build_id
    }

    /// Whether `candidate` is the file referred to.
    pub fn matches<'data, R: ReadRef<'data>>(&self, candidate: &File<'data, R>) -> bool {
        build_id(candidate) == Some(&*self.build_id)
    }
}

fn by_build_id(debug_directory: &[u8], id: &[u8]) -> Option<Vec<u8>> {
    let (first, rest) = id.split_first()?;
    let name = format!(".build-id/{first:02x}/{}.debug", hex::encode(rest));
    Some(joined(&[debug_directory, name.as_bytes()]))
}

fn without_root(directory: &[u8]) -> &[u8] {
    directory.strip_prefix(b"/").unwrap_or(directory)
}

fn build_id<'data, R: ReadRef<'data>>(file: &File<'data, R>) -> Option<&'data [u8]> {
    file.build_id().ok().flatten().filter(|id| (2..=MAX_BUILD_ID_BYTES).contains(&id.len()))
}

/// Whether a name stays in the directory in which it is looked up.
fn is_plain_name(name: &[u8]) -> bool {
    (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains(&b'/') && name != b"." && name != b".."
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    let parts: Vec<&[u8]> = parts.iter().copied().filter(|part| !part.is_empty()).collect();
    parts.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(reference: &DebugFileReference, directory: &str) -> Vec<String> {
        let paths = reference.candidates(directory.as_bytes());
        paths.map(|path| String::from_utf8_lossy(&path).into_owned()).collect()
    }

    #[test]
    fn paths_are_tried_in_the_order_of_gdb() {
        let reference = DebugFileReference {
            build_id: Some(vec![0xab, 0xcd, 0x0e]),
            link: Some((b"tool.debug".to_vec(), 7)),
        };
        assert_eq!(
            candidates(&reference, "/usr/bin"),
            [
                "usr/lib/debug/.build-id/ab/cd0e.debug",
                "usr/bin/tool.debug",
                "usr/bin/.debug/tool.debug",
                "usr/lib/debug/usr/bin/tool.debug"
            ]
        );
        assert_eq!(
            candidates(&DebugFileReference { build_id: None, ..reference }, "/"),
            ["tool.debug", ".debug/tool.debug", "usr/lib/debug/tool.debug"]
        );
    }

    #[test]
    fn a_further_directory_is_laid_out_as_the_usual_one() {
        let reference = DebugFileReference {
            build_id: Some(vec![0xab, 0xcd, 0x0e]),
            link: Some((b"tool.debug".to_vec(), 7)),
        };
        let below = reference.candidates_below(b"/mnt/debug", b"/usr/bin");
        let below = below.map(|path| String::from_utf8(path.unwrap()).unwrap());
        assert_eq!(below, ["mnt/debug/.build-id/ab/cd0e.debug", "mnt/debug/usr/bin/tool.debug"]);
    }

    #[test]
    fn the_file_that_debug_files_share_is_sought_by_build_id_and_by_its_path() {
        let paths = |path: &[u8]| {
            let alternate = AlternateReference { path: path.to_vec(), build_id: vec![0xab, 0xcd] };
            let paths = alternate.candidates(None, b"/usr/lib/debug/.build-id/12");
            paths.map(|path| String::from_utf8(path).unwrap()).collect::<Vec<_>>()
        };
        let by_build_id = "usr/lib/debug/.build-id/ab/cd.debug";
        assert_eq!(paths(b"/usr/lib/debug/.dwz/all"), [by_build_id, "usr/lib/debug/.dwz/all"]);
        let relative = "usr/lib/debug/.build-id/12/../../.dwz/all";
        assert_eq!(paths(b"../../.dwz/all"), [by_build_id, relative]);
    }

    #[test]
    fn a_name_with_a_way_out_of_its_directory_is_no_name() {
        for name in [&b""[..], b".", b"..", b"../../etc/passwd", b"a/b", &[b'a'; 256]] {
            assert!(!is_plain_name(name), "{name:?}");
        }
        assert!(is_plain_name(b"..debug"));
    }
}
