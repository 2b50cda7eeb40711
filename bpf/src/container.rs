//! The cgroups of containers, as far as perf events need them.
//!
//! A cgroup namespace shows nobody the cgroup of another container. But each container sees its own: it is the root of
//! what is mounted on its `/sys/fs/cgroup`, and whoever may look into the root of one of its processes finds it there.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags, fstat, fstatfs, openat2};

/// The inode of a cgroup's directory, which is the cgroup's id too (since Linux 5.5, on 64-bit machines). Never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct CgroupId(pub u64);

/// Directories below a container's that are looked into for a process.
const CGROUPS_MAX: usize = 256;
/// Of a list of processes, at most this much is read: more than any container has.
const LIST_BYTES_MAX: u64 = 1 << 20;
/// `include/uapi/linux/magic.h`.
const CGROUP2_SUPER_MAGIC: i64 = 0x6367_7270;
/// Where runtimes mount it; the second on nodes with both versions of cgroups.
const MOUNTED_ON: [&str; 2] = ["sys/fs/cgroup", "sys/fs/cgroup/unified"];

/// A container's cgroup. Stays open, so that events can be opened for it once more.
#[derive(Debug)]
pub struct Container {
    directory: OwnedFd,
    id: CgroupId,
}

impl Container {
    /// Finds the container of a process. Takes what looking into `/proc/PID/root` takes: `CAP_SYS_PTRACE`, or the same
    /// user and no more capabilities than ours.
    ///
    /// A process decides itself what it has there: no link is followed, only a directory that the kernel serves as a cgroup
    /// of version 2 is used, the process has to be in it, and nothing but lists of processes is read.
    ///
    /// # Errors
    /// If that is refused, or the process does not see its cgroup (version 2).
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
        io::Error::other(format!("what process {pid} sees on /sys/fs/cgroup is not the cgroup that it is in"))
    }

    /// Which one.
    #[must_use]
    pub fn id(&self) -> CgroupId {
        self.id
    }

    /// Whether any process is left in it. One whose cgroup has been removed has none.
    #[must_use]
    pub fn is_populated(&self) -> bool {
        let events = read_at(self.directory.as_fd(), "cgroup.events").unwrap_or_default();
        events.lines().any(|line| line == "populated 1")
    }

    /// Whether a process is in it, or in a cgroup below it.
    #[must_use]
    pub fn contains_process(&self, pid: u32) -> bool {
        self.any_process(|process| process == pid)
    }

    /// Whether it is our own, and no other process is in it.
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

/// The cgroups directly below one.
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
