//! Opening files that processes name: those that they have mapped, and those that tell more of their code.
//!
//! A path is a claim of a process that is not trusted. It is looked up inside the process's own root, out of
//! which no link leads, without opening anything; then the file must be a regular one, on a file system that
//! the kernel itself answers for, and there must be a reason to read it: it is the one that is mapped, or
//! [`PathTrust`] says what else is asked of it. All that is looked at is what was found, never its path once
//! more. Only then is it opened for reading. Contents are read by `pread` alone: a mapped file that shrinks
//! would end us with `SIGBUS`.

mod error;
mod trust;
mod walk;

use std::cell::OnceCell;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::time::SystemTime;

use rustix::fs::{CWD, FileType, MemfdFlags, Mode, OFlags, ResolveFlags, memfd_create, openat, openat2};
use rustix::io::Errno;

use crate::build_id::read_build_ids;
use crate::credentials::{Access, Credentials};
use crate::file_status::{FileMetadata, FileStatus, has_acl};
use crate::filesystem::{FilesystemKind, Mounts};
use crate::id::{DeviceId, MappedIdentity, Pid};
use crate::mapping::{ExecutableMapping, MappedFile};
use crate::maps::{escape, read_executable_mappings};
use crate::opened_file::{Confirmation, OpenedFile};
use crate::procfs::{ProcRoot, ProcessDir, path_of_descriptor};

pub use self::error::{OpenError, Refusal};
pub use self::trust::PathTrust;

/// Opens the file behind a mapping of a living process.
///
/// Tried in this order: the reported path inside the process's root; inside our own root (a process in a
/// `chroot` within our mounts); `/proc/PID/exe`; and `/proc/PID/map_files`, which also reaches files without
/// a name, but needs `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN`. Where `openat2` is missing or refused, only
/// the last two are left.
///
/// # Errors
/// Why the first way failed.
pub(crate) fn open_mapped(
    process: &ProcessDir,
    mapping: &ExecutableMapping,
    reported: &MappedFile,
    allow_remote: bool,
) -> Result<OpenedFile, OpenError> {
    let finder = PathResolver::new(process, allow_remote);
    let reader = || Ok(Credentials::read(process)?);
    let opener = MappedFileOpener { finder: &finder, reported, reader: &reader };
    let failure = match open_root(process).and_then(|root| opener.in_root(root.as_fd())) {
        Ok(opened) => return Ok(opened),
        Err(failure) => failure,
    };
    let in_our_root = || {
        let own = ProcessDir::own()?;
        let finder = PathResolver::new(&own, allow_remote);
        MappedFileOpener { finder: &finder, reported, reader: &reader }.in_root(open_root(&own)?.as_fd())
    };
    in_our_root().or_else(|_| opener.executable()).or_else(|_| opener.map_file(mapping)).map_err(|_| failure)
}

/// Opens a file that an ended process had mapped, in the roots of others, if it is still the one with the
/// reported device and inode, and nothing about it has changed since `mapped_at`: its inode may have been
/// given to another file meanwhile.
///
/// # Errors
/// [`OpenError::Gone`] where no root has it.
pub(crate) fn open_after_exit<'roots>(
    roots: impl Iterator<Item = &'roots ProcessDir>,
    reported: &MappedFile,
    mapped_at: SystemTime,
    allow_remote: bool,
) -> Result<OpenedFile, OpenError> {
    let is_proven = |opened: &OpenedFile| {
        opened.confirmation() == Confirmation::Exact
            && opened.status().is_some_and(|status| status.changed_at().is_some_and(|at| at <= mapped_at))
    };
    let open = |process: &ProcessDir| {
        let finder = PathResolver::new(process, allow_remote);
        // Only what is exact counts, whoever could read it.
        let reader = || Err(OpenError::Gone);
        MappedFileOpener { finder: &finder, reported, reader: &reader }.in_root(open_root(process)?.as_fd())
    };
    roots.filter_map(|root| open(root).ok()).find(is_proven).ok_or(OpenError::Gone)
}

