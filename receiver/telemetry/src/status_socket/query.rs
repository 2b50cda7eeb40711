//! Asks the profilers that run here for their status.
//!
//! Nothing here waits for a process of another user: connections are made without blocking, and a socket is read only if root or
//! this user listens there.

use std::fmt;
use std::fs;
use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Uid, geteuid};
use serde_json::Value;
use sidewinder_text::ExternalText;

use super::place::{ABSTRACT_PREFIX, directories, is_trusted, socket_files};

/// How long a full queue of connections may stay full.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// How long a profiler may take to send its document.
const READ_TIMEOUT: Duration = Duration::from_secs(5);
/// The size limit of a document in bytes.
const DOCUMENT_BYTES_MAX: u64 = 4 << 20;

/// What the profilers of root and of this user responded.
#[derive(Debug, Default)]
pub struct StatusResponses {
    /// What those say of themselves that responded.
    pub documents: Vec<Value>,
    /// Those that did not respond.
    pub silent: Vec<SilentProfiler>,
}

/// A profiler that runs, and sent no document in time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SilentProfiler {
    /// The process ID here; `None` if not even a connection was accepted.
    pub pid: Option<u32>,
    socket: SocketName,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum SocketName {
    File(PathBuf),
    Abstract(String),
}

impl fmt::Display for SilentProfiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid}: does not respond at ")?,
            None => write!(f, "a process does not respond at ")?,
        }
        match &self.socket {
            SocketName::File(path) => write!(f, "{}", ExternalText::new(path)),
            SocketName::Abstract(name) => write!(f, "@{}", name.escape_default()),
        }
    }
}

/// The documents of all profilers that respond and are run by root or by this user: those with a socket in a directory of
/// [`directories`], and in this network namespace.
///
/// # Errors
/// If the kernel's list of sockets can't be read.
pub fn query_all() -> io::Result<StatusResponses> {
    let user = geteuid();
    let files =
        directories(user).iter().flat_map(|directory| socket_files(directory, user)).collect::<Vec<_>>();
    let mut sockets: Vec<_> = files.into_iter().map(SocketName::File).collect();
    sockets.extend(abstract_names(&fs::read_to_string("/proc/net/unix")?));
    sockets.sort_unstable();
    // A connection to a socket is listed under the socket's name.
    sockets.dedup();
    Ok(query(sockets))
}

fn abstract_names(list: &str) -> impl Iterator<Item = SocketName> {
    list.lines()
        .filter_map(|line| line.split_whitespace().last()?.strip_prefix('@'))
        .filter(|name| name.starts_with(ABSTRACT_PREFIX))
        .map(|name| SocketName::Abstract(name.to_owned()))
}

/// Connects to all sockets, then reads all documents at a time.
pub(super) fn query(sockets: Vec<SocketName>) -> StatusResponses {
    let mut responses = StatusResponses::default();
    let connected = connect_all(sockets, &mut responses.silent);
    let results = thread::scope(|scope| {
        let readers: Vec<_> = connected
            .into_iter()
            .map(|(socket, pid, stream)| (socket, pid, scope.spawn(move || read_document(stream))))
            .collect();
        let join = |(socket, pid, reader): (_, _, thread::ScopedJoinHandle<'_, _>)| {
            (socket, pid, reader.join().unwrap_or(None))
        };
        readers.into_iter().map(join).collect::<Vec<_>>()
    });
    for (socket, pid, document) in results {
        match document {
            Some(document) => responses.documents.push(document),
            None => responses.silent.push(SilentProfiler { pid: Some(pid), socket }),
        }
    }
    responses
}

/// The connections to profilers of root and of this user. Sockets whose queue of connections stays full are silent.
fn connect_all(
    mut sockets: Vec<SocketName>,
    silent: &mut Vec<SilentProfiler>,
) -> Vec<(SocketName, u32, UnixStream)> {
    let deadline = Instant::now() + CONNECT_TIMEOUT;
    let mut connected = Vec::new();
    loop {
        sockets.retain(|socket| match connect_to(socket) {
            Ok(stream) => {
                // Any process can listen at an abstract name.
                let peer = socket_peercred(&stream).ok().filter(|peer| is_trusted(peer.uid.as_raw()));
                connected.extend(
                    peer.map(|peer| {
                        (socket.clone(), peer.pid.as_raw_nonzero().get().cast_unsigned(), stream)
                    }),
                );
                false
            }
            Err(Errno::AGAIN) => true,
            Err(error) => {
                remove_if_dead(socket, error);
                false
            }
        });
        if sockets.is_empty() || Instant::now() >= deadline {
            break;
        }
        thread::sleep(CONNECT_RETRY_INTERVAL);
    }
    // Who listens at an abstract name is not known: probably no profiler.
    let files = sockets.into_iter().filter(|socket| matches!(socket, SocketName::File(_)));
    silent.extend(files.map(|socket| SilentProfiler { pid: None, socket }));
    connected
}

/// Connects without waiting: [`Errno::AGAIN`] if the queue of connections is full.
fn connect_to(socket: &SocketName) -> Result<UnixStream, Errno> {
    let address = match socket {
        SocketName::File(path) => SocketAddrUnix::new(path.as_path())?,
        SocketName::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let descriptor = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&descriptor, &address)?;
    Ok(UnixStream::from(descriptor))
}

/// Removes the files of this user's sockets at which nobody listens any more: their processes were killed.
pub(super) fn remove_dead_sockets(directory: &Path, user: Uid) {
    for socket in socket_files(directory, user).into_iter().map(SocketName::File) {
        if let Err(error) = connect_to(&socket) {
            remove_if_dead(&socket, error);
        }
    }
}

fn remove_if_dead(socket: &SocketName, error: Errno) {
    if let (SocketName::File(path), Errno::CONNREFUSED) = (socket, error) {
        // Without permission it stays, and the next profiler of its user removes it.
        let _ = fs::remove_file(path);
    }
}

/// `None` if there is no whole document in time.
fn read_document(stream: UnixStream) -> Option<Value> {
    let deadline = Instant::now() + READ_TIMEOUT;
    stream.set_nonblocking(false).ok()?;
    let mut text = Vec::new();
    let mut limited = (&stream).take(DOCUMENT_BYTES_MAX);
    let mut buffer = [0; 16 << 10];
    loop {
        let left = deadline.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())?;
        stream.set_read_timeout(Some(left)).ok()?;
        match limited.read(&mut buffer) {
            Ok(0) => return serde_json::from_slice(&text).ok(),
            Ok(length) => text.extend_from_slice(buffer.get(..length)?),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}
