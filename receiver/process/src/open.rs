//! Opens files that processes name: mapped files, and files that describe their code.
//!
//! The path is the claim of an untrusted process. It is resolved inside the process's own root, which no link can leave,
//! without opening anything. Then the file must be regular, on a file system that the kernel itself serves, and there must
//! be a reason to read it: it is the mapped one, or it meets the conditions of [`PathTrust`]. All checks apply to the
//! resolved file; its path is never resolved again. Only then is it opened for reading. Contents are read only with `pread`:
//! a mapped file that shrinks would end us with `SIGBUS`.

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

/// Opens the file of a living process's mapping.
///
/// Tries, in this order: the reported path inside the process's root; inside our own root (for a process in a `chroot`
/// within our mounts); `/proc/PID/exe`; and `/proc/PID/map_files`, which also finds unlinked files, but requires
/// `CAP_CHECKPOINT_RESTORE` or `CAP_SYS_ADMIN`. If `openat2` is missing or refused, only the last two remain.
///
/// # Errors
/// Why the first attempt failed.
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

/// Opens a file that an ended process had mapped, in the roots of others, if it still has the reported device and inode, and
/// has not changed since `mapped_at`: its inode may have been reused for another file.
///
/// # Errors
/// [`OpenError::Gone`] if it is in no root.
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
        // Only an exact match counts, whoever may read the file.
        let reader = || Err(OpenError::Gone);
        MappedFileOpener { finder: &finder, reported, reader: &reader }.in_root(open_root(process)?.as_fd())
    };
    roots.filter_map(|root| open(root).ok()).find(is_proven).ok_or(OpenError::Gone)
}

/// The root of a process, held open, to find files other than the mapped ones.
#[derive(Debug)]
pub struct ProcessRoot {
    /// The process that has this root.
    process: ProcessDir,
    root: OwnedFd,
    /// The process whose files are looked for, if it isn't the same.
    target: Option<ProcessDir>,
    /// The credentials when the root was opened: the ones to use once the process has ended.
    credentials: Option<Credentials>,
}

impl ProcessRoot {
    /// The root of a living process.
    ///
    /// # Errors
    /// If the process is gone, or we may not follow its root.
    pub fn from_pid(proc_root: &ProcRoot, pid: Pid) -> Result<Self, OpenError> {
        Self::from_process(ProcessDir::open(proc_root, pid)?)
    }

    /// Our own root in place of that of a living process, for when we may not follow the latter. It has some of the same
    /// files if both run on the same host, or from the same image.
    ///
    /// # Errors
    /// If the process is gone, or no proc file system is mounted at `/proc`.
    pub fn own_in_place_of(proc_root: &ProcRoot, pid: Pid) -> Result<Self, OpenError> {
        let target = ProcessDir::open(proc_root, pid)?;
        let credentials = Credentials::read(&target).ok();
        Ok(Self { target: Some(target), credentials, ..Self::own()? })
    }

    /// Our own root.
    ///
    /// # Errors
    /// If no proc file system is mounted at `/proc`.
    pub fn own() -> Result<Self, OpenError> {
        Self::from_process(ProcessDir::own()?)
    }

    fn from_process(process: ProcessDir) -> Result<Self, OpenError> {
        let root = open_root(&process)?;
        let credentials = Credentials::read(&process).ok();
        Ok(Self { process, root, target: None, credentials })
    }

    /// The process whose files are looked for.
    #[must_use]
    pub fn pid(&self) -> Pid {
        self.target().pid()
    }

    fn target(&self) -> &ProcessDir {
        self.target.as_ref().unwrap_or(&self.process)
    }

    /// The credentials of that process; the last ones, once it has ended.
    ///
    /// # Errors
    /// [`OpenError::Gone`] if they were never known.
    pub fn credentials(&self) -> Result<Credentials, OpenError> {
        let now = Credentials::read(self.target()).ok();
        now.or_else(|| self.credentials.clone()).ok_or(OpenError::Gone)
    }

