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
use sidewinder_process::context::{ContextError, Published, ThreadContexts, read_process_context};
use sidewinder_process::{Pid, ProcessDescription, ProcessKey, ProcessMemory, ProcfsError};
use tracing::{debug, warn};

use super::variables::Unlocated;
use crate::foreign::{Asked, ForeignReader, NoAnswer, Pending, Target};

/// The first interval between looks at a process that publishes nothing, or is about to. It doubles with each look.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// The longest interval between looks, each of which reads all mappings.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// The interval between looks at a process that has published something, each of which is a single read.
const KNOWN_INTERVAL: Duration = Duration::from_secs(5);
/// The time from the mapping of a library until the dynamic linker has filled in what leads to its variables.
const LINKING_INTERVAL: Duration = Duration::from_millis(50);
/// The shortest time between looks at any two processes, which bounds the cost of many new ones.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Contexts {
    is_enabled: bool,
    /// Whether to look for sets of labels, which no context announces.
    reads_label_sets: bool,
    followed: HashMap<u32, Followed>,
    /// When the next look at each of them is due.
    due: BTreeSet<(Instant, u32)>,
    last_look: Option<Instant>,
    reader: ForeignReader,
    /// Looks in progress.
    looks: Vec<(ProcessKey, Pending<Result<Seen, Unread>>)>,
    /// Reads in progress of where the threads of processes publish.
    locations: Vec<(ProcessKey, Pending<Vec<TlsVariable>>)>,
    /// Processes whose context can't be read for want of a privilege.
    refused: u64,
}

#[derive(Debug)]
struct Followed {
    key: ProcessKey,
    due: Instant,
    interval: Duration,
    published: Option<Published>,
    /// The variables in which its threads publish their span.
    variables: Vec<TlsVariable>,
    /// Whether it is counted in [`Contexts::refused`].
    is_refused: bool,
}

/// How the threads of a process publish their span.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Threads {
    /// Not at all.
    Silent,
    /// By a record for each thread.
    Records,
    /// By the labels of goroutines.
    Goroutines,
}

/// A look that has ended.
pub(super) struct Look {
    pub(super) key: ProcessKey,
    /// Whether its context has changed.
    pub(super) is_new: bool,
    pub(super) threads: Threads,
}

impl Contexts {
    pub(super) fn new(options: &TraceContext, reader: ForeignReader) -> Self {
        Self {
            is_enabled: options.enabled,
            reads_label_sets: options.enabled && options.custom_labels,
            followed: HashMap::new(),
            due: BTreeSet::new(),
            last_look: None,
            reader,
            looks: Vec::new(),
            locations: Vec::new(),
            refused: 0,
        }
    }

