//! Which waits in futexes are for locks, by the names of the functions in which threads wait.
//!
//! The same futex calls make locks, conditions, semaphores and queues of idle threads. Callers by name tell them apart; only
//! where no name is known, the arguments of the call do.

use std::collections::HashMap;

use sidewinder_bpf::{LockEvidence, RawFrameKind};
use sidewinder_message::{LockSample, SampleEvent};

use super::Namer;

/// How many user functions are searched, from the innermost one.
const FUNCTIONS_MAX: usize = 16;
/// How many stacks are remembered.
const STACKS_MAX: usize = 16 << 10;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Waited {
    /// For something else than a lock.
    Other,
    /// For a lock, in a futex that belongs to the thread and not to the lock.
    LockElsewhere,
    /// For a lock.
    Lock,
}

/// Parts of names of functions, without their leading underscores. A name ends where a part that starts with `=` ends.
const NAMES: &[(Waited, &[&str])] = &[
    // glibc and musl.
    (
        Waited::Lock,
        &["=lll_lock_wait", "=lll_lock_wait_private", "=lock", "pthread_mutex_", "pthread_rwlock_"],
    ),
    (
        Waited::Other,
        &["pthread_cond_", "pthread_barrier_", "pthread_join", "pthread_timedjoin", "pthread_clockjoin"],
    ),
    (Waited::Other, &["sem_wait", "sem_timedwait", "sem_clockwait", "new_sem_wait", "new_sem_clockwait"]),
    // Rust: std and parking_lot.
    (Waited::Lock, &["std::sys::sync::mutex::", "std::sys::sync::rwlock::", "std::sys::sync::once::"]),
    (Waited::Lock, &["parking_lot::raw_mutex::", "parking_lot::raw_rwlock::"]),
    (
        Waited::Other,
        &["std::sys::sync::condvar::", "std::sys::sync::thread_parking::", "parking_lot::condvar::"],
    ),
    (Waited::Other, &["std::thread::park"]),
    // Go's runtime: locks of its own. A goroutine that waits for a sync.Mutex does not block its thread.
    (Waited::Lock, &["=runtime.lock2", "=runtime.lockWithRank"]),
    (
        Waited::Other,
        &["=runtime.notesleep", "=runtime.notetsleep", "=runtime.notetsleep_internal", "=runtime.mPark"],
    ),
    // HotSpot: monitors of Java, and its own, for which threads wait in a condition of their own.
    (
        Waited::LockElsewhere,
        &["ObjectMonitor::enter", "ObjectMonitor::EnterI", "ObjectMonitor::ReenterI", "=Mutex::lock"],
    ),
    (Waited::Other, &["ObjectMonitor::wait", "=Unsafe_Park", "Monitor::wait"]),
    // CPython's global interpreter lock, which is a condition.
    (Waited::Lock, &["=take_gil"]),
    // Abseil.
    (Waited::Lock, &["absl::Mutex::LockSlow", "absl::Mutex::ReaderLock", "absl::Mutex::Lock"]),
    (Waited::Other, &["absl::CondVar::"]),
];

/// What a function with this name waits for; `None` if the name says nothing.
fn waited_in(name: &str) -> Option<Waited> {
    let name = name.trim_start_matches('_');
    let matches = |part: &&str| match part.strip_prefix('=') {
        Some(whole) => name == whole,
        None => name.starts_with(part) || name.strip_prefix('<').is_some_and(|name| name.starts_with(part)),
    };
    let of_name = NAMES.iter().filter(|(_, parts)| parts.iter().any(&matches));
    of_name.map(|(waited, _)| *waited).max()
}

/// What the stacks of waits in futexes say.
#[derive(Default, Debug)]
pub(super) struct LockNames {
    /// By the ID of a stack; `None` if no function in it says anything.
    by_stack: HashMap<u64, Option<Waited>>,
}

