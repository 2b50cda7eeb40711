//! A queue on disk: a log of checksummed records that outlives the process.
//!
//! A directory contains segments, each a file of consecutive records. A record is written once, at the end of the newest
//! segment, and later marked as done in place; a segment without waiting records is removed. So nothing is ever moved. A
//! write that was torn by a crash or a disk error only loses the records that it touched, and their contents are known
//! from their headers, or from the running totals in the next record.
//!
//! An embedded database would add a file format, compaction and recovery for a list that only grows at one end and
//! shrinks at the other.

mod error;
mod folder;
mod record;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, DirEntry, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tracing::warn;

pub use error::StorageError;

use crate::report::{Report, Tally};
use folder::{QueueFolder, open_file};
use record::{RecordHeader, RecordState};
use scan::{SegmentItem, scan};

/// The maximum length of a segment: anything beyond isn't ours.
const MAX_SEGMENT_BYTES: u64 = 128 << 20;

/// Overwrites a range without records once its loss has been counted.
const COUNTED: u8 = 0xdb;

/// Where and how queues are stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageOptions {
    /// The parent directory, in which each exporter has its own.
    pub directory: PathBuf,
    /// The permissions for creating `directory`; if absent, it must exist.
    pub create_with_mode: Option<u32>,
    /// The maximum size of an exporter's files, in bytes. Writes never exceed it.
    pub max_bytes: u64,
    /// Whether to sync each write to disk, so that it survives a crash of the machine.
    pub fsync: bool,
}

/// Why a report was not stored.
#[derive(Debug)]
pub(super) enum AppendError {
    /// It would exceed the maximum size of the files.
    Full,
    /// The write failed, and was undone.
    Write(StorageError),
}

/// A record that waits to be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct StoredReport {
    segment: u64,
    offset: u64,
    head: RecordHeader,
}

impl StoredReport {
    pub(super) fn tally(&self) -> Tally {
        self.head.tally
    }
}

/// What an earlier process left in the queue.
#[derive(Default, Debug)]
pub(super) struct RecoveredReports {
    /// In the order in which they were written.
    pub(super) waiting: Vec<StoredReport>,
    /// The known number of lost events: an upper bound, since some may have been sent.
    pub(super) lost: Tally,
    /// Bytes without any information about their events.
    pub(super) unreadable_bytes: u64,
}

/// The files of one exporter's queue.
#[derive(Debug)]
pub(super) struct ReportLog {
    folder: QueueFolder,
    fsync: bool,
    max_bytes: u64,
    segments: BTreeMap<u64, LogSegment>,
    /// The segment that is being written; earlier ones are full, or from earlier processes.
    newest: u64,
    /// The total of everything ever written.
    total: Tally,
}

#[derive(Debug)]
struct LogSegment {
    path: PathBuf,
    file: File,
    bytes: u64,
    waiting: usize,
    /// Whether its folder is gone: its records can be sent, but the next start won't find them.
    is_detached: bool,
}

impl ReportLog {
    /// Opens the queue of the exporter with this name, and finds its records.
    ///
    /// # Errors
    ///
    /// If the directory can't be used. Its contents never cause an error.
    pub(super) fn open(
        options: &StorageOptions,
        exporter: &str,
    ) -> Result<(Self, RecoveredReports), StorageError> {
        let directory = &options.directory;
        if let Some(mode) = options.create_with_mode {
            let made = DirBuilder::new().recursive(true).mode(mode).create(directory);
            made.map_err(StorageError::io("create", directory))?;
        }
        let folder = QueueFolder::open(directory.join(directory_name(exporter)))?;
        let failed = |action| StorageError::io(action, folder.path());
        let entries = fs::read_dir(folder.path()).map_err(failed("read"))?;
        let entries = entries.collect::<Result<Vec<_>, _>>().map_err(failed("read"))?;
        let mut log = Self {
            folder,
            fsync: options.fsync,
            max_bytes: options.max_bytes,
            segments: BTreeMap::new(),
            newest: 0,
            total: Tally::default(),
        };
        let mut recovered = RecoveredReports::default();
        for path in entries.iter().map(DirEntry::path) {
            let Some(number) = segment_number(&path) else { continue };
            let file = open_file(OpenOptions::new().read(true).write(true), &path);
            let file = file.map_err(StorageError::io("open", &path))?;
            let status = file.metadata().map_err(StorageError::io("open", &path))?;
            if status.is_file() {
                log.segments.insert(number, LogSegment::new(path, file, status.len()));
            }
        }
        for (number, segment) in &mut log.segments {
            segment.recover(*number, &mut log.total, &mut recovered);
        }
        log.newest = log.segments.keys().next_back().map_or(0, |last| last + 1);
        log.remove_done();
        Ok((log, recovered))
    }