    /// Opens the regular files with these paths inside this root for reading, as far as `trust` permits, unless their file
    /// system may never respond. No link can leave the root.
    ///
    /// Each item is an error that says why that file was not opened.
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

    /// Opens files that the process has mapped for reading, if their paths still refer to the mapped files.
    ///
    /// Each item is an error that says why that file was not opened.
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

/// Resolves paths of one process, without opening files on file systems that may never respond.
struct PathResolver<'process> {
    process: &'process ProcessDir,
    allow_remote: bool,
    mounts: OnceCell<Mounts>,
}

/// The ways to open one mapped file.
struct MappedFileOpener<'mapping> {
    finder: &'mapping PathResolver<'mapping>,
    reported: &'mapping MappedFile,
    /// The credentials of the process that has mapped it.
    reader: &'mapping dyn Fn() -> Result<Credentials, OpenError>,
}

/// The most bytes of a process's mounts that are read; nodes with thousands of mounts stay below.
const MOUNTINFO_BYTES: u64 = 4 << 20;

impl<'process> PathResolver<'process> {
    fn new(process: &'process ProcessDir, allow_remote: bool) -> Self {
        Self { process, allow_remote, mounts: OnceCell::new() }
    }

    /// Resolves a path inside a root, without opening the file. Links are followed.
    fn look_up(&self, root: BorrowedFd<'_>, path: &CStr) -> Result<OwnedFd, OpenError> {
        self.look_up_by(root, path, OFlags::empty(), ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS)
    }

    /// The kernel has the names of a mapped file in its cache, so the lookup first uses the cache only, which never blocks.
    /// A full lookup follows only if no remote file system is mounted.
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
            // Linux before 5.12 does not know the flag and returns EINVAL.
            Err(Errno::AGAIN | Errno::INVAL) if self.allow_remote || !self.mounts().any_remote() => {
                Ok(look_up(resolve)?)
            }
            Err(Errno::AGAIN | Errno::INVAL) => Err(OpenError::NotCached),
            found => Ok(found?),
        }
    }

    /// The metadata and the kind of file system of a resolved file, if it is regular and its file system responds.
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
        // The process no longer has this mount, so its file system is unknown.
        self.mounts().kind_of(looked.mount_id, device).unwrap_or(FilesystemKind::Remote)
    }

    fn mounts(&self) -> &Mounts {
        self.mounts.get_or_init(|| {
            Mounts::parse(&self.process.read_at_most("mountinfo", MOUNTINFO_BYTES).unwrap_or_default())
        })
    }
}

impl MappedFileOpener<'_> {
    /// Tries each interpretation of the reported path; another file than the mapped one is treated as not found.
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

    /// With device and inode, the kernel confirms that this is the mapped file. A build ID or an inode alone can be forged,
    /// and the process controls the path: so the path is followed with the process's own permissions.
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

    /// Follows the kernel's link of the mapping. Its name is the kernel's current range, which may differ from ours: the
    /// kernel merges neighbours, and protections change.
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

    /// Opens a resolved file for reading, if it is regular, its file system responds, and it is the mapped one.
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

/// The candidate paths for the reported one, relative to a root: as written, without the suffix of a deleted file, and each
/// with newlines replaced by the four characters of their escape sequence.
fn path_candidates(reported: &MappedFile) -> Vec<CString> {
    let mut paths = vec![reported.reported_path()];
    if reported.is_marked_deleted() {
        paths.push(reported.path());
    }
    let escaped: Vec<Vec<u8>> = paths.iter().filter_map(|path| escape(path)).collect();
    paths.extend(escaped.iter().map(Vec::as_slice));
    paths.into_iter().filter_map(|path| CString::new(path.strip_prefix(b"/")?).ok()).collect()
}

/// The device of the kernel's own memory files (memfd, System V segments), which is in no list of mounts.
fn kernel_memory_device() -> Option<DeviceId> {
    static DEVICE: OnceLock<Option<DeviceId>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let memory = memfd_create("sidewinder", MemfdFlags::CLOEXEC).ok()?;
        Some(FileMetadata::from_fd(memory.as_fd()).ok()?.status.device)
    })
}
