//! The contexts that processes publish: when to read them, and the results.
//!
//! No event announces a context (see [`sidewinder_process::context`]). A process is first read after its first sample, and
//! then less and less often until it publishes something, which most processes do at startup or never. From then on only the
//! publication's timestamp is read, at a fixed interval.
//!
//! Owner: the sampling thread. Input: announced processes, changes of their mappings, and their memory, which the threads of
//! [`ForeignReader`] read. Output: published contexts, and the variables in which threads publish their span.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_base::foreign::{
    ForeignReader, MemoryAccess, PendingRead, ReadFailure, ReadProgress, ReadTarget,
};
use sidewinder_bpf::TlsVariable;
use sidewinder_config::TraceContext;
use sidewinder_process::context::{ContextError, PublishedContext, ThreadContexts, read_process_context};
use sidewinder_process::{Pid, ProcessDescription, ProcessKey, ProcfsError};
use tracing::{debug, warn};

use super::variables::UnlocatedVariable;

/// The first interval between reads of a process that publishes nothing, or nothing complete yet. It doubles with each read
/// that finds nothing.
const FIRST_READ_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between reads. Each of them reads all mappings.
const READ_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The interval between reads of a process that has published something. Each of them is a single small read.
const PUBLISHED_READ_INTERVAL: Duration = Duration::from_secs(5);
/// The time from mapping a library until the dynamic linker has written the data that leads to its variables.
const LINKING_DELAY: Duration = Duration::from_millis(50);
/// The shortest time between the reads of any two processes. It bounds the cost of many new processes.
const READ_SPACING_MIN: Duration = Duration::from_millis(5);

/// The contexts of followed processes, and the schedule of their reads.
#[derive(Debug)]
pub(super) struct Contexts {
    is_enabled: bool,
    /// Whether to look for label sets, which no context announces.
    reads_label_sets: bool,
    followed: HashMap<u32, FollowedProcess>,
    /// When the next read of each process is due.
    due: BTreeSet<(Instant, u32)>,
    last_read_at: Option<Instant>,
    reader: ForeignReader,
    /// Reads of contexts in progress.
    reads: Vec<(ProcessKey, PendingRead<Result<ContextUpdate, ContextReadError>>)>,
    /// Reads in progress that locate the variables in which threads publish.
    locations: Vec<(ProcessKey, PendingRead<Vec<TlsVariable>>)>,
    /// The number of processes whose context can't be read because a privilege is missing.
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

/// How the threads of a process publish their span, as its context states.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ThreadContextSource {
    /// They don't, or not according to the context.
    Unpublished,
    /// In a record for each thread.
    Records,
    /// In the labels of goroutines.
    Goroutines,
}

