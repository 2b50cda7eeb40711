//! The client against servers on the loopback interface.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// A server that answers each request by its path, and counts them.
struct TestServer {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl TestServer {
    fn start(respond: impl Fn(&str) -> Option<Vec<u8>> + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let mut lines = BufReader::new(&stream).lines();
                let first = lines.next().and_then(Result::ok).unwrap_or_default();
                lines.map_while(Result::ok).take_while(|line| !line.is_empty()).for_each(drop);
                counted.fetch_add(1, Ordering::Relaxed);
                let path = first.split(' ').nth(1).unwrap_or_default();
                let (status, body) = match respond(path) {
                    Some(body) => ("200 OK", body),
                    None => ("404 Not Found", b"no such file".to_vec()),
                };
                let length = body.len();
                let head =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                _ = (&stream).write_all(head.as_bytes()).and_then(|()| (&stream).write_all(&body));
            }
        });
        Self { url, requests }
    }

    /// A server that sends these bytes to each client after its request, the last ones again and again if `is_endless`.
    fn raw(first: Vec<u8>, is_endless: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&requests);
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::Relaxed);
                let head = BufReader::new(&stream).lines().map_while(Result::ok);
                head.take_while(|line| !line.is_empty()).for_each(drop);
                let chunk = [b"1000\r\n".to_vec(), vec![b'x'; 0x1000], b"\r\n".to_vec()].concat();
                let mut is_sent = stream.write_all(&first).is_ok();
                while is_sent && is_endless {
                    is_sent = stream.write_all(&chunk).is_ok();
                }
            }
        });
        Self { url, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::Relaxed)
    }
}

fn client(directory: &Path, urls: &str) -> Debuginfod {
    let limits = DownloadLimits {
        connect: Duration::from_secs(5),
        silence: Duration::from_secs(5),
        total: Duration::from_secs(60),
        bytes: 1 << 20,
    };
    let download = DownloadOptions { limits, tls: TlsClient::default(), proxies: Proxies::default() };
    let options =
        DebuginfodOptions { urls: urls.parse().unwrap(), directory: directory.to_owned(), download };
    Debuginfod::start(options).unwrap()
}

/// A program with debug information and its build ID; `None` without a compiler.
fn program(folder: &Path) -> Option<(Vec<u8>, BuildIdText)> {
    fs::write(folder.join("p.c"), "int main(void) { return 0; }").unwrap();
    let compiled = Command::new("gcc")
        .args(["-g", "-Wl,--build-id=0x00112233445566778899aabbccddeeff", "-o", "p", "p.c"])
        .current_dir(folder)
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        eprintln!("SKIPPED: gcc makes no program here");
        return None;
    }
    let id = BuildIdText::new("00112233445566778899aabbccddeeff").unwrap();
    Some((fs::read(folder.join("p")).unwrap(), id))
}

fn content(fetched: &Fetched) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(fetched.file.metadata().unwrap().len()).unwrap()];
    fetched.file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn other_id() -> BuildIdText {
    BuildIdText::new(&"ab".repeat(20)).unwrap()
}

#[test]
fn a_file_is_downloaded_once_checked_and_found_in_the_cache_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let Some((bytes, id)) = program(folder.path()) else { return };
    let served = bytes.clone();
    let server = TestServer::start(move |path| match path {
        "/buildid/00112233445566778899aabbccddeeff/debuginfo" => Some(served.clone()),
        // The right file under another name.
        path if path.ends_with("cdcd/debuginfo") => Some(served.clone()),
        "/buildid/00112233445566778899aabbccddeeff/source/build/a%20b.c" => Some(b"int x;".to_vec()),
        _ => None,
    });
    let cache = folder.path().join("cache");
    let asked = client(&cache, &server.url);
    assert_eq!(content(&asked.wait(&id).unwrap()), bytes);
    assert!(asked.wait(&other_id()).is_none());
    assert_eq!(asked.source(&id, "/build/a b.c").as_deref(), Some("int x;"));
    assert_eq!(asked.source(&id, "a b.c"), None, "no absolute path");
    let counts = FetchCounts { found: 2, absent: 1, failed: 0, bytes: bytes.len() as u64 + 6 };
    assert_eq!(asked.counts(), counts);
    let before = server.requests();
    let again = client(&cache, &server.url);
    assert!(again.wait(&id).is_some() && again.wait(&other_id()).is_none());
    assert!(again.source(&id, "/build/a b.c").is_some());
    assert_eq!(server.requests(), before, "also that there is none is remembered");

    let wrong = BuildIdText::new(&"cd".repeat(20)).unwrap();
    assert!(again.wait(&wrong).is_none(), "another build ID than was asked for");
    assert_eq!(again.counts().failed, 1);
    assert!(!cache.join(wrong.as_str()).join("debuginfo").exists());
    // A cached file is not believed either.
    fs::write(cache.join(id.as_str()).join("debuginfo"), "not ELF").unwrap();
    assert_eq!(content(&client(&cache, &server.url).wait(&id).unwrap()), bytes);
}

