//! Where the sockets are: in the first of these directories in which nobody else can take or remove a file of ours.
//!
//! | Directory             | Who has it                                                                             |
//! |-----------------------|----------------------------------------------------------------------------------------|
//! | `/run/sidewinder`     | root, which creates it; our systemd unit                                               |
//! | `$XDG_RUNTIME_DIR`    | users who are logged in, and their services                                            |
//! | `/run/user/UID`       | the same, after `su` or in a cron job                                                  |
//! | `/dev/shm`            | containers, also with a read-only root file system; the containers of a pod share it   |

use std::fmt;
use std::fs::{self, DirBuilder, Metadata, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::{Path, PathBuf};

use rustix::process::{Uid, geteuid};
use sidewinder_text::ExternalText;
use tracing::debug;

/// Root's directory.
const RUN: &str = "/run/sidewinder";
/// The name of each socket's file: this prefix, a random UUID, because process IDs repeat across PID namespaces, and `.sock`.
const FILE_PREFIX: &str = "sidewinder-";
const FILE_SUFFIX: &str = ".sock";
/// The prefix of each abstract socket's name; a random UUID follows.
pub(super) const ABSTRACT_PREFIX: &str = "sidewinder/status/";

/// The directories in which sockets of this user are, the best one first.
pub(super) fn directories(user: Uid) -> Vec<PathBuf> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = PathBuf::from(format!("/run/user/{}", user.as_raw()));
    let mut directories = vec![PathBuf::from(RUN)];
    directories.extend(session.filter(|session| *session != usual));
    directories.extend([usual, PathBuf::from("/dev/shm")]);
    directories
}

/// The sockets of a user in a directory. None in a directory where another one could have put or moved them.
pub(super) fn socket_files(directory: &Path, user: Uid) -> Vec<PathBuf> {
    if !is_safe(directory, user) {
        return Vec::new();
    }
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let named = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_str().is_some_and(|name| name.starts_with(FILE_PREFIX) && name.ends_with(FILE_SUFFIX))
    });
    let is_ours = |file: Metadata| file.file_type().is_socket() && file.uid() == user.as_raw();
    named.filter(|entry| entry.metadata().is_ok_and(is_ours)).map(|entry| entry.path()).collect()
}

/// Whether a process of this user may ask, or answer: it is ours or root's.
pub(super) fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// Whether only this user and root can remove and rename this user's files in a directory.
fn is_safe(directory: &Path, user: Uid) -> bool {
    const STICKY: u32 = 0o1000;
    const WRITABLE_BY_OTHERS: u32 = 0o022;
    fs::metadata(directory).is_ok_and(|directory| {
        let is_kept = directory.mode() & STICKY != 0 || directory.mode() & WRITABLE_BY_OTHERS == 0;
        directory.is_dir() && [0, user.as_raw()].contains(&directory.uid()) && is_kept
    })
}

/// A socket that listens. Its file is removed when it is dropped.
#[derive(Debug)]
pub(super) struct BoundSocket {
    listener: UnixListener,
    place: Place,
}

#[derive(Debug)]
enum Place {
    File(PathBuf),
    Abstract(String),
}

impl BoundSocket {
    /// The directory of its file; `None` for an abstract one.
    pub(super) fn directory(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => path.parent(),
            Place::Abstract(_) => None,
        }
    }
}

/// Binds a socket in the first directory that is safe and takes it, or an abstract one.
///
/// # Errors
/// If the kernel refuses an abstract one, too.
pub(super) fn bind(directories: &[PathBuf]) -> io::Result<BoundSocket> {
    let user = geteuid();
    let uuid = fs::read_to_string("/proc/sys/kernel/random/uuid")?;
    if user.is_root() && directories.iter().any(|directory| directory == Path::new(RUN)) {
        // It exists already, or can't be created: then another one is used.
        let _ = DirBuilder::new().mode(0o755).create(RUN);
    }
    for directory in directories.iter().filter(|directory| is_safe(directory, user)) {
        match bind_file(directory, uuid.trim()) {
            Ok(socket) => return Ok(socket),
            Err(error) => {
                let directory = ExternalText::new(directory);
                debug!(%directory, error = &error as &dyn std::error::Error, "no socket");
            }
        }
    }
    let name = format!("{ABSTRACT_PREFIX}{}", uuid.trim());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
    listener.set_nonblocking(true)?;
    Ok(BoundSocket { listener, place: Place::Abstract(name) })
}

/// The file gets its name once connections are accepted: before, it would look as if its process had been killed.
fn bind_file(directory: &Path, uuid: &str) -> io::Result<BoundSocket> {
    let unfinished = directory.join(format!(".{FILE_PREFIX}{uuid}"));
    let listener = UnixListener::bind(&unfinished)?;
    let path = directory.join(format!("{FILE_PREFIX}{uuid}{FILE_SUFFIX}"));
    let finished = fs::set_permissions(&unfinished, Permissions::from_mode(0o600))
        .and_then(|()| listener.set_nonblocking(true))
        .and_then(|()| fs::rename(&unfinished, &path));
    if let Err(error) = finished {
        let _ = fs::remove_file(&unfinished);
        return Err(error);
    }
    Ok(BoundSocket { listener, place: Place::File(path) })
}

impl BoundSocket {
    pub(super) fn listener(&self) -> io::Result<UnixListener> {
        self.listener.try_clone()
    }

    /// The socket's file; `None` if it is an abstract one.
    pub(super) fn file(&self) -> Option<&Path> {
        match &self.place {
            Place::File(path) => Some(path),
            Place::Abstract(_) => None,
        }
    }
}

impl fmt::Display for BoundSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::File(path) => write!(f, "{}", ExternalText::new(path)),
            Place::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

impl Drop for BoundSocket {
    fn drop(&mut self) {
        if let Place::File(path) = &self.place {
            let _ = fs::remove_file(path);
        }
    }
}
