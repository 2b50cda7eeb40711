//! Debug information from debuginfod servers, for binaries whose own is not on this machine; only on request.
//!
//! Input: build IDs. Output: verified files, open. A few threads of their own download, so nothing that samples waits for a
//! server; who names frames asks [what is known](Debuginfod::poll) or [waits](Debuginfod::wait), for a bounded time in all. A server
//! that doesn't answer isn't asked again for ten minutes, which is logged once. See `debuginfod(8)` for the protocol.

mod artifact;
mod cache;
mod error;
mod server;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use sidewinder_base::lock::lock;
use sidewinder_base::privilege;
use sidewinder_config::TlsClient;
use sidewinder_otlp::send::{DownloadLimits, DownloadOptions, Proxies};
use tracing::warn;

use self::artifact::{Artifact, FetchOutcome};
pub use self::artifact::{BuildIdText, Fetched};
use self::cache::{CACHE_BYTES_MAX, Cache};
pub use self::error::DebuginfodError;
use self::server::{Fetcher, Outages};

/// How many files are downloaded at once.
const THREADS: usize = 4;
/// How many files are known at once. Beyond, those that are done are forgotten, and are read from the cache again.
const FILES_MAX: usize = 1024;
/// How long one run waits for servers, in all.
const WAIT_MAX: Duration = Duration::from_secs(10 * 60);
/// The largest source file that is read, in bytes.
const SOURCE_BYTES_MAX: u64 = 2 << 20;
/// The longest path of a source file that is asked for, in bytes.
const SOURCE_PATH_BYTES_MAX: usize = 4096;

/// The servers to ask, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerUrls(Vec<String>);

impl FromStr for ServerUrls {
    type Err = String;

    /// As in `DEBUGINFOD_URLS`: separated by spaces.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // elfutils' client takes words such as `ima:enforcing` between the URLs.
        let urls: Vec<_> = text
            .split_ascii_whitespace()
            .filter(|word| !word.starts_with("ima:"))
            .map(str::to_owned)
            .collect();
        match urls.iter().find(|url| !(url.starts_with("http://") || url.starts_with("https://"))) {
            Some(url) => Err(format!("{url:?} does not begin with http:// or https://")),
            None if urls.is_empty() => Err("it names no server".to_owned()),
            None => Ok(Self(urls)),
        }
    }
}

/// What became of what was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FetchCounts {
    /// Files that are here now: downloaded, or from the cache.
    pub(crate) found: u64,
    /// Files that no server has.
    pub(crate) absent: u64,
    /// Files that were not obtained for another reason.
    pub(crate) failed: u64,
    /// Bytes that were downloaded.
    pub(crate) bytes: u64,
}

impl fmt::Display for FetchCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { found, absent, failed, bytes } = *self;
        let mebibytes = bytes as f64 / f64::from(1 << 20);
        write!(f, "debuginfod: {found} of {} files, {mebibytes:.1} MiB downloaded", found + absent + failed)?;
        if absent > 0 {
            write!(f, "; servers do not have {absent}")?;
        }
        if failed > 0 {
            write!(f, "; {failed} could not be asked for")?;
        }
        Ok(())
    }
}

/// The state of a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// A server has been asked, or will be.
    Pending,
    /// No server has it, or none answers.
    Absent,
    /// A server had it.
    Found(Arc<Fetched>),
}

/// Where and how to ask.
#[derive(Clone, Debug)]
pub struct DebuginfodOptions {
    pub(crate) urls: ServerUrls,
    /// The directory of the cache.
    pub directory: PathBuf,
    pub(crate) download: DownloadOptions,
}

impl DebuginfodOptions {
    /// By the environment variables of elfutils' client; `urls` win over `DEBUGINFOD_URLS`.
    ///
    /// # Errors
    /// If they name no server, a proxy that can't be used, or there is no directory to keep files in.
    pub fn from_environment(urls: Option<ServerUrls>) -> Result<Self, DebuginfodError> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.trim().is_empty());
        let number = |name: &str| variable(name)?.trim().parse().ok().filter(|number: &u64| *number > 0);
        let seconds = |name: &str, default| Duration::from_secs(number(name).unwrap_or(default));
        let urls = match urls {
            Some(urls) => urls,
            None => {
                let text = variable("DEBUGINFOD_URLS").ok_or(DebuginfodError::NoUrls)?;
                text.parse().map_err(DebuginfodError::WrongUrls)?
            }
        };
        let silence = seconds("DEBUGINFOD_TIMEOUT", 30);
        Ok(Self {
            urls,
            directory: Cache::default_directory().ok_or(DebuginfodError::NoDirectory)?,
            download: DownloadOptions {
                limits: DownloadLimits {
                    connect: silence.min(Duration::from_secs(5)),
                    silence,
                    total: seconds("DEBUGINFOD_MAXTIME", 300),
                    bytes: number("DEBUGINFOD_MAXSIZE").unwrap_or(2 << 30),
                },
                tls: TlsClient::default(),
                proxies: Proxies::from_environment()?,
            },
        })
    }
}

/// The client: its requests, and the threads that answer them. These end when it is dropped.
#[derive(Debug)]
pub struct Debuginfod {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Of new requests, and of the end.
    work: Condvar,
    /// Of answers.
    answers: Condvar,
}

#[derive(Debug, Default)]
struct State {
    requests: HashMap<Request, Answer>,
    queue: VecDeque<Request>,
    counts: FetchCounts,
    waited: Duration,
    is_over: bool,
}

