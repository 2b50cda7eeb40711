//! Following what processes publish of themselves: when to look, and what was found.
//!
//! No event tells of it (see [`sidewinder_process::context`]). A process is looked at when its first sample has come, and
//! from then on less and less often until it publishes something, which most do at their start or never. From then on
//! the time of its publication is read now and then.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::TlsVariable;
use sidewinder_config::TraceContext;
use sidewinder_process::context::{ContextError, Published, ThreadContexts, read_process_context};
use sidewinder_process::{Pid, ProcessDescription, ProcessMemory, ProcfsError};
use tracing::{debug, warn};

use super::variables::Unlocated;
use crate::foreign::{Asked, ForeignReader, NoAnswer, Pending, Target};
use crate::sampling::feed::ProcessKey;

/// Between the first two looks at a process that publishes nothing, or is at it; twice as long between the next ones.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at the latest. Each costs what reading all mappings costs.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// Between two looks at a process that has published something: a change of it is as rare, and seen at the cost of one read.
const KNOWN_INTERVAL: Duration = Duration::from_secs(5);
/// After a library was mapped: until the dynamic linker has filled in what leads to its variables.
const LINKING_INTERVAL: Duration = Duration::from_millis(50);
/// Between looks at any two processes: of a machine that is full of new ones little time is taken.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Contexts {
    is_enabled: bool,
    /// Whether threads are looked at for sets of labels: these are announced by nothing.
    reads_label_sets: bool,
    followed: HashMap<u32, Followed>,
    /// When each of them is to be looked at.
    due: BTreeSet<(Instant, u32)>,
    last_look: Option<Instant>,
    reader: ForeignReader,
    /// Looks whose answers are still to come.
    looks: Vec<(ProcessKey, Pending<Result<Seen, Unread>>)>,
    /// Likewise, where the threads of processes publish.
    locations: Vec<(ProcessKey, Pending<Vec<TlsVariable>>)>,
    /// Processes that publish something which must not be read.
    refused: u64,
}

#[derive(Debug)]
struct Followed {
    key: ProcessKey,
    due: Instant,
    interval: Duration,
    published: Option<Published>,
    /// In which its threads say which span they are in.
    variables: Vec<TlsVariable>,
    /// Whether it was counted among those that must not be read.
    is_refused: bool,
}

/// How the threads of a process say which span they are in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Threads {
    /// Not at all.
    Silent,
    /// By records of their own.
    Records,
    /// By the labels of goroutines.
    Goroutines,
}

/// A process that was looked at.
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

    /// Follows a process from now on, which is looked at at once if there is time for it.
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

    /// How many processes publish something that must not be read.
    pub(super) fn refused(&self) -> u64 {
        self.refused
    }

    /// Forgets a process.
    pub(super) fn forget(&mut self, pid: u32) {
        if let Some(followed) = self.followed.remove(&pid) {
            self.due.remove(&(followed.due, pid));
        }
    }

    /// What is known of a process, with what it publishes.
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

    /// The keys of what the threads of a process publish besides their span, by number.
    pub(super) fn attribute_keys(&self, key: ProcessKey) -> &[Box<str>] {
        match self.followed(key).and_then(Followed::threads) {
            Some(ThreadContexts::Records { attribute_keys }) => attribute_keys,
            _ => &[],
        }
    }

    /// In which variables the threads of a process say which span they are in.
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

    /// Looks soon again at a process that maps something else now, if its threads publish anything.
    pub(super) fn hurry(&mut self, pid: u32) {
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
            let look = self.take_up(key, answer.unwrap_or_else(|none| Err(Unread::NoAnswer(none))), now);
            if look.is_some() {
                return look;
            }
        }
        let &(due, pid) = self.due.first()?;
        if due <= now && self.has_time(now) { self.look_at(pid, now, Wait::No) } else { None }
    }

    /// Whether reads are in progress.
    pub(super) fn are_read(&self) -> bool {
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
            Ok(Asked::Answered(seen)) => self.take_up(key, seen, now),
            Ok(Asked::Pending(pending)) => {
                // The answer says when the next look is due.
                self.schedule(pid, now + LONGEST_INTERVAL);
                self.looks.push((key, pending));
                None
            }
            Err(none) => self.take_up(key, Err(Unread::NoAnswer(none)), now),
        }
    }

    /// Takes up what was seen of a process, if it is still followed.
    fn take_up(&mut self, key: ProcessKey, seen: Result<Seen, Unread>, now: Instant) -> Option<Look> {
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
        let is_news = is_refused && !mem::replace(&mut followed.is_refused, is_refused);
        self.refused += u64::from(is_news);
        self.schedule(pid, due);
        match result {
            Ok(()) => {}
            Err(Unread::NotAllowed(error)) if is_news && self.refused == 1 => {
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

/// The first of these answers that has come.
pub(super) fn take_answer<T>(
    pending: &mut Vec<(ProcessKey, Pending<T>)>,
) -> Option<(ProcessKey, Result<T, NoAnswer>)> {
    let (at, answer) = pending.iter().enumerate().find_map(|(at, (_, of))| Some((at, of.poll()?)))?;
    Some((pending.swap_remove(at).0, answer))
}

/// Whether an answer is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Wait {
    No,
    Briefly,
}

/// What a look saw.
#[derive(Debug)]
enum Seen {
    /// What was published before.
    Same,
    Other(Published),
}

/// Why there is no context, as far as it makes a difference when to look again.
#[derive(Debug)]
enum Unread {
    /// None, or none that can be made sense of.
    Nothing(#[expect(dead_code, reason = "for the log")] ContextError),
    Busy,
    NotAllowed(std::io::Error),
    Gone(#[expect(dead_code, reason = "for the log")] ProcfsError),
    NoAnswer(#[expect(dead_code, reason = "for the log")] NoAnswer),
}

/// Looks for what a process publishes.
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

    /// Asks what is published now.
    fn ask(&self, reader: &ForeignReader, wait: Wait) -> Result<Asked<Result<Seen, Unread>>, NoAnswer> {
        let target = Target::from_pid(Pid(self.key.pid)).map_err(|_| NoAnswer::Gone)?;
        let before = self.published.clone();
        let read = move || look(target, before.as_ref());
        match wait {
            Wait::Briefly => reader.ask_briefly(target, read),
            Wait::No => reader.ask(target, read).map(Asked::Pending),
        }
    }

    /// Takes up what was seen. What was there before stays while the writer is at work on it, or where nothing answers.
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
                // Its threads may be about to load what they publish in.
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
