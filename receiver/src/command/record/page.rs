//! The live page of a recording: `record --ui`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidewinder_config::{ListenAddress, Ui};
use sidewinder_kind::Kind;
use sidewinder_render::OutcomeCount;
use tokio::runtime::Runtime;

use crate::collect::{WindowLimits, outcome_counts};
use crate::exit::Failure;
use crate::interval_timer::IntervalTimer;
use crate::live::{LiveFeed, LiveView};
use crate::lock::lock;
use crate::sampling::SamplingTally;
use crate::server::Server;
use crate::terminal::print_notice;

/// How often the page gets new outcome counts.
const OUTCOME_INTERVAL: Duration = Duration::from_secs(1);

/// The server of the live page. Stops when it is dropped.
pub(super) struct LivePage {
    pub(super) feed: Arc<LiveFeed>,
    outcomes: Arc<Mutex<Vec<OutcomeCount>>>,
    outcome_timer: IntervalTimer,
    _server: Server,
    _runtime: Runtime,
}

impl LivePage {
    pub(super) fn serve(address: &ListenAddress, title: String, kind: Kind) -> Result<Self, Failure> {
        let failed = |error| Failure::runtime("can't serve the page", error);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed)?;
        let live = Arc::new(LiveView::new(Some(WindowLimits::from_config(&Ui::default()))));
        let feed = live.add_receiver("record", title, kind);
        let outcomes = Arc::<Mutex<Vec<OutcomeCount>>>::default();
        let served_outcomes = Arc::clone(&outcomes);
        let handler = live.handler(Arc::new(move |_| lock(&served_outcomes).clone()));
        let server = Server::start("ui".to_owned(), address.clone(), handler, runtime.handle());
        print_notice(format_args!("http://{address}/ shows the recording live\n"));
        Ok(Self {
            feed,
            outcomes,
            outcome_timer: IntervalTimer::new(OUTCOME_INTERVAL),
            _server: server,
            _runtime: runtime,
        })
    }

    /// Updates the outcome counts of the page, at most once per [`OUTCOME_INTERVAL`].
    pub(super) fn update_outcomes(&mut self, tally: impl FnOnce() -> SamplingTally) {
        if self.outcome_timer.is_due() {
            *lock(&self.outcomes) = outcome_counts(&tally());
        }
    }
}
