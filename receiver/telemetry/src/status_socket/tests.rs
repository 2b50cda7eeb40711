use std::fs::Permissions;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Instant;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with,
};
use serde_json::json;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::place::{ABSTRACT_PREFIX, socket_files};
use super::query::{SocketName, query};
use super::*;

/// Another user than root, and than the one who runs tests.
const STRANGER: u32 = 64_123;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn directory(mode: u32) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
    directory
}

fn open(directory: &Path, runtime: &Runtime) -> StatusSocket {
    let document = Arc::new(|| json!({ "pid": 1 }).to_string());
    let interval = Duration::from_millis(10);
    StatusSocket::open_in(vec![directory.to_owned()], interval, document, runtime.handle()).unwrap()
}

fn files(directory: &TempDir) -> Vec<PathBuf> {
    socket_files(directory.path(), geteuid())
}

fn query_files(directory: &TempDir) -> StatusResponses {
    query(files(directory).into_iter().map(SocketName::File).collect())
}

/// Waits up to ten seconds.
fn until(is_so: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(10);
    std::iter::repeat_with(|| std::thread::sleep(Duration::from_millis(5)))
        .take_while(|()| Instant::now() < deadline)
        .any(|()| is_so())
}

#[test]
fn the_document_is_given_at_a_file_of_this_user_alone_which_goes_with_the_service() {
    let (runtime, directory) = (runtime(), directory(0o700));
    let socket = open(directory.path(), &runtime);
    let [file] = <[_; 1]>::try_from(files(&directory)).unwrap();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let responses = query_files(&directory);
    assert_eq!((responses.documents, responses.silent), (vec![json!({ "pid": 1 })], vec![]));
    drop(socket);
    assert!(until(|| !file.exists()));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn what_a_killed_profiler_left_is_removed_by_the_next_one_and_by_a_query() {
    let (runtime, directory) = (runtime(), directory(0o700));
    let leave = || {
        let dead = directory.path().join("sidewinder-dead.sock");
        drop(UnixListener::bind(&dead).unwrap());
        dead
    };
    let dead = leave();
    let _socket = open(directory.path(), &runtime);
    assert!(!dead.exists() && files(&directory).len() == 1);
    let dead = leave();
    assert_eq!(query_files(&directory).documents.len(), 1);
    assert!(!dead.exists() && files(&directory).len() == 1);
}

#[test]
fn a_socket_whose_file_is_removed_is_opened_again() {
    let (runtime, directory) = (runtime(), directory(0o700));
    let _socket = open(directory.path(), &runtime);
    let [file] = <[_; 1]>::try_from(files(&directory)).unwrap();
    fs::remove_file(&file).unwrap();
    assert!(until(|| query_files(&directory).documents.len() == 1));
    assert!(!file.exists());
}

#[test]
fn no_socket_is_where_others_can_remove_or_rename_it() {
    for (mode, is_used) in [(0o700, true), (0o755, true), (0o1777, true), (0o777, false), (0o775, false)] {
        let (runtime, directory) = (runtime(), directory(mode));
        let _socket = open(directory.path(), &runtime);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), usize::from(is_used), "{mode:o}");
    }
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root gives files away");
        return;
    }
    let (runtime, directory) = (runtime(), directory(0o1777));
    let socket = open(directory.path(), &runtime);
    assert_eq!(files(&directory).len(), 1);
    chown(files(&directory)[0].as_path(), Some(STRANGER), None).unwrap();
    assert!(files(&directory).is_empty(), "a socket of another user");
    drop(socket);
    chown(directory.path(), Some(STRANGER), None).unwrap();
    let _elsewhere = open(directory.path(), &runtime);
    assert!(files(&directory).is_empty(), "another user's directory");
}

#[test]
fn without_a_directory_it_is_an_abstract_socket() {
    let (runtime, missing) = (runtime(), directory(0o700).path().join("missing"));
    let _socket = open(&missing, &runtime);
    let found = query_all().unwrap();
    assert!(found.documents.contains(&json!({ "pid": 1 })), "{found:?}");
}

/// A queue for one connection, which is full: a blocking connect(2) never returns.
fn full_queue(address: &SocketAddrUnix) -> Vec<rustix::fd::OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let new = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
    let listener = new();
    bind(&listener, address).unwrap();
    listen(&listener, 0).unwrap();
    let mut sockets = vec![listener];
    loop {
        let client = new();
        if connect(&client, address).is_err() {
            return sockets;
        }
        sockets.push(client);
    }
}

#[test]
fn sockets_that_accept_nothing_hold_up_no_query() {
    let (runtime, directory) = (runtime(), directory(0o700));
    let _socket = open(directory.path(), &runtime);
    let name = format!("{ABSTRACT_PREFIX}full-{}", std::process::id());
    let _full = full_queue(&SocketAddrUnix::new_abstract_name(name.as_bytes()).unwrap());
    let path = directory.path().join("sidewinder-full.sock");
    let _full_file = full_queue(&SocketAddrUnix::new(&path).unwrap());
    let mut sockets: Vec<_> = files(&directory).into_iter().map(SocketName::File).collect();
    sockets.push(SocketName::Abstract(name));
    let begin = Instant::now();
    let responses = query(sockets);
    assert_eq!(responses.documents, [json!({ "pid": 1 })]);
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let silent: Vec<_> = responses.silent.iter().map(ToString::to_string).collect();
    assert_eq!(silent, [format!("a process does not respond at {}", path.to_str().unwrap())]);
}

/// It is named, and those that respond are found meanwhile.
#[test]
fn a_profiler_that_accepts_and_sends_nothing_is_silent() {
    let name = format!("{ABSTRACT_PREFIX}silent-{}", std::process::id());
    let _silent = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let (runtime, directory) = (runtime(), directory(0o700));
    let _socket = open(directory.path(), &runtime);
    let mut sockets: Vec<_> = files(&directory).into_iter().map(SocketName::File).collect();
    sockets.insert(0, SocketName::Abstract(name));
    let responses = query(sockets);
    assert_eq!(responses.documents, [json!({ "pid": 1 })]);
    assert_eq!(responses.silent.len(), 1);
    assert_eq!(responses.silent[0].pid, Some(std::process::id()));
}
