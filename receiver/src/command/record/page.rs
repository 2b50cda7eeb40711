//! The live page of a recording: `record --ui`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidewinder_base::exit::Failure;
use sidewinder_base::interval_timer::IntervalTimer;
use sidewinder_base::lock::lock;
use sidewinder_base::terminal::print_notice;
use sidewinder_config::{ListenAddress, Ui};
use sidewinder_kind::KindSet;
use sidewinder_render::SampleType;
use sidewinder_report::collect::WindowLimits;
use sidewinder_sampling::SamplingTally;
use sidewinder_server::Server;
use sidewinder_server::annotate::Annotator;
use sidewinder_server::live::{LiveFeeds, LiveView};
use tokio::runtime::Runtime;

use sidewinder_telemetry::stats::outcome_counts;

/// How often the page gets new outcome counts.
const OUTCOME_INTERVAL: Duration = Duration::from_secs(1);

/// The server of the live page. Stops when it is dropped.
pub(super) struct LivePage {
    pub(super) feeds: LiveFeeds,
    tally: Arc<Mutex<SamplingTally>>,
    outcome_timer: IntervalTimer,
    _server: Server,
    _runtime: Runtime,
}

impl LivePage {
    pub(super) fn serve(
        address: &ListenAddress,
        title: &str,
        kinds: &KindSet,
        annotator: &Arc<Annotator>,
    ) -> Result<Self, Failure> {
        let failed = |error| Failure::runtime("can't serve the page", error);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed)?;
        let limits = WindowLimits::from_config(&Ui::default());
        let live = Arc::new(LiveView::new(Some(limits)).with_code(Arc::clone(annotator)));
        let feeds = live.add_receiver("record", title, kinds);
        let tally = Arc::<Mutex<SamplingTally>>::default();
        let served_tally = Arc::clone(&tally);
        let handler = live.handler(Arc::new(move |_, kind| outcome_counts(&lock(&served_tally), kind)));
        let server = Server::start("ui".to_owned(), address.clone(), handler, runtime.handle());
        print_notice(format_args!("http://{address}/ shows the recording live\n"));
        for (kind, at) in kinds.iter().zip(0..).skip(1) {
            let measure = SampleType::from_kind(kind);
            let measure = sidewinder_kind::display_of(measure.name());
            print_notice(format_args!("http://{address}/{at}/ shows its {measure} profile\n"));
        }
        Ok(Self {
            feeds,
            tally,
            outcome_timer: IntervalTimer::new(OUTCOME_INTERVAL),
            _server: server,
            _runtime: runtime,
        })
    }

    /// Updates the outcome counts of the page, at most once per [`OUTCOME_INTERVAL`].
    pub(super) fn update_outcomes(&mut self, tally: impl FnOnce() -> SamplingTally) {
        if self.outcome_timer.is_due() {
            *lock(&self.tally) = tally();
        }
    }
}
