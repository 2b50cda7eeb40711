//! One file from the cache, or from the first server that has it.

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use object::{Object as _, ReadCache};
use sidewinder_base::causes::error_chain;
use sidewinder_base::lock::lock;
use sidewinder_otlp::send::{DownloadError, DownloadOptions, Downloader};
use sidewinder_unwind::debug_file::AlternateReference;
use tokio::runtime::Runtime;
use tracing::warn;

use super::artifact::{Artifact, BuildIdText, FetchOutcome, Fetched};
use super::cache::{Cache, Cached};
use super::error::DebuginfodError;
use crate::SeekableContent;

/// How long a server that failed is not asked.
const OUTAGE: Duration = Duration::from_secs(10 * 60);
/// After how many failures in a row, other than silence, a server is not asked.
const FAILURES_MAX: u32 = 3;

/// Which servers are not asked now; shared by the threads.
#[derive(Debug)]
pub(super) struct Outages(Mutex<Vec<ServerState>>);

#[derive(Clone, Copy, Default, Debug)]
struct ServerState {
    failures: u32,
    until: Option<Instant>,
}

impl Outages {
    pub(super) fn new(servers: usize) -> Self {
        Self(Mutex::new(vec![ServerState::default(); servers]))
    }

    fn is_out(&self, server: usize) -> bool {
        lock(&self.0).get(server).and_then(|state| state.until).is_some_and(|until| Instant::now() < until)
    }

    fn note_response(&self, server: usize) {
        if let Some(state) = lock(&self.0).get_mut(server) {
            *state = ServerState::default();
        }
    }

    /// Returns whether the server is out from now on.
    fn note_failure(&self, server: usize, is_silent: bool) -> bool {
        let mut states = lock(&self.0);
        let Some(state) = states.get_mut(server) else { return false };
        state.failures += 1;
        let was_out = state.until.is_some_and(|until| Instant::now() < until);
        if is_silent || state.failures >= FAILURES_MAX {
            state.until = Some(Instant::now() + OUTAGE);
        }
        !was_out && state.until.is_some()
    }
}

/// Gets files, on one thread.
#[derive(Debug)]
pub(super) struct Fetcher {
    servers: Vec<Downloader>,
    runtime: Runtime,
    cache: Cache,
    outages: Arc<Outages>,
}

impl Fetcher {
    pub(super) fn new(
        urls: &[String],
        options: &DownloadOptions,
        cache: Cache,
        outages: Arc<Outages>,
    ) -> Result<Self, DebuginfodError> {
        let server = |url: &String| {
            Downloader::new(url, options.clone())
                .map_err(|source| DebuginfodError::Server { url: url.clone(), source })
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Self {
            servers: urls.iter().map(server).collect::<Result<_, _>>()?,
            runtime: runtime.map_err(DebuginfodError::Thread)?,
            cache,
            outages,
        })
    }

    /// The file, and how many bytes were downloaded for it.
    pub(super) fn fetch(&self, id: &BuildIdText, artifact: &Artifact) -> (FetchOutcome, u64) {
        let (outcome, bytes) = self.fetch_alone(id, artifact);
        let FetchOutcome::Found(mut fetched) = outcome else { return (outcome, bytes) };
        let alternate = match artifact {
            Artifact::DebugInfo => alternate_of(&fetched),
            Artifact::Source(_) => None,
        };
        let Some(alternate) = alternate else { return (FetchOutcome::Found(fetched), bytes) };
        let (outcome, more_bytes) = self.fetch_alone(&alternate, &Artifact::DebugInfo);
        if let FetchOutcome::Found(alternate) = outcome {
            fetched.alternate = Some(alternate.file);
        }
        (FetchOutcome::Found(fetched), bytes + more_bytes)
    }

