//! Access to `/proc` through descriptors that stay bound to one process.

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, Mode, OFlags, openat, readlinkat};
use rustix::io::Errno;
use thiserror::Error;

use crate::id::Pid;

/// Where the proc file system is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcRoot(pub PathBuf);

impl Default for ProcRoot {
    fn default() -> Self {
        Self(PathBuf::from("/proc"))
    }
}

/// Why a file of `/proc` could not be read.
#[derive(Debug, Error)]
pub enum ProcfsError {
    /// The process does not exist, has ended, or is outside of our pod.
    #[error("process {pid} is gone")]
    Gone {
        /// The process.
        pid: Pid,
    },
    /// Permission was denied.
    #[error("no permission to read {path} of process {pid}")]
    Permission {
        /// The process.
        pid: Pid,
        /// The path below the process's directory.
        path: String,
    },
    /// It could not be read for another reason.
    #[error("cannot read {path} of process {pid}")]
    Read {
        /// The process.
        pid: Pid,
        /// The path below the process's directory.
        path: String,
        /// The I/O error.
        source: io::Error,
    },
    /// Its content does not conform to proc(5).
    #[error("{path} of process {pid} has no {missing}")]
    Malformed {
        /// The process.
        pid: Pid,
        /// The path below the process's directory.
        path: &'static str,
        /// What is missing from it.
        missing: &'static str,
    },
    /// The list of processes could not be read.
    #[error("cannot list processes in {root:?}")]
    List {
        /// The mount point of the proc file system.
        root: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

impl ProcRoot {
    /// The living processes, by their PID in the PID namespace of this mount.
    ///
    /// # Errors
    /// If the directory can't be read.
    pub fn pids(&self) -> Result<Vec<Pid>, ProcfsError> {
        let failed = |source| ProcfsError::List { root: self.0.clone(), source };
        let mut pids = Vec::new();
        for entry in std::fs::read_dir(&self.0).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            pids.extend(name.to_str().and_then(|name| name.parse().ok()).map(Pid));
        }
        Ok(pids)
    }
}

/// The directory of one process, held open: a read through it returns data of that process, or an error once it is gone, but
/// never data of another process that reuses its PID.
#[derive(Debug)]
pub struct ProcessDir {
    pid: Pid,
    directory: OwnedFd,
}

/// The initial buffer size in bytes, which fits most files of `/proc` in one read.
const USUAL_FILE_BYTES: usize = 4 * 1024;
/// The most bytes of a small file of `/proc` that are read.
const SMALL_FILE_BYTES: u64 = 16 * 1024;

impl ProcessDir {
    /// Opens the directory of a process.
    ///
    /// # Errors
    /// [`ProcfsError::Gone`] if the process does not exist.
    pub fn open(root: &ProcRoot, pid: Pid) -> Result<Self, ProcfsError> {
        let path = root.0.join(pid.to_string());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match openat(CWD, &path, flags, Mode::empty()) {
            Ok(directory) => Ok(Self { pid, directory }),
            Err(errno) => Err(failed(pid, "", errno)),
        }
    }

    /// Opens our own directory.
    ///
    /// # Errors
    /// If no proc file system is mounted at `/proc`.
    pub(crate) fn own() -> Result<Self, ProcfsError> {
        let pid = Pid(std::process::id());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory =
            openat(CWD, "/proc/self", flags, Mode::empty()).map_err(|errno| failed(pid, "", errno))?;
        Ok(Self { pid, directory })
    }

    /// The directory that provides the memory and the root of the process. A leader that has ended provides neither, even if
    /// its threads still run: then it is the directory of one of these.
    #[must_use]
    pub fn with_memory(self, state: &ProcessState) -> Self {
        if !state.leader_ended {
            return self;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let open = |name: &CStr| {
            let path = [b"task/", name.to_bytes()].concat();
            openat(&self.directory, path, flags | OFlags::NOFOLLOW, Mode::empty()).ok()
        };
        let threads = openat(&self.directory, "task", flags, Mode::empty()).and_then(Dir::new);
        let leader = self.pid.0.to_string();
        let thread = threads.ok().and_then(|threads| {
            threads.flatten().find_map(|entry| {
                let name = entry.file_name();
                let is_thread = name.to_bytes().first().is_some_and(u8::is_ascii_digit);
                (is_thread && name.to_bytes() != leader.as_bytes()).then(|| open(name)).flatten()
            })
        });
        Self { directory: thread.unwrap_or(self.directory), ..self }
    }

    /// The PID of the process.
    #[must_use]
    pub const fn pid(&self) -> Pid {
        self.pid
    }

    /// Opens a file of `/proc` itself (not the target of a link) for reading.
    ///
    /// # Errors
    /// See [`ProcfsError`].
    pub fn file(&self, name: &str) -> Result<File, ProcfsError> {
        openat(&self.directory, name, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())
            .map(File::from)
            .map_err(|errno| failed(self.pid, name, errno))
    }

    /// Reads at most `limit_bytes` of a file.
    ///
    /// # Errors
    /// See [`ProcfsError`].
    pub fn read_at_most(&self, name: &str, limit_bytes: u64) -> Result<Vec<u8>, ProcfsError> {
        let mut bytes = Vec::with_capacity(USUAL_FILE_BYTES);
        match self.file(name)?.take(limit_bytes).read_to_end(&mut bytes) {
            Ok(_) => Ok(bytes),
            Err(source) => Err(ProcfsError::reading(self.pid, name, source)),
        }
    }

    /// Reads a file that the kernel keeps small.
    ///
    /// # Errors
    /// See [`ProcfsError`].
    pub fn read(&self, name: &str) -> Result<Vec<u8>, ProcfsError> {
        self.read_at_most(name, SMALL_FILE_BYTES)
    }

    /// The target of a link, as the kernel writes it.
    ///
    /// # Errors
    /// See [`ProcfsError`].
    pub fn link(&self, name: &str) -> Result<Vec<u8>, ProcfsError> {
        readlinkat(&self.directory, name, Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| failed(self.pid, name, errno))
    }

    /// The state of the process, its number of threads and when it started.
    ///
    /// # Errors
    /// See [`ProcfsError`].
    pub fn state(&self) -> Result<ProcessState, ProcfsError> {
        ProcessState::parse(&self.read("stat")?).map_err(|missing| ProcfsError::Malformed {
            pid: self.pid,
            path: "stat",
            missing,
        })
    }
}

impl AsFd for ProcessDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}

/// The flag of an exiting thread (`include/linux/sched.h`).
const PF_EXITING: u64 = 4;

/// The fields of `/proc/PID/stat` that are used (proc_pid_stat(5)).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessState {
    /// The name of its leader, at most 15 arbitrary bytes.
    pub comm: Box<[u8]>,
    /// The PID of its parent; 0 if that has none in our PID namespace. An orphan's is the process that has adopted it.
    pub parent: Pid,
    /// Whether the leader has ended, but has not been waited for. Its other threads may still run.
    pub leader_ended: bool,
    /// Whether the leader is exiting, or has ended: it has given up its memory, or is about to.
    pub leader_exiting: bool,
    /// The number of threads, including an ended leader.
    pub threads: u32,
    /// When it started: clock ticks after boot.
    pub start_ticks: u64,
}