/// A completed read of a process's context.
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

    /// Follows a process from now on, instead of an earlier one with its PID. Reads its context at once if the spacing between reads allows it.
    pub(super) fn follow(&mut self, key: ProcessKey) {
        if let Some(earlier) = self.followed.get(&key.pid).map(|followed| followed.key) {
            self.forget(earlier);
        }
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
            |read: ContextRead| read.threads != ThreadContextSource::Unpublished || reads_label_sets;
        if self.has_time(due) && self.start_read(key.pid, due, WaitMode::Briefly).is_some_and(may_publish) {
            // The next read is for the variables of its threads.
            self.schedule(key.pid, due);
        }
    }

    /// The number of processes whose context can't be read because a privilege is missing.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, key: ProcessKey) {
        if let Some(due) = self.followed(key).map(|followed| followed.due) {
            self.followed.remove(&key.pid);
            self.due.remove(&(due, key.pid));
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

    /// The keys of the attributes that the threads of a process publish, by key index.
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

    /// Sets the variables of a process. Returns whether they have changed.
    pub(super) fn set_variables(&mut self, key: ProcessKey, variables: Vec<TlsVariable>) -> bool {
        let followed = self.followed.get_mut(&key.pid).filter(|followed| followed.key == key);
        followed.is_some_and(|followed| {
            let has_changed = followed.variables != variables;
            followed.variables = variables;
            has_changed
        })
    }

    /// Reads where the threads of a process have their copies of the variables, and returns these after the known ones.
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
        let memory = self.reader.memory().clone();
        let read = move || {
            if let Ok(memory) = memory.open(target) {
                UnlocatedVariable::locate_all(&unlocated, &memory, &mut located);
            }
            located
        };
        self.reader.submit(target, read).map(ReadProgress::Pending)
    }

    /// Keeps a read of [`Self::locate`] that hasn't completed.
    pub(super) fn push_pending_location(&mut self, key: ProcessKey, pending: PendingRead<Vec<TlsVariable>>) {
        self.locations.push((key, pending));
    }

    /// The next completed read among those of [`Self::push_pending_location`].
    pub(super) fn next_location(&mut self) -> Option<(ProcessKey, Result<Vec<TlsVariable>, ReadFailure>)> {
        take_completed_read(&mut self.locations)
    }

    /// Whether threads may publish label sets, which no context announces.
    pub(super) fn reads_label_sets(&self) -> bool {
        self.reads_label_sets
    }

    /// Brings forward the next read of a process whose mappings have changed, if its threads publish their span.
    pub(super) fn expedite(&mut self, pid: u32) {
        let due = Instant::now() + LINKING_DELAY;
        let is_due_later = |followed: &&FollowedProcess| followed.threads().is_some() && followed.due > due;
        if self.followed.get(&pid).filter(is_due_later).is_some() {
            self.schedule(pid, due);
        }
    }

    /// The next context read that has completed, or that is due and completes at once.
    pub(super) fn next_read(&mut self) -> Option<ContextRead> {
        let now = Instant::now();
        while let Some((key, result)) = take_completed_read(&mut self.reads) {
            let result = result.unwrap_or_else(|failure| Err(ContextReadError::ReadFailed(failure)));
            let read = self.record(key, result, now);
            if read.is_some() {
                return read;
            }
        }
        let &(due, pid) = self.due.first()?;
        if due <= now && self.has_time(now) { self.start_read(pid, now, WaitMode::No) } else { None }
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.reads.is_empty() || !self.locations.is_empty()
    }

    #[cfg(test)]
    pub(super) fn is_followed(&self, key: ProcessKey) -> bool {
        self.followed(key).is_some()
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
        if self.reads.iter().any(|(pending, _)| *pending == key) {
            self.schedule(pid, now + FIRST_READ_INTERVAL);
            return None;
        }
        match followed.submit_read(&self.reader, wait) {
            Ok(ReadProgress::Done(result)) => self.record(key, result, now),
            Ok(ReadProgress::Pending(pending)) => {
                // Recording the result schedules the next read.
                self.schedule(pid, now + READ_INTERVAL_MAX);
                self.reads.push((key, pending));
                None
            }
            Err(failure) => self.record(key, Err(ContextReadError::ReadFailed(failure)), now),
        }
    }

    /// Records the result of a read, if the process is still followed, and schedules the next read.
    fn record(
        &mut self,
        key: ProcessKey,
        update: Result<ContextUpdate, ContextReadError>,
        now: Instant,
    ) -> Option<ContextRead> {
        let pid = key.pid;
        let followed = self.followed.get_mut(&pid).filter(|followed| followed.key == key)?;
        let before = followed.published.as_ref().map(|published| Arc::clone(&published.context));
        let result = followed.apply(update);
        let due = now + followed.next_interval(&result);
        let read = ContextRead {
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
                    "degraded: the contexts that processes publish can't be read: before Linux 6.1 this needs \
                     CAP_SYS_PTRACE, or the process's own user and a kernel.yama.ptrace_scope of 0"
                );
            }
            Err(error) => debug!(pid, unread = ?error, "no process context"),
        }
        Some(read)
    }
}

/// Takes the result of a read that has completed.
pub(super) fn take_completed_read<K, T>(
    pending: &mut Vec<(K, PendingRead<T>)>,
) -> Option<(K, Result<T, ReadFailure>)> {
    let (index, result) =
        pending.iter().enumerate().find_map(|(index, (_, read))| Some((index, read.poll()?)))?;
    Some((pending.swap_remove(index).0, result))
}

/// Whether to wait for the result of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitMode {
    No,
    Briefly,
}

/// What a read of a process's context found.
#[derive(Debug)]
enum ContextUpdate {
    /// The same as before.
    Unchanged,
    Changed(PublishedContext),
}

