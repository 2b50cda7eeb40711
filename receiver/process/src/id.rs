//! IDs of processes, devices and builds.

use std::fmt;

/// The PID of a process (a thread group) in our own PID namespace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub u32);

impl Pid {
    /// Whether this PID stands for a process outside of our PID namespace (0), or for one that has already ended (-1).
    #[must_use]
    pub const fn is_outside(self) -> bool {
        matches!(self.0, 0 | u32::MAX)
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The identity of a process, unique within this run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessKey {
    /// Its PID in our PID namespace.
    pub pid: u32,
    /// As in [`Process::instance`](crate::Process::instance); 0 if the registry has never known it.
    pub instance: u64,
}

/// The TID of a thread in our own PID namespace; the leader's TID equals its process's PID.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub u32);

impl Tid {
    /// Whether this thread is the leader of `pid`.
    #[must_use]
    pub const fn leads(self, pid: Pid) -> bool {
        self.0 == pid.0
    }
}

/// A block device, or the device number of a file system without one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId {
    /// The major number; 0 for file systems without a block device (overlay, tmpfs, FUSE, btrfs).
    pub major: u32,
    /// The minor number.
    pub minor: u32,
}

impl DeviceId {
    /// Whether the device number is an anonymous one, of a file system without a block device.
    #[must_use]
    pub const fn is_anonymous(self) -> bool {
        self.major == 0
    }
}

/// The longest build ID that is kept, in bytes: linkers write 8 to 32.
const LONGEST_BUILD_ID_BYTES: usize = 64;

/// The GNU build ID of a file, which its linker derived from its content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// A build ID of 1 to 64 bytes; `None` for any other length.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=LONGEST_BUILD_ID_BYTES).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// The bytes as in the note.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// The identity of a mapped file. The kernel reports one variant or the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MappedIdentity {
    /// Its device and inode.
    Inode {
        /// The device as mappings report it; on overlay (before Linux 6.8) and btrfs it differs from the one that `stat`
        /// reports.
        device: DeviceId,
        /// The inode number on that device.
        inode: u64,
    },
    /// The build ID. Not a proof by itself: anybody can write any build ID into a file.
    BuildId(BuildId),
}
