//! The live page, over HTTP: a view of a running profile, for `service::ui` and `record --ui`, and of profiles that are received,
//! for `view --listen`.
//!
//! Owner: the reporting thread fills the window of its receiver with a tee of the messages that go to the reporter; the
//! threads of the HTTP server read it.
//!
//! | Path               | Response                                                                     |
//! |--------------------|------------------------------------------------------------------------------|
//! | `/`                | the page of the first kind of the first receiver; `/1/` is the next one      |
//! | `/data/CURSOR`     | a document of what is new since this cursor; everything if it is not valid   |
//! | `/source/NUMBER`, `/assembly/NUMBER` | JSON of the code of the function that has this number in the data      |
//! | `/FROM-TO.SUFFIX`  | these slices of time in the format of that suffix, as `record` writes it     |

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use http::StatusCode;
use sidewinder_base::lock::lock;
use sidewinder_kind::{Kind, KindSet};
use sidewinder_naming::{NamingStage, Update};
use sidewinder_render::{OutcomeCount, PageViews, Profile, ProfileFormat, SampleType, escaped, live_page};
use sidewinder_report::collect::{SlidingWindow, WindowLimits};
use sidewinder_report::encode;

use crate::annotate::Annotator;
use crate::http_server::{Handler, PageResponse};

/// What the page shows, by the names of receivers and the order of their kinds.
#[derive(Debug, Default)]
pub struct LiveView {
    /// `None`: there is no page, and nothing is held.
    limits: Mutex<Option<WindowLimits>>,
    feeds: Mutex<BTreeMap<(String, usize), Arc<LiveFeed>>>,
    /// `None`: the page shows no code.
    annotator: Option<Arc<Annotator>>,
}

/// What one receiver shows: a page for each of its kinds.
#[derive(Clone, Debug)]
pub struct LiveFeeds(Vec<Arc<LiveFeed>>);

/// What one receiver shows of one kind.
#[derive(Debug)]
pub struct LiveFeed {
    title: String,
    source: FeedSource,
    window: Mutex<Option<SlidingWindow>>,
}

/// What a feed consists of.
#[derive(Clone, PartialEq, Eq, Debug)]
enum FeedSource {
    /// Samples of our own.
    Sampled(Kind),
    /// Profiles of this measure that are received.
    Received(SampleType),
}

/// The name of the receiver of all profiles that are received.
const RECEIVED: &str = "otlp";
/// The most feeds of received profiles. Each holds a window.
const RECEIVED_FEEDS_MAX: usize = 8;

/// Returns the outcomes of a receiver's interrupts for a kind so far.
pub type OutcomeSource = dyn Fn(&str, Kind) -> Vec<OutcomeCount> + Send + Sync;

impl LiveView {
    /// A view within these limits.
    pub fn new(limits: Option<WindowLimits>) -> Self {
        Self { limits: Mutex::new(limits), ..Self::default() }
    }

    /// The same view, whose page also shows the code of functions.
    pub fn with_code(self, annotator: Arc<Annotator>) -> Self {
        Self { annotator: Some(annotator), ..self }
    }

    /// Applies other limits from now on; with `None`, drops what is held.
    pub fn set_limits(&self, limits: Option<WindowLimits>) {
        *lock(&self.limits) = limits;
        for feed in lock(&self.feeds).values() {
            feed.set_limits(limits);
        }
    }

    /// Adds a receiver of these kinds. A receiver of the same name is replaced, and what it showed is dropped.
    pub fn add_receiver(&self, name: &str, title: &str, kinds: &KindSet) -> LiveFeeds {
        let limits = *lock(&self.limits);
        let feed = |kind| LiveFeed::new(title, FeedSource::Sampled(kind), limits);
        let added: Vec<_> = kinds.iter().map(feed).collect();
        let mut feeds = lock(&self.feeds);
        feeds.retain(|(receiver, _), _| receiver != name);
        feeds.extend(added.iter().enumerate().map(|(at, feed)| ((name.to_owned(), at), Arc::clone(feed))));
        LiveFeeds(added)
    }