    fn fetch_alone(&self, id: &BuildIdText, artifact: &Artifact) -> (FetchOutcome, u64) {
        match self.cache.find(id, artifact) {
            Cached::File(file) if is_right(&file, id, artifact) => {
                return (FetchOutcome::Found(Fetched { file: Arc::new(file), alternate: None }), 0);
            }
            Cached::Absent => return (FetchOutcome::Absent, 0),
            Cached::File(_) | Cached::Unknown => {}
        }
        let mut is_absent = true;
        for (number, server) in self.servers.iter().enumerate() {
            if self.outages.is_out(number) {
                is_absent = false;
                continue;
            }
            match self.download(server, id, artifact) {
                Ok((fetched, bytes)) => {
                    self.outages.note_response(number);
                    return (FetchOutcome::Found(fetched), bytes);
                }
                Err(FetchError::Download(DownloadError::NotFound)) => self.outages.note_response(number),
                Err(error) => {
                    is_absent = false;
                    if self.outages.note_failure(number, error.is_silence()) {
                        warn!(
                            "debuginfod: {}: {}; it is skipped for {} minutes (logged once); names and lines that only it has are missing",
                            server.url(),
                            error_chain(&error),
                            OUTAGE.as_secs() / 60
                        );
                    } else {
                        warn!("debuginfod: {}: {}: {}", server.url(), id.as_str(), error_chain(&error));
                    }
                }
            }
        }
        if !is_absent {
            return (FetchOutcome::Failed, 0);
        }
        if let Err(error) = self.cache.note_absent(id, artifact) {
            warn!(%error, "can't write to the cache of debuginfod");
        }
        (FetchOutcome::Absent, 0)
    }

    /// Downloads a file and puts it into the cache once it is proven to be the right one.
    fn download(
        &self,
        server: &Downloader,
        id: &BuildIdText,
        artifact: &Artifact,
    ) -> Result<(Fetched, u64), FetchError> {
        let mut unfinished = self.cache.begin(id).map_err(FetchError::Cache)?;
        let path = url_path(id, artifact);
        let bytes = self.runtime.block_on(server.get(&path, &mut unfinished.file))?;
        if bytes == 0 || !is_right(&unfinished.file, id, artifact) {
            return Err(FetchError::Wrong);
        }
        unfinished.file.flush().map_err(FetchError::Cache)?;
        let file = unfinished.file.try_clone().map_err(FetchError::Cache)?;
        self.cache.keep(unfinished, id, artifact).map_err(FetchError::Cache)?;
        Ok((Fetched { file: Arc::new(file), alternate: None }, bytes))
    }
}

#[derive(Debug, thiserror::Error)]
enum FetchError {
    #[error(transparent)]
    Download(#[from] DownloadError),
    #[error("it sent another file")]
    Wrong,
    #[error("can't write to the cache")]
    Cache(#[source] std::io::Error),
}

impl FetchError {
    /// Whether the next request would take as long, and fail too.
    fn is_silence(&self) -> bool {
        matches!(
            self,
            Self::Cache(_)
                | Self::Download(
                    DownloadError::NoAnswer(_)
                        | DownloadError::TooSlow(_)
                        | DownloadError::Write(_)
                        | DownloadError::Connection(_)
                )
        )
    }
}

/// Whether a file is the debug file with this build ID. Nothing proves that a source file is the right one.
fn is_right(file: &std::fs::File, id: &BuildIdText, artifact: &Artifact) -> bool {
    let Artifact::DebugInfo = artifact else { return true };
    let cache = ReadCache::new(SeekableContent::new(file));
    let Ok(parsed) = object::File::parse(&cache) else { return false };
    parsed.build_id().ok().flatten().is_some_and(|found| hex::encode(found) == id.as_str())
}

/// The build ID of the file with which a debug file shares information.
fn alternate_of(fetched: &Fetched) -> Option<BuildIdText> {
    let cache = ReadCache::new(SeekableContent::new(&*fetched.file));
    let reference = AlternateReference::from_file(&object::File::parse(&cache).ok()?)?;
    BuildIdText::new(&hex::encode(reference.build_id()))
}

/// The path of a URL: `/buildid/ID/debuginfo`, or `/buildid/ID/source/PATH` with its bytes quoted.
fn url_path(id: &BuildIdText, artifact: &Artifact) -> String {
    let id = id.as_str();
    match artifact {
        Artifact::DebugInfo => format!("/buildid/{id}/debuginfo"),
        Artifact::Source(path) => {
            let quoted = path.bytes().map(|byte| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                    char::from(byte).to_string()
                }
                byte => format!("%{byte:02X}"),
            });
            format!("/buildid/{id}/source{}", quoted.collect::<String>())
        }
    }
}
