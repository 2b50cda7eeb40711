//! The page that follows a recording: `record --ui`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use sidewinder_config::{ListenAddress, Ui};
use sidewinder_kind::Kind;
use sidewinder_render::Outcome;
use tokio::runtime::Runtime;

use crate::collect::{Bounds, outcomes};
use crate::every::Every;
use crate::exit::Failure;
use crate::live::{Live, Shown};
use crate::lock::lock;
use crate::sampling::Tally;
use crate::server::Server;
use crate::terminal::tell;

/// How often it is told how interrupts ended.
const INTERVAL: Duration = Duration::from_secs(1);

/// Serves until it is dropped.
pub(super) struct Page {
    pub(super) shown: Arc<Shown>,
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    counting: Every,
    _server: Server,
    _runtime: Runtime,
}

impl Page {
    pub(super) fn serve(address: &ListenAddress, title: String, kind: Kind) -> Result<Self, Failure> {
        let failed = |error| Failure::runtime("can't serve the page", error);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .map_err(failed)?;
        let live = Arc::new(Live::within(Some(Bounds::of(&Ui::default()))));
        let shown = live.begin("record", title, kind);
        let outcomes = Arc::<Mutex<Vec<Outcome>>>::default();
        let told = Arc::clone(&outcomes);
        let answer = live.answer(Arc::new(move |_| lock(&told).clone()));
        let server = Server::start("ui".to_owned(), address.clone(), answer, runtime.handle());
        tell(format_args!("http://{address}/ follows what is recorded\n"));
        Ok(Self { shown, outcomes, counting: Every::new(INTERVAL), _server: server, _runtime: runtime })
    }

    /// Tells how interrupts ended, every so often.
    pub(super) fn tell(&mut self, tally: impl FnOnce() -> Tally) {
        if self.counting.is_due() {
            *lock(&self.outcomes) = outcomes(&tally());
        }
    }
}
