//! Following what processes publish of themselves: when to look, and what was found.
//!
//! No event tells of it (see [`sidewinder_process::context`]). A process is looked at when its first sample has come, and
//! from then on less and less often until it publishes something, which most do at their start or never. From then on
//! the time of its publication is read now and then.

use std::collections::{BTreeSet, HashMap};
use std::mem;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_bpf::{Pointee, TlsVariable};
use sidewinder_config::TraceContext;
use sidewinder_process::context::{ContextError, Published, ThreadContexts, read_process_context};
use sidewinder_process::{
    Pid, ProcRoot, Process, ProcessDescription, ProcessDir, ProcessMemory, ProcfsError,
};
use tracing::{debug, warn};

use super::Sampler;
use super::feed::{Message, ProcessKey};
use super::variables::Variables;

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
enum Threads {
    /// Not at all.
    Silent,
    /// By records of their own.
    Records,
    /// By the labels of goroutines.
    Goroutines,
}

/// A process that was looked at.
pub(super) struct Look {
    key: ProcessKey,
    /// Whether it publishes something else than before.
    is_new: bool,
    /// How its threads publish, if they do.
    threads: Threads,
}

impl Contexts {
    pub(super) fn new(options: &TraceContext) -> Self {
        Self {
            is_enabled: options.enabled,
            reads_label_sets: options.enabled && options.custom_labels,
            followed: HashMap::new(),
            due: BTreeSet::new(),
            last_look: None,
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
        if self.has_time(due) && self.look_at(key.pid, due).is_some_and(may_publish) {
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

    /// Whether these are others than before.
    fn set_variables(&mut self, key: ProcessKey, variables: Vec<TlsVariable>) -> bool {
        let followed = self.followed.get_mut(&key.pid).filter(|followed| followed.key == key);
        followed.is_some_and(|followed| {
            let is_change = followed.variables != variables;
            followed.variables = variables;
            is_change
        })
    }

    /// Looks soon again at a process that maps something else now, if its threads publish anything.
    pub(super) fn hurry(&mut self, pid: u32) {
        let due = Instant::now() + LINKING_INTERVAL;
        let waits = |followed: &&Followed| followed.threads().is_some() && followed.due > due;
        if self.followed.get(&pid).filter(waits).is_some() {
            self.schedule(pid, due);
        }
    }

    /// Looks at the next one whose turn it is.
    fn look_at_next(&mut self) -> Option<Look> {
        let now = Instant::now();
        let &(due, pid) = self.due.first()?;
        if due <= now && self.has_time(now) { self.look_at(pid, now) } else { None }
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

    fn look_at(&mut self, pid: u32, now: Instant) -> Option<Look> {
        self.last_look = Some(now);
        let followed = self.followed.get_mut(&pid)?;
        let before = followed.published.as_ref().map(|published| Arc::clone(&published.context));
        let result = followed.look();
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

impl Sampler<'_> {
    /// Tells of those processes that publish something else of themselves than before, and has samples tell which span
    /// their threads are in.
    pub(super) fn follow_contexts(&mut self, messages: &mut Vec<Message>) {
        while let Some(look) = self.contexts.look_at_next() {
            let pid = Pid(look.key.pid);
            let is_it = |process: &&Process| process.instance() == look.key.instance;
            let Some(process) = self.registry.process(pid).filter(is_it) else { continue };
            let mut variables = match look.threads {
                Threads::Goroutines => Variables::find_goroutine(process, &mut self.files),
                Threads::Records | Threads::Silent => Vec::new(),
            };
            let wanted = [
                (Pointee::Record, look.threads == Threads::Records),
                (Pointee::LabelSet, self.contexts.reads_label_sets),
            ];
            for (to, _) in wanted.into_iter().filter(|(_, is_wanted)| *is_wanted) {
                let Ok(directory) = ProcessDir::open(&ProcRoot::default(), pid) else { continue };
                let memory = ProcessMemory::of(directory);
                variables.extend(self.variables.find(to, process, &mut self.files, &memory));
            }
            variables.truncate(TlsVariable::MAX);
            if self.contexts.set_variables(look.key, variables)
                && let Some(known_ns) = self.profiler.processes.known_ns(pid.0)
            {
                // What is known of its mappings is as old as before.
                self.publish(pid, known_ns);
            }
            if look.is_new
                && let Some(description) = self.registry.describe(pid)
            {
                messages.push(Message::Process(look.key, self.contexts.complete(look.key, description)));
            }
        }
    }
}

/// Why there is no context, as far as it makes a difference when to look again.
#[derive(Debug)]
enum Unread {
    /// None, or none that can be made sense of.
    Nothing(#[expect(dead_code, reason = "for the log")] ContextError),
    Busy,
    NotAllowed(std::io::Error),
    Gone(#[expect(dead_code, reason = "for the log")] ProcfsError),
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

    /// Takes up what is published now. What was there before stays while the writer is at work on it.
    fn look(&mut self) -> Result<(), Unread> {
        let open = || ProcessDir::open(&ProcRoot::default(), Pid(self.key.pid)).map_err(Unread::Gone);
        let memory = ProcessMemory::of(open()?);
        if self.published.as_ref().is_some_and(|published| published.is_current(&memory)) {
            return Ok(());
        }
        let maps = open()?.file("maps").map_err(Unread::Gone)?;
        match read_process_context(maps, &memory) {
            Ok(published) => {
                self.published = Some(published);
                Ok(())
            }
            Err(ContextError::Busy) => Err(Unread::Busy),
            Err(ContextError::Unreadable(error)) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                Err(Unread::NotAllowed(error))
            }
            Err(other) => {
                self.published = None;
                Err(Unread::Nothing(other))
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
