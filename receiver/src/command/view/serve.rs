//! A page on the loopback interface, served until the command is stopped.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use sidewinder_base::exit::Failure;
use sidewinder_server::{Handler, Server};
use tokio::runtime::{Handle, Runtime};

/// How often the stop flag is checked.
pub(super) const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The threads that serve.
pub(super) fn start_runtime() -> Result<Runtime, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| Failure::runtime("can't start threads", error))
}

/// Serves pages on the loopback interface, below a random path, which keeps them from other users of the machine. Returns the URL,
/// without a slash at its end.
pub(super) fn serve_privately(pages: Arc<Handler>, runtime: &Handle) -> io::Result<(Server, String)> {
    let root = format!("/{:016x}{:016x}", rand::random::<u64>(), rand::random::<u64>());
    let handler: Arc<Handler> = {
        let root = root.clone();
        Arc::new(move |path| pages(path.strip_prefix(&root)?))
    };
    let (server, address) = Server::start_on_free_port(handler, runtime)?;
    Ok((server, format!("http://{address}{root}")))
}
