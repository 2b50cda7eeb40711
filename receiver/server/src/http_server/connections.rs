//! How every listener accepts connections: a limited number, each for a limited time without a request. When all are in use, the
//! one that has been idle longest is closed, so that another peer is never turned away.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tracing::debug;

use super::slots::{PeerClock, Slots};

/// How long to wait after an error of accept(2), such as too many open files.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The limits of one listener.
#[derive(Clone, Copy, Debug)]
pub struct ConnectionLimits {
    /// The most connections at a time.
    pub connections: usize,
    /// The longest time that a connection waits for its peer: see [`PeerClock`].
    pub idle: Duration,
}

/// A socket that accepts connections.
pub trait Listener: Send {
    /// A connection.
    type Stream: Send;

    /// Waits for the next connection.
    fn accept(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        Ok(Self::accept(self).await?.0)
    }
}

impl Listener for UnixListener {
    type Stream = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(Self::accept(self).await?.0)
    }
}

/// Accepts connections for ever, and serves each on a task of its own until it ends, is idle for too long, or has to give way.
/// `serve` keeps the clock of its peer.
pub async fn accept<L: Listener, F>(
    listener: L,
    limits: ConnectionLimits,
    serve: impl Fn(L::Stream, Arc<PeerClock>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let slots = Slots::new(limits.connections);
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let clock = PeerClock::start();
                let slot = slots.take(Arc::clone(&clock)).await;
                let connection = serve(stream, Arc::clone(&clock));
                tokio::spawn(async move {
                    tokio::select! {
                        () = connection => {}
                        () = slot.revoked() => debug!("an idle connection gave way to another"),
                        () = clock.waited(limits.idle) => debug!("a connection was idle too long"),
                    }
                });
            }
            Err(error) => {
                debug!(error = &error as &dyn std::error::Error, "no connection");
                tokio::time::sleep(ACCEPT_RETRY_INTERVAL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Instant;

    use tokio::io::AsyncReadExt as _;

    use super::*;

    #[tokio::test]
    async fn an_idle_connection_is_closed_when_its_time_is_up_or_another_needs_its_slot() {
        let idle = Duration::from_millis(500);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let limits = ConnectionLimits { connections: 1, idle };
        tokio::spawn(accept(listener, limits, |stream, _clock| async move {
            let _stream: TcpStream = stream;
            pending::<()>().await;
        }));
        let begin = Instant::now();
        let mut streams =
            [TcpStream::connect(address).await.unwrap(), TcpStream::connect(address).await.unwrap()];
        let [first, second] = &mut streams;
        assert_eq!(first.read(&mut [0]).await.unwrap(), 0);
        assert!(begin.elapsed() < idle, "it gave way");
        assert_eq!(second.read(&mut [0]).await.unwrap(), 0);
        assert!(begin.elapsed() >= idle, "nobody else came");
    }
}
