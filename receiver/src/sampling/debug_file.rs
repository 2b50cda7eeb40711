//! Finding the separate debug file of a binary: where the process that maps it would.

use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use object::ReadCache;
use sidewinder_process::{Pid, ProcRoot, Root};
use sidewinder_unwind::debug_file::{DebugFileReference, Proof};

use super::reader::Positioned;

/// Debug files over this size are not read for the sake of their checksum. Build IDs need no reading.
const MAX_CHECKED_BYTES: u64 = 256 << 20;

/// What is known of a binary's debug file.
#[derive(Clone, Debug)]
pub(crate) enum DebugFile {
    /// It has not been looked for.
    Unknown(Option<Arc<Place>>),
    /// This one, or there is none.
    Known(Option<Arc<File>>),
}

/// Where a binary is.
#[derive(Debug)]
pub(crate) struct Place {
    root: Root,
    directory: Box<[u8]>,
}

impl Place {
    pub(crate) fn new(root: Root, path: &[u8]) -> Self {
        let directory = path.iter().rposition(|byte| *byte == b'/').map_or(&[][..], |slash| &path[..slash]);
        Self { root, directory: directory.into() }
    }

    /// The first file at one of the places that it may have that is proven to be the right one.
    fn find(&self, reference: &DebugFileReference) -> Option<File> {
        let candidates = reference.candidates(&self.directory);
        self.root
            .open(candidates)
            .filter_map(Result::ok)
            .find(|file| is_proven(reference, file).unwrap_or(false))
    }
}

impl DebugFile {
    /// That of a binary with this path in the root of a process.
    pub(crate) fn of_process(pid: Pid, path: &[u8]) -> Self {
        let root = Root::of(&ProcRoot::default(), pid).ok();
        Self::Unknown(root.map(|root| Arc::new(Place::new(root, path))))
    }

    /// That of a binary with this absolute path in our own root.
    pub(crate) fn of_ours(path: &[u8]) -> Self {
        Self::Unknown(Root::own().ok().map(|root| Arc::new(Place::new(root, path))))
    }

    /// The file. The first answer is to be kept: it decides how the table is cut.
    pub(crate) fn find(&self, reference: Option<DebugFileReference>) -> Option<Arc<File>> {
        match self {
            Self::Known(file) => file.clone(),
            Self::Unknown(place) => place.as_ref()?.find(&reference?).map(Arc::new),
        }
    }
}

/// Whether a file is what a reference names; `None` where it can't be read.
fn is_proven(reference: &DebugFileReference, file: &File) -> Option<bool> {
    let cache = ReadCache::new(Positioned::new(file));
    let proof = reference.proof(&object::File::parse(&cache).ok()?);
    match proof {
        Proof::BuildId => Some(true),
        Proof::Mismatch => Some(false),
        Proof::Crc(_) if file.metadata().ok()?.len() > MAX_CHECKED_BYTES => Some(false),
        Proof::Crc(stated) => Some(crc32(file)? == stated),
    }
}

fn crc32(file: &File) -> Option<u32> {
    use std::io::{Seek as _, SeekFrom};

    let mut file = file;
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut file = file.take(MAX_CHECKED_BYTES);
    let mut hasher = crc32fast::Hasher::new();
    let mut bytes = vec![0; 64 << 10];
    loop {
        match file.read(&mut bytes).ok()? {
            0 => return Some(hasher.finalize()),
            read => hasher.update(bytes.get(..read)?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;
    use crate::sampling::build::read_table;

    /// A program without unwind information of its own, and its debug file, in a directory.
    fn split_program(options: &[&str]) -> Option<tempfile::TempDir> {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        fs::write(path("p.c"), "int main(void) { return 0; }").unwrap();
        let run = |command: &str, arguments: &[&str]| {
            Command::new(command).args(arguments).status().is_ok_and(|status| status.success())
        };
        let link = format!("--add-gnu-debuglink={}", path("p.debug"));
        let common = ["-g", "-fno-asynchronous-unwind-tables", "-o"];
        let made = run("gcc", &[&common[..], &[&*path("p")], options, &[&*path("p.c")]].concat())
            && run("objcopy", &["--only-keep-debug", &path("p"), &path("p.debug")])
            && run("objcopy", &["--strip-all", &link, &path("p")]);
        if !made {
            eprintln!("SKIPPED: gcc and objcopy don't make a program and its debug file here");
        }
        made.then_some(directory)
    }

    fn functions_from_debug_file(directory: &tempfile::TempDir) -> u64 {
        let program = directory.path().join("p");
        let debug_file = DebugFile::of_ours(program.to_str().unwrap().as_bytes());
        let (_, table) = read_table(File::open(&program).unwrap(), &debug_file).unwrap();
        let functions = &table.summary().functions;
        functions.get(&sidewinder_unwind::Source::DebugFile).copied().unwrap_or(0)
    }

    #[test]
    fn a_debug_file_beside_its_program_is_found_by_build_id_and_by_checksum() {
        for options in [["-Wl,--build-id"], ["-Wl,--build-id=none"]] {
            let Some(directory) = split_program(&options) else { return };
            assert!(functions_from_debug_file(&directory) > 0, "{options:?}");
        }
    }

    #[test]
    fn a_debug_file_whose_content_has_changed_is_not_used() {
        let Some(directory) = split_program(&["-Wl,--build-id=none"]) else { return };
        let debug = directory.path().join("p.debug");
        let mut bytes = fs::read(&debug).unwrap();
        bytes.push(0);
        fs::write(&debug, bytes).unwrap();
        assert_eq!(functions_from_debug_file(&directory), 0);
    }
}
