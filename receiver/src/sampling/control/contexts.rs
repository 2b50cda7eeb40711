//! The contexts that processes publish: when to look for them, and what was found.
//!
//! No event announces a context (see [`sidewinder_process::context`]). The first look at a process follows its first sample,
//! and further looks become less frequent until it publishes something, which most processes do at their start or never.
//! From then on only the time of the publication is read, at intervals.
//!
//! Owner: the sampling thread. Input: introduced processes, changes of their mappings, and their memory, which the threads of
//! [`ForeignReader`] read. Output: published contexts, and the variables in which threads publish.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::TlsVariable;
use sidewinder_config::TraceContext;
use sidewinder_process::context::{ContextError, PublishedContext, ThreadContexts, read_process_context};
use sidewinder_process::{Pid, ProcessDescription, ProcessKey, ProcessMemory, ProcfsError};
use tracing::{debug, warn};

use super::variables::UnlocatedVariable;
use crate::foreign::{ForeignReader, PendingRead, ReadFailure, ReadProgress, ReadTarget};

/// The first interval between looks at a process that publishes nothing, or is about to. It doubles with each look.
const FIRST_READ_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between looks, each of which reads all mappings.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The interval between looks at a process that has published something, each of which is a single read.
const PUBLISHED_READ_INTERVAL: Duration = Duration::from_secs(5);
/// The time from the mapping of a library until the dynamic linker has filled in what leads to its variables.
const LINKING_DELAY: Duration = Duration::from_millis(50);
/// The shortest time between looks at any two processes, which bounds the cost of many new ones.
const READ_SPACING_MIN: Duration = Duration::from_millis(5);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Contexts {
    is_enabled: bool,
    /// Whether to look for sets of labels, which no context announces.
    reads_label_sets: bool,
    followed: HashMap<u32, FollowedProcess>,
    /// When the next look at each of them is due.
    due: BTreeSet<(Instant, u32)>,
    last_read_at: Option<Instant>,
    reader: ForeignReader,
    /// Looks in progress.
    reads: Vec<(ProcessKey, PendingRead<Result<ContextUpdate, ContextReadError>>)>,
    /// Reads in progress of where the threads of processes publish.
    locations: Vec<(ProcessKey, PendingRead<Vec<TlsVariable>>)>,
    /// Processes whose context can't be read for want of a privilege.
    refused: u64,
}

#[derive(Debug)]
struct FollowedProcess {
    key: ProcessKey,
    due: Instant,
    interval: Duration,
    published: Option<PublishedContext>,
    /// The variables in which its threads publish their span.
    variables: Vec<TlsVariable>,
    /// Whether it is counted in [`Contexts::refused`].
    is_refused: bool,
}

/// How the threads of a process publish their span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadContextSource {
    /// Not at all.
    Unpublished,
    /// By a record for each thread.
    Records,
    /// By the labels of goroutines.
    Goroutines,
}

/// A look that has ended.
pub(super) struct ContextRead {
    pub(super) key: ProcessKey,
    /// Whether its context has changed.
    pub(super) has_changed: bool,
    pub(super) threads: ThreadContextSource,
}

impl Contexts {
    pub(super) fn new(options: &TraceContext, reader: ForeignReader) -> Self {
        Self {
            is_enabled: options.enabled,
            reads_label_sets: options.enabled && options.custom_labels,
            followed: HashMap::new(),
            due: BTreeSet::new(),
            last_read_at: None,
            reader,
            reads: Vec::new(),
            locations: Vec::new(),
            refused: 0,
        }
    }

