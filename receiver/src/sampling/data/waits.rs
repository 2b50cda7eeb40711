//! Off-CPU samples whose value is not known yet: the stack of a wait is sampled when it begins, and its length follows when
//! the thread has run again and leaves its CPU. A wait that goes on is charged up to the time when it was last listed; its end
//! then charges the rest.
//!
//! The two records come through the rings of the CPUs on which they were written, so either may be seen first.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sidewinder_bpf::{CERTAIN, LockWait, WaitEnd, waits_of_sample, weighted_off_cpu_ns};

use crate::sampling::message::SampleEvent;

/// How long an end waits for its sample: longer than a deferred walk may take.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of samples, and of ends, that are kept. Beyond it, samples of threads that are gone are forgotten.
const WAITS_MAX: usize = 16 << 10;

/// A wait that has ended, or a part of one that goes on.
#[derive(Debug)]
pub(super) struct ChargedWait {
    /// Its value is the time off the CPU, divided by the probability of its sample.
    pub(super) event: SampleEvent,
    /// The number of waits that it stands for: 0 if another part of the wait has been charged before, or if the wait was found
    /// in progress.
    pub(super) waits: f64,
    /// The futex in which the thread waited, if waits for locks are sampled.
    pub(super) lock: Option<LockWait>,
}

/// The waits of all threads.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Samples without their end, by thread. A thread has one wait at a time.
    begun: HashMap<u32, BegunWait>,
    /// Ends without their sample, by thread and the time of the sample.
    ended: HashMap<(u32, u64), (WaitEnd, Instant)>,
    /// The samples that were given up.
    without_end: u64,
    events_so_far: u64,
}

/// A wait whose end has not come yet.
#[derive(Debug)]
struct BegunWait {
    /// Its value is the probability with which the time from `charged_ns` on is sampled: from the first time on that the wait
    /// was listed, that is certain, as it is for waits that were found then.
    event: SampleEvent,
    /// The time off the CPU that has been charged.
    charged_ns: u64,
    /// The number of waits that are still to be charged with it.
    waits: f64,
}

impl BegunWait {
    fn new(event: SampleEvent, is_found: bool) -> Self {
        let waits = if is_found { 0.0 } else { waits_of_sample(event.value) };
        Self { event, charged_ns: 0, waits }
    }

    /// The event of the time that has not been charged. Its value is the time off the CPU, and its time is the end, up to which
    /// that is known.
    fn charge(&mut self, end: WaitEnd) -> ChargedWait {
        let off_cpu_ns = end.off_cpu_ns.saturating_sub(self.charged_ns);
        let value = weighted_off_cpu_ns(off_cpu_ns, self.event.value);
        self.charged_ns += off_cpu_ns;
        self.event.value = CERTAIN;
        let event = SampleEvent { value, time_ns: end.time_ns, ..self.event.clone() };
        ChargedWait { event, waits: std::mem::take(&mut self.waits), lock: end.lock }
    }
}

impl Waits {
    /// Adds the sample of a wait, whose value is its probability, or of one that was found in progress. Returns the wait if it
    /// has already ended.
    pub(super) fn begin(&mut self, event: SampleEvent, is_found: bool) -> Option<ChargedWait> {
        if let Some((end, _)) = self.ended.remove(&(event.tid, event.time_ns)) {
            return Some(BegunWait::new(event, is_found).charge(end));
        }
        if self.begun.len() >= WAITS_MAX {
            self.forget(|wait| !thread_exists(&wait.event));
        }
        if self.begun.len() >= WAITS_MAX {
            self.without_end += 1;
            return None;
        }
        // The sample of an earlier wait may come later, if its walk was deferred.
        let new = BegunWait::new(event, is_found);
        let newest = match self.begun.remove(&new.event.tid) {
            Some(other) => {
                self.without_end += 1;
                if other.event.time_ns > new.event.time_ns { other } else { new }
            }
            None => new,
        };
        self.begun.insert(newest.event.tid, newest);
        None
    }

