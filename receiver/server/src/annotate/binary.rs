//! The file of a profile's binary, proven to be the one that was profiled.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::sync::Arc;

use object::{Object as _, ReadCache};
use sidewinder_address::{LoadSegment, Svma};
use sidewinder_debug_files::{Companions, DebugFile, DebugRoots};
use sidewinder_process::{PathTrust, Pid, ProcRoot, ProcessRoot, read_htlhash};
use sidewinder_profile::{Dictionary, MappingIndex};
use sidewinder_symbolize::{BinaryFiles, Image};
use sidewinder_unwind::load_segments;

use super::assembly_error::AssemblyError;

/// In the roots of how many processes the file is looked for.
const ROOTS_MAX: usize = 8;

/// A binary, as a profile states it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ProfiledBinary<'a> {
    pub(super) path: &'a str,
    /// Its GNU build ID in hexadecimal digits.
    pub(super) build_id: Option<&'a str>,
    htlhash: Option<&'a str>,
}

impl<'a> ProfiledBinary<'a> {
    pub(super) fn new(dictionary: &'a Dictionary, mapping: MappingIndex) -> Self {
        let mapping = dictionary.mapping(mapping);
        let build_ids = dictionary.build_ids(&mapping);
        Self {
            path: dictionary.string(mapping.filename),
            build_id: build_ids.gnu,
            htlhash: build_ids.htlhash,
        }
    }
}

/// A binary, opened.
pub(super) struct BinaryFile {
    file: Arc<File>,
    pub(super) loads: Vec<LoadSegment>,
    pub(super) debug_file: DebugFile,
    pub(super) companions: Companions,
    roots: Arc<DebugRoots>,
}

impl BinaryFile {
    /// Opens the file of a binary: in the roots of the processes that it was profiled in, and in our own.
    ///
    /// # Errors
    /// If none has the file with the build ID that the profile states, or, if the file has none, with its hash.
    pub(super) fn open(
        binary: ProfiledBinary<'_>,
        pids: impl Iterator<Item = u32>,
        roots: &Arc<DebugRoots>,
    ) -> Result<Self, AssemblyError> {
        if !binary.path.starts_with('/') {
            return Err(AssemblyError::NoFile(binary.path.to_owned()));
        }
        let wanted = binary.build_id.or(binary.htlhash).ok_or(AssemblyError::NoBuildId)?;
        let path = binary.path.as_bytes();
        let mut failure = None;
        let in_processes = pids.take(ROOTS_MAX).filter_map(|pid| {
            let root = ProcessRoot::from_pid(&ProcRoot::default(), Pid(pid)).ok()?;
            let reader = root.credentials().ok()?;
            let trust = PathTrust::Proven { reader: &reader, binary_owner: None };
            let file = root.open(std::iter::once(path.to_vec()), trust).next()?.ok()?;
            Some((file, Some(pid)))
        });
        let in_own = std::iter::once_with(|| {
            let root = ProcessRoot::own().ok()?;
            let opened = root.open(std::iter::once(path.to_vec()), PathTrust::Operator).next()?;
            Some((opened.inspect_err(|error| failure = Some(error.to_string())).ok()?, None))
        });
        let mut is_another = false;
        for (file, pid) in in_processes.chain(in_own.flatten()) {
            let Ok(metadata) = file.metadata() else { continue };
            let owner = Some(metadata.uid());
            let cache = ReadCache::new(&file);
            let Ok(parsed) = object::File::parse(&cache) else { continue };
            let found = match binary.build_id {
                Some(_) => parsed.build_id().ok().flatten().map(hex::encode),
                None => read_htlhash(&file, metadata.len()).ok().map(|hash| hash.to_string()),
            };
            if found.as_deref() != Some(wanted) {
                is_another = true;
                continue;
            }
            let debug_file = match pid {
                Some(pid) => DebugFile::from_process(Pid(pid), path, owner, roots),
                None => DebugFile::from_own_root(path, owner),
            };
            let companions = debug_file.find(&parsed);
            let loads = load_segments(&parsed);
            let debug_file = DebugFile::Searched(companions.clone());
            let companions = companions.or_downloaded(&parsed, roots);
            drop(cache);
            return Ok(Self {
                file: Arc::new(file),
                loads,
                debug_file,
                companions,
                roots: Arc::clone(roots),
            });
        }
        let path = binary.path.to_owned();
        Err(match failure {
            _ if is_another => AssemblyError::AnotherBuild { path, wanted: wanted.to_owned() },
            failure => AssemblyError::NotOpened { path, why: failure.unwrap_or_default() },
        })
    }

    /// The bytes of a range of code; `None` if the file does not have them.
    pub(super) fn code(&self, start: Svma, bytes: usize) -> Option<Vec<u8>> {
        let last = start.checked_add((bytes as u64).checked_sub(1)?)?;
        let mut executable = self.loads.iter().filter(|load| load.executable);
        let load = executable.find(|load| load.file_offset_of(last).is_some())?;
        let mut code = vec![0; bytes];
        self.file.read_exact_at(&mut code, load.file_offset_of(start)?.0).ok()?;
        Some(code)
    }

    pub(super) fn image(&self) -> Image {
        Image::from(Arc::clone(&self.file))
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl BinaryFiles for &BinaryFile {
    fn content(&self) -> io::Result<Image> {
        Ok(self.image())
    }

    fn debug_file(&self) -> Option<Image> {
        self.companions.debug_image()
    }

    fn alternate(&self) -> Option<Image> {
        self.companions.alternate_image()
    }

    fn split_unit(&self, path: &[u8]) -> Option<Image> {
        self.companions.open_split(path, &self.roots).map(Image::from)
    }
}