    /// Follows a process from now on. The first look is at once if the interval between looks allows.
    pub(super) fn follow(&mut self, key: ProcessKey) {
        self.forget(key.pid);
        if !self.is_enabled {
            return;
        }
        let due = Instant::now();
        let followed = FollowedProcess {
            key,
            due,
            interval: FIRST_READ_INTERVAL,
            published: None,
            variables: Vec::new(),
            is_refused: false,
        };
        self.followed.insert(key.pid, followed);
        self.due.insert((due, key.pid));
        let reads_label_sets = self.reads_label_sets;
        let may_publish =
            |look: ContextRead| look.threads != ThreadContextSource::Unpublished || reads_label_sets;
        if self.has_time(due) && self.start_read(key.pid, due, WaitMode::Briefly).is_some_and(may_publish) {
            // The next look is for the variables of its threads.
            self.schedule(key.pid, due);
        }
    }

    /// Processes whose context can't be read for want of a privilege.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: u32) {
        if let Some(followed) = self.followed.remove(&pid) {
            self.due.remove(&(followed.due, pid));
        }
    }

    /// Adds the context of a process to its description.
    pub(super) fn add_context_to(
        &self,
        key: ProcessKey,
        description: Arc<ProcessDescription>,
    ) -> Arc<ProcessDescription> {
        match self.followed(key).and_then(|followed| followed.published.as_ref()) {
            Some(published) => {
                let context = Some(Arc::clone(&published.context));
                Arc::new(ProcessDescription { context, ..(*description).clone() })
            }
            None => description,
        }
    }

    /// The keys of the attributes that the threads of a process publish, by number.
    pub(super) fn attribute_keys(&self, key: ProcessKey) -> &[Box<str>] {
        match self.followed(key).and_then(FollowedProcess::threads) {
            Some(ThreadContexts::Records { attribute_keys }) => attribute_keys,
            _ => &[],
        }
    }

    /// The variables in which the threads of a process publish their span.
    pub(super) fn variables(&self, key: ProcessKey) -> &[TlsVariable] {
        self.followed(key).map_or(&[], |followed| &followed.variables)
    }

    /// Records the variables of a process. Returns whether they have changed.
    pub(super) fn set_variables(&mut self, key: ProcessKey, variables: Vec<TlsVariable>) -> bool {
        let followed = self.followed.get_mut(&key.pid).filter(|followed| followed.key == key);
        followed.is_some_and(|followed| {
            let is_change = followed.variables != variables;
            followed.variables = variables;
            is_change
        })
    }

    /// Reads where the threads of a process have their copies of variables, and adds these to the known ones.
    pub(super) fn locate(
        &self,
        key: ProcessKey,
        unlocated: Vec<UnlocatedVariable>,
        known: &[TlsVariable],
    ) -> Result<ReadProgress<Vec<TlsVariable>>, ReadFailure> {
        let mut located = known.to_vec();
        if unlocated.is_empty() {
            return Ok(ReadProgress::Done(located));
        }
        let target = ReadTarget::from_pid(Pid(key.pid)).map_err(|_| ReadFailure::Gone)?;
        let read = move || {
            if let Ok(directory) = target.open_dir() {
                UnlocatedVariable::locate_all(&unlocated, &ProcessMemory::new(directory), &mut located);
            }
            located
        };
        self.reader.submit(target, read).map(ReadProgress::Pending)
    }

    /// Takes the result of [`Self::locate`] later.
    pub(super) fn push_pending_location(&mut self, key: ProcessKey, pending: PendingRead<Vec<TlsVariable>>) {
        self.locations.push((key, pending));
    }

    /// The next result of [`Self::locate`] that has come later.
    pub(super) fn next_location(&mut self) -> Option<(ProcessKey, Result<Vec<TlsVariable>, ReadFailure>)> {
        take_answer(&mut self.locations)
    }

    /// Whether threads may publish sets of labels, which no context announces.
    pub(super) fn reads_label_sets(&self) -> bool {
        self.reads_label_sets
    }

    /// Brings the next look at a process forward whose mappings have changed, if its threads publish.
    pub(super) fn expedite(&mut self, pid: u32) {
        let due = Instant::now() + LINKING_DELAY;
        let waits = |followed: &&FollowedProcess| followed.threads().is_some() && followed.due > due;
        if self.followed.get(&pid).filter(waits).is_some() {
            self.schedule(pid, due);
        }
    }

    /// The next look that has ended, or that is due and ends at once.
    pub(super) fn next_read(&mut self) -> Option<ContextRead> {
        let now = Instant::now();
        while let Some((key, answer)) = take_answer(&mut self.reads) {
            let look =
                self.record(key, answer.unwrap_or_else(|none| Err(ContextReadError::ReadFailed(none))), now);
            if look.is_some() {
                return look;
            }
        }
        let &(due, pid) = self.due.first()?;
        if due <= now && self.has_time(now) { self.start_read(pid, now, WaitMode::No) } else { None }
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.reads.is_empty() || !self.locations.is_empty()
    }

    fn followed(&self, key: ProcessKey) -> Option<&FollowedProcess> {
        self.followed.get(&key.pid).filter(|followed| followed.key == key)
    }

    fn schedule(&mut self, pid: u32, due: Instant) {
        if let Some(followed) = self.followed.get_mut(&pid) {
            self.due.remove(&(followed.due, pid));
            self.due.insert((due, pid));
            followed.due = due;
        }
    }

    fn has_time(&self, now: Instant) -> bool {
        self.last_read_at.is_none_or(|last| now.duration_since(last) >= READ_SPACING_MIN)
    }

    fn start_read(&mut self, pid: u32, now: Instant, wait: WaitMode) -> Option<ContextRead> {
        self.last_read_at = Some(now);
        let followed = self.followed.get(&pid)?;
        let key = followed.key;
        if self.reads.iter().any(|(asked, _)| *asked == key) {
            self.schedule(pid, now + FIRST_READ_INTERVAL);
            return None;
        }
        match followed.submit_read(&self.reader, wait) {
            Ok(ReadProgress::Done(seen)) => self.record(key, seen, now),
            Ok(ReadProgress::Pending(pending)) => {
                // The answer schedules the next look.
                self.schedule(pid, now + READ_INTERVAL_MAX);
                self.reads.push((key, pending));
                None
            }
            Err(none) => self.record(key, Err(ContextReadError::ReadFailed(none)), now),
        }
    }

    /// Records what a look saw, if the process is still followed.
    fn record(
        &mut self,
        key: ProcessKey,
        seen: Result<ContextUpdate, ContextReadError>,
        now: Instant,
    ) -> Option<ContextRead> {
        let pid = key.pid;
        let followed = self.followed.get_mut(&pid).filter(|followed| followed.key == key)?;
        let before = followed.published.as_ref().map(|published| Arc::clone(&published.context));
        let result = followed.apply(seen);
        let due = now + followed.next_interval(&result);
        let look = ContextRead {
            key: followed.key,
            has_changed: before.as_ref() != followed.published.as_ref().map(|published| &published.context),
            threads: followed.thread_context_source(),
        };
        let is_refused = matches!(result, Err(ContextReadError::NotAllowed(_)));
        let is_first = is_refused && !mem::replace(&mut followed.is_refused, is_refused);
        self.refused += u64::from(is_first);
        self.schedule(pid, due);
        match result {
            Ok(()) => {}
            Err(ContextReadError::NotAllowed(error)) if is_first && self.refused == 1 => {
                warn!(
                    pid,
                    %error,
                    "degraded: what processes publish of themselves can't be read: that takes CAP_SYS_PTRACE, or the \
                     process's own user and a kernel.yama.ptrace_scope of 0"
                );
            }
            Err(unread) => debug!(pid, ?unread, "no process context"),
        }
        Some(look)
    }
}

