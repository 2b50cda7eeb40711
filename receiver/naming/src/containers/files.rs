//! The files in which container runtimes state names, in bounded memory.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

/// The largest file of one container that is read.
pub(super) const CONTAINER_BYTES_MAX: u64 = 1 << 20;
/// The most entries of a directory that are looked at.
pub(super) const ENTRIES_MAX: usize = 10_000;
/// The longest name that is taken, in bytes.
const NAME_BYTES_MAX: usize = 512;

/// The names in a directory; none if it can't be read.
pub(super) fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().take(ENTRIES_MAX);
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The document in a file of at most `bytes_max`.
pub(super) fn json(path: &Path, bytes_max: u64) -> Option<Value> {
    serde_json::from_slice(&read(path, bytes_max)?).ok()
}

pub(super) fn read(path: &Path, bytes_max: u64) -> Option<Vec<u8>> {
    // A pipe in a user's home is not waited for.
    fs::symlink_metadata(path).ok().filter(|status| status.is_file() && status.len() <= bytes_max)?;
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(bytes_max).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// A name that can be shown.
pub(super) fn text(name: &str) -> Option<Box<str>> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&name.len()) && !name.contains(char::is_control);
    is_name.then(|| name.into())
}
