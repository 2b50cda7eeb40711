//! Following what processes publish of themselves: when to look, and what was found.
//!
//! No event tells of it (see [`sidewinder_process::context`]). A process is looked at when its first sample has come, and
//! from then on less and less often until it publishes something, which most do at their start or never. From then on
//! the time of its publication is read now and then.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sidewinder_process::context::{ContextError, Published, read_process_context};
use sidewinder_process::{Pid, ProcRoot, ProcessDescription, ProcessDir, ProcessMemory, ProcfsError};
use tracing::{debug, warn};

use super::feed::ProcessKey;

/// Between the first two looks at a process that publishes nothing, or is at it; twice as long between the next ones.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
/// Between two looks at the latest. Each costs what reading all mappings costs.
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);
/// Between two looks at a process that has published something: a change of it is as rare, and seen at the cost of one read.
const KNOWN_INTERVAL: Duration = Duration::from_secs(5);
/// Between looks at any two processes: of a machine that is full of new ones little time is taken.
const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Contexts {
    is_enabled: bool,
    followed: HashMap<u32, Followed>,
    /// When each of them is to be looked at.
    due: BTreeSet<(Instant, u32)>,
    last_look: Option<Instant>,
    has_warned: bool,
}

#[derive(Debug)]
struct Followed {
    key: ProcessKey,
    due: Instant,
    interval: Duration,
    published: Option<Published>,
}

impl Contexts {
    pub(super) fn new(is_enabled: bool) -> Self {
        Self {
            is_enabled,
            followed: HashMap::new(),
            due: BTreeSet::new(),
            last_look: None,
            has_warned: false,
        }
    }

    /// Follows a process from now on, which is looked at at once if there is time for it.
    pub(super) fn meet(&mut self, key: ProcessKey) {
        self.forget(key.pid);
        if !self.is_enabled {
            return;
        }
        let due = Instant::now();
        self.followed.insert(key.pid, Followed { key, due, interval: FIRST_INTERVAL, published: None });
        self.due.insert((due, key.pid));
        if self.has_time(due) {
            self.look_at(key.pid, due);
        }
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
        let followed = self.followed.get(&key.pid).filter(|followed| followed.key == key);
        match followed.and_then(|followed| followed.published.as_ref()) {
            Some(published) => {
                let context = Some(Arc::clone(&published.context));
                Arc::new(ProcessDescription { context, ..(*description).clone() })
            }
            None => description,
        }
    }

    /// Looks at those whose turn it is, up to the first of which there is something new to tell.
    pub(super) fn look_at_next(&mut self) -> Option<ProcessKey> {
        let now = Instant::now();
        while let Some(&(due, pid)) = self.due.first()
            && due <= now
            && self.has_time(now)
        {
            if self.look_at(pid, now) {
                return self.followed.get(&pid).map(|followed| followed.key);
            }
        }
        None
    }

    fn has_time(&self, now: Instant) -> bool {
        self.last_look.is_none_or(|last| now.duration_since(last) >= BETWEEN_LOOKS)
    }

    /// Whether there is something new to tell.
    fn look_at(&mut self, pid: u32, now: Instant) -> bool {
        self.last_look = Some(now);
        let Some(followed) = self.followed.get_mut(&pid) else { return false };
        let before = followed.published.as_ref().map(|published| Arc::clone(&published.context));
        let result = followed.look();
        self.due.remove(&(followed.due, pid));
        followed.due = now + followed.next_interval(&result);
        self.due.insert((followed.due, pid));
        match result {
            Ok(()) => {}
            Err(Unread::NotAllowed(error)) if !self.has_warned => {
                self.has_warned = true;
                warn!(
                    pid,
                    %error,
                    "degraded: what processes publish of themselves can't be read: that takes CAP_SYS_PTRACE, or the \
                     process's own user and a kernel.yama.ptrace_scope of 0"
                );
            }
            Err(unread) => debug!(pid, ?unread, "no process context"),
        }
        before.as_ref() != followed.published.as_ref().map(|published| &published.context)
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
                KNOWN_INTERVAL
            }
            Err(_) => {
                let interval = self.interval;
                self.interval = (2 * interval).min(LONGEST_INTERVAL);
                interval
            }
        }
    }
}
