//! Opens the files that a configuration or a command line names, for reading.
//!
//! Opening a named pipe blocks until somebody writes to it, and a device may never end. So only regular files are read, and
//! what this process was started with, by a path such as `/dev/stdin` or the shell's `<(command)`.

use std::fs::{self, File, FileType, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_setfl};

/// Opens a file for reading. Never waits for another process to open it.
///
/// # Errors
///
/// Any error of open(2); `InvalidInput` if it is neither a regular file nor one that this process was started with.
pub fn open_input(path: &Path) -> io::Result<File> {
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        if metadata.is_dir() || !is_inherited(&file, &metadata) {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refusal(metadata.file_type())));
        }
        fcntl_setfl(&file, OFlags::empty())?;
    }
    Ok(file)
}

/// Reads a file of at most `max_bytes`, with [`open_input`].
///
/// # Errors
///
/// As [`open_input`], any error of read(2), or that the file is longer.
pub fn read_bounded(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_input(path)?.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > max_bytes {
        true => Err(io::Error::other(format!("it is longer than {max_bytes} bytes"))),
        false => Ok(bytes),
    }
}

/// Whether another descriptor of this process refers to the same file.
fn is_inherited(file: &File, opened: &Metadata) -> bool {
    let own_name = file.as_raw_fd().to_string();
    let others = fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let others = others.filter(|entry| entry.file_name() != *own_name);
    others
        .filter_map(|entry| fs::metadata(entry.path()).ok())
        .any(|other| (other.dev(), other.ino(), other.rdev()) == (opened.dev(), opened.ino(), opened.rdev()))
}

fn refusal(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "it is a named pipe, not a regular file; a shell's < or | passes one as /dev/stdin"
    } else if kind.is_dir() {
        "it is a directory, not a regular file"
    } else {
        "it is a device, not a regular file"
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, mknodat};

    use super::*;

    #[test]
    fn a_file_is_read_up_to_its_limit() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "four").unwrap();
        assert_eq!(read_bounded(&path, 4).unwrap(), b"four");
        assert_eq!(read_bounded(&path, 3).unwrap_err().to_string(), "it is longer than 3 bytes");
        assert_eq!(read_bounded(&folder.path().join("none"), 3).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn pipes_devices_and_directories_are_refused_at_once() {
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        for (path, what) in
            [(&*pipe, "named pipe"), (Path::new("/dev/zero"), "device"), (folder.path(), "directory")]
        {
            let error = open_input(path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(error.to_string().contains(what), "{error}");
        }
    }

    #[test]
    fn a_pipe_that_is_open_already_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        io::Write::write_all(&mut writer, b"piped").unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let mut file = open_input(Path::new(&path)).unwrap();
        drop(writer);
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        assert_eq!(text, "piped");
    }
}