/// The root of a process, held open: other files than the mapped ones are found inside it.
#[derive(Debug)]
pub struct ProcessRoot {
    process: ProcessDir,
    root: OwnedFd,
    /// As they were when the root was opened: what holds once the process has ended.
    credentials: Option<Credentials>,
}

impl ProcessRoot {
    /// The root of a living process.
    ///
    /// # Errors
    /// Where the process is gone, or we may not follow its root.
    pub fn from_pid(proc_root: &ProcRoot, pid: Pid) -> Result<Self, OpenError> {
        Self::from_process(ProcessDir::open(proc_root, pid)?)
    }

    /// Our own root.
    ///
    /// # Errors
    /// When no proc file system is mounted at `/proc`.
    pub fn own() -> Result<Self, OpenError> {
        Self::from_process(ProcessDir::own()?)
    }

    fn from_process(process: ProcessDir) -> Result<Self, OpenError> {
        let root = open_root(&process)?;
        let credentials = Credentials::read(&process).ok();
        Ok(Self { process, root, credentials })
    }

    /// The process that it was opened through.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.process.pid()
    }

    /// As whom its process opens files; as it last did, once it has ended.
    ///
    /// # Errors
    /// [`OpenError::Gone`] where that was never known.
    pub fn credentials(&self) -> Result<Credentials, OpenError> {
        let now = Credentials::read(&self.process).ok();
        now.or_else(|| self.credentials.clone()).ok_or(OpenError::Gone)
    }

    /// Opens the regular files with these paths inside this root for reading, as far as `trust` allows it, unless they may
    /// never answer. No link leads out of the root.
    ///
    /// Each is an error that says why there is no such file.
    pub fn open<'root>(
        &'root self,
        paths: impl Iterator<Item = Vec<u8>> + 'root,
        trust: PathTrust<'root>,
    ) -> impl Iterator<Item = Result<File, OpenError>> + 'root {
        let finder = PathResolver::new(&self.process, false);
        paths.map(move |path| {
            let path = CString::new(path).map_err(|_| OpenError::NotFound)?;
            let found = match trust {
                PathTrust::Operator => finder.look_up(self.root.as_fd(), &path)?,
                PathTrust::Proven { reader, .. } | PathTrust::Named { reader } => {
                    finder.walk(self.root.as_fd(), path.as_bytes(), reader, trust.requires_named_path())?
                }
            };
            let (looked, _) = finder.inspect(found.as_fd())?;
            trust.permits(&looked, found.as_fd())?;
            open_for_reading(found.as_fd())
        })
    }

    /// Opens files that the process has mapped for reading, where what has their paths is still them.
    ///
    /// Each is an error that says why it is not.
    pub fn open_mapped<'root>(
        &'root self,
        files: impl Iterator<Item = &'root MappedFile> + 'root,
    ) -> impl Iterator<Item = Result<OpenedFile, OpenError>> + 'root {
        let finder = PathResolver::new(&self.process, false);
        files.map(move |reported| {
            let reader = || self.credentials();
            MappedFileOpener { finder: &finder, reported, reader: &reader }.in_root(self.root.as_fd())
        })
    }
}

/// Finds files through one process, without opening any that may never answer.
struct PathResolver<'process> {
    process: &'process ProcessDir,
    allow_remote: bool,
    mounts: OnceCell<Mounts>,
}

/// The ways to one mapped file.
struct MappedFileOpener<'mapping> {
    finder: &'mapping PathResolver<'mapping>,
    reported: &'mapping MappedFile,
    /// As whom the process that has mapped it opens files.
    reader: &'mapping dyn Fn() -> Result<Credentials, OpenError>,
}

/// The most that is read of a process's mounts, in bytes; nodes with thousands of mounts stay below.
const MOUNTINFO_BYTES: u64 = 4 << 20;

