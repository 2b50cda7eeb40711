//! Classifies file systems by whether their identities and responses can be trusted.

use crate::id::DeviceId;

/// The properties of a file system that matter when a file on it is opened on behalf of another process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FilesystemKind {
    /// Mappings and `stat` report the same device and inode.
    Plain,
    /// Mappings report another device than `stat` does, but the same inode (overlay before Linux 6.8, btrfs always).
    Layered,
    /// A process or another host handles each request (FUSE, network file systems), and may never respond.
    Remote,
}

impl FilesystemKind {
    fn from_name(name: &[u8]) -> Self {
        match name {
            b"overlay" | b"btrfs" => Self::Layered,
            b"nfs" | b"nfs4" | b"cifs" | b"smb3" | b"9p" | b"ceph" | b"afs" => Self::Remote,
            _ if name.starts_with(b"fuse") => Self::Remote,
            _ => Self::Plain,
        }
    }
}

/// The mounts of one process (proc_pid_mountinfo(5)), reduced to the required fields.
#[derive(Debug, Default)]
pub(crate) struct Mounts(Vec<Mount>);

#[derive(Debug)]
struct Mount {
    id: u64,
    device: DeviceId,
    kind: FilesystemKind,
}

impl Mounts {
    /// Parses the valid lines; others are skipped.
    pub(crate) fn parse(mountinfo: &[u8]) -> Self {
        Self(mountinfo.split(|&byte| byte == b'\n').filter_map(mount).collect())
    }

    /// Whether the lookup of a path could reach a file system that never responds.
    pub(crate) fn any_remote(&self) -> bool {
        self.0.iter().any(|mount| mount.kind == FilesystemKind::Remote)
    }

    /// The kind of a mount: by its ID, or by its device if the kernel doesn't report the ID. `None` if it is not among these
    /// mounts.
    pub(crate) fn kind_of(&self, mount_id: Option<u64>, device: DeviceId) -> Option<FilesystemKind> {
        let found = self.0.iter().find(|mount| match mount_id {
            Some(id) => mount.id == id,
            None => mount.device == device,
        });
        found.map(|mount| mount.kind)
    }
}

/// `id parent major:minor root mount-point options [tags...] - type source super-options`
fn mount(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|&byte| byte == b' ');
    let id = std::str::from_utf8(fields.next()?).ok()?.parse().ok()?;
    let (major, minor) = std::str::from_utf8(fields.nth(1)?).ok()?.split_once(':')?;
    let device = DeviceId { major: major.parse().ok()?, minor: minor.parse().ok()? };
    fields.find(|&field| field == b"-")?;
    Some(Mount { id, device, kind: FilesystemKind::from_name(fields.next()?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_identified_by_id_or_device() {
        let mounts = Mounts::parse(
            b"36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 shared:2 - ext4 /dev/root rw\n\
              40 35 0:51 / / rw - overlay overlay rw,lowerdir=/a - b\n\
              no mount\n\
              41 35 0:52 / /f\\040g rw - fuse.sshfs host: rw\n",
        );
        let anonymous = |minor| DeviceId { major: 0, minor };
        assert_eq!(mounts.kind_of(Some(36), anonymous(9)), Some(FilesystemKind::Plain));
        assert_eq!(mounts.kind_of(None, anonymous(51)), Some(FilesystemKind::Layered));
        assert_eq!(mounts.kind_of(Some(41), anonymous(51)), Some(FilesystemKind::Remote));
        assert_eq!(mounts.kind_of(Some(99), anonymous(51)), None);
        assert!(mounts.any_remote());
    }
}
