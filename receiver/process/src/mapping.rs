//! Executable mappings.

use std::ops::Range;
use std::sync::Arc;

use sidewinder_address::{Avma, FileOffset};

use crate::id::MappedIdentity;

/// An executable range of one address space.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExecutableMapping {
    /// Its address range; never empty.
    pub range: Range<Avma>,
    /// The file offset of its first byte; 0 without a file.
    pub file_offset: FileOffset,
    /// Its backing.
    pub backing: Backing,
}

impl ExecutableMapping {
    /// The file offset of an address, if this mapping contains the address and is backed by a file.
    #[must_use]
    pub fn file_offset_of(&self, at: Avma) -> Option<FileOffset> {
        if !self.range.contains(&at) || !self.backing.has_offsets() {
            return None;
        }
        self.file_offset.checked_add(at.checked_offset_from(self.range.start)?)
    }

    /// Whether `next` continues this one, in memory and in its backing.
    pub(crate) fn continues_in(&self, next: &Self) -> bool {
        self.range.end == next.range.start
            && self.backing == next.backing
            && (!self.backing.has_offsets()
                || self.file_offset.checked_add(self.len_bytes()) == Some(next.file_offset))
    }

    /// The part from `start` on; `start` is within the range.
    pub(crate) fn tail_from(&self, start: Avma) -> Self {
        let skipped = start.0.saturating_sub(self.range.start.0);
        let file_offset = if self.backing.has_offsets() {
            FileOffset(self.file_offset.0.wrapping_add(skipped))
        } else {
            self.file_offset
        };
        Self { range: start..self.range.end, file_offset, backing: self.backing.clone() }
    }

    /// Memory that it uses, in bytes.
    #[must_use]
    pub fn len_bytes(&self) -> u64 {
        self.range.end.0.saturating_sub(self.range.start.0)
    }
}

/// What backs executable memory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Backing {
    /// A file, possibly unlinked.
    File(Arc<MappedFile>),
    /// The vDSO: the kernel's library of functions that need no system call.
    Vdso,
    /// The vsyscall page: the kernel's fixed page of three such functions.
    Vsyscall,
    /// The kernel's page of instructions that uprobes execute out of line.
    Uprobes,
    /// Nothing: code generated at run time, an executable stack or heap.
    Anonymous,
}

impl Backing {
    /// Parses the name that the kernel reports; `identity` is that of the file, if there is one.
    ///
    /// `/proc/PID/maps` omits the name of anonymous memory or writes it in brackets; perf's side band writes `//anon`.
    pub(crate) fn from_report(identity: Option<MappedIdentity>, name: &[u8]) -> Self {
        match (name, identity) {
            (b"[vdso]", None) => Self::Vdso,
            (b"[vsyscall]", None) => Self::Vsyscall,
            (b"[uprobes]", None) => Self::Uprobes,
            (_, None) | (b"//anon", _) => Self::Anonymous,
            (name, Some(identity)) => Self::File(Arc::new(MappedFile::new(identity, name))),
        }
    }

    /// The file, if there is one.
    #[must_use]
    pub fn file(&self) -> Option<&Arc<MappedFile>> {
        match self {
            Self::File(file) => Some(file),
            _ => None,
        }
    }

    /// Whether offsets in it are meaningful: in a file, or in the kernel's image of one.
    fn has_offsets(&self) -> bool {
        matches!(self, Self::File(_) | Self::Vdso)
    }
}

/// A mapped file as the kernel reports it, before it is opened.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MappedFile {
    /// Its identity.
    pub identity: MappedIdentity,
    /// Its path as reported, which may end in ` (deleted)`; empty if the kernel could not determine it.
    path: Box<[u8]>,
}

/// The suffix that the kernel appends to the path of an unlinked file.
const DELETED: &[u8] = b" (deleted)";

impl MappedFile {
    /// The longest path that is kept, in bytes (`PATH_MAX`); the kernel truncates paths in events to that.
    pub(crate) const LONGEST_PATH_BYTES: usize = 4096;

    /// A file with the path that the kernel reported. A path longer than `PATH_MAX` is treated as unknown, and so are
    /// `//toolong` and `//enomem`, which perf reports if it could not determine the path.
    #[must_use]
    pub fn new(identity: MappedIdentity, path: &[u8]) -> Self {
        let unknown = path.len() > Self::LONGEST_PATH_BYTES || path.starts_with(b"//");
        Self { identity, path: if unknown { Box::default() } else { path.into() } }
    }

    /// The path exactly as reported, including the kernel's ` (deleted)`; may be empty.
    #[must_use]
    pub fn reported_path(&self) -> &[u8] {
        &self.path
    }

    /// The path that the file has, or had when it was mapped; may be empty.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path.strip_suffix(DELETED).unwrap_or(&self.path)
    }

    /// Whether the reported path indicates that the file has been unlinked. A file's real name may end in the same text, so
    /// this is a hint and never a proof.
    #[must_use]
    pub fn is_marked_deleted(&self) -> bool {
        self.path.ends_with(DELETED)
    }

    /// The last component of the path; may be empty.
    #[must_use]
    pub fn name(&self) -> &[u8] {
        self.path().rsplit(|&byte| byte == b'/').next().unwrap_or_default()
    }
}
