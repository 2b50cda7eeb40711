//! Finds the ELF files of a machine.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Directories that aren't on a disk, or whose content is temporary.
const NOT_SEARCHED: [&str; 5] = ["/proc", "/sys", "/dev", "/run", "/tmp"];

/// Files over this size are skipped: they are read whole, and no real binary is that large.
const MAX_FILE_BYTES: u64 = 1 << 30;

/// A file with the ELF magic number.
pub(crate) struct ElfFile {
    pub(crate) path: PathBuf,
    pub(crate) bytes: u64,
}

/// The ELF files below some directories, each once, even if it has several names.
pub(crate) fn find_elf_files(chosen: &[PathBuf]) -> Vec<ElfFile> {
    let mut found = Vec::new();
    let mut seen = HashSet::new();
    let mut open: Vec<PathBuf> = chosen.to_vec();
    while let Some(path) = open.pop() {
        let is_chosen = chosen.contains(&path);
        let status = if is_chosen { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        let Ok(status) = status else { continue };
        if status.is_dir() && (is_chosen || !NOT_SEARCHED.iter().any(|not| path == Path::new(not))) {
            open.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        } else if status.is_file()
            && status.len() <= MAX_FILE_BYTES
            && seen.insert((status.dev(), status.ino()))
            && is_elf(&path)
        {
            found.push(ElfFile { path, bytes: status.len() });
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn is_elf(path: &Path) -> bool {
    let mut magic = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == *b"\x7fELF"
}
