//! Supervision of long-running threads: which are working, which hang, and which have panicked.
//!
//! Each long-running thread has a [`Heartbeat`], and at each beat states within what time the next one follows. Health
//! checks and metrics report the threads that are late. A thread that hangs can't be ended, only the process can; one that
//! panics is reported until another thread of the same name is registered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tracing::error;

use crate::lock::lock;

/// A deadline that never passes: the thread waits for work.
const NO_DEADLINE: u64 = u64::MAX;

/// The registry of all threads that have a heartbeat.
#[derive(Clone, Debug)]
pub struct ThreadSupervisor(Arc<SupervisorState>);

#[derive(Debug)]
struct SupervisorState {
    started_at: Instant,
    threads: Mutex<BTreeMap<u64, SupervisedThread>>,
}

#[derive(Debug)]
struct SupervisedThread {
    name: &'static str,
    state: Arc<HeartbeatState>,
    has_panicked: bool,
}

/// Times in milliseconds since [`SupervisorState::started_at`].
#[derive(Debug)]
struct HeartbeatState {
    last_ms: AtomicU64,
    /// When the next beat is due.
    due_ms: AtomicU64,
}

/// Why a thread is faulty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ThreadFault {
    /// Its beat is overdue; the last one was this long ago.
    Hung(Duration),
    /// It panicked, and no thread has taken its place.
    Panicked,
}

impl ThreadFault {
    /// What the status pages call it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Hung(_) => "hangs",
            Self::Panicked => "panicked",
        }
    }
}

/// A thread that hangs or has panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FaultyThread {
    /// The thread's name.
    pub thread: &'static str,
    /// What is wrong with it.
    pub fault: ThreadFault,
}

impl std::fmt::Display for FaultyThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.fault {
            ThreadFault::Hung(time) => {
                write!(f, "thread {} hangs: silent for {} s", self.thread, time.as_secs())
            }
            ThreadFault::Panicked => write!(f, "thread {} has panicked", self.thread),
        }
    }
}

impl Default for ThreadSupervisor {
    fn default() -> Self {
        Self(Arc::new(SupervisorState { started_at: Instant::now(), threads: Mutex::default() }))
    }
}

impl ThreadSupervisor {
    /// Registers a thread, whose next beat follows within this time.
    pub fn register(&self, name: &'static str, within: Duration) -> Heartbeat {
        let state =
            Arc::new(HeartbeatState { last_ms: AtomicU64::new(0), due_ms: AtomicU64::new(NO_DEADLINE) });
        let mut threads = lock(&self.0.threads);
        // It replaces threads of the same name that have panicked.
        threads.retain(|_, thread| !(thread.has_panicked && thread.name == name));
        let id = threads.last_key_value().map_or(0, |(id, _)| id + 1);
        threads.insert(id, SupervisedThread { name, state: Arc::clone(&state), has_panicked: false });
        let heartbeat = Heartbeat { id, state, supervisor: self.clone() };
        heartbeat.beat(within);
        heartbeat
    }

    /// The threads that are late or have panicked.
    pub fn faulty_threads(&self) -> Vec<FaultyThread> {
        let now_ms = self.now_ms();
        let describe = |thread: &SupervisedThread| {
            let due_ms = thread.state.due_ms.load(Ordering::Relaxed);
            let silent_ms = now_ms.saturating_sub(thread.state.last_ms.load(Ordering::Relaxed));
            let fault = match thread.has_panicked {
                true => ThreadFault::Panicked,
                false if due_ms < now_ms => ThreadFault::Hung(Duration::from_millis(silent_ms)),
                false => return None,
            };
            Some(FaultyThread { thread: thread.name, fault })
        };
        lock(&self.0.threads).values().filter_map(describe).collect()
    }

    /// A text for the log: the threads that are working or hang, and how long ago the last beat of each was.
    pub fn describe_active(&self) -> String {
        let now_ms = self.now_ms();
        let describe = |thread: &SupervisedThread| {
            let silent_ms = now_ms.saturating_sub(thread.state.last_ms.load(Ordering::Relaxed));
            format!("{} (silent for {} s)", thread.name, silent_ms / 1000)
        };
        let threads = lock(&self.0.threads);
        let is_active = |thread: &&SupervisedThread| {
            !thread.has_panicked && thread.state.due_ms.load(Ordering::Relaxed) != NO_DEADLINE
        };
        threads.values().filter(is_active).map(describe).collect::<Vec<_>>().join(", ")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.started_at.elapsed().as_millis()).unwrap_or(NO_DEADLINE - 1)
    }
}