    /// Adds a profile that is received to the feed of its measure, which is added if it is the first one. Returns the number of
    /// that feed, and whether it is new; `None` if there are too many measures.
    pub fn add_profile(&self, title: &str, profile: &Profile) -> Option<(usize, bool)> {
        let limits = *lock(&self.limits);
        let mut feeds = lock(&self.feeds);
        let source = FeedSource::Received(profile.measure.clone());
        let known = feeds.iter().zip(0..).find(|((_, feed), _)| feed.source == source);
        let known = known.map(|((_, feed), number)| (Arc::clone(feed), number));
        let is_new = known.is_none();
        let (feed, number) = match known {
            Some(known) => known,
            None if feeds.len() >= RECEIVED_FEEDS_MAX => return None,
            None => {
                let (feed, number) = (LiveFeed::new(title, source, limits), feeds.len());
                feeds.insert((RECEIVED.to_owned(), number), Arc::clone(&feed));
                (feed, number)
            }
        };
        drop(feeds);
        if let Some(window) = feed.window().as_mut() {
            window.add_profile(profile);
        }
        Some((number, is_new))
    }

    /// What the pages show, of which one is shown here.
    fn views(&self, shown: usize) -> PageViews {
        let feeds = lock(&self.feeds);
        let has_several_titles =
            feeds.values().zip(feeds.values().skip(1)).any(|(one, next)| one.title != next.title);
        let name = |feed: &Arc<LiveFeed>| {
            let subject = feed.source.measure().subject();
            let name = if has_several_titles { format!("{}: {subject}", feed.title) } else { subject };
            escaped(&name).into_owned()
        };
        let names = if feeds.len() > 1 { feeds.values().map(name).collect() } else { Vec::new() };
        PageViews { names, shown }
    }

    /// The handler of all paths.
    pub fn handler(self: &Arc<Self>, outcomes: Arc<OutcomeSource>) -> Arc<Handler> {
        let live = Arc::clone(self);
        Arc::new(move |path| live.page(path.strip_prefix('/')?, &*outcomes))
    }

    fn page(&self, path: &str, outcomes: &OutcomeSource) -> Option<PageResponse> {
        let (index, path) = split_view(path);
        let receiver =
            lock(&self.feeds).iter().nth(index).map(|((name, _), feed)| (name.clone(), Arc::clone(feed)));
        // The first receiver may be about to start.
        if path.is_empty() && (receiver.is_some() || index == 0) {
            return Some(PageResponse::with_own_policy(live_page()));
        }
        let (name, feed) = receiver?;
        let outcomes = || match feed.source {
            FeedSource::Sampled(kind) => outcomes(&name, kind),
            FeedSource::Received(_) => Vec::new(),
        };
        if let Some(cursor) = path.strip_prefix("data/") {
            let views = self.views(index);
            let update = feed.window().as_mut()?.update_since(cursor, outcomes(), views);
            return Some(PageResponse::ok("application/octet-stream", update));
        }
        // The window is locked only while it is copied.
        let function = |number| {
            let (function, profile) = feed.window().as_mut()?.profile_with_function(number)?;
            Some((function, Cow::Owned(profile)))
        };
        let code = self.annotator.as_ref().and_then(|annotator| annotator.respond(path, function));
        if code.is_some() {
            return code;
        }
        let (range, suffix) = path.split_once('.')?;
        let profile = feed.window().as_mut()?.profile(parse_slices(range)?, outcomes());
        // The window is no longer locked: rendering does not block other requests.
        let suffix = format!(".{suffix}");
        let rendered = match ProfileFormat::ALL.into_iter().find(|format| format.suffix() == suffix) {
            Some(format) => {
                let mut out = Vec::new();
                sidewinder_render::write(&profile, format, format.default_names(), &mut out)
                    .map(|()| (content_type(format), out))
                    .ok()
            }
            None if suffix == ".otlp" => encode::report(&profile)
                .map(|report| ("application/x-protobuf", report.as_bytes().to_vec()))
                .ok(),
            None => return None,
        };
        Some(rendered.map_or_else(
            || PageResponse::text(StatusCode::NOT_FOUND, "there are no samples of this time"),
            |(content_type, body)| PageResponse::ok(content_type, body),
        ))
    }
}

impl FeedSource {
    fn measure(&self) -> Cow<'_, SampleType> {
        match self {
            Self::Sampled(kind) => Cow::Owned(SampleType::from_kind(*kind)),
            Self::Received(measure) => Cow::Borrowed(measure),
        }
    }
}

impl LiveFeeds {
    /// The feeds, in the order of the kinds.
    pub fn iter(&self) -> impl Iterator<Item = &LiveFeed> {
        self.0.iter().map(|feed| &**feed)
    }

    /// Adds what a message means to the windows if there are any. The reporter takes it after this.
    pub fn tee(&self, update: &Update, stage: &mut NamingStage) {
        for feed in self.iter() {
            // Locked for one message at a time, so that the page does not wait for the whole batch.
            if let Some(window) = feed.window().as_mut() {
                window.handle(update, stage);
            }
        }
    }

