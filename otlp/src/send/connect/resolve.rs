//! Name resolution.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

/// A future of addresses.
pub type ResolveFuture = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

/// Resolves names to addresses.
pub trait Resolve: Send + Sync + 'static {
    /// Resolves `host` to addresses with `port`, in the order in which to try them.
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture;
}

/// The resolver of an exporter; the system's by default. It is called for each connection.
#[derive(Clone)]
pub struct Resolver(Arc<dyn Resolve>);

impl Resolver {
    /// Uses a custom resolver.
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

/// The system's resolver, `getaddrinfo`.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str, port: u16) -> ResolveFuture {
        let host = host.to_owned();
        Box::pin(async move { Ok(tokio::net::lookup_host((host, port)).await?.collect()) })
    }
}