/// A thread's own handle. Dropping it unregisters the thread; a panic that drops it marks the thread as panicked.
#[derive(Debug)]
pub struct Heartbeat {
    id: u64,
    state: Arc<HeartbeatState>,
    supervisor: ThreadSupervisor,
}

impl Heartbeat {
    /// Reports that the thread is working, and that its next beat follows within this time.
    pub fn beat(&self, within: Duration) {
        let now_ms = self.supervisor.now_ms();
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(NO_DEADLINE);
        self.state.last_ms.store(now_ms, Ordering::Relaxed);
        self.state.due_ms.store(now_ms.saturating_add(within_ms), Ordering::Relaxed);
    }

    /// Reports that the thread waits for work, without a time limit.
    pub fn idle(&self) {
        self.state.due_ms.store(NO_DEADLINE, Ordering::Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let mut threads = lock(&self.supervisor.0.threads);
        if thread::panicking() {
            threads.entry(self.id).and_modify(|thread| thread.has_panicked = true);
        } else {
            threads.remove(&self.id);
        }
    }
}

/// The message of a panic.
pub fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// From now on, panics are logged with the thread's name instead of printed.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let thread = thread::current();
        error!(
            thread = thread.name().unwrap_or("unnamed"),
            at = panic.location().map(tracing::field::display),
            "a thread has panicked: {}",
            panic_message(panic.payload())
        );
    }));
}

/// Runs something that may hang, on a thread of its own, and waits for it until the deadline. `None` if it has not ended by
/// then, has panicked, or the thread could not be started.
pub fn run_with_deadline<T: Send + 'static>(
    deadline: Instant,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, result) = channel();
    let run = move || {
        // The caller may no longer be waiting.
        let _ = sender.send(run());
    };
    thread::Builder::new().name(name.to_owned()).spawn(run).ok()?;
    result.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn names(threads: &ThreadSupervisor) -> Vec<&'static str> {
        threads.faulty_threads().iter().map(|faulty| faulty.thread).collect()
    }

    #[test]
    fn a_thread_is_faulty_while_it_is_late_and_never_while_it_waits_for_work() {
        let threads = ThreadSupervisor::default();
        let [late, idle, good] = ["late", "idle", "good"].map(|name| threads.register(name, LONG));
        assert_eq!(names(&threads), [""; 0]);
        late.beat(Duration::ZERO);
        idle.beat(Duration::ZERO);
        idle.idle();
        good.beat(LONG);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(names(&threads), ["late"]);
        assert!(threads.faulty_threads()[0].to_string().starts_with("thread late hangs: silent for"));
        late.beat(LONG);
        assert_eq!(names(&threads), [""; 0]);
        late.beat(Duration::ZERO);
        drop(late);
        thread::sleep(Duration::from_millis(5));
        assert_eq!(names(&threads), [""; 0], "a thread that has ended is not faulty");
    }

    #[test]
    fn a_panicked_thread_is_faulty_until_another_one_replaces_it() {
        let threads = ThreadSupervisor::default();
        let heartbeat = threads.register("fragile", LONG);
        let panicked = thread::Builder::new().name("fragile".to_owned()).spawn(move || {
            let _heartbeat = heartbeat;
            panic!("on purpose");
        });
        let payload = panicked.unwrap().join().unwrap_err();
        assert_eq!(panic_message(&*payload), "on purpose");
        assert_eq!(
            threads.faulty_threads(),
            [FaultyThread { thread: "fragile", fault: ThreadFault::Panicked }]
        );
        let again = threads.register("fragile", LONG);
        assert_eq!(names(&threads), [""; 0]);
        drop(again);
        assert_eq!(names(&threads), [""; 0]);
    }

    #[test]
    fn the_wait_for_a_hanging_operation_ends_at_the_deadline() {
        let (release, released) = channel::<()>();
        let soon = Instant::now() + Duration::from_millis(20);
        assert_eq!(
            run_with_deadline(soon, "hangs", move || {
                let _ = released.recv();
            }),
            None
        );
        assert_eq!(run_with_deadline(Instant::now() + LONG, "works", || 7), Some(7));
        assert_eq!(run_with_deadline(Instant::now() + LONG, "panics", || panic!("on purpose")), None::<()>);
        drop(release);
    }
}
