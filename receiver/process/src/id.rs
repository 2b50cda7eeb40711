//! The small names by which processes, devices and builds are known.

use std::fmt;

/// A process (a thread group) as our own PID namespace numbers it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Pid(pub u32);

impl Pid {
    /// Whether this is how the kernel numbers a process that our PID namespace does not hold (0), or one
    /// that has ended already (-1).
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

/// The identity of a process: no other process of this run has or had it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProcessKey {
    /// Its PID in our PID namespace.
    pub pid: u32,
    /// As in [`Process::instance`](crate::Process::instance); 0: the registry has never known it.
    pub instance: u64,
}

/// A thread as our own PID namespace numbers it; the leader's number is its process's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tid(pub u32);

impl Tid {
    /// Whether this thread leads `pid`.
    #[must_use]
    pub const fn leads(self, pid: Pid) -> bool {
        self.0 == pid.0
    }
}

/// A block device, or the number that stands for one on file systems without.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct DeviceId {
    /// The kind of device; 0 for file systems that lie on none (overlay, tmpfs, FUSE, btrfs).
    pub major: u32,
    /// Which one of its kind.
    pub minor: u32,
}

impl DeviceId {
    /// Whether the number was made up for a file system without a block device of its own.
    #[must_use]
    pub const fn is_anonymous(self) -> bool {
        self.major == 0
    }
}

/// The longest build ID that is kept, in bytes: linkers write 8 to 32.
const LONGEST_BUILD_ID_BYTES: usize = 64;

/// The GNU build ID of a file: bytes that its linker made from its content.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(Box<[u8]>);

impl BuildId {
    /// A build ID of 1 to 64 bytes; `None` for any other length.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Option<Self> {
        (1..=LONGEST_BUILD_ID_BYTES).contains(&bytes.len()).then(|| Self(bytes.into()))
    }

    /// The bytes as they stand in the note.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(f, &self.0)
    }
}

impl fmt::Debug for BuildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuildId({self})")
    }
}

/// Writes bytes as lower-case hexadecimal digits, two each.
pub(crate) fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

/// What tells a mapped file from others. The kernel reports one form or the other.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum MappedIdentity {
    /// Where the file lies.
    Inode {
        /// The device as mappings report it, which on overlay (before Linux 6.8) and btrfs is not what
        /// `stat` reports.
        device: DeviceId,
        /// The number of the file on it.
        inode: u64,
    },
    /// What the linker made of it. Not proof by itself: anybody can write any build ID into a file.
    BuildId(BuildId),
}
