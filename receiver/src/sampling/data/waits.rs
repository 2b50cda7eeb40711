//! Off-CPU samples whose value is not known yet: the stack of a wait is sampled when it begins, and its length follows when
//! the thread has run again and leaves its CPU.
//!
//! The two records come through the rings of the CPUs on which they were written, so either may be seen first.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sidewinder_bpf::{LockWait, WaitEnd, weighted_off_cpu_ns};

use crate::sampling::message::SampleEvent;

/// How long an end waits for its sample: longer than a deferred walk may take.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of samples, and of ends, that are kept. Beyond it, samples of threads that are gone are forgotten.
const WAITS_MAX: usize = 16 << 10;

/// A wait that has ended.
#[derive(Debug)]
pub(super) struct EndedWait {
    /// Its value is the time off the CPU, divided by the probability of its sample.
    pub(super) event: SampleEvent,
    /// Of its sample, as in records.
    pub(super) probability: u64,
    /// The futex in which the thread waited, if waits for locks are sampled.
    pub(super) lock: Option<LockWait>,
}

/// The waits of all threads.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Samples without their end, by thread. A thread has one wait at a time.
    begun: HashMap<u32, SampleEvent>,
    /// Ends without their sample, by thread and the time of the sample.
    ended: HashMap<(u32, u64), (WaitEnd, Instant)>,
    /// The samples that were given up.
    without_end: u64,
}

impl Waits {
    /// Adds the sample of a wait, whose value is its probability. Returns the wait if it has already ended.
    pub(super) fn begin(&mut self, event: SampleEvent) -> Option<EndedWait> {
        if let Some((end, _)) = self.ended.remove(&(event.tid, event.time_ns)) {
            return Some(finish(event, end));
        }
        if self.begun.len() >= WAITS_MAX {
            self.forget(|event| !thread_exists(event));
        }
        if self.begun.len() >= WAITS_MAX {
            self.without_end += 1;
            return None;
        }
        // The sample of an earlier wait may come later, if its walk was deferred.
        let newest = match self.begun.remove(&event.tid) {
            Some(other) => {
                self.without_end += 1;
                if other.time_ns > event.time_ns { other } else { event }
            }
            None => event,
        };
        self.begun.insert(newest.tid, newest);
        None
    }

    /// Adds the end of a wait. Returns the wait, if its sample is already here.
    pub(super) fn end(&mut self, end: WaitEnd) -> Option<EndedWait> {
        match self.begun.remove(&end.tid) {
            Some(event) if event.time_ns == end.start_ns => return Some(finish(event, end)),
            Some(other) => drop(self.begun.insert(end.tid, other)),
            None => {}
        }
        // Without room the sample, if it comes, will be without its end.
        if self.ended.len() < WAITS_MAX {
            self.ended.insert((end.tid, end.start_ns), (end, Instant::now()));
        }
        None
    }

    /// Forgets the ends whose samples were lost.
    pub(super) fn forget_old(&mut self, now: Instant) {
        self.ended.retain(|_, (_, since)| now.saturating_duration_since(*since) < SAMPLE_TIMEOUT);
    }

    /// Gives up all samples whose end has not come.
    pub(super) fn close(&mut self) {
        self.forget(|_| true);
    }

    /// The samples whose end did not come.
    pub(super) fn without_end(&self) -> u64 {
        self.without_end
    }

    fn forget(&mut self, is_over: impl Fn(&SampleEvent) -> bool) {
        self.without_end += self.begun.extract_if(|_, event| is_over(event)).count() as u64;
    }
}

/// The wait of a sample: its time is the end, up to which its length is known.
fn finish(event: SampleEvent, end: WaitEnd) -> EndedWait {
    let probability = event.value;
    let value = weighted_off_cpu_ns(end.off_cpu_ns, probability);
    EndedWait { event: SampleEvent { value, time_ns: end.time_ns, ..event }, probability, lock: end.lock }
}

fn thread_exists(event: &SampleEvent) -> bool {
    Path::new(&format!("/proc/{}/task/{}", event.process.pid, event.tid)).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::tests::event;
    use crate::sampling::message::Message;

    const CERTAIN: u64 = 1 << 32;

    fn begun(tid: u32, time_ns: u64, probability: u64) -> SampleEvent {
        match event(1, None) {
            Message::Event(event) => SampleEvent { tid, time_ns, value: probability, ..event },
            other => panic!("{other:?}"),
        }
    }

    fn end(tid: u32, start_ns: u64, off_cpu_ns: u64) -> WaitEnd {
        WaitEnd { tid, start_ns, time_ns: start_ns + 2 * off_cpu_ns, off_cpu_ns, lock: None }
    }

    #[test]
    fn a_wait_has_its_weighted_length_whichever_record_comes_first() {
        let mut waits = Waits::default();
        let summary = |ended: Option<EndedWait>| {
            ended.map(|EndedWait { event, .. }| (event.tid, event.time_ns, event.value))
        };
        assert_eq!(summary(waits.begin(begun(1, 100, CERTAIN))), None);
        assert_eq!(summary(waits.end(end(1, 100, 30))), Some((1, 160, 30)));
        assert_eq!(summary(waits.end(end(2, 100, 30))), None);
        assert_eq!(summary(waits.begin(begun(2, 100, CERTAIN / 4))), Some((2, 160, 120)));
        assert_eq!(waits.without_end(), 0);
    }

    #[test]
    fn a_wait_whose_end_is_lost_is_counted_when_the_thread_waits_again() {
        let mut waits = Waits::default();
        assert!(waits.begin(begun(1, 100, CERTAIN)).is_none());
        assert!(waits.begin(begun(1, 200, CERTAIN)).is_none());
        assert_eq!(waits.without_end(), 1);
        // The sample of an earlier wait, late, doesn't replace the one in progress.
        assert!(waits.begin(begun(1, 150, CERTAIN)).is_none());
        assert_eq!(waits.without_end(), 2);
        assert_eq!(waits.end(end(1, 200, 5)).map(|ended| ended.event.value), Some(5));
        assert!(waits.begin(begun(3, 300, CERTAIN)).is_none());
        waits.close();
        assert_eq!(waits.without_end(), 3);
    }

    #[test]
    fn waits_of_threads_that_are_gone_make_room() {
        let mut waits = Waits::default();
        for tid in 0..WAITS_MAX as u32 {
            assert!(waits.begin(begun(tid + (1 << 30), 1, CERTAIN)).is_none());
        }
        assert!(waits.begin(begun(1, 1, CERTAIN)).is_none());
        assert_eq!((waits.begun.len(), waits.without_end()), (1, WAITS_MAX as u64));
    }
}