    /// Marks the end: no more messages follow.
    pub fn close(&self) {
        for feed in self.iter() {
            if let Some(window) = feed.window().as_mut() {
                window.close();
            }
        }
    }
}

impl LiveFeed {
    fn new(title: &str, source: FeedSource, limits: Option<WindowLimits>) -> Arc<Self> {
        let feed = Self { title: title.to_owned(), source, window: Mutex::default() };
        feed.set_limits(limits);
        Arc::new(feed)
    }

    /// The window; `None` while there is no page.
    pub fn window(&self) -> MutexGuard<'_, Option<SlidingWindow>> {
        lock(&self.window)
    }

    fn set_limits(&self, limits: Option<WindowLimits>) {
        let mut window = self.window();
        match (limits, &mut *window) {
            (Some(limits), Some(window)) => window.set_limits(limits),
            (Some(limits), none) => {
                let title = self.title.clone();
                *none = Some(match &self.source {
                    FeedSource::Sampled(kind) => SlidingWindow::new(title, *kind, limits),
                    FeedSource::Received(measure) => {
                        SlidingWindow::for_received(title, measure.clone(), limits)
                    }
                });
            }
            (None, window) => *window = None,
        }
    }
}

/// The number of a page's profile, which is 0 if the path names none, and the rest of the path.
pub fn split_view(path: &str) -> (usize, &str) {
    let numbered = path.split_once('/').and_then(|(number, rest)| {
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
        Some((number.parse().ok().filter(|_| is_number)?, rest))
    });
    numbered.unwrap_or((0, path))
}

/// Parses `FROM-TO`, the indices of slices, `TO` excluded.
fn parse_slices(text: &str) -> Option<Range<u32>> {
    let (from, to) = text.split_once('-')?;
    let (from, to) = (from.parse().ok()?, to.parse().ok()?);
    (from < to).then_some(from..to)
}