#[test]
fn the_next_server_is_asked_and_a_dead_one_only_once() {
    let folder = tempfile::tempdir().unwrap();
    let Some((bytes, id)) = program(folder.path()) else { return };
    let server = TestServer::start(move |path| path.contains("0011").then(|| bytes.clone()));
    // Nobody accepts connections, and the kernel answers for nobody.
    let dead = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let dead_url = format!("http://{}", dead.local_addr().unwrap());
    drop(dead);
    let asked = client(&folder.path().join("cache"), &format!("{dead_url} {}", server.url));
    assert!(asked.wait(&id).is_some());
    assert!(asked.wait(&other_id()).is_none());
    let counts = asked.counts();
    assert_eq!((counts.found, counts.absent, counts.failed), (1, 0, 1), "the dead one might have had it");
    assert!(!folder.path().join("cache").join(other_id().as_str()).join("debuginfo").exists());
}

#[test]
fn what_is_too_large_is_not_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = TestServer::start(|_| Some(vec![0; 2 << 20]));
    let asked = client(folder.path(), &server.url);
    assert!(asked.wait(&other_id()).is_none());
    let left = fs::read_dir(folder.path().join(other_id().as_str())).unwrap().count();
    assert_eq!((left, asked.counts().failed), (0, 1));
}

#[test]
fn poisoned_answers_are_failures_of_which_nothing_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let Some((bytes, id)) = program(folder.path()) else { return };
    let with_length = |length: usize, body: &[u8]| {
        [format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes(), body].concat()
    };
    let half = &bytes[..bytes.len() / 2];
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for (why, answer, is_endless) in [
        ("ends before its length", with_length(bytes.len(), half), false),
        ("half of the file", with_length(half.len(), half), false),
        ("a page of a proxy", with_length(6, b"<html>"), false),
        ("nothing", with_length(0, b""), false),
        ("never ends", chunked.clone(), true),
        ("a chunk without a size", [&chunked[..], b"x\r\n"].concat(), false),
        ("announces more than the limit", with_length(usize::MAX, &bytes), false),
        ("not HTTP", b"\x7fELF".to_vec(), false),
    ] {
        let server = TestServer::raw(answer, is_endless);
        let cache = folder.path().join(why);
        let asked = client(&cache, &server.url);
        assert!(asked.wait(&id).is_none(), "{why}");
        assert_eq!((asked.counts().failed, server.requests()), (1, 1), "{why}");
        assert_eq!(fs::read_dir(cache.join(id.as_str())).unwrap().count(), 0, "{why}");
    }
}

#[test]
fn urls_are_separated_by_spaces() {
    let urls: ServerUrls = " https://a.example/  http://b:8002 ima:enforcing ".parse().unwrap();
    assert_eq!(urls.0, ["https://a.example/", "http://b:8002"]);
    for wrong in ["", "a.example", "file:///x", "https://a ftp://b"] {
        assert!(wrong.parse::<ServerUrls>().is_err(), "{wrong}");
    }
}

#[test]
fn a_build_id_is_no_way_out_of_a_directory() {
    for wrong in ["", "0", "..", "../..", "0A0a", "0a/0", "0a0", &"00".repeat(65)] {
        assert_eq!(BuildIdText::new(wrong), None, "{wrong}");
    }
    assert!(BuildIdText::new("0a0b").is_some());
}