type Request = (BuildIdText, Artifact);

impl Debuginfod {
    /// Opens the cache and starts the threads.
    ///
    /// # Errors
    /// If the cache can't be written, or a URL is none.
    pub fn start(options: DebuginfodOptions) -> Result<Self, DebuginfodError> {
        let DebuginfodOptions { urls, directory, download } = options;
        let cache =
            Cache::open(directory.clone()).map_err(|error| DebuginfodError::Cache(directory, error))?;
        let outages = Arc::new(Outages::new(urls.0.len()));
        let shared = Arc::<Shared>::default();
        let client = Self { shared: Arc::clone(&shared) };
        for number in 0..THREADS {
            let fetcher = Fetcher::new(&urls.0, &download, cache.clone(), Arc::clone(&outages))?;
            let (shared, cache) = (Arc::clone(&shared), cache.clone());
            let run = move || {
                privilege::drop_all_but(privilege::NONE);
                if number == 0
                    && let Err(error) = cache.clean(SystemTime::now(), CACHE_BYTES_MAX)
                {
                    warn!(%error, "can't remove old files from the cache of debuginfod");
                }
                shared.answer_requests(&fetcher);
            };
            thread::Builder::new()
                .name("debuginfod".to_owned())
                .spawn(run)
                .map_err(DebuginfodError::Thread)?;
        }
        Ok(client)
    }

    /// What is known of the debug file of a binary, which is asked for if it was not yet.
    pub fn poll(&self, id: &BuildIdText) -> Answer {
        lock(&self.shared.state).request((id.clone(), Artifact::DebugInfo), &self.shared.work)
    }

    /// The debug file of a binary. Waits for it, unless this run has waited for too long.
    pub fn wait(&self, id: &BuildIdText) -> Option<Arc<Fetched>> {
        self.wait_for((id.clone(), Artifact::DebugInfo))
    }

    /// The text of a source file of a binary, by the path in its debug information. Waits as [`Self::wait`].
    pub fn source(&self, id: &BuildIdText, path: &str) -> Option<String> {
        let is_path = path.starts_with('/') && path.len() <= SOURCE_PATH_BYTES_MAX;
        if !is_path || path.contains(char::is_control) {
            return None;
        }
        let fetched = self.wait_for((id.clone(), Artifact::Source(path.to_owned())))?;
        let bytes = fetched.file.metadata().ok()?.len();
        if bytes > SOURCE_BYTES_MAX {
            return None;
        }
        let mut text = vec![0; usize::try_from(bytes).ok()?];
        fetched.file.read_exact_at(&mut text, 0).ok()?;
        (!text.contains(&0)).then(|| String::from_utf8_lossy(&text).into_owned())
    }

    /// How many requests are not answered yet.
    pub fn pending(&self) -> usize {
        let state = lock(&self.shared.state);
        state.requests.values().filter(|answer| matches!(answer, Answer::Pending)).count()
    }

    /// What became of the requests so far.
    pub fn counts(&self) -> FetchCounts {
        lock(&self.shared.state).counts
    }

    fn wait_for(&self, request: Request) -> Option<Arc<Fetched>> {
        let began = Instant::now();
        let mut state = lock(&self.shared.state);
        let left = WAIT_MAX.saturating_sub(state.waited);
        let found = loop {
            match state.request(request.clone(), &self.shared.work) {
                Answer::Found(fetched) => break Some(fetched),
                Answer::Absent => break None,
                Answer::Pending => {}
            }
            let Some(left) = left.checked_sub(began.elapsed()).filter(|left| !left.is_zero()) else {
                break None;
            };
            (state, _) =
                self.shared.answers.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        };
        let had_patience = state.waited < WAIT_MAX;
        state.waited += began.elapsed();
        if had_patience && state.waited >= WAIT_MAX {
            warn!("debuginfod: waited for {WAIT_MAX:?}; files that have not arrived are left out");
        }
        found
    }
}

impl Drop for Debuginfod {
    fn drop(&mut self) {
        // A thread that downloads ends with its download, or with the process.
        lock(&self.shared.state).is_over = true;
        self.shared.work.notify_all();
    }
}

impl State {
    fn request(&mut self, request: Request, work: &Condvar) -> Answer {
        if let Some(answer) = self.requests.get(&request) {
            return answer.clone();
        }
        if self.requests.len() >= FILES_MAX {
            self.requests.retain(|_, answer| matches!(answer, Answer::Pending));
            if self.requests.len() >= FILES_MAX {
                return Answer::Absent;
            }
        }
        self.requests.insert(request.clone(), Answer::Pending);
        self.queue.push_back(request);
        work.notify_one();
        Answer::Pending
    }
}

impl Shared {
    fn answer_requests(&self, fetcher: &Fetcher) {
        let mut state = lock(&self.state);
        while !state.is_over {
            let Some(request) = state.queue.pop_front() else {
                state = self.work.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let (outcome, bytes) = fetcher.fetch(&request.0, &request.1);
            state = lock(&self.state);
            state.counts.bytes += bytes;
            let answer = match outcome {
                FetchOutcome::Found(fetched) => {
                    state.counts.found += 1;
                    Answer::Found(Arc::new(fetched))
                }
                FetchOutcome::Absent => {
                    state.counts.absent += 1;
                    Answer::Absent
                }
                FetchOutcome::Failed => {
                    state.counts.failed += 1;
                    Answer::Absent
                }
            };
            state.requests.insert(request, answer);
            self.answers.notify_all();
        }
    }
}