fn content_type(format: ProfileFormat) -> &'static str {
    match format {
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
    use sidewinder_message::test_support::{CPU, event};
    use sidewinder_naming::test_support::naming_stage;
    use sidewinder_render::decode_document;

    use super::*;
    use crate::annotate::SourceDirectories;

    const LIMITS: WindowLimits = WindowLimits { max_age: Duration::from_secs(600), max_bytes: 1 << 20 };

    fn get(live: &Arc<LiveView>, path: &str) -> Option<PageResponse> {
        live.handler(Arc::new(|_, _| Vec::new()))(path)
    }

    fn document(live: &Arc<LiveView>, path: &str) -> Value {
        decode_document(&get(live, path).unwrap().body).unwrap()
    }

    #[test]
    fn each_receiver_has_its_own_page_data_and_files() {
        let live = Arc::new(LiveView::new(Some(LIMITS)));
        let _empty = live.add_receiver("profiling", "first", &KindSet::new(CPU));
        let feeds = live.add_receiver("profiling/two", "second", &KindSet::new(CPU));
        feeds.tee(&Update::Event(event(1, None)), &mut naming_stage());
        for path in ["/", "/1/"] {
            assert!(get(&live, path).unwrap().body.starts_with(b"<!DOCTYPE html>"));
        }
        assert_eq!(document(&live, "/data/0")["title"], "first");
        let update = document(&live, "/1/data/0");
        assert_eq!(
            (&update["title"], &update["samples"]["count"]),
            (&"second".into(), &serde_json::json!([1]))
        );
        let folded = get(&live, "/1/0-10.folded").unwrap();
        assert_eq!(
            (folded.status, folded.body.as_ref()),
            (StatusCode::OK, &b"thread;[anonymous]+0x1000 1\n"[..])
        );
        for suffix in [".otlp", ".pb.gz", ".svg", ".html", ".speedscope.json", ".firefox.json"] {
            assert_eq!(get(&live, &format!("/1/0-10{suffix}")).unwrap().status, StatusCode::OK, "{suffix}");
        }
        assert_eq!(get(&live, "/0-10.otlp").unwrap().status, StatusCode::NOT_FOUND, "no sample");
        for path in
            ["/2/", "/2/data/0", "/data", "/1/0-10.exe", "/1/10-0.svg", "/1/x-9.svg", "/../etc/passwd", ""]
        {
            assert!(get(&live, path).is_none(), "{path}");
        }
    }

    #[test]
    fn each_kind_of_a_receiver_has_a_page_of_its_own() {
        let live = Arc::new(LiveView::new(Some(LIMITS)));
        let feeds = live.add_receiver("profiling", "app", &KindSet::new(CPU).with(Kind::OffCpu));
        feeds.tee(&Update::Event(event(1, None)), &mut naming_stage());
        let (cpu, off_cpu) = (document(&live, "/data/0"), document(&live, "/1/data/0"));
        assert_eq!((&cpu["measure"], &off_cpu["measure"]), (&"CPU".into(), &"off-CPU".into()));
        let views = |shown| serde_json::json!({ "names": ["CPU time", "off-CPU time"], "shown": shown });
        assert_eq!((&cpu["views"], &off_cpu["views"]), (&views(0), &views(1)), "where to go from each");
        assert_eq!(cpu["samples"]["count"], serde_json::json!([1]));
        assert_eq!(off_cpu["samples"]["count"], serde_json::json!([]));
        let _replaced = live.add_receiver("profiling", "app", &KindSet::new(CPU));
        assert!(get(&live, "/1/").is_none(), "the page of a kind that is gone");
    }

    #[test]
    fn received_profiles_of_each_measure_have_a_page_of_their_own_up_to_a_limit() {
        let live = Arc::new(LiveView::new(Some(LIMITS)));
        assert!(get(&live, "/").is_some() && get(&live, "/data/0").is_none(), "nothing was received yet");
        let profile = |samples_per_second| {
            let mut profile =
                Profile::new(String::new(), SampleType::from_kind(Kind::Cpu { samples_per_second }));
            profile.start = std::time::SystemTime::now();
            profile.threads.push(sidewinder_render::ProfileThread {
                process: "app".into(),
                pid: 1,
                name: "".into(),
                tid: 0,
                container: "".into(),
            });
            profile.samples.push(sidewinder_render::ProfileSample {
                slice: 0,
                thread: sidewinder_render::ThreadIndex(0),
                span: sidewinder_profile::LinkIndex::default(),
                state: None,
                stated: sidewinder_render::StatedAttributes::default(),
                stack: sidewinder_profile::StackIndex::default(),
                count: 3,
            });
            profile
        };
        assert_eq!(live.add_profile("OTLP", &profile(20)), Some((0, true)));
        assert_eq!(live.add_profile("OTLP", &profile(20)), Some((0, false)));
        assert_eq!(live.add_profile("OTLP", &profile(99)), Some((1, true)));
        let [first, second] = ["/data/0", "/1/data/0"].map(|path| document(&live, path));
        assert_eq!(
            (&first["title"], &first["rate_hz"], &second["rate_hz"]),
            (&"OTLP".into(), &20.into(), &99.into())
        );
        let total = |update: &Value| -> u64 {
            update["samples"]["count"].as_array().unwrap().iter().filter_map(Value::as_u64).sum()
        };
        assert_eq!((total(&first), total(&second)), (6, 3));
        for rate in 200..200 + RECEIVED_FEEDS_MAX as u32 - 2 {
            assert!(live.add_profile("OTLP", &profile(rate)).is_some());
        }
        assert_eq!(live.add_profile("OTLP", &profile(300)), None);
    }

    #[test]
    fn the_code_of_a_function_is_answered_by_its_number() {
        let annotator = Annotator::new(SourceDirectories::default(), Arc::default());
        let live = Arc::new(LiveView::new(Some(LIMITS)).with_code(Arc::new(annotator)));
        let feeds = live.add_receiver("profiling", "app", &KindSet::new(CPU));
        feeds.tee(&Update::Event(event(1, None)), &mut naming_stage());
        let source: Value = serde_json::from_slice(&get(&live, "/source/0").unwrap().body).unwrap();
        assert_eq!(source, serde_json::json!({ "name": "[anonymous]+0x1000", "binary": "", "sources": [] }));
        let refused = get(&live, "/0/assembly/0").unwrap();
        assert_eq!(refused.status, StatusCode::NOT_FOUND);
        assert!(refused.body.starts_with(b"the profile has no address for this function"));
        for path in ["/source/1", "/source/-1", "/assembly/x", "/source/", "/other/0", "/source/0/0"] {
            assert!(get(&live, path).is_none(), "{path}");
        }
    }

    #[test]
    fn nothing_is_held_while_there_is_no_page() {
        let live = Arc::new(LiveView::new(None));
        let feeds = live.add_receiver("profiling", "", &KindSet::new(CPU));
        let feed = feeds.iter().next().unwrap();
        assert!(feed.window().is_none());
        assert!(get(&live, "/data/0").is_none());
        live.set_limits(Some(LIMITS));
        assert!(feed.window().is_some(), "events are held from now on");
        live.set_limits(None);
        assert!(feed.window().is_none(), "the window is dropped");
    }
}