    /// The size of the files.
    pub(super) fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }

    /// Appends a report.
    pub(super) fn append(&mut self, report: &Report) -> Result<StoredReport, AppendError> {
        let head = RecordHeader::new(report, self.total).ok_or(AppendError::Full)?;
        if self.bytes() + head.record_bytes() > self.max_bytes {
            return Err(AppendError::Full);
        }
        if !self.folder.is_in_place() {
            self.replace_folder().map_err(AppendError::Write)?;
        }
        let number = self.segment_to_write().map_err(|error| {
            let path = self.folder.path();
            AppendError::Write(StorageError::io("create a file in", path)(error))
        })?;
        let fsync = self.fsync;
        let Some(segment) = self.segments.get_mut(&number) else { return Err(AppendError::Full) };
        let offset = segment.bytes;
        // The header first: if the rest is lost, it says what was lost.
        let written = segment
            .file
            .write_all_at(&head.encoded(), offset)
            .and_then(|()| segment.file.write_all_at(report.as_bytes(), offset + RecordHeader::BYTES as u64))
            .and_then(|()| if fsync { segment.file.sync_data() } else { Ok(()) });
        if let Err(error) = written {
            // If this fails too, the next start finds the remains and counts them.
            let _ = segment.file.set_len(offset);
            return Err(AppendError::Write(StorageError::io("write", &segment.path)(error)));
        }
        segment.bytes += head.record_bytes();
        segment.waiting += 1;
        self.total += head.tally;
        Ok(StoredReport { segment: number, offset, head })
    }

    /// Reads a report; `None` if it is damaged.
    pub(super) fn read(&self, stored: &StoredReport) -> io::Result<Option<Report>> {
        let segment = self.segments.get(&stored.segment).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; stored.head.length as usize];
        segment.file.read_exact_at(&mut bytes, stored.offset + RecordHeader::BYTES as u64)?;
        let intact = stored.head.matches(&bytes);
        Ok(intact.then(|| Report::from_parts(Bytes::from(bytes), stored.head.tally, stored.head.profiles)))
    }

    /// Whether the next start will find a record.
    pub(super) fn is_kept(&self, stored: &StoredReport) -> bool {
        self.segments.get(&stored.segment).is_some_and(|segment| !segment.is_detached)
            && self.folder.is_in_place()
    }

    /// Marks a record as done, so that the next start ignores it.
    pub(super) fn mark_done(&mut self, stored: &StoredReport) {
        if let Some(segment) = self.segments.get_mut(&stored.segment) {
            segment.mark_done(stored.offset);
            segment.waiting = segment.waiting.saturating_sub(1);
        }
        self.remove_done();
    }

    /// Continues in a new folder where the old one was. Files of the old one can still be read, though no longer by name.
    fn replace_folder(&mut self) -> Result<(), StorageError> {
        self.segments.values_mut().for_each(|segment| segment.is_detached = true);
        self.folder = QueueFolder::open(self.folder.path().to_owned())?;
        let waiting: usize = self.segments.values().map(|segment| segment.waiting).sum();
        warn!(path = ?self.folder.path(), waiting, "the queue's directory was removed or replaced, and is created again: waiting requests are lost if the profiler stops before they are sent");
        self.newest += 1;
        Ok(())
    }

    /// The segment for the next record.
    fn segment_to_write(&mut self) -> io::Result<u64> {
        let is_full =
            self.segments.get(&self.newest).is_some_and(|newest| newest.bytes >= self.segment_bytes());
        if is_full {
            self.newest += 1;
        }
        if !self.segments.contains_key(&self.newest) {
            let path = self.folder.path().join(format!("{:016x}.log", self.newest));
            let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
            if self.fsync {
                File::open(self.folder.path())?.sync_all()?;
            }
            self.segments.insert(self.newest, LogSegment::new(path, file, 0));
        }
        Ok(self.newest)
    }

    /// The size at which a segment is full: an eighth of the total, so that little space is held by done records.
    fn segment_bytes(&self) -> u64 {
        (self.max_bytes / 8).clamp(4 << 10, 4 << 20)
    }

    fn remove_done(&mut self) {
        self.segments.retain(|_, segment| segment.waiting > 0 || !segment.remove());
    }
}

