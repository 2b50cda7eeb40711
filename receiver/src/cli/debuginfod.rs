//! What the command line says of servers of debug information.

use clap::Args;

use sidewinder_debug_files::debuginfod::{Debuginfod, DebuginfodError, DebuginfodOptions, ServerUrls};

#[derive(Debug, Args)]
pub(crate) struct DebuginfodArgs {
    /// Download missing debug information from the servers in DEBUGINFOD_URLS, or from these
    ///
    /// It provides the names, lines and inlined calls of stripped binaries. Servers learn their build IDs and, from `annotate`
    /// and a served page, the paths of their sources. Files are kept in DEBUGINFOD_CACHE_PATH, by default
    /// ~/.cache/debuginfod_client, for a week after their last use. A server that does not respond is not asked again.
    /// http_proxy, https_proxy, all_proxy and no_proxy work as in curl.
    #[arg(long, value_name = "URLS", num_args = 0..=1, require_equals = true, help_heading = "Code")]
    #[expect(clippy::option_option, reason = "the flag may have a value")]
    debuginfod: Option<Option<ServerUrls>>,
}

impl DebuginfodArgs {
    /// What asks the servers; `None` if the command line does not say so.
    ///
    /// # Errors
    /// If there is no server to ask, or no place for files.
    pub(crate) fn start(&self) -> Result<Option<Debuginfod>, DebuginfodError> {
        let Some(urls) = &self.debuginfod else { return Ok(None) };
        Debuginfod::start(DebuginfodOptions::from_environment(urls.clone())?).map(Some)
    }
}