    /// Follows a process from now on. The first look is at once if the interval between looks allows.
    pub(super) fn meet(&mut self, key: ProcessKey) {
        self.forget(key.pid);
        if !self.is_enabled {
            return;
        }
        let due = Instant::now();
        let followed = Followed {
            key,
            due,
            interval: FIRST_INTERVAL,
            published: None,
            variables: Vec::new(),
            is_refused: false,
        };
        self.followed.insert(key.pid, followed);
        self.due.insert((due, key.pid));
        let reads_label_sets = self.reads_label_sets;
        let may_publish = |look: Look| look.threads != Threads::Silent || reads_label_sets;
        if self.has_time(due) && self.look_at(key.pid, due, Wait::Briefly).is_some_and(may_publish) {
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
    pub(super) fn complete(
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
        match self.followed(key).and_then(Followed::threads) {
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
        unlocated: Vec<Unlocated>,
        known: &[TlsVariable],
    ) -> Result<Asked<Vec<TlsVariable>>, NoAnswer> {
        let mut located = known.to_vec();
        if unlocated.is_empty() {
            return Ok(Asked::Answered(located));
        }
        let target = Target::from_pid(Pid(key.pid)).map_err(|_| NoAnswer::Gone)?;
        let read = move || {
            if let Ok(directory) = target.open() {
                Unlocated::locate_all(&unlocated, &ProcessMemory::of(directory), &mut located);
            }
            located
        };
        self.reader.ask(target, read).map(Asked::Pending)
    }

    /// Takes the result of [`Self::locate`] later.
    pub(super) fn await_location(&mut self, key: ProcessKey, pending: Pending<Vec<TlsVariable>>) {
        self.locations.push((key, pending));
    }

    /// The next result of [`Self::locate`] that has come later.
    pub(super) fn next_location(&mut self) -> Option<(ProcessKey, Result<Vec<TlsVariable>, NoAnswer>)> {
        take_answer(&mut self.locations)
    }

    /// Whether threads may publish sets of labels, which no context announces.
    pub(super) fn reads_label_sets(&self) -> bool {
        self.reads_label_sets
    }

    /// Brings the next look at a process forward whose mappings have changed, if its threads publish.
    pub(super) fn expedite(&mut self, pid: u32) {
        let due = Instant::now() + LINKING_INTERVAL;
        let waits = |followed: &&Followed| followed.threads().is_some() && followed.due > due;
        if self.followed.get(&pid).filter(waits).is_some() {
            self.schedule(pid, due);
        }
    }

    /// The next look that has ended, or that is due and ends at once.
    pub(super) fn look_at_next(&mut self) -> Option<Look> {
        let now = Instant::now();
        while let Some((key, answer)) = take_answer(&mut self.looks) {
            let look = self.record(key, answer.unwrap_or_else(|none| Err(Unread::NoAnswer(none))), now);
            if look.is_some() {
                return look;
            }
        }
        let &(due, pid) = self.due.first()?;
        if due <= now && self.has_time(now) { self.look_at(pid, now, Wait::No) } else { None }
    }

    /// Whether reads are in progress.
    pub(super) fn has_pending_reads(&self) -> bool {
        !self.looks.is_empty() || !self.locations.is_empty()
    }

    fn followed(&self, key: ProcessKey) -> Option<&Followed> {
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
        self.last_look.is_none_or(|last| now.duration_since(last) >= BETWEEN_LOOKS)
    }

    fn look_at(&mut self, pid: u32, now: Instant, wait: Wait) -> Option<Look> {
        self.last_look = Some(now);
        let followed = self.followed.get(&pid)?;
        let key = followed.key;
        if self.looks.iter().any(|(asked, _)| *asked == key) {
            self.schedule(pid, now + FIRST_INTERVAL);
            return None;
        }
        match followed.ask(&self.reader, wait) {
            Ok(Asked::Answered(seen)) => self.record(key, seen, now),
            Ok(Asked::Pending(pending)) => {
                // The answer schedules the next look.
                self.schedule(pid, now + LONGEST_INTERVAL);
                self.looks.push((key, pending));
                None
            }
            Err(none) => self.record(key, Err(Unread::NoAnswer(none)), now),
        }
    }

    /// Records what a look saw, if the process is still followed.
    fn record(&mut self, key: ProcessKey, seen: Result<Seen, Unread>, now: Instant) -> Option<Look> {
        let pid = key.pid;
        let followed = self.followed.get_mut(&pid).filter(|followed| followed.key == key)?;
        let before = followed.published.as_ref().map(|published| Arc::clone(&published.context));
        let result = followed.take(seen);
        let due = now + followed.next_interval(&result);
        let look = Look {
            key: followed.key,
            is_new: before.as_ref() != followed.published.as_ref().map(|published| &published.context),
            threads: followed.kind(),
        };
        let is_refused = matches!(result, Err(Unread::NotAllowed(_)));
        let is_first = is_refused && !mem::replace(&mut followed.is_refused, is_refused);
        self.refused += u64::from(is_first);
        self.schedule(pid, due);
        match result {
            Ok(()) => {}
            Err(Unread::NotAllowed(error)) if is_first && self.refused == 1 => {
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
    pending: &mut Vec<(ProcessKey, Pending<T>)>,
) -> Option<(ProcessKey, Result<T, NoAnswer>)> {
    let (at, answer) = pending.iter().enumerate().find_map(|(at, (_, of))| Some((at, of.poll()?)))?;
    Some((pending.swap_remove(at).0, answer))
}

/// Whether to wait for an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    No,
    Briefly,
}

/// What a process publishes.
#[derive(Debug)]
enum Seen {
    /// The same as before.
    Same,
    Other(Published),
}

/// Why there is no context, as far as the next look depends on it.
#[derive(Debug)]
enum Unread {
    /// There is none, or none that is valid.
    Nothing(#[expect(dead_code, reason = "for the log")] ContextError),
    Busy,
    NotAllowed(std::io::Error),
    Gone(#[expect(dead_code, reason = "for the log")] ProcfsError),
    NoAnswer(#[expect(dead_code, reason = "for the log")] NoAnswer),
}

/// Reads what a process publishes.
fn look(target: Target, before: Option<&Published>) -> Result<Seen, Unread> {
    let memory = ProcessMemory::of(target.open().map_err(Unread::Gone)?);
    if before.is_some_and(|published| published.is_current(&memory)) {
        return Ok(Seen::Same);
    }
    let maps = target.open().and_then(|directory| directory.file("maps")).map_err(Unread::Gone)?;
    match read_process_context(maps, &memory) {
        Ok(published) => Ok(Seen::Other(published)),
        Err(ContextError::Busy) => Err(Unread::Busy),
        Err(ContextError::Unreadable(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            Err(Unread::NotAllowed(error))
        }
        Err(other) => Err(Unread::Nothing(other)),
    }
}

impl Followed {
    fn threads(&self) -> Option<&ThreadContexts> {
        self.published.as_ref()?.context.threads.as_ref()
    }

    fn kind(&self) -> Threads {
        match self.threads() {
            Some(ThreadContexts::Records { .. }) => Threads::Records,
            Some(ThreadContexts::PprofLabels) => Threads::Goroutines,
            None => Threads::Silent,
        }
    }

    /// Starts a look.
    fn ask(&self, reader: &ForeignReader, wait: Wait) -> Result<Asked<Result<Seen, Unread>>, NoAnswer> {
        let target = Target::from_pid(Pid(self.key.pid)).map_err(|_| NoAnswer::Gone)?;
        let before = self.published.clone();
        let read = move || look(target, before.as_ref());
        match wait {
            Wait::Briefly => reader.ask_briefly(target, read),
            Wait::No => reader.ask(target, read).map(Asked::Pending),
        }
    }

    /// Records what a look saw. The last context stays while the process writes another one, or if nothing answers.
    fn take(&mut self, seen: Result<Seen, Unread>) -> Result<(), Unread> {
        match seen {
            Ok(Seen::Same) => Ok(()),
            Ok(Seen::Other(published)) => {
                self.published = Some(published);
                Ok(())
            }
            Err(unread) => {
                if matches!(unread, Unread::Nothing(_)) {
                    self.published = None;
                }
                Err(unread)
            }
        }
    }

    fn next_interval(&mut self, result: &Result<(), Unread>) -> Duration {
        match result {
            Ok(()) => {
                self.interval = FIRST_INTERVAL;
                // The library in which its threads publish may be loaded soon.
                let is_complete = self.threads().is_none() || !self.variables.is_empty();
                if is_complete { KNOWN_INTERVAL } else { FIRST_INTERVAL }
            }
            Err(_) => {
                let interval = self.interval;
                self.interval = (2 * interval).min(LONGEST_INTERVAL);
                interval
            }
        }
    }
}
