//! What the path of an output refers to.
//!
//! Links are followed here and not by the kernel, because a file is replaced and not written to. So the kernel's rules for
//! directories in which everyone may create files are applied here too (proc_sys_fs(5): protected_symlinks, protected_regular,
//! protected_fifos), whether or not they are switched on: nobody else decides where an output goes, or who can read it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;
use rustix::process::geteuid;
use sidewinder_text::ExternalText;

/// The limit of the kernel (path_resolution(7)).
const SYMLINKS_MAX: usize = 40;
/// A directory with both: everyone may create files in it, and remove only their own.
const SHARED_DIRECTORY: Mode = Mode::SVTX.union(Mode::WOTH);

#[derive(PartialEq, Eq, Debug)]
pub(super) enum OutputTarget {
    /// A regular file, or a path with no file yet, with all symbolic links resolved.
    File(PathBuf),
    /// A pipe or a device.
    Stream,
    /// A descriptor of this process, whatever it refers to.
    Descriptor(u32),
}

/// Resolves a path to what it refers to.
///
/// # Errors
/// If it is a directory, can't be looked up, or leads through a file of another user as [`look_up`] says.
pub(super) fn resolve_target(path: &Path) -> io::Result<OutputTarget> {
    let mut at = path.to_owned();
    for _ in 0..SYMLINKS_MAX {
        if let Some(descriptor) = parse_descriptor_path(&at) {
            return Ok(OutputTarget::Descriptor(descriptor));
        }
        let Some(found) = look_up(&at)? else { return Ok(OutputTarget::File(at)) };
        match found.kind() {
            FileType::Symlink => at = parent_directory(&at).join(found.read_link()?),
            FileType::Directory => return Err(io::ErrorKind::IsADirectory.into()),
            FileType::RegularFile => return Ok(OutputTarget::File(at)),
            _ => return Ok(OutputTarget::Stream),
        }
    }
    Err(Errno::LOOP.into())
}

/// A file that was found at a path, itself and not what it may link to.
pub(super) struct FoundFile {
    file: OwnedFd,
    status: Stat,
}

/// The owner and the permissions of a file.
pub(super) struct FileOwner {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) mode: u32,
}

/// Looks up the last component of a path; `None` if there is no such file.
///
/// # Errors
/// `PermissionDenied` if it belongs to another user, and is in a directory in which everyone may create files.
pub(super) fn look_up(path: &Path) -> io::Result<Option<FoundFile>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    // Without a name, as in `/` and `..`, a path is a directory.
    let name = path.file_name().unwrap_or(".".as_ref());
    let parent = if path.file_name().is_some() { parent_directory(path) } else { path };
    let found = openat(CWD, parent, flags | OFlags::DIRECTORY, Mode::empty()).and_then(|directory| {
        let file = openat(&directory, name, flags | OFlags::NOFOLLOW, Mode::empty())?;
        Ok((fstat(&directory)?, FoundFile { status: fstat(&file)?, file }))
    });
    let (directory, found) = match found {
        Err(Errno::NOENT) if path.file_name().is_some() => return Ok(None),
        found => found?,
    };
    let is_shared = Mode::from_raw_mode(directory.st_mode).contains(SHARED_DIRECTORY);
    // Nobody else can create devices.
    let is_plain = matches!(found.kind(), FileType::Symlink | FileType::RegularFile | FileType::Fifo);
    let is_trusted = [directory.st_uid, geteuid().as_raw()].contains(&found.status.st_uid);
    if is_shared && is_plain && !is_trusted {
        let message = format!(
            "{} belongs to another user, in a directory where everyone may create files",
            ExternalText::new(path)
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
    }
    Ok(Some(found))
}

impl FoundFile {
    fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.status.st_mode)
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind() == FileType::RegularFile
    }

    pub(super) fn owner(&self) -> FileOwner {
        let Stat { st_uid: uid, st_gid: gid, st_mode, .. } = self.status;
        FileOwner { uid, gid, mode: Mode::from_raw_mode(st_mode).as_raw_mode() }
    }

    /// The content of a symbolic link.
    fn read_link(&self) -> io::Result<PathBuf> {
        use std::os::unix::ffi::OsStringExt as _;
        let target = readlinkat(&self.file, c"", Vec::new())?;
        Ok(std::ffi::OsString::from_vec(target.into_bytes()).into())
    }
}

/// The descriptor of this process that a path stands for, such as `/dev/fd/63`.
fn parse_descriptor_path(path: &Path) -> Option<u32> {
    let is_ours =
        parent_directory(path).canonicalize().ok()? == Path::new(&format!("/proc/{}/fd", std::process::id()));
    path.file_name()?.to_str()?.parse().ok().filter(|_| is_ours)
}

pub(super) fn parent_directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};

    use super::*;

    /// Nobody's user ID.
    const STRANGER: u32 = 65534;

    /// A directory like `/tmp` that belongs to this user.
    fn shared_directory() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o1777)).unwrap();
        folder
    }

    #[test]
    fn a_strangers_file_in_a_shared_directory_is_refused_as_the_kernel_does() {
        let (folder, private) = (shared_directory(), tempfile::tempdir().unwrap());
        let victim = private.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        let at = |name: &str| folder.path().join(name);
        symlink(&victim, at("link")).unwrap();
        symlink(private.path().join("none"), at("dangling")).unwrap();
        fs::write(at("file"), "").unwrap();
        rustix::fs::mknodat(CWD, at("pipe"), FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
        symlink(at("link"), private.path().join("chain")).unwrap();
        let names = ["link", "dangling", "file", "pipe"];
        for name in names {
            assert!(resolve_target(&at(name)).is_ok(), "{name} is our own");
        }
        if names.iter().any(|name| lchown(at(name), Some(STRANGER), None).is_err()) {
            return; // Only root can give files away.
        }
        for path in names.map(at).into_iter().chain([private.path().join("chain")]) {
            let error = resolve_target(&path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path:?}: {error}");
            assert!(error.to_string().contains("another user"), "{error}");
        }
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        assert_eq!(resolve_target(&at("link")).unwrap(), OutputTarget::File(victim));
    }

    #[test]
    fn a_link_of_the_directorys_owner_is_followed() {
        let folder = shared_directory();
        symlink("file", folder.path().join("link")).unwrap();
        let own = [folder.path(), &folder.path().join("link")];
        if own.iter().any(|path| lchown(path, Some(STRANGER), None).is_err()) {
            return; // Only root can give files away.
        }
        let target = resolve_target(&folder.path().join("link")).unwrap();
        assert_eq!(target, OutputTarget::File(folder.path().join("file")));
    }
}