impl LockNames {
    /// Forgets what was decided by fewer names.
    pub(super) fn clear(&mut self) {
        self.by_stack.clear();
    }

    /// The lock for which a thread waited in a futex, with an ID only if it is the futex; `None` if it waited for something else.
    pub(super) fn lock_in(
        &mut self,
        futex: LockSample,
        event: &SampleEvent,
        namer: &mut Namer,
    ) -> Option<LockSample> {
        let by_call = match futex.evidence {
            LockEvidence::Held | LockEvidence::Parked => Waited::Lock,
            LockEvidence::None => Waited::Other,
        };
        match self.waited(event, namer).unwrap_or(by_call) {
            Waited::Other => None,
            Waited::LockElsewhere => Some(LockSample { id: None, ..futex }),
            Waited::Lock => Some(futex),
        }
    }

    /// What the names of the functions in the stack say of the thread that waited: that of the event, or the one whose wait it
    /// ended.
    fn waited(&mut self, event: &SampleEvent, namer: &mut Namer) -> Option<Waited> {
        let (process, stack) = match &event.ended {
            Some(ended) => (ended.process, ended.stack.as_ref()?),
            None => (event.process, event.stack.as_ref()?),
        };
        if let Some(known) = self.by_stack.get(&stack.id) {
            return *known;
        }
        let native =
            stack.frames.iter().filter(|frame| matches!(frame.kind(), Some(RawFrameKind::Native { .. })));
        let mut waited = None;
        let mut is_provisional = false;
        for frame in native.take(FUNCTIONS_MAX) {
            let Some(named) = namer.resolve(process, *frame, event.time_ns) else { continue };
            is_provisional |= named.is_provisional;
            let functions = named.functions.iter().map(|function| &*function.name.demangled);
            // A lock that is made of a condition is a lock.
            waited = functions.filter_map(waited_in).fold(waited, |known, more| known.max(Some(more)));
        }
        if !is_provisional {
            if self.by_stack.len() >= STACKS_MAX {
                self.clear();
            }
            self.by_stack.insert(stack.id, waited);
        }
        waited
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_message::test_support::event;
    use sidewinder_message::{LockId, Message};

    use super::*;
    use crate::test_support::naming_stage;

    #[test]
    fn functions_tell_locks_from_conditions() {
        let locks = [
            "__lll_lock_wait",
            "___pthread_mutex_lock",
            "pthread_rwlock_wrlock",
            "std::sys::sync::mutex::futex::Mutex::lock_contended",
            "parking_lot::raw_mutex::RawMutex::lock_slow",
            "<parking_lot::raw_rwlock::RawRwLock as lock_api::rwlock::RawRwLock>::lock_shared",
            "runtime.lock2",
            "take_gil",
        ];
        for name in locks {
            assert_eq!(waited_in(name), Some(Waited::Lock), "{name}");
        }
        let others = [
            "___pthread_cond_wait",
            "std::thread::park",
            "std::sys::sync::condvar::futex::Condvar::wait",
            "runtime.notesleep",
            "__new_sem_wait_slow64",
        ];
        for name in others {
            assert_eq!(waited_in(name), Some(Waited::Other), "{name}");
        }
        for name in ["main", "lock_account", "runtime.futex", "syscall"] {
            assert_eq!(waited_in(name), None, "{name}");
        }
    }

    #[test]
    fn without_names_the_arguments_of_the_call_decide() {
        let mut stage = naming_stage();
        let mut is_kept = |evidence| {
            let lock = Some(LockSample { id: Some(LockId(1)), evidence });
            stage.read(Message::Event(SampleEvent { lock, ..event(1, None) })).is_some()
        };
        assert!(is_kept(LockEvidence::Held) && is_kept(LockEvidence::Parked));
        assert!(!is_kept(LockEvidence::None));
        assert!(stage.read(Message::Event(event(1, None))).is_some(), "an event of another kind is kept");
    }
}
