//! The cgroups of containers, for opening perf events.
//!
//! A cgroup namespace hides the cgroups of other containers. But each container sees its own cgroup: it is the root of
//! the mount on its `/sys/fs/cgroup`, which is accessible through the root directory of one of its processes.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2};

use crate::opener::Opener;

/// The inode number of a cgroup's directory, which is also the cgroup's id (since Linux 5.5, on 64-bit machines). Never
/// reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CgroupId(pub u64);

/// How many directories below a container's cgroup are searched for a process.
const CGROUPS_MAX: usize = 256;
/// How much of a list of processes is read: more than any container has.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// `include/uapi/linux/magic.h`.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
/// Where runtimes mount cgroup v2; the second on nodes with both versions of cgroups.
const MOUNTED_ON: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// A container's cgroup. The directory stays open, so that events can be opened for it again.
#[derive(Debug)]
pub struct Container {
    directory: OwnedFd,
    id: CgroupId,
}

impl Opener {
    /// Finds the container of a process. Requires access to `/proc/PID/root`: `CAP_SYS_PTRACE`, or the same user and no
    /// more capabilities than ours.
    ///
    /// # Errors
    /// If access is denied, or the process doesn't see its cgroup (version 2).
    pub fn container(&self, pid: u32) -> io::Result<Container> {
        self.run(move || Container::from_pid(pid))?
    }
}

impl Container {
    /// Finds the container of a process.
    ///
    /// The process controls its mounts. So no link is followed, only a directory that the kernel serves as cgroup v2 is
    /// used, the process must be in it, and only lists of processes are read.
    pub(crate) fn from_pid(pid: u32) -> io::Result<Self> {
        let of_directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(format!("/proc/{pid}/root"), root, Mode::empty())?;
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        for path in MOUNTED_ON {
            let Ok(directory) = openat2(&root, path, of_directory, Mode::empty(), inside) else { continue };
            if fstatfs(&directory)?.f_type as i64 == CGROUP2_SUPER_MAGIC {
                let container = Self { id: CgroupId(fstat(&directory)?.st_ino), directory };
                return if container.contains_process(pid) {
                    Ok(container)
                } else {
                    Err(Self::mismatched_cgroup(pid))
                };
            }
        }
        let reason = format!("process {pid} sees no cgroup of version 2 on /sys/fs/cgroup");
        Err(io::Error::new(io::ErrorKind::NotFound, reason))
    }

    fn mismatched_cgroup(pid: u32) -> io::Error {
        io::Error::other(format!("the cgroup that process {pid} sees on /sys/fs/cgroup is not its own"))
    }

    /// The cgroup's id.
    #[must_use]
    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// Whether the cgroup or a descendant has processes. False if the cgroup was removed.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        let events = read_at(self.directory.as_fd(), "cgroup.events").unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    }

    /// Whether a process is in this cgroup, or in one below it.
    #[must_use]
    pub fn contains_process(&self, pid: u32) -> bool {
        self.any_process(|process| process == pid)
    }

    /// Whether it is our own cgroup, and has no other process.
    pub(crate) fn is_ours_alone(&self) -> bool {
        let own = std::process::id();
        self.contains_process(own) && !self.any_process(|process| process != own)
    }

    fn any_process(&self, is_wanted: impl Fn(u32) -> bool) -> bool {
        let Ok(own) = self.directory.try_clone() else { return false };
        let mut left = vec![own];
        let mut looked_at = 0;
        while let Some(cgroup) = left.pop() {
            let processes = read_at(cgroup.as_fd(), "cgroup.procs").unwrap_or_default();
            if processes.lines().filter_map(|line| line.parse().ok()).any(&is_wanted) {
                return true;
            }
            looked_at += 1;
            let Some(room) = CGROUPS_MAX.checked_sub(looked_at + left.len()) else { return false };
            left.extend(children(cgroup.as_fd()).take(room));
        }
        false
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The direct children of a cgroup.
fn children(cgroup: BorrowedFd<'_>) -> impl Iterator<Item = OwnedFd> {
    let entries = Dir::read_from(cgroup).into_iter().flatten().filter_map(Result::ok);
    let folders = entries.filter(|entry| {
        entry.file_type() == FileType::Directory && !entry.file_name().to_bytes().starts_with(b".")
    });
    folders.filter_map(move |entry| {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(cgroup, entry.file_name(), flags, Mode::empty()).ok()
    })
}

fn read_at(cgroup: BorrowedFd<'_>, name: &str) -> io::Result<String> {
    let file = rustix::fs::openat(cgroup, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut text = String::new();
    File::from(file).take(LIST_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}