/// Why no context was read, as far as the next read depends on it.
#[derive(Debug)]
enum ContextReadError {
    /// The process publishes no context, or no valid one.
    NotPublished(#[expect(dead_code, reason = "for the log")] ContextError),
    Busy,
    NotAllowed(std::io::Error),
    Gone(#[expect(dead_code, reason = "for the log")] ProcfsError),
    /// It has given up its memory, or is about to. Its last samples may still be in the rings.
    Exiting,
    /// Its mappings or the memory of its context can't be read, which may be different the next time.
    Unreadable(#[expect(dead_code, reason = "for the log")] std::io::Error),
    ReadFailed(#[expect(dead_code, reason = "for the log")] ReadFailure),
}

/// Reads the context that a process publishes.
fn read_context(
    access: &MemoryAccess,
    target: ReadTarget,
    before: Option<&PublishedContext>,
) -> Result<ContextUpdate, ContextReadError> {
    let memory = access.open(target).map_err(ContextReadError::Gone)?;
    if before.is_some_and(|published| published.is_current(&memory)) {
        return Ok(ContextUpdate::Unchanged);
    }
    let mappings = memory.context_mappings().map_err(ContextReadError::Unreadable)?;
    match read_process_context(mappings, &memory) {
        Ok(published) => Ok(ContextUpdate::Changed(published)),
        Err(ContextError::Busy) => Err(ContextReadError::Busy),
        Err(ContextError::Unreadable(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(ContextReadError::NotAllowed(error))
        }
        Err(ContextError::Unreadable(error)) => Err(ContextReadError::Unreadable(error)),
        Err(_) if target.is_exiting() => Err(ContextReadError::Exiting),
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

    /// Starts a read of the process's context.
    fn submit_read(
        &self,
        reader: &ForeignReader,
        wait: WaitMode,
    ) -> Result<ReadProgress<Result<ContextUpdate, ContextReadError>>, ReadFailure> {
        let target = ReadTarget::from_pid(Pid(self.key.pid)).map_err(|_| ReadFailure::Gone)?;
        let before = self.published.clone();
        let access = reader.memory().clone();
        let read = move || read_context(&access, target, before.as_ref());
        match wait {
            WaitMode::Briefly => reader.submit_and_wait(target, read),
            WaitMode::No => reader.submit(target, read).map(ReadProgress::Pending),
        }
    }

    /// Applies the result of a read. The last context is kept while the process is writing a new one, and if the read
    /// failed.
    fn apply(&mut self, update: Result<ContextUpdate, ContextReadError>) -> Result<(), ContextReadError> {
        match update {
            Ok(ContextUpdate::Unchanged) => Ok(()),
            Ok(ContextUpdate::Changed(published)) => {
                self.published = Some(published);
                Ok(())
            }
            Err(error) => {
                if matches!(error, ContextReadError::NotPublished(_)) {
                    self.published = None;
                }
                Err(error)
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

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;

    use sidewinder_address::Avma;
    use sidewinder_bpf::Opener;
    use sidewinder_process::context::ProcessContext;

    use super::*;

    /// Memory is also unreadable for the time in which a process changes its mappings.
    #[test]
    fn a_context_is_kept_until_a_read_finds_that_it_is_published_no_more() {
        let mut followed = FollowedProcess {
            key: ProcessKey { pid: 1, instance: 0 },
            due: Instant::now(),
            interval: FIRST_READ_INTERVAL,
            published: None,
            variables: Vec::new(),
            is_refused: false,
        };
        let attribute_keys = ["http.route".into()].into();
        let threads = Some(ThreadContexts::Records { attribute_keys });
        let context = Arc::new(ProcessContext { threads, ..ProcessContext::default() });
        let published = PublishedContext { header: Avma(4096), published_ns: 1, context };
        followed.apply(Ok(ContextUpdate::Changed(published))).unwrap();
        let busy = std::io::Error::from(std::io::ErrorKind::ResourceBusy);
        for error in [ContextReadError::Unreadable(busy), ContextReadError::Busy, ContextReadError::Exiting] {
            followed.apply(Err(error)).unwrap_err();
            assert!(followed.threads().is_some());
        }
        followed.apply(Err(ContextReadError::NotPublished(ContextError::Absent))).unwrap_err();
        assert!(followed.threads().is_none());
    }

    fn read(access: &MemoryAccess, pid: u32) -> Result<ContextUpdate, ContextReadError> {
        read_context(access, ReadTarget::from_pid(Pid(pid)).unwrap(), None)
    }

    /// Otherwise its last samples would lose the keys of their attributes.
    #[test]
    fn a_process_that_exits_has_not_stopped_publishing() {
        let by_programs = MemoryAccess::new(&Opener::start().unwrap(), None);
        for access in [MemoryAccess::default(), by_programs] {
            let mut child = Command::new("sleep").arg("60").spawn().unwrap();
            let while_running = read(&access, child.id());
            child.kill().unwrap();
            let deadline = Instant::now() + Duration::from_secs(30);
            while !ReadTarget::from_pid(Pid(child.id())).unwrap().is_exiting() {
                assert!(Instant::now() < deadline, "it doesn't end");
                thread::sleep(Duration::from_millis(1));
            }
            let after_exit = read(&access, child.id());
            child.wait().unwrap();
            assert!(matches!(while_running, Err(ContextReadError::NotPublished(_))), "{while_running:?}");
            let is_kept =
                matches!(after_exit, Err(ContextReadError::Exiting | ContextReadError::Unreadable(_)));
            assert!(is_kept, "{after_exit:?}");
        }
    }
}
