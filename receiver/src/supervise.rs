//! Which threads are at work, which have fallen silent, and which have panicked.
//!
//! A thread that goes on for long has a [`Heartbeat`], by which it says now and then within what time it will be heard of
//! again. Whoever is asked for health looks whether all have kept their word. A thread that hangs can't be ended, only the
//! process can; one that panics is told of here until another one takes its place.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tracing::error;

use crate::lock::lock;

/// Never: the thread waits for work.
const NO_DEADLINE: u64 = u64::MAX;

/// All threads that have a heartbeat.
#[derive(Clone, Debug)]
pub(crate) struct ThreadSupervisor(Arc<SupervisorState>);

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

/// In milliseconds since the threads began to be watched.
#[derive(Debug)]
struct HeartbeatState {
    last_ms: AtomicU64,
    /// When it is late.
    due_ms: AtomicU64,
}

/// Why a thread is not at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ThreadFault {
    /// Nothing was heard of it for so long.
    Hung(Duration),
    Panicked,
}

impl ThreadFault {
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Hung(_) => "hangs",
            Self::Panicked => "panicked",
        }
    }
}

/// A thread that is not at work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FaultyThread {
    pub(crate) thread: &'static str,
    pub(crate) fault: ThreadFault,
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
    /// Watches a thread from now on, which will be heard of within this time.
    pub(crate) fn register(&self, name: &'static str, within: Duration) -> Heartbeat {
        let heard =
            Arc::new(HeartbeatState { last_ms: AtomicU64::new(0), due_ms: AtomicU64::new(NO_DEADLINE) });
        let mut threads = lock(&self.0.threads);
        // It takes the place of those that have panicked.
        threads.retain(|_, thread| !(thread.has_panicked && thread.name == name));
        let number = threads.last_key_value().map_or(0, |(number, _)| number + 1);
        threads.insert(number, SupervisedThread { name, state: Arc::clone(&heard), has_panicked: false });
        let heartbeat = Heartbeat { number, state: heard, supervisor: self.clone() };
        heartbeat.beat(within);
        heartbeat
    }

    /// Those that are late or have panicked.
    pub(crate) fn faulty_threads(&self) -> Vec<FaultyThread> {
        let now_ms = self.now_ms();
        let of_each = |thread: &SupervisedThread| {
            let due_ms = thread.state.due_ms.load(Ordering::Relaxed);
            let silent_ms = now_ms.saturating_sub(thread.state.last_ms.load(Ordering::Relaxed));
            let fault = match thread.has_panicked {
                true => ThreadFault::Panicked,
                false if due_ms < now_ms => ThreadFault::Hung(Duration::from_millis(silent_ms)),
                false => return None,
            };
            Some(FaultyThread { thread: thread.name, fault })
        };
        lock(&self.0.threads).values().filter_map(of_each).collect()
    }

    /// Those that are at work or hang, and for how long each has been silent: for the log.
    pub(crate) fn describe_active(&self) -> String {
        let now_ms = self.now_ms();
        let of_each = |thread: &SupervisedThread| {
            let silent_ms = now_ms.saturating_sub(thread.state.last_ms.load(Ordering::Relaxed));
            format!("{} (silent for {} s)", thread.name, silent_ms / 1000)
        };
        let threads = lock(&self.0.threads);
        let is_at_work = |thread: &&SupervisedThread| {
            !thread.has_panicked && thread.state.due_ms.load(Ordering::Relaxed) != NO_DEADLINE
        };
        threads.values().filter(is_at_work).map(of_each).collect::<Vec<_>>().join(", ")
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.0.started_at.elapsed().as_millis()).unwrap_or(NO_DEADLINE - 1)
    }
}

/// A thread's own end. When it is dropped the thread is not watched any more, unless it is dropped by a panic.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    number: u64,
    state: Arc<HeartbeatState>,
    supervisor: ThreadSupervisor,
}

impl Heartbeat {
    /// Says that the thread is at work, and will be heard of again within this time.
    pub(crate) fn beat(&self, within: Duration) {
        let now_ms = self.supervisor.now_ms();
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(NO_DEADLINE);
        self.state.last_ms.store(now_ms, Ordering::Relaxed);
        self.state.due_ms.store(now_ms.saturating_add(within_ms), Ordering::Relaxed);
    }

    /// Says that the thread waits for work, for however long.
    pub(crate) fn idle(&self) {
        self.state.due_ms.store(NO_DEADLINE, Ordering::Relaxed);
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        let mut threads = lock(&self.supervisor.0.threads);
        if thread::panicking() {
            threads.entry(self.number).and_modify(|thread| thread.has_panicked = true);
        } else {
            threads.remove(&self.number);
        }
    }
}

/// What a panic says.
pub(crate) fn panic_message(payload: &(dyn std::any::Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Has panics logged, with the thread's name, instead of printed.
pub(crate) fn log_panics() {
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

/// Runs something that may hang, on a thread of its own, and waits for it until the deadline. `None`: it has not ended by
/// then, or has panicked, or there is no thread.
pub(crate) fn run_with_deadline<T: Send + 'static>(
    deadline: Instant,
    name: &str,
    run: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, result) = channel();
    let run = move || {
        // Whoever has asked may not wait any more.
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
        assert_eq!(names(&threads), [""; 0], "it has ended");
    }

    #[test]
    fn a_thread_that_panics_is_faulty_until_another_one_takes_its_place() {
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
    fn what_hangs_is_waited_for_no_longer_than_until_the_deadline() {
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