/// Takes an answer that has arrived.
pub(super) fn take_answer<T>(
    pending: &mut Vec<(ProcessKey, PendingRead<T>)>,
) -> Option<(ProcessKey, Result<T, ReadFailure>)> {
    let (at, answer) = pending.iter().enumerate().find_map(|(at, (_, of))| Some((at, of.poll()?)))?;
    Some((pending.swap_remove(at).0, answer))
}

/// Whether to wait for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitMode {
    No,
    Briefly,
}

/// What a process publishes.
#[derive(Debug)]
enum ContextUpdate {
    /// The same as before.
    Unchanged,
    Changed(PublishedContext),
}

/// Why there is no context, as far as the next look depends on it.
#[derive(Debug)]
enum ContextReadError {
    /// There is none, or none that is valid.
    NotPublished(#[expect(dead_code, reason = "for the log")] ContextError),
    Busy,
    NotAllowed(std::io::Error),
    Gone(#[expect(dead_code, reason = "for the log")] ProcfsError),
    ReadFailed(#[expect(dead_code, reason = "for the log")] ReadFailure),
}

/// Reads what a process publishes.
fn read_context(
    target: ReadTarget,
    before: Option<&PublishedContext>,
) -> Result<ContextUpdate, ContextReadError> {
    let memory = ProcessMemory::new(target.open_dir().map_err(ContextReadError::Gone)?);
    if before.is_some_and(|published| published.is_current(&memory)) {
        return Ok(ContextUpdate::Unchanged);
    }
    let maps =
        target.open_dir().and_then(|directory| directory.file("maps")).map_err(ContextReadError::Gone)?;
    match read_process_context(maps, &memory) {
        Ok(published) => Ok(ContextUpdate::Changed(published)),
        Err(ContextError::Busy) => Err(ContextReadError::Busy),
        Err(ContextError::Unreadable(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(ContextReadError::NotAllowed(error))
        }
        Err(other) => Err(ContextReadError::NotPublished(other)),
    }
}

impl FollowedProcess {
    fn threads(&self) -> Option<&ThreadContexts> {
        self.published.as_ref()?.context.threads.as_ref()
    }

    fn thread_context_source(&self) -> ThreadContextSource {
        match self.threads() {
            Some(ThreadContexts::Records { .. }) => ThreadContextSource::Records,
            Some(ThreadContexts::PprofLabels) => ThreadContextSource::Goroutines,
            None => ThreadContextSource::Unpublished,
        }
    }

    /// Starts a look.
    fn submit_read(
        &self,
        reader: &ForeignReader,
        wait: WaitMode,
    ) -> Result<ReadProgress<Result<ContextUpdate, ContextReadError>>, ReadFailure> {
        let target = ReadTarget::from_pid(Pid(self.key.pid)).map_err(|_| ReadFailure::Gone)?;
        let before = self.published.clone();
        let read = move || read_context(target, before.as_ref());
        match wait {
            WaitMode::Briefly => reader.submit_and_wait(target, read),
            WaitMode::No => reader.submit(target, read).map(ReadProgress::Pending),
        }
    }

    /// Records what a look saw. The last context stays while the process writes another one, or if nothing answers.
    fn apply(&mut self, seen: Result<ContextUpdate, ContextReadError>) -> Result<(), ContextReadError> {
        match seen {
            Ok(ContextUpdate::Unchanged) => Ok(()),
            Ok(ContextUpdate::Changed(published)) => {
                self.published = Some(published);
                Ok(())
            }
            Err(unread) => {
                if matches!(unread, ContextReadError::NotPublished(_)) {
                    self.published = None;
                }
                Err(unread)
            }
        }
    }

    fn next_interval(&mut self, result: &Result<(), ContextReadError>) -> Duration {
        match result {
            Ok(()) => {
                self.interval = FIRST_READ_INTERVAL;
                // The library in which its threads publish may be loaded soon.
                let is_complete = self.threads().is_none() || !self.variables.is_empty();
                if is_complete { PUBLISHED_READ_INTERVAL } else { FIRST_READ_INTERVAL }
            }
            Err(_) => {
                let interval = self.interval;
                self.interval = (2 * interval).min(READ_INTERVAL_MAX);
                interval
            }
        }
    }
}