    /// Adds the end of a wait. Returns the wait, if its sample is already here.
    pub(super) fn end(&mut self, end: WaitEnd) -> Option<ChargedWait> {
        match self.begun.remove(&end.tid) {
            Some(mut wait) if wait.event.time_ns == end.start_ns => return Some(wait.charge(end)),
            Some(other) => drop(self.begun.insert(end.tid, other)),
            None => {}
        }
        // Without room the sample, if it comes, will be without its end.
        if self.ended.len() < WAITS_MAX {
            self.ended.insert((end.tid, end.start_ns), (end, Instant::now()));
        }
        None
    }

    /// Charges a wait that goes on. Returns the part, if its sample is already here, and if there is something to charge.
    pub(super) fn continue_until(&mut self, so_far: WaitEnd) -> Option<ChargedWait> {
        let wait = self.begun.get_mut(&so_far.tid)?;
        if wait.event.time_ns != so_far.start_ns || wait.charged_ns >= so_far.off_cpu_ns {
            return None;
        }
        self.events_so_far += 1;
        Some(wait.charge(so_far))
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

    /// The events of waits that went on.
    pub(super) fn events_so_far(&self) -> u64 {
        self.events_so_far
    }

    fn forget(&mut self, is_over: impl Fn(&BegunWait) -> bool) {
        self.without_end += self.begun.extract_if(|_, wait| is_over(wait)).count() as u64;
    }
}

fn thread_exists(event: &SampleEvent) -> bool {
    Path::new(&format!("/proc/{}/task/{}", event.process.pid, event.tid)).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::tests::event;
    use crate::sampling::message::Message;

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
        let summary = |charged: Option<ChargedWait>| {
            charged.map(|ChargedWait { event, .. }| (event.tid, event.time_ns, event.value))
        };
        assert_eq!(summary(waits.begin(begun(1, 100, CERTAIN), false)), None);
        assert_eq!(summary(waits.end(end(1, 100, 30))), Some((1, 160, 30)));
        assert_eq!(summary(waits.end(end(2, 100, 30))), None);
        assert_eq!(summary(waits.begin(begun(2, 100, CERTAIN / 4), false)), Some((2, 160, 120)));
        assert_eq!(waits.without_end(), 0);
    }

    #[test]
    fn a_wait_that_goes_on_is_charged_once_for_each_part_and_certain_after_the_first() {
        let mut waits = Waits::default();
        assert!(waits.begin(begun(1, 100, CERTAIN / 4), false).is_none());
        let mut value = |so_far| {
            let charged = waits.continue_until(so_far)?;
            Some((charged.event.time_ns, charged.event.value, charged.waits))
        };
        assert_eq!(value(end(1, 100, 30)), Some((160, 120, 4.0)));
        assert_eq!(value(end(1, 100, 50)), Some((200, 20, 0.0)));
        assert_eq!(value(end(1, 100, 50)), None, "nothing is left to charge");
        assert_eq!(value(end(1, 90, 70)), None, "another wait");
        assert_eq!(value(end(2, 100, 70)), None, "its sample is not here");
        assert_eq!(waits.end(end(1, 100, 57)).map(|charged| charged.event.value), Some(7));
        assert_eq!((waits.events_so_far(), waits.without_end()), (2, 0));
    }

    #[test]
    fn a_wait_whose_end_is_lost_is_counted_when_the_thread_waits_again() {
        let mut waits = Waits::default();
        assert!(waits.begin(begun(1, 100, CERTAIN), false).is_none());
        assert!(waits.begin(begun(1, 200, CERTAIN), false).is_none());
        assert_eq!(waits.without_end(), 1);
        // The sample of an earlier wait, late, doesn't replace the one in progress.
        assert!(waits.begin(begun(1, 150, CERTAIN), false).is_none());
        assert_eq!(waits.without_end(), 2);
        assert_eq!(waits.end(end(1, 200, 5)).map(|charged| charged.event.value), Some(5));
        assert!(waits.begin(begun(3, 300, CERTAIN), false).is_none());
        waits.close();
        assert_eq!(waits.without_end(), 3);
    }

    #[test]
    fn waits_of_threads_that_are_gone_make_room() {
        let mut waits = Waits::default();
        for tid in 0..WAITS_MAX as u32 {
            assert!(waits.begin(begun(tid + (1 << 30), 1, CERTAIN), false).is_none());
        }
        assert!(waits.begin(begun(1, 1, CERTAIN), false).is_none());
        assert_eq!((waits.begun.len(), waits.without_end()), (1, WAITS_MAX as u64));
    }
}
