//! The page that follows what is profiled, over HTTP: `service::ui`, and `record --ui`.
//!
//! Owner: the reporting thread fills the window of its receiver with a tee of the messages that go to the reporter; the threads
//! of the HTTP server read it.
//!
//! | Path               | Answer                                                                       |
//! |--------------------|------------------------------------------------------------------------------|
//! | `/`                | the page of the first receiver; of several, `/1/` is the second's            |
//! | `/data/CURSOR`     | what is new since the answer that gave this cursor, as JSON; else everything |
//! | `/FROM-TO.SUFFIX`  | these slices of time in the form of that suffix, as `record` writes it       |

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use http::StatusCode;
use sidewinder_kind::Kind;
use sidewinder_render::{OutcomeCount, ProfileFormat, live_page};

use crate::collect::{SlidingWindow, WindowLimits};
use crate::encode;
use crate::lock::lock;
use crate::naming::NamingContext;
use crate::sampling::message::Message;
use crate::server::{Handler, PageResponse};

/// What is shown, by the names of receivers.
#[derive(Debug, Default)]
pub(crate) struct LiveView {
    /// `None`: nothing is held, for nobody looks.
    limits: Mutex<Option<WindowLimits>>,
    feeds: Mutex<BTreeMap<String, Arc<LiveFeed>>>,
}

/// What one receiver shows.
#[derive(Debug)]
pub(crate) struct LiveFeed {
    title: String,
    kind: Kind,
    window: Mutex<Option<SlidingWindow>>,
}

/// How the interrupts of a receiver have ended so far.
pub(crate) type OutcomeSource = dyn Fn(&str) -> Vec<OutcomeCount> + Send + Sync;

impl LiveView {
    /// Holds what these bounds allow.
    pub(crate) fn new(bounds: Option<WindowLimits>) -> Self {
        Self { limits: Mutex::new(bounds), ..Self::default() }
    }

    /// Keeps to other bounds from now on; with none, everything is let go.
    pub(crate) fn set_limits(&self, bounds: Option<WindowLimits>) {
        *lock(&self.limits) = bounds;
        for shown in lock(&self.feeds).values() {
            shown.set_limits(bounds);
        }
    }

    /// A receiver begins, and shows its events of this kind, and nothing of what it showed before.
    pub(crate) fn add_receiver(&self, name: &str, title: String, kind: Kind) -> Arc<LiveFeed> {
        let shown = Arc::new(LiveFeed { title, kind, window: Mutex::default() });
        shown.set_limits(*lock(&self.limits));
        lock(&self.feeds).insert(name.to_owned(), Arc::clone(&shown));
        shown
    }

    /// Answers for every path.
    pub(crate) fn handler(self: &Arc<Self>, outcomes: Arc<OutcomeSource>) -> Arc<Handler> {
        let live = Arc::clone(self);
        Arc::new(move |path| live.page(path.strip_prefix('/')?, &*outcomes))
    }

    fn page(&self, path: &str, outcomes: &OutcomeSource) -> Option<PageResponse> {
        let (number, path) = match path.split_once('/') {
            Some((number, path)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                (number.parse().ok()?, path)
            }
            _ => (0, path),
        };
        let receiver =
            lock(&self.feeds).iter().nth(number).map(|(name, shown)| (name.clone(), Arc::clone(shown)));
        // The first one may be about to begin.
        if path.is_empty() && (receiver.is_some() || number == 0) {
            return Some(PageResponse::with_own_policy(live_page()));
        }
        let (name, shown) = receiver?;
        if let Some(cursor) = path.strip_prefix("data/") {
            let told = shown.window().as_mut()?.update_since(cursor, outcomes(&name));
            return Some(PageResponse::ok("application/json", told));
        }
        let (range, suffix) = path.split_once('.')?;
        let profile = shown.window().as_mut()?.profile(parse_slices(range)?, outcomes(&name));
        // Another page may be served meanwhile: the window is no longer held.
        let suffix = format!(".{suffix}");
        let written = match ProfileFormat::ALL.into_iter().find(|form| form.suffix() == suffix) {
            Some(form) => {
                let mut out = Vec::new();
                sidewinder_render::write(&profile, form, &mut out).map(|()| (content_type(form), out)).ok()
            }
            None if suffix == ".otlp" => encode::report(&profile)
                .map(|report| ("application/x-protobuf", report.as_bytes().to_vec()))
                .ok(),
            None => return None,
        };
        Some(written.map_or_else(
            || PageResponse::text(StatusCode::NOT_FOUND, "no sample is held of this time"),
            |(content_type, body)| PageResponse::ok(content_type, body),
        ))
    }
}