impl ProcessState {
    /// Parses `/proc/PID/stat`.
    ///
    /// # Errors
    /// Names the first field that is missing.
    pub fn parse(stat: &[u8]) -> Result<Self, &'static str> {
        // The name is in parentheses and may contain any byte, so it ends at the last parenthesis.
        let open = stat.iter().position(|&byte| byte == b'(').ok_or("name")?;
        let close =
            stat.iter().rposition(|&byte| byte == b')').filter(|&close| close > open).ok_or("name")?;
        let mut fields = stat[close + 1..].split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let state = fields.next().ok_or("state")?;
        // The state is field 3, the parent field 4, the flags field 9, the number of threads field 20, the start time field 22.
        let mut number_after =
            |skipped| -> Option<u64> { std::str::from_utf8(fields.nth(skipped)?).ok()?.parse().ok() };
        let parent = number_after(0).and_then(|pid| u32::try_from(pid).ok()).ok_or("parent")?;
        let flags = number_after(4).ok_or("flags")?;
        let threads = number_after(10).ok_or("number of threads")?;
        Ok(Self {
            comm: stat[open + 1..close].into(),
            parent: Pid(parent),
            leader_ended: matches!(state, b"Z" | b"X" | b"x"),
            leader_exiting: flags & PF_EXITING != 0,
            threads: u32::try_from(threads).map_err(|_| "number of threads")?,
            start_ticks: number_after(1).ok_or("start time")?,
        })
    }

    /// Whether no thread of the process runs any more.
    #[must_use]
    pub const fn has_ended(&self) -> bool {
        self.leader_ended && self.threads <= 1
    }
}

fn failed(pid: Pid, name: &str, errno: Errno) -> ProcfsError {
    ProcfsError::reading(pid, name, errno.into())
}

impl ProcfsError {
    /// `/proc` returns `ENOENT` for a process that does not exist, and `ESRCH` for one that ended while it was read.
    pub(crate) fn reading(pid: Pid, name: &str, source: io::Error) -> Self {
        let path = if name.is_empty() { "the directory" } else { name }.to_owned();
        match Errno::from_io_error(&source) {
            Some(Errno::NOENT | Errno::SRCH) => Self::Gone { pid },
            Some(Errno::ACCESS | Errno::PERM) => Self::Permission { pid, path },
            _ => Self::Read { pid, path, source },
        }
    }
}

/// The path by which a descriptor of ours can be reopened.
pub(crate) fn path_of_descriptor(descriptor: BorrowedFd<'_>) -> PathBuf {
    use std::os::fd::AsRawFd;
    Path::new("/proc/self/fd").join(descriptor.as_raw_fd().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let stat = b"12 (a) S (b) Z 1 12 12 0 -1 4228300 0 0 0 0 0 0 0 0 20 0 3 0 4711 0 0\n";
        let state = ProcessState::parse(stat).unwrap();
        assert_eq!((&*state.comm, state.parent), (&b"a) S (b"[..], Pid(1)));
        assert_eq!((state.leader_ended, state.threads, state.start_ticks), (true, 3, 4711));
        assert!(state.leader_exiting && !state.has_ended());
        let running = b"12 (a) R 1 12 12 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 3 0 4711 0 0\n";
        assert!(!ProcessState::parse(running).unwrap().leader_exiting);
    }

    #[test]
    fn our_own_state_is_read() {
        let directory = ProcessDir::open(&ProcRoot::default(), Pid(std::process::id())).unwrap();
        let state = directory.state().unwrap();
        assert!(state.threads >= 1 && !state.has_ended());
        assert_eq!(ProcessState::parse(b"12 (a) S 1"), Err("flags"));
    }

    #[test]
    fn a_process_that_is_gone_is_reported_as_gone() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let directory = ProcessDir::open(&ProcRoot::default(), Pid(child.id())).unwrap();
        child.wait().unwrap();
        assert!(matches!(directory.state(), Err(ProcfsError::Gone { .. })));
        let reopened = ProcessDir::open(&ProcRoot::default(), Pid(child.id()));
        assert!(matches!(reopened, Err(ProcfsError::Gone { .. })));
    }
}
