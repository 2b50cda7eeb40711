//! Off-CPU samples whose value is not known yet: the stack of a wait is sampled when it begins, and its length follows when
//! the thread has run again and leaves its CPU. A wait that goes on is charged up to the time when it was last listed; its end
//! then charges the rest.
//!
//! The two records come through the rings of the CPUs on which they were written, so either may be seen first.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use sidewinder_bpf::{
    CERTAIN, LockWait, WaitEnd, WaitReason, WakerSample, waits_of_sample, weighted_off_cpu_ns,
};
use sidewinder_message::SampleEvent;

use super::undrawn::UndrawnWaits;

/// How long an end waits for its sample: longer than a deferred walk may take.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of samples, and of ends, that are kept. Beyond it, samples of threads that are gone are forgotten.
const WAITS_MAX: usize = 16 << 10;

/// The waits of all threads.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Whether the time waiting for a CPU is sampled, too.
    samples_runnable: bool,
    undrawn: UndrawnWaits,
    /// Samples without their end, by thread. A thread has one wait at a time.
    begun: HashMap<u32, BegunWait>,
    /// Ends without their sample, by thread and the time of the sample.
    ended: HashMap<(u32, u64), (WaitEnd, Instant)>,
    /// Waits that were listed before their sample was seen, likewise.
    listed: HashMap<(u32, u64), (WaitEnd, Instant)>,
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
    /// The time off the CPU that has been charged, and the time waiting for one.
    charged_ns: u64,
    charged_runnable_ns: u64,
    /// The values of all its events so far.
    weighted_ns: u64,
    /// The number of waits that are still to be charged with it.
    waits: f64,
}

/// The time that is charged to a wait, or to a part of it.
#[derive(Debug)]
pub(super) struct ChargedWait {
    /// Its value is the time off the CPU, and its time is the end, up to which that is known. If the thread did not wait, but was
    /// runnable, the value has no meaning.
    pub(super) event: SampleEvent,
    /// The time waiting for a CPU, with the same weight.
    pub(super) runnable_ns: u64,
    /// The number of waits that it stands for: 0 if another part of the wait has been charged before, or if the wait was found
    /// in progress.
    pub(super) waits: f64,
    /// The futex in which the thread waited, if waits for locks are sampled.
    pub(super) lock: Option<LockWait>,
    /// Of its last part: who ended it, if that was sampled, and the value of all parts.
    pub(super) waker: Option<(WakerSample, u64)>,
}

impl ChargedWait {
    /// The sum of this part of a wait and the next one.
    fn and(self, next: Self) -> Self {
        let value = self.event.value.saturating_add(next.event.value);
        Self {
            event: SampleEvent { value, ..next.event },
            runnable_ns: self.runnable_ns.saturating_add(next.runnable_ns),
            waits: self.waits + next.waits,
            lock: next.lock,
            waker: next.waker,
        }
    }
}

impl BegunWait {
    fn new(event: SampleEvent, is_found: bool) -> Self {
        let waits = if is_found { 0.0 } else { waits_of_sample(event.value) };
        Self { event, charged_ns: 0, charged_runnable_ns: 0, weighted_ns: 0, waits }
    }

    /// Charges the time that has not been charged.
    fn charge(&mut self, end: WaitEnd, undrawn: &mut UndrawnWaits, samples_runnable: bool) -> ChargedWait {
        let is_first = self.charged_ns == 0;
        let is_runnable = self.event.wait == Some(WaitReason::RUNNABLE);
        let off_cpu_ns = end.off_cpu_ns.saturating_sub(self.charged_ns);
        let mut runnable_ns = end.runnable_ns.saturating_sub(self.charged_runnable_ns);
        (self.charged_ns, self.charged_runnable_ns) =
            (self.charged_ns + off_cpu_ns, self.charged_runnable_ns + runnable_ns);
        // Other waits than the sample's own are shorter: no sample of them was taken.
        let walk_ns = if is_first { end.walk_ns } else { 0 };
        let others = |own_ns: u64, is_delayed: bool| {
            let like_others_ns = own_ns.saturating_sub(if is_delayed { walk_ns } else { 0 });
            weighted_off_cpu_ns(like_others_ns, self.event.value).saturating_sub(like_others_ns)
        };
        let of_others = [
            others(off_cpu_ns, !is_runnable),
            if samples_runnable { others(runnable_ns, is_runnable) } else { 0 },
        ];
        let [off_cpu_of_others_ns, runnable_of_others_ns] = undrawn.charge(self.event.tid, of_others);
        let value = off_cpu_ns.saturating_add(off_cpu_of_others_ns);
        runnable_ns = runnable_ns.saturating_add(runnable_of_others_ns);
        self.weighted_ns = self.weighted_ns.saturating_add(value);
        if is_runnable {
            // Of a thread that still waits for a CPU, the account does not have this time yet.
            runnable_ns = runnable_ns.saturating_add(value);
        }
        self.event.value = CERTAIN;
        let event = SampleEvent { value, time_ns: end.time_ns, ..self.event.clone() };
        let waker = end.waker.map(|waker| (waker, self.weighted_ns));
        ChargedWait { event, runnable_ns, waits: std::mem::take(&mut self.waits), lock: end.lock, waker }
    }
}

impl Waits {
    pub(super) fn new(samples_runnable: bool) -> Self {
        Self { samples_runnable, ..Self::default() }
    }

