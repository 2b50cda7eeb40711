//! Why servers can't be asked.

use std::path::PathBuf;

use sidewinder_otlp::send::ProxyError;
use sidewinder_text::ExternalText;

/// Why servers can't be asked.
#[derive(Debug, thiserror::Error)]
pub enum DebuginfodError {
    /// No server is named.
    #[error("DEBUGINFOD_URLS names no server")]
    NoUrls,
    /// `DEBUGINFOD_URLS` is not a list of URLs, and why.
    #[error("in DEBUGINFOD_URLS, {0}")]
    WrongUrls(String),
    /// The environment names a proxy that can't be used.
    #[error(transparent)]
    Proxy(#[from] ProxyError),
    /// Nothing says where the cache is.
    #[error("there is no directory for downloaded files: HOME and DEBUGINFOD_CACHE_PATH are not set")]
    NoDirectory,
    /// The cache's directory can't be used.
    #[error("can't create {}", ExternalText::new(.0))]
    Cache(PathBuf, #[source] std::io::Error),
    /// The URL of a server can't be used.
    #[error("can't use {url}")]
    Server {
        /// The URL.
        url: String,
        /// What is wrong with it, or with TLS.
        source: sidewinder_otlp::send::ConnectionError,
    },
    /// A thread that downloads can't be started.
    #[error("can't start a thread")]
    Thread(#[source] std::io::Error),
}