impl<'process> PathResolver<'process> {
    fn new(process: &'process ProcessDir, allow_remote: bool) -> Self {
        Self { process, allow_remote, mounts: OnceCell::new() }
    }

    /// Finds what has a path inside a root, without opening it. Links are followed.
    fn look_up(&self, root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, OpenError> {
        self.look_up_by(root, path, OFlags::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// The kernel has the names of a mapped file in its cache, so the look-up is first tried there alone:
    /// it can't wait for anybody then. Only where no remote file system is mounted may it ask further.
    fn look_up_by(
        &self,
        root: BorrowedFd<'_>,
        path: &CStr,
        more_flags: OFlags,
        resolve: ResolveFlags,
    ) -> Result<OwnedFd, OpenError> {
        let flags = OFlags::PATH | OFlags::CLOEXEC | more_flags;
        let look_up = |resolve| openat2(root, path, flags, Mode::empty(), resolve);
        match look_up(resolve | ResolveFlags::CACHED) {
            // Linux before 5.12 does not know the flag and says EINVAL.
            Err(Errno::AGAIN | Errno::INVAL) if self.allow_remote || !self.mounts().any_remote() => {
                Ok(look_up(resolve)?)
            }
            Err(Errno::AGAIN | Errno::INVAL) => Err(OpenError::NotCached),
            found => Ok(found?),
        }
    }

    /// What was found and of what kind its file system is, if it is a regular file and answers.
    fn inspect(&self, found: BorrowedFd<'_>) -> Result<(FileMetadata, FilesystemKind), OpenError> {
        let looked = FileMetadata::from_fd(found)?;
        if looked.file_type != FileType::RegularFile {
            return Err(OpenError::NotRegular);
        }
        let kind = self.kind_of(&looked);
        if kind == FilesystemKind::Remote && !self.allow_remote {
            return Err(OpenError::Remote);
        }
        Ok((looked, kind))
    }

    fn kind_of(&self, looked: &FileMetadata) -> FilesystemKind {
        let device = looked.status.device;
        if !device.is_anonymous() || Some(device) == kernel_memory_device() {
            return FilesystemKind::Plain;
        }
        // A mount that the process does not have any more answers to nobody we know.
        self.mounts().kind_of(looked.mount_id, device).unwrap_or(FilesystemKind::Remote)
    }

    fn mounts(&self) -> &Mounts {
        self.mounts.get_or_init(|| {
            Mounts::parse(&self.process.read_at_most("mountinfo", MOUNTINFO_BYTES).unwrap_or_default())
        })
    }
}

impl MappedFileOpener<'_> {
    /// Tries each reading of the reported path; what isn't the mapped file is as good as nothing.
    fn in_root(&self, root: BorrowedFd<'_>) -> Result<OpenedFile, OpenError> {
        let mut failure = OpenError::NotFound;
        for path in path_candidates(self.reported) {
            match self.at(root, &path) {
                Ok(opened) => return Ok(opened),
                Err(OpenError::NotFound) => {}
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Device and inode together are the kernel's word that this is what the process has mapped. A build ID or an inode
    /// alone can be forged, and then the path leads where the process likes: it is followed as the process could itself.
    fn at(&self, root: BorrowedFd<'_>, path: &CStr) -> Result<OpenedFile, OpenError> {
        let found = self.finder.look_up(root, path)?;
        let opened = self.confirmed(found.as_fd(), false)?;
        if opened.confirmation() == Confirmation::Exact {
            return Ok(opened);
        }
        let reader = (self.reader)()?;
        let found = self.finder.walk(root, path.to_bytes(), &reader, false)?;
        if !reader
            .allows(Access::Read, FileMetadata::from_fd(found.as_fd())?.ownership, || has_acl(found.as_fd()))
        {
            return Err(OpenError::Unreadable);
        }
        self.confirmed(found.as_fd(), false)
    }

    fn executable(&self) -> Result<OpenedFile, OpenError> {
        let found = openat(self.finder.process, "exe", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        self.confirmed(found.as_fd(), false)
    }

    /// Follows the kernel's link from the mapping. Its name is the range that the kernel has now, which
    /// need not be ours: neighbours are merged and protections changed.
    fn map_file(&self, mapping: &ExecutableMapping) -> Result<OpenedFile, OpenError> {
        let mut range = None;
        read_executable_mappings(self.finder.process.file("maps")?, |now| {
            let is_same = now.range.contains(&mapping.range.start)
                && match (now.backing.file().map(|file| &file.identity), &self.reported.identity) {
                    (Some(MappedIdentity::Inode { .. }), MappedIdentity::BuildId(_)) => true,
                    (now, reported) => now == Some(reported),
                };
            if is_same {
                range = Some(now.range);
            }
        })
        .map_err(OpenError::Io)?;
        let range = range.ok_or(OpenError::NotFound)?;
        let link = format!("map_files/{:x}-{:x}", range.start.0, range.end.0);
        let found =
            openat(self.finder.process, link.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        self.confirmed(found.as_fd(), true)
    }

    /// Opens for reading what was found, if it is a regular file, answers, and is the mapped one.
    fn confirmed(&self, found: BorrowedFd<'_>, is_kernel_link: bool) -> Result<OpenedFile, OpenError> {
        let (looked, kind) = self.finder.inspect(found)?;
        let by_inode = match &self.reported.identity {
            MappedIdentity::BuildId(_) => None,
            MappedIdentity::Inode { .. } if is_kernel_link => Some(Confirmation::Exact),
            &MappedIdentity::Inode { device, inode } => match looked.status {
                FileStatus { inode: found, .. } if found != inode => return Err(OpenError::Mismatch),
                FileStatus { device: found, .. } if found == device => Some(Confirmation::Exact),
                _ if kind == FilesystemKind::Layered => Some(Confirmation::InodeOnly),
                _ => return Err(OpenError::Mismatch),
            },
        };
        let file = open_for_reading(found)?;
        let opened = OpenedFile::new(file, &looked, by_inode.unwrap_or(Confirmation::BuildId));
        match &self.reported.identity {
            MappedIdentity::BuildId(reported)
                if read_build_ids(&opened).ok().and_then(|ids| ids.gnu).as_ref() != Some(reported) =>
            {
                Err(OpenError::Mismatch)
            }
            _ => Ok(opened),
        }
    }
}

fn open_root(process: &ProcessDir) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(process, "root", flags, Mode::empty())?)
}

fn open_for_reading(found: BorrowedFd<'_>) -> Result<File, OpenError> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    match openat(CWD, path_of_descriptor(found), flags, Mode::empty()) {
        Ok(opened) => Ok(File::from(opened)),
        Err(Errno::ACCESS | Errno::PERM) => Err(OpenError::Denied),
        Err(errno) => Err(errno.into()),
    }
}

/// The paths that may be meant by what the kernel reported, relative to a root: as it stands there, without
/// the mark of deletion, and each with a newline read as the four characters by which maps write one.
fn path_candidates(reported: &MappedFile) -> Vec<CString> {
    let mut paths = vec![reported.reported_path()];
    if reported.is_marked_deleted() {
        paths.push(reported.path());
    }
    let escaped: Vec<Vec<u8>> = paths.iter().filter_map(|path| escape(path)).collect();
    paths.extend(escaped.iter().map(Vec::as_slice));
    paths.into_iter().filter_map(|path| CString::new(path.strip_prefix(b"/")?).ok()).collect()
}

/// The device of the kernel's own memory files (memfd, System V segments), which no list of mounts holds.
fn kernel_memory_device() -> Option<DeviceId> {
    static DEVICE: OnceLock<Option<DeviceId>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let memory = memfd_create("sidewinder", MemfdFlags::CLOEXEC).ok()?;
        Some(FileMetadata::from_fd(memory.as_fd()).ok()?.status.device)
    })
}
