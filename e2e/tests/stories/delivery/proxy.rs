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
}

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
        let _ = std::io::copy(&mut requests, &mut passed_on);
        let _ = passed_on.shutdown(Shutdown::Write);
    });
    let delay = match conduct {
        None => Duration::ZERO,
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
                Conduct::Cut | Conduct::Late(_) => {}
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
