//! What one stretch of executable memory is made of.

use std::ops::Range;
use std::sync::Arc;

use sidewinder_address::{Avma, FileOffset};

use crate::id::MappedIdentity;

/// A stretch of one address space that may be executed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutableMapping {
    /// Where it lies; never empty.
    pub range: Range<Avma>,
    /// Which byte of the file its first byte is; 0 where nothing is behind it.
    pub file_offset: FileOffset,
    /// What is behind it.
    pub backing: Backing,
}

impl ExecutableMapping {
    /// The byte of the file that lies at an address, if this mapping holds it and a file is behind it.
    #[must_use]
    pub fn file_offset_of(&self, at: Avma) -> Option<FileOffset> {
        if !self.range.contains(&at) || !self.backing.has_offsets() {
            return None;
        }
        self.file_offset.checked_add(at.checked_offset_from(self.range.start)?)
    }

    /// Whether `next` goes on where this one ends, in memory and in what is behind it.
    pub(crate) fn continues_in(&self, next: &Self) -> bool {
        self.range.end == next.range.start
            && self.backing == next.backing
            && (!self.backing.has_offsets()
                || self.file_offset.checked_add(self.len_bytes()) == Some(next.file_offset))
    }

    /// The part from `start` on; `start` lies within the range.
    pub(crate) fn tail_from(&self, start: Avma) -> Self {
        let skipped = start.0.saturating_sub(self.range.start.0);
        let file_offset = if self.backing.has_offsets() {
            FileOffset(self.file_offset.0.wrapping_add(skipped))
        } else {
            self.file_offset
        };
        Self { range: start..self.range.end, file_offset, backing: self.backing.clone() }
    }

    /// Bytes of memory that it takes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.range.end.0.saturating_sub(self.range.start.0)
    }
}

/// What is behind executable memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// A file, perhaps one that has no name any more.
    File(Arc<MappedFile>),
    /// The kernel's library of system calls that need no system call.
    Vdso,
    /// The kernel's fixed page of three such calls.
    Vsyscall,
    /// The kernel's page of instructions that uprobes execute out of line.
    Uprobes,
    /// Nothing: code that was made at run time, an executable stack or heap.
    Anonymous,
}

impl Backing {
    /// What is meant by the name that the kernel reports; `identity` is the file's, if there is one.
    ///
    /// `/proc/PID/maps` leaves the name of anonymous memory out or writes it in brackets; perf's side band
    /// calls it `//anon`.
    pub(crate) fn from_report(identity: Option<MappedIdentity>, name: &[u8]) -> Self {
        match (name, identity) {
            (b"[vdso]", None) => Self::Vdso,
            (b"[vsyscall]", None) => Self::Vsyscall,
            (b"[uprobes]", None) => Self::Uprobes,
            (_, None) | (b"//anon", _) => Self::Anonymous,
            (name, Some(identity)) => Self::File(Arc::new(MappedFile::new(identity, name))),
        }
    }

    /// The file, if one is behind it.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<MappedFile>> {
        match self {
            Self::File(file) => Some(file),
            _ => None,
        }
    }

    /// Whether a place in it means something: an offset in a file or in the kernel's image of one.
    fn has_offsets(&self) -> bool {
        matches!(self, Self::File(_) | Self::Vdso)
    }
}

/// A mapped file as the kernel reports it, before anybody has opened it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MappedFile {
    /// What tells it from others.
    pub identity: MappedIdentity,
    /// Its path as reported, which may end in ` (deleted)`; empty where the kernel could not tell.
    path: Box<[u8]>,
}

/// What the kernel appends to the path of a file that has lost its name.
const DELETED: &[u8] = b" (deleted)";

impl MappedFile {
    /// The longest path that is kept, in bytes (`PATH_MAX`); the kernel itself cuts events there.
    pub(crate) const LONGEST_PATH_BYTES: usize = 4096;

    /// A file under the path that the kernel reported; what is longer than `PATH_MAX` counts as unknown, as
    /// do the names `//toolong` and `//enomem`, with which perf says that it could not tell.
    #[must_use]
    pub fn new(identity: MappedIdentity, path: &[u8]) -> Self {
        let unknown = path.len() > Self::LONGEST_PATH_BYTES || path.starts_with(b"//");
        Self { identity, path: if unknown { Box::default() } else { path.into() } }
    }

    /// The path exactly as reported, with ` (deleted)` where the kernel says so; may be empty.
    #[must_use]
    pub fn reported_path(&self) -> &[u8] {
        &self.path
    }

    /// The path that the file has or had when it was mapped; may be empty.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path.strip_suffix(DELETED).unwrap_or(&self.path)
    }

    /// Whether the reported path says that the file has lost its name. A file may bear that text in its
    /// real name, so this is a hint and never a proof.
    #[must_use]
    pub fn is_marked_deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// The last part of the path; may be empty.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }
}