impl LiveFeed {
    /// The window, if one is to be filled.
    pub(crate) fn window(&self) -> MutexGuard<'_, Option<SlidingWindow>> {
        lock(&self.window)
    }

    /// Adds a message to the window if there is one. The reporter takes the message itself, after this.
    pub(crate) fn tee(&self, message: &Message, naming: NamingContext<'_>) {
        // Locked for one message at a time: the page does not wait for all of them.
        if let Some(window) = self.window().as_mut() {
            window.handle(message, naming.namer, naming.processes);
        }
    }

    /// Nothing more will come.
    pub(crate) fn close(&self) {
        if let Some(window) = self.window().as_mut() {
            window.close();
        }
    }

    fn set_limits(&self, bounds: Option<WindowLimits>) {
        let mut window = self.window();
        match (bounds, &mut *window) {
            (Some(bounds), Some(window)) => window.set_limits(bounds),
            (Some(bounds), none) => {
                *none = Some(SlidingWindow::new(self.title.clone(), self.kind, bounds));
            }
            (None, window) => *window = None,
        }
    }
}

/// `FROM-TO`, in numbers of slices.
fn parse_slices(text: &str) -> Option<Range<u32>> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some(from..to)
}

fn content_type(form: ProfileFormat) -> &'static str {
    match form {
        ProfileFormat::Pprof => "application/gzip",
        ProfileFormat::Folded => "text/plain; charset=utf-8",
        ProfileFormat::Svg => "image/svg+xml",
        ProfileFormat::Html => "text/html; charset=utf-8",
        ProfileFormat::Firefox | ProfileFormat::Speedscope => "application/json",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::Value;

    use super::*;
    use crate::collect::tests::{CPU, event, nothing_known};

    const BOUNDS: WindowLimits = WindowLimits { max_age: Duration::from_secs(600), max_bytes: 1 << 20 };

    fn ask(live: &Arc<LiveView>, path: &str) -> Option<PageResponse> {
        live.handler(Arc::new(|_| Vec::new()))(path)
    }

    fn json(live: &Arc<LiveView>, path: &str) -> Value {
        serde_json::from_slice(&ask(live, path).unwrap().body).unwrap()
    }

    #[test]
    fn each_receiver_has_its_page_its_data_and_its_files() {
        let live = Arc::new(LiveView::new(Some(BOUNDS)));
        let _empty = live.add_receiver("profiling", "first".to_owned(), CPU);
        let shown = live.add_receiver("profiling/two", "second".to_owned(), CPU);
        let (mut namer, processes) = nothing_known();
        shown.window().as_mut().unwrap().handle(&event(1, None), &mut namer, &processes);
        for path in ["/", "/1/"] {
            assert!(ask(&live, path).unwrap().body.starts_with(b"<!DOCTYPE html>"));
        }
        assert_eq!(json(&live, "/data/0")["title"], "first");
        let told = json(&live, "/1/data/0");
        assert_eq!((&told["title"], &told["samples"]["count"]), (&"second".into(), &serde_json::json!([1])));
        let folded = ask(&live, "/1/0-10.folded").unwrap();
        assert_eq!(
            (folded.status, folded.body.as_ref()),
            (StatusCode::OK, &b"thread;[anonymous]+0x1000 1\n"[..])
        );
        for suffix in [".otlp", ".pb.gz", ".svg", ".html", ".speedscope.json", ".firefox.json"] {
            assert_eq!(ask(&live, &format!("/1/0-10{suffix}")).unwrap().status, StatusCode::OK, "{suffix}");
        }
        assert_eq!(ask(&live, "/0-10.otlp").unwrap().status, StatusCode::NOT_FOUND, "no sample");
        for path in
            ["/2/", "/2/data/0", "/data", "/1/0-10.exe", "/1/10-0.svg", "/1/x-9.svg", "/../etc/passwd", ""]
        {
            assert!(ask(&live, path).is_none(), "{path}");
        }
    }

    #[test]
    fn nothing_is_held_while_there_is_no_page() {
        let live = Arc::new(LiveView::new(None));
        let shown = live.add_receiver("profiling", String::new(), CPU);
        assert!(shown.window().is_none());
        assert!(ask(&live, "/data/0").is_none());
        live.set_limits(Some(BOUNDS));
        assert!(shown.window().is_some(), "from now on");
        live.set_limits(None);
        assert!(shown.window().is_none(), "it is let go");
    }
}
