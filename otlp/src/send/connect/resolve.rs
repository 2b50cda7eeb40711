//! Names to addresses.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

/// Addresses, once they are known.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Finds the addresses of a name.
pub trait Resolve: Send + Sync + 'static {
    /// The addresses of `host`, each with `port`, in the order in which they are to be tried.
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture;
}

/// What finds addresses; the system's resolver by default. Asked for each connection anew.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Resolve>);

impl Resolver {
    /// A resolver of one's own.
    pub fn new(resolve: impl Resolve) -> Self {
        Self(Arc::new(resolve))
    }

    pub(super) fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        self.0.resolve(host, port)
    }
}

impl Default for Resolver {
    fn default() -> Self {
        Self::new(SystemResolver)
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

/// `getaddrinfo`.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}
