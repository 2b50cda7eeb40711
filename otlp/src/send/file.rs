//! An exporter that writes to a file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use rustix::fs::{OFlags, fcntl_setfl};

use super::delivery::Transport;
use super::exporter::{Exporter, ExporterError};
use super::options::ExporterOptions;
use super::outcome::{SendOutcome, error_chain};

pub use super::error::FileError;

impl Exporter {
    /// Starts an exporter that writes to a file, in the format of the Collector's file exporter with `format: proto`:
    /// each message follows its length in four bytes, big-endian.
    ///
    /// An existing file at `path` is replaced, unless it isn't a regular file, such as a pipe.
    ///
    /// # Errors
    ///
    /// If the file can't be replaced or opened.
    pub fn file(options: ExporterOptions, path: &Path) -> Result<Self, ExporterError> {
        // A file has no size limit for requests, and a failed write would fail again.
        let options = ExporterOptions { max_request_bytes: usize::MAX, consumers: 1, ..options };
        Self::start(options, || Ok(FileTransport(Mutex::new(MessageFile::replace(path)?))))
    }
}

struct FileTransport(Mutex<MessageFile>);

impl Transport for FileTransport {
    async fn attempt(&self, message: Bytes) -> SendOutcome {
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match file.append(&message) {
            Ok(()) => SendOutcome::Accepted,
            Err(error) => SendOutcome::WriteFailed { reason: error_chain(&error) },
        }
    }
}

/// Writes messages, each after its length.
#[derive(Debug)]
struct MessageFile {
    path: PathBuf,
    file: File,
    /// The offset of the end of the last complete message.
    end_bytes: u64,
}

impl MessageFile {
    fn replace(path: &Path) -> Result<Self, FileError> {
        let failed = |action| move |source| FileError { action, path: path.to_owned(), source };
        let is_replaced = fs::symlink_metadata(path).is_ok_and(|found| found.is_file());
        let mut file = if is_replaced {
            Self::replace_with_empty(path).map_err(failed("replace"))?
        } else {
            // Opening a pipe without a reader fails instead of blocking.
            let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).custom_flags(nonblocking);
            let file = options.open(path).map_err(failed("open"))?;
            fcntl_setfl(&file, OFlags::empty()).map_err(|error| failed("open")(error.into()))?;
            file
        };
        // A pipe has no end offset.
        let end_bytes = file.seek(SeekFrom::End(0)).unwrap_or_default();
        Ok(Self { path: path.to_owned(), file, end_bytes })
    }

    /// Replaces an existing file by an empty one; if that fails, the existing one stays.
    fn replace_with_empty(path: &Path) -> io::Result<File> {
        let mut partial = path.as_os_str().to_owned();
        partial.push(format!(".{:016x}.partial", rand::random::<u64>()));
        let file = OpenOptions::new().write(true).create_new(true).open(&partial)?;
        let renamed =
            file.set_permissions(fs::metadata(path)?.permissions()).and_then(|()| fs::rename(&partial, path));
        if renamed.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&partial);
        }
        renamed.map(|()| file)
    }

    /// # Errors
    ///
    /// If the message can't be written; the file then ends after the last complete message.
    fn append(&mut self, message: &[u8]) -> Result<(), FileError> {
        self.write(message).map_err(|source| FileError {
            action: "append to",
            path: self.path.clone(),
            source,
        })
    }

    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        let length = u32::try_from(message.len()).map_err(io::Error::other)?;
        let written = self.file.write_all(&length.to_be_bytes()).and_then(|()| self.file.write_all(message));
        if let Err(error) = written {
            // The first error is the one to report.
            let _ = self.file.set_len(self.end_bytes);
            let _ = self.file.seek(SeekFrom::Start(self.end_bytes));
            return Err(error);
        }
        self.end_bytes += u64::from(length) + size_of::<u32>() as u64;
        Ok(())
    }
}
