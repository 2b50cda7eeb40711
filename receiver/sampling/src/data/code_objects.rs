//! Functions that young processes have sent, until the samples in whose stacks they are have been released: only then it is
//! known which process had the PID.
//!
//! Owner: the sampling thread.

use std::collections::HashMap;
use std::ops::AddAssign;
use std::time::{Duration, Instant};

use sidewinder_bpf::CodeObject;

/// How long they are kept: as long as samples wait for their walk, and longer.
const TIMEOUT: Duration = Duration::from_secs(10);
/// How many are kept: 1 MiB. Others are counted and dropped: their names are read from their processes, if these still run.
const OBJECTS_MAX: usize = (1 << 20) / CodeObject::BYTES_MAX;

/// The functions that wait, by PID.
#[derive(Default, Debug)]
pub(super) struct CodeObjects {
    waiting: HashMap<u32, Vec<(Box<CodeObject>, Instant)>>,
    count: usize,
    losses: CodeObjectLosses,
}

/// Functions that processes have sent, and that the receiver has dropped.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct CodeObjectLosses {
    /// There was no room for them.
    pub refused: u64,
    /// No sample of their process came within [`TIMEOUT`].
    pub expired: u64,
}

impl AddAssign for CodeObjectLosses {
    fn add_assign(&mut self, other: Self) {
        let Self { refused, expired } = other;
        self.refused += refused;
        self.expired += expired;
    }
}

impl CodeObjects {
    /// Adds one, unless there are too many.
    pub(super) fn add(&mut self, object: Box<CodeObject>, now: Instant) {
        if self.count >= OBJECTS_MAX {
            self.losses.refused += 1;
            return;
        }
        self.count += 1;
        self.waiting.entry(object.pid).or_default().push((object, now));
    }

    /// Takes those that the process which had a PID at a time has sent until then.
    pub(super) fn take(&mut self, pid: u32, time_ns: u64) -> Vec<CodeObject> {
        let Some(waiting) = self.waiting.get_mut(&pid) else { return Vec::new() };
        let taken = waiting.extract_if(.., |(object, _)| object.time_ns <= time_ns);
        let taken: Vec<_> = taken.map(|(object, _)| *object).collect();
        if waiting.is_empty() {
            self.waiting.remove(&pid);
        }
        self.count -= taken.len();
        taken
    }

    /// Forgets those for which no sample has come.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.waiting.retain(|_, waiting| {
            waiting.retain(|(_, since)| now.saturating_duration_since(*since) < TIMEOUT);
            !waiting.is_empty()
        });
        let left = self.waiting.values().map(Vec::len).sum();
        self.losses.expired += (self.count - left) as u64;
        self.count = left;
    }

    /// How many were dropped so far.
    pub(super) fn losses(&self) -> CodeObjectLosses {
        self.losses
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_address::Avma;

    use super::*;

    fn object(pid: u32, time_ns: u64) -> Box<CodeObject> {
        let nothing = || Box::from([]);
        Box::new(CodeObject {
            pid,
            time_ns,
            address: Avma(1),
            head: [0; 32],
            cookie: 1,
            identity: nothing(),
            name: nothing(),
            path: nothing(),
            lines: nothing(),
        })
    }

    #[test]
    fn objects_go_to_the_process_that_sent_them() {
        let mut objects = CodeObjects::default();
        for (pid, time_ns) in [(1, 5), (2, 6), (1, 9)] {
            objects.add(object(pid, time_ns), Instant::now());
        }
        let mut times = |pid, until_ns| -> Vec<u64> {
            objects.take(pid, until_ns).iter().map(|object| object.time_ns).collect()
        };
        assert_eq!(times(1, 4), [0_u64; 0]);
        assert_eq!(times(1, 8), [5]);
        assert_eq!(times(1, 9), [9], "of a later process");
        assert_eq!(times(2, 9), [6]);
        assert_eq!((objects.count, objects.waiting.len()), (0, 0));
    }

    #[test]
    fn objects_are_bounded_and_each_one_that_is_dropped_is_counted() {
        let start = Instant::now();
        let mut objects = CodeObjects::default();
        (0..2 * OBJECTS_MAX as u32).for_each(|pid| objects.add(object(pid, 1), start));
        assert_eq!(objects.count, OBJECTS_MAX);
        assert_eq!(objects.losses(), CodeObjectLosses { refused: OBJECTS_MAX as u64, expired: 0 });
        assert_eq!(objects.take(0, 1).len(), 1);
        objects.forget_old(start + TIMEOUT / 2);
        assert_eq!((objects.count, objects.losses().expired), (OBJECTS_MAX - 1, 0));
        objects.add(object(0, 1), start + TIMEOUT / 2);
        objects.forget_old(start + TIMEOUT);
        assert_eq!((objects.count, objects.waiting.len()), (1, 1), "the one that came later");
        assert_eq!(objects.losses().expired, OBJECTS_MAX as u64 - 1);
    }
}
