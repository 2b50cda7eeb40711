//! Somebody between the exporter and its receiver who does as he likes with connections.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::Result;

/// What happens to a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Conduct {
    /// Answers come so much later.
    Late(Duration),
    /// It breaks when the request has been passed on.
    Cut,
    /// The answer is no protocol at all.
    Garbage,
    /// The receiver's side is closed when the request has been passed on; nothing else comes, and the connection
    /// stays.
    HalfClosed,
    /// Requests over HTTP/1.1 name a profiles development version that nobody knows.
    OtherVersion,
}

/// The header as our client writes it, and another of the same length.
const VERSION_HEADER: [&[u8]; 2] =
    [b"otlp-profiles-development-version: 1\r\n", b"otlp-profiles-development-version: 9\r\n"];

/// Listens until it is dropped with the process.
#[derive(Debug)]
pub(crate) struct Proxy {
    port: u16,
    connections: Arc<AtomicUsize>,
}

impl Proxy {
    /// In front of a port of the loopback interface; the first `times` connections meet that conduct.
    pub(crate) fn before(port: u16, conduct: Conduct, times: usize) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let own_port = listener.local_addr()?.port();
        let connections = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&connections);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let number = counted.fetch_add(1, Ordering::Relaxed);
                let conduct = (number < times).then_some(conduct);
                thread::spawn(move || pass(client, port, conduct));
            }
        });
        Ok(Self { port: own_port, connections })
    }

    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }
}

/// Both directions; errors end the connection, as they should.
fn pass(mut client: TcpStream, port: u16, conduct: Option<Conduct>) -> Option<()> {
    let mut server = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let (mut requests, mut passed_on) = (client.try_clone().ok()?, server.try_clone().ok()?);
    thread::spawn(move || {
        if conduct == Some(Conduct::OtherVersion) {
            let _ = pass_as_other_version(&mut requests, &mut passed_on);
        }
        let _ = std::io::copy(&mut requests, &mut passed_on);
        let _ = passed_on.shutdown(Shutdown::Write);
    });
    let delay = match conduct {
        None | Some(Conduct::OtherVersion) => Duration::ZERO,
        Some(Conduct::Late(delay)) => delay,
        Some(other) => {
            // Long enough for the request to have been passed on.
            thread::sleep(Duration::from_millis(100));
            match other {
                Conduct::Garbage => drop(client.write_all(b"\x15\x03\x01\x00\x02\x02\x46 garbage \r\n\r\n")),
                Conduct::HalfClosed => {
                    client.shutdown(Shutdown::Write).ok()?;
                    thread::sleep(Duration::from_secs(60));
                }
                Conduct::Cut | Conduct::Late(_) | Conduct::OtherVersion => {}
            }
            let _ = client.shutdown(Shutdown::Both);
            let _ = server.shutdown(Shutdown::Both);
            return None;
        }
    };
    let mut bytes = [0; 64 << 10];
    loop {
        let count = server.read(&mut bytes).ok().filter(|count| *count > 0)?;
        thread::sleep(delay);
        client.write_all(bytes.get(..count)?).ok()?;
    }
}

/// The head of a request, with another version in it; what follows is the caller's.
fn pass_as_other_version(from: &mut TcpStream, to: &mut TcpStream) -> std::io::Result<()> {
    let [ours, other] = VERSION_HEADER;
    let mut head = Vec::new();
    let mut bytes = [0; 4096];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match from.read(&mut bytes)? {
            0 => break,
            count => head.extend_from_slice(&bytes[..count]),
        }
    }
    if let Some(at) = head.windows(ours.len()).position(|part| part.eq_ignore_ascii_case(ours)) {
        head[at..at + ours.len()].copy_from_slice(other);
    }
    to.write_all(&head)
}