    /// Adds the sample of a wait, whose value is its probability, or of one that was found in progress. Returns what has to be
    /// charged if the wait has already ended, or was listed.
    pub(super) fn begin(&mut self, event: SampleEvent, is_found: bool) -> Option<ChargedWait> {
        let key = (event.tid, event.time_ns);
        let mut wait = BegunWait::new(event, is_found);
        let mut charge = |end| wait.charge(end, &mut self.undrawn, self.samples_runnable);
        let so_far = self.listed.remove(&key).map(|(so_far, _)| charge(so_far));
        if let Some((end, _)) = self.ended.remove(&key) {
            let rest = charge(end);
            return Some(match so_far {
                Some(so_far) => so_far.and(rest),
                None => rest,
            });
        }
        self.events_so_far += u64::from(so_far.is_some());
        if self.begun.len() >= WAITS_MAX {
            self.forget(|wait| !thread_exists(&wait.event));
        }
        if self.begun.len() >= WAITS_MAX {
            self.without_end += 1;
            return so_far;
        }
        // The sample of an earlier wait may come later, if its walk was deferred.
        let newest = match self.begun.remove(&wait.event.tid) {
            Some(other) => {
                self.without_end += 1;
                if other.event.time_ns > wait.event.time_ns { other } else { wait }
            }
            None => wait,
        };
        self.begun.insert(newest.event.tid, newest);
        so_far
    }

    /// Adds the end of a wait. Returns the wait, if its sample is already here.
    pub(super) fn end(&mut self, end: WaitEnd) -> Option<ChargedWait> {
        let (tid, undrawn_ns) = (end.tid, end.undrawn_ns);
        let charged = self.charge_end(end);
        self.undrawn.add(tid, undrawn_ns);
        charged
    }

    fn charge_end(&mut self, end: WaitEnd) -> Option<ChargedWait> {
        match self.begun.remove(&end.tid) {
            Some(mut wait) if wait.event.time_ns == end.start_ns => {
                return Some(wait.charge(end, &mut self.undrawn, self.samples_runnable));
            }
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
        let is_its_sample = |wait: &&mut BegunWait| wait.event.time_ns == so_far.start_ns;
        let Some(wait) = self.begun.get_mut(&so_far.tid).filter(is_its_sample) else {
            if self.listed.len() < WAITS_MAX {
                self.listed.insert((so_far.tid, so_far.start_ns), (so_far, Instant::now()));
            }
            return None;
        };
        if wait.charged_ns >= so_far.off_cpu_ns {
            return None;
        }
        self.events_so_far += 1;
        Some(wait.charge(so_far, &mut self.undrawn, self.samples_runnable))
    }

    /// Forgets the ends, and the lengths so far, whose samples were lost.
    pub(super) fn forget_old(&mut self, now: Instant) {
        for kept in [&mut self.ended, &mut self.listed] {
            kept.retain(|_, (_, since)| now.saturating_duration_since(*since) < SAMPLE_TIMEOUT);
        }
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
    use sidewinder_message::test_support::event;

    use super::*;

    fn begun(tid: u32, time_ns: u64, probability: u64) -> SampleEvent {
        SampleEvent { tid, time_ns, value: probability, ..event(1, None) }
    }

    fn end(tid: u32, start_ns: u64, off_cpu_ns: u64) -> WaitEnd {
        WaitEnd {
            tid,
            start_ns,
            time_ns: start_ns + 2 * off_cpu_ns,
            off_cpu_ns,
            runnable_ns: 0,
            walk_ns: 0,
            undrawn_ns: 0,
            lock: None,
            waker: None,
        }
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
        let end = WaitEnd { walk_ns: 6, ..end(3, 100, 30) };
        assert!(waits.begin(begun(3, 100, CERTAIN / 4), false).is_none());
        assert_eq!(summary(waits.end(end)), Some((3, 160, 4 * 24 + 6)), "taking the sample counts once");
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
        assert_eq!(value(end(3, 100, 30)), None, "likewise");
        assert_eq!(waits.end(end(1, 100, 57)).map(|charged| charged.event.value), Some(7));
        assert_eq!((waits.events_so_far(), waits.without_end()), (2, 0));
        // These samples come after the waits were listed, and one of them after its end, too.
        let value = |charged: Option<ChargedWait>| charged.map(|charged| charged.event.value);
        assert_eq!(value(waits.begin(begun(2, 100, CERTAIN / 4), false)), Some(280));
        assert_eq!(value(waits.end(end(2, 100, 80))), Some(10));
        assert_eq!(value(waits.end(end(3, 100, 40))), None);
        assert_eq!(value(waits.begin(begun(3, 100, CERTAIN / 4), false)), Some(130));
    }

    #[test]
    fn the_time_waiting_for_a_cpu_has_the_weight_of_the_wait() {
        let mut waits = Waits::new(true);
        let runnable = |wait: Option<ChargedWait>| wait.map(|charged| charged.runnable_ns);
        assert!(waits.begin(begun(1, 100, CERTAIN / 4), false).is_none());
        assert_eq!(runnable(waits.end(WaitEnd { runnable_ns: 5, ..end(1, 100, 30) })), Some(20));
        // A thread that left its CPU to another one is charged for nothing else.
        let preempted = SampleEvent { wait: Some(WaitReason::RUNNABLE), ..begun(1, 200, CERTAIN) };
        assert!(waits.begin(preempted, false).is_none());
        assert_eq!(runnable(waits.end(WaitEnd { runnable_ns: 5, ..end(1, 200, 30) })), Some(35));
        // What took the sample delayed the thread while it was runnable.
        let drawn = SampleEvent { wait: Some(WaitReason::RUNNABLE), ..begun(2, 200, CERTAIN / 4) };
        assert!(waits.begin(drawn, false).is_none());
        assert_eq!(runnable(waits.end(WaitEnd { runnable_ns: 50, walk_ns: 40, ..end(2, 200, 0) })), Some(80));
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
