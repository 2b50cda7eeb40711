//! The socket at which the service gives its status to `sidewinder status` and `sidewinder health`.
//!
//! It is a file that only its user can connect to, in a directory where nobody else can take or remove it ([`place`]). Only where
//! there is no such directory it is an abstract one (unix(7)), whose name any process of the network namespace could take: the
//! command waits for no such process ([`query`]). Each connection gets the document, if the peer is root or the same user, and is
//! closed. The socket's task runs on the telemetry runtime.

mod place;
mod query;
#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::geteuid;
use sidewinder_server::connections::{self, ConnectionLimits};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tracing::{debug, info};

use self::place::{BoundSocket, is_trusted};
pub use self::query::{StatusResponses, query_all};
use super::status;
use crate::stats::ServiceStats;

/// The longest time that a peer may take to read the document.
const LIMITS: ConnectionLimits = ConnectionLimits { connections: 16, idle: Duration::from_secs(5) };
/// How often the socket's file is looked for. `/run/user/UID` and `/dev/shm` are emptied when their user logs out.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Serves the document until it is dropped.
#[derive(Debug)]
pub(super) struct StatusSocket {
    accept_task: JoinHandle<()>,
}

impl StatusSocket {
    /// Opens the socket.
    ///
    /// # Errors
    /// If the kernel refuses it.
    pub(super) fn open(stats: Arc<ServiceStats>, runtime: &Handle) -> io::Result<Self> {
        let document = move || status::document(&stats).to_string();
        Self::open_in(place::directories(geteuid()), CHECK_INTERVAL, Arc::new(document), runtime)
    }

    fn open_in(
        directories: Vec<PathBuf>,
        check_interval: Duration,
        document: Arc<dyn Fn() -> String + Send + Sync>,
        runtime: &Handle,
    ) -> io::Result<Self> {
        let mut socket = bind(&directories)?;
        let accept_task = runtime.spawn(async move {
            loop {
                debug!(socket = %socket, "serving the status");
                if let Err(error) = serve(&socket, check_interval, &document).await {
                    debug!(error = &error as &dyn std::error::Error, "the status socket is lost");
                }
                info!(socket = %socket, "the status socket was removed: opening another");
                socket = loop {
                    match bind(&directories) {
                        Ok(socket) => break socket,
                        Err(_) => tokio::time::sleep(check_interval).await,
                    }
                };
            }
        });
        Ok(Self { accept_task })
    }
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.accept_task.abort();
    }
}

/// Serves the document until the socket's file is gone.
async fn serve(
    socket: &BoundSocket,
    check_interval: Duration,
    document: &Arc<dyn Fn() -> String + Send + Sync>,
) -> io::Result<()> {
    let listener = UnixListener::from_std(socket.listener()?)?;
    tokio::select! {
        () = connections::accept(listener, LIMITS, |stream, _| respond(stream, Arc::clone(document))) => {}
        () = removed(socket.file(), check_interval) => {}
    }
    Ok(())
}

async fn respond(mut stream: UnixStream, document: Arc<dyn Fn() -> String + Send + Sync>) {
    if !stream.peer_cred().is_ok_and(|peer| is_trusted(peer.uid())) {
        debug!("refused to send the status to a peer that is neither root nor this user");
        return;
    }
    // A peer that has gone needs no document.
    let _ = stream.write_all(document().as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// Returns once a path leads to another file, or to none. Never, without a path.
async fn removed(path: Option<&Path>, check_interval: Duration) {
    let Some(path) = path else { return std::future::pending().await };
    let identity = || fs::symlink_metadata(path).ok().map(|file| (file.dev(), file.ino()));
    let first = identity();
    while first.is_some() && identity() == first {
        tokio::time::sleep(check_interval).await;
    }
}

/// Binds a socket, and removes what profilers that were killed have left beside it.
fn bind(directories: &[PathBuf]) -> io::Result<BoundSocket> {
    let socket = place::bind(directories)?;
    if let Some(directory) = socket.directory() {
        query::remove_dead_sockets(directory, geteuid());
    }
    Ok(socket)
}
