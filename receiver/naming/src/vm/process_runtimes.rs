//! The runtimes of one process, and what is going on with the reads of its functions.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_base::foreign::{PendingRead, ReadFailure, ReadProgress};
use sidewinder_bpf::VmFunction;
use sidewinder_message::RuntimeSource;
use sidewinder_vm::{Code, FunctionError};

use super::counts::VmObstacle;
use super::key::FunctionKey;
use crate::source_maps::ProcessSourceMaps;

/// The most functions that are read at once: as many as a deep stack has. As many again that waited are read with them.
pub(super) const BATCH_MAX: usize = 1024;
/// How long the memory of a process is not read again after a failure: the first time, and at most. It doubles each time.
pub(super) const BACKOFF_FIRST: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(10);

/// What was read of functions; `None`: their process had ended.
pub(super) type FunctionsRead = Option<Vec<(VmFunction, Result<Code, FunctionError>)>>;

/// The runtimes of a process, and the reads of its functions.
#[derive(Debug)]
pub(super) struct ProcessRuntimes {
    /// Of each of its runtimes. They have the same memory.
    pub(super) sources: Vec<Arc<RuntimeSource>>,
    /// The source maps of its scripts.
    pub(super) source_maps: Option<Arc<ProcessSourceMaps>>,
    /// Whether some of them were read since the last read of functions, some of which need them.
    pub(super) has_new_maps: bool,
    /// The read that takes longer than was waited for it, with the functions that it reads.
    pub(super) pending: Option<(PendingRead<FunctionsRead>, Vec<VmFunction>)>,
    /// Functions of stacks that came during a read, or during a backoff.
    pub(super) postponed: HashMap<FunctionKey, VmFunction>,
    /// Until when the memory is not read again, and for how long after the next failure.
    pub(super) backoff_until: Option<Instant>,
    pub(super) next_backoff: Duration,
    pub(super) obstacle: Option<VmObstacle>,
}

impl ProcessRuntimes {
    pub(super) fn new(source: Arc<RuntimeSource>) -> Self {
        Self {
            sources: vec![source],
            source_maps: None,
            has_new_maps: false,
            pending: None,
            postponed: HashMap::new(),
            backoff_until: None,
            next_backoff: BACKOFF_FIRST,
            obstacle: None,
        }
    }

    pub(super) fn start_read(
        &self,
        timeout: Duration,
        wanted: Vec<VmFunction>,
    ) -> Result<ReadProgress<FunctionsRead>, ReadFailure> {
        let Some(first) = self.sources.first() else { return Err(ReadFailure::Gone) };
        let readers: Vec<_> = self.sources.iter().map(|source| Arc::clone(&source.functions)).collect();
        first.memory.start_read(timeout, move |memory| {
            let read = |wanted: VmFunction| {
                let functions = readers.iter().find(|functions| functions.runtime() == wanted.runtime)?;
                Some((wanted, functions.read(memory, wanted)))
            };
            wanted.into_iter().filter_map(read).collect()
        })
    }

    /// Adds functions to the next read, as far as there is room. Others are wanted again by the next stacks that have them.
    pub(super) fn postpone(&mut self, wanted: impl IntoIterator<Item = (FunctionKey, VmFunction)>) {
        let room = BATCH_MAX.saturating_sub(self.postponed.len());
        self.postponed.extend(wanted.into_iter().take(room));
    }

    pub(super) fn back_off(&mut self, now: Instant) {
        self.backoff_until = Some(now + self.next_backoff);
        self.next_backoff = (2 * self.next_backoff).min(BACKOFF_MAX);
    }

    pub(super) fn end_backoff(&mut self) {
        (self.backoff_until, self.next_backoff) = (None, BACKOFF_FIRST);
    }
}
