//! The kernel's metadata of a file, without opening it.

use std::os::fd::BorrowedFd;
use std::time::{Duration, SystemTime};

use rustix::fs::{AtFlags, FileType, StatxFlags, getxattr_query, statx};
use rustix::io::Errno;

use crate::credentials::Ownership;
use crate::id::DeviceId;
use crate::procfs::path_of_descriptor;

/// Identifies one version of a file's content, as long as the file is not removed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct FileStatus {
    pub(crate) device: DeviceId,
    pub(crate) inode: u64,
    pub(crate) size_bytes: u64,
    pub(crate) changed_s: i64,
    pub(crate) changed_ns: u32,
}

impl FileStatus {
    /// When it was last changed; `None` before 1970.
    pub(crate) fn changed_at(&self) -> Option<SystemTime> {
        SystemTime::UNIX_EPOCH
            .checked_add(Duration::new(u64::try_from(self.changed_s).ok()?, self.changed_ns))
    }
}

/// The `statx` metadata of a descriptor, without a request to the server of a remote file system.
pub(crate) struct FileMetadata {
    pub(crate) status: FileStatus,
    pub(crate) file_type: FileType,
    pub(crate) ownership: Ownership,
    /// The number of hard links.
    pub(crate) links: u32,
    pub(crate) mount_id: Option<u64>,
}

impl FileMetadata {
    pub(crate) fn from_fd(found: BorrowedFd<'_>) -> Result<Self, Errno> {
        let mask = StatxFlags::BASIC_STATS | StatxFlags::MNT_ID;
        let stat = statx(found, c"", AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC, mask)?;
        Ok(Self {
            status: FileStatus {
                device: DeviceId { major: stat.stx_dev_major, minor: stat.stx_dev_minor },
                inode: stat.stx_ino,
                size_bytes: stat.stx_size,
                changed_s: stat.stx_ctime.tv_sec,
                changed_ns: stat.stx_ctime.tv_nsec,
            },
            file_type: FileType::from_raw_mode(stat.stx_mode.into()),
            ownership: Ownership { user: stat.stx_uid, group: stat.stx_gid, mode: stat.stx_mode.into() },
            links: stat.stx_nlink,
            mount_id: (stat.stx_mask & StatxFlags::MNT_ID.bits() != 0).then_some(stat.stx_mnt_id),
        })
    }
}

/// Whether an access control list may contradict the mode (acl(5)); also true if that can't be determined.
pub(crate) fn has_acl(found: BorrowedFd<'_>) -> bool {
    match getxattr_query(path_of_descriptor(found), c"system.posix_acl_access") {
        Ok(bytes) => bytes > 0,
        Err(Errno::NODATA | Errno::OPNOTSUPP) => false,
        Err(_) => true,
    }
}
