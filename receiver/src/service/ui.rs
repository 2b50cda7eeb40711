//! The page that follows what is profiled, as `service::ui` says.

use std::sync::Arc;

use sidewinder_config::Ui as UiConfig;
use tokio::runtime::Handle;
use tracing::info;

use crate::collect::{Bounds, outcomes_so_far};
use crate::live::{Live, OutcomesOf};
use crate::server::Server;
use crate::stats::ServiceStats;

/// See the [module](self).
pub(super) struct Ui {
    config: UiConfig,
    live: Arc<Live>,
    outcomes: Arc<OutcomesOf>,
    runtime: Handle,
    server: Option<Server>,
}

impl Ui {
    pub(super) fn start(config: &UiConfig, stats: &Arc<ServiceStats>, runtime: &Handle) -> Self {
        let stats = Arc::clone(stats);
        let outcomes: Arc<OutcomesOf> = Arc::new(move |name| {
            stats.receivers().get(name).map(|receiver| outcomes_so_far(&receiver.counted)).unwrap_or_default()
        });
        let live = Arc::new(Live::within(bounds(config)));
        let mut ui = Self { config: config.clone(), live, outcomes, runtime: runtime.clone(), server: None };
        ui.listen();
        ui
    }

    /// What receivers show themselves to.
    pub(super) fn live(&self) -> Arc<Live> {
        Arc::clone(&self.live)
    }

    /// Takes over another configuration.
    pub(super) fn change(&mut self, config: &UiConfig) {
        let before = std::mem::replace(&mut self.config, config.clone());
        if before != *config {
            self.live.change(bounds(config));
        }
        if (before.enabled, &before.endpoint) != (config.enabled, &config.endpoint) {
            self.server = None;
            self.listen();
        }
    }

    fn listen(&mut self) {
        if self.config.enabled {
            let endpoint = self.config.endpoint.clone();
            info!(url = %format_args!("http://{endpoint}/"), "the page that follows what is profiled");
            let answer = self.live.answer(Arc::clone(&self.outcomes));
            self.server = Some(Server::start("ui".to_owned(), endpoint, answer, &self.runtime));
        }
    }
}

fn bounds(config: &UiConfig) -> Option<Bounds> {
    config.enabled.then(|| Bounds::of(config))
}
