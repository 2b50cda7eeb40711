//! The server of the live page, configured by `service::ui`.

use std::path::Path;
use std::sync::Arc;

use sidewinder_config::Ui as UiConfig;
use sidewinder_debug_files::DebugRoots;
use sidewinder_report::collect::WindowLimits;
use sidewinder_server::Server;
use sidewinder_server::annotate::{Annotator, SourceDirectories};
use sidewinder_server::live::{LiveView, OutcomeSource};
use tokio::runtime::Handle;
use tracing::info;

use sidewinder_telemetry::stats::ServiceStats;
use sidewinder_telemetry::stats::current_outcome_counts;

/// The live view of all receivers, and the server of its page if it is enabled.
pub(super) struct UiServer {
    config: UiConfig,
    live: Arc<LiveView>,
    outcomes: Arc<OutcomeSource>,
    runtime: Handle,
    server: Option<Server>,
}

impl UiServer {
    pub(super) fn start(config: &UiConfig, stats: &Arc<ServiceStats>, runtime: &Handle) -> Self {
        let stats = Arc::clone(stats);
        let outcomes: Arc<OutcomeSource> = Arc::new(move |name, kind| {
            stats
                .receivers()
                .get(name)
                .map(|receiver| current_outcome_counts(&receiver.counters, kind))
                .unwrap_or_default()
        });
        // Sources are read for those who ask for it in a command line: nobody does here.
        let debug_roots = Arc::new(DebugRoots::open::<&Path>([]));
        let annotator = Arc::new(Annotator::new(SourceDirectories::default(), debug_roots));
        let live = Arc::new(LiveView::new(window_limits(config)).with_code(annotator));
        let mut ui = Self { config: config.clone(), live, outcomes, runtime: runtime.clone(), server: None };
        ui.listen();
        ui
    }

    /// The view that receivers feed.
    pub(super) fn live(&self) -> Arc<LiveView> {
        Arc::clone(&self.live)
    }

    /// Applies another configuration.
    pub(super) fn reconfigure(&mut self, config: &UiConfig) {
        let before = std::mem::replace(&mut self.config, config.clone());
        if before != *config {
            self.live.set_limits(window_limits(config));
        }
        if (before.enabled, &before.endpoint) != (config.enabled, &config.endpoint) {
            self.server = None;
            self.listen();
        }
    }

    fn listen(&mut self) {
        if self.config.enabled {
            let endpoint = self.config.endpoint.clone();
            info!(url = %format_args!("http://{endpoint}/"), "serving the live page");
            let handler = self.live.handler(Arc::clone(&self.outcomes));
            self.server = Some(Server::start("ui".to_owned(), endpoint, handler, &self.runtime));
        }
    }
}

fn window_limits(config: &UiConfig) -> Option<WindowLimits> {
    config.enabled.then(|| WindowLimits::from_config(config))
}
