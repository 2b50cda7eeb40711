//! Profiles into files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::{Counts, State};
use crate::report::Report;

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path:?}")]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Writes one report as one raw `ProfilesData` message: the form of an `.otlp` file.
///
/// The file appears complete or not at all: it is written beside `path` first, then renamed. What
/// `path` names before that is replaced, unless it is no regular file, such as a pipe.
///
/// # Errors
///
/// When the file cannot be created, written or renamed.
pub fn write_profiles_data(path: &Path, report: &Report) -> Result<(), FileError> {
    let failed = |action| move |source| FileError { action, path: path.to_owned(), source };
    if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return fs::write(path, report.as_bytes()).map_err(failed("write"));
    }
    let mut partial = path.as_os_str().to_owned();
    partial.push(format!(".{:016x}.partial", rand::random::<u64>()));
    let written = File::create_new(&partial)
        .map_err(failed("create a file beside"))
        .and_then(|mut file| file.write_all(report.as_bytes()).map_err(failed("write")))
        .and_then(|()| fs::rename(&partial, path).map_err(failed("replace")));
    if written.is_err() {
        // The first error is the one to tell.
        let _ = fs::remove_file(&partial);
    }
    written
}

/// Appends reports to a file in the form of the Collector's file exporter with `format: proto`: the
/// length of each message in four bytes, big-endian, and the message.
#[derive(Debug)]
pub struct FileExporter {
    path: PathBuf,
    file: File,
    /// Where the last complete message ends.
    end_bytes: u64,
    counts: Counts,
}

impl FileExporter {
    /// Opens `path` to append to it, or creates it.
    ///
    /// # Errors
    ///
    /// When the file cannot be opened for writing.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let failed = |source| FileError { action: "open", path: path.to_owned(), source };
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(failed)?;
        let end_bytes = file.seek(SeekFrom::End(0)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file, end_bytes, counts: Counts::default() })
    }

    /// Appends one report.
    ///
    /// # Errors
    ///
    /// When it cannot be written: the file ends after the last complete message then, and the
    /// report's events are counted as lost.
    pub fn append(&mut self, report: &Report) -> Result<(), FileError> {
        let written = self.write(report.as_bytes());
        let state = if written.is_ok() { State::Delivered } else { State::DroppedWriteFailed };
        *self.counts.of(state) += report.tally();
        written.map_err(|source| FileError { action: "append to", path: self.path.clone(), source })
    }

    /// What became of the events so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        let written = self.file.write_all(&length.to_be_bytes()).and_then(|()| self.file.write_all(message));
        if let Err(error) = written {
            self.file.set_len(self.end_bytes)?;
            self.file.seek(SeekFrom::Start(self.end_bytes))?;
            return Err(error);
        }
        self.end_bytes += u64::from(length) + size_of::<u32>() as u64;
        Ok(())
    }
}