impl LogSegment {
    fn new(path: PathBuf, file: File, bytes: u64) -> Self {
        Self { path, file, bytes, waiting: 0, is_detached: false }
    }

    /// Removes the file; returns whether it is gone. There may be another one at the path of a detached one.
    fn remove(&self) -> bool {
        if self.is_detached {
            return true;
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                warn!(%error, path = ?self.path, "a file cannot be removed");
                false
            }
            _ => true,
        }
    }

    /// Finds the records of an earlier process. Damaged ranges are counted once, and then overwritten.
    fn recover(&mut self, number: u64, total: &mut Tally, recovered: &mut RecoveredReports) {
        let mut bytes = Vec::new();
        if let Err(error) = (&self.file).take(MAX_SEGMENT_BYTES).read_to_end(&mut bytes) {
            warn!(%error, path = ?self.path, "part of the queue cannot be read");
            recovered.unreadable_bytes += self.bytes;
            return;
        }
        let mut is_first = true;
        let mut gap_bytes = 0;
        for (offset, found) in scan(&bytes) {
            match found {
                SegmentItem::Record { head, mark, is_intact } => {
                    if gap_bytes > 0 && !is_first {
                        recovered.lost += head.before - *total;
                    } else {
                        recovered.unreadable_bytes += gap_bytes;
                    }
                    (gap_bytes, is_first) = (0, false);
                    *total = head.before + head.tally;
                    if mark == RecordState::Done {
                        continue;
                    }
                    if is_intact {
                        self.waiting += 1;
                        recovered.waiting.push(StoredReport { segment: number, offset, head });
                    } else {
                        recovered.lost += head.tally;
                        self.mark_done(offset);
                    }
                }
                SegmentItem::Gap { length } => {
                    let start = offset as usize;
                    let gap = bytes.get(start..start + length).unwrap_or_default();
                    if gap.iter().any(|byte| *byte != COUNTED) {
                        gap_bytes += length as u64;
                        let _ = self.file.write_all_at(&vec![COUNTED; length], offset);
                    }
                }
            }
        }
        recovered.unreadable_bytes += gap_bytes + self.bytes.saturating_sub(MAX_SEGMENT_BYTES);
    }

    fn mark_done(&self, offset: u64) {
        if let Err(error) = self.file.write_all_at(&RecordState::Done.encoded(), offset) {
            warn!(%error, path = ?self.path, "a request that is done will be sent again after a restart");
        }
    }
}

/// The directory name for an exporter, for example `otlp_grpc/backup`; distinct names have distinct directories.
fn directory_name(exporter: &str) -> String {
    let mut name = String::from("queue_");
    for byte in exporter.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => name.push(char::from(byte)),
            _ => name.push_str(&format!("%{byte:02x}")),
        }
    }
    name
}

fn segment_number(path: &Path) -> Option<u64> {
    let digits = path.file_name()?.to_str()?.strip_suffix(".log")?;
    if digits.len() == 16 { u64::from_str_radix(digits, 16).ok() } else { None }
}
