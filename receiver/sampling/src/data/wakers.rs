//! Threads that end waits of others: the stack of each is sampled when it does so, and how long the wait was is known when the
//! thread that waited has run again. Either may be seen first.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use sidewinder_bpf::WakerSample;

use sidewinder_message::{EndedWait, LockSample, SampleEvent};

/// How long one waits for the other: longer than a deferred walk may take.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The largest number of each that is kept.
const KEPT_MAX: usize = 8 << 10;

/// The end of a wait by another thread.
#[derive(Clone, Debug)]
pub(super) struct Release {
    pub waker: WakerSample,
    /// The time of the wait, with its weight.
    pub(super) delay_ns: u64,
    pub lock: LockSample,
    pub ended: EndedWait,
}

impl Release {
    fn complete(self, event: SampleEvent) -> SampleEvent {
        SampleEvent {
            value: self.delay_ns,
            lock: Some(self.lock),
            ended: Some(Box::new(self.ended)),
            ..event
        }
    }
}

/// The samples of wakers, and the waits that they ended.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    samples: HashMap<WakerSample, (SampleEvent, Instant)>,
    releases: HashMap<WakerSample, (Release, Instant)>,
    unmatched: u64,
}

impl Wakers {
    /// Adds the sample of a waker. Returns its event, if the wait that it ended is known.
    pub(super) fn add_sample(&mut self, event: SampleEvent) -> Option<SampleEvent> {
        let key = WakerSample { tid: event.tid, time_ns: event.time_ns };
        if let Some((release, _)) = self.releases.remove(&key) {
            return Some(release.complete(event));
        }
        if self.samples.len() < KEPT_MAX {
            self.samples.insert(key, (event, Instant::now()));
        } else {
            self.unmatched += 1;
        }
        None
    }

    /// Adds a wait that has ended. Returns the event of its waker, if its sample is here.
    pub(super) fn add_release(&mut self, release: Release) -> Option<SampleEvent> {
        if let Some((event, _)) = self.samples.remove(&release.waker) {
            return Some(release.complete(event));
        }
        if self.releases.len() < KEPT_MAX {
            self.releases.insert(release.waker, (release, Instant::now()));
        } else {
            self.unmatched += 1;
        }
        None
    }

    /// Gives up those of which the other part was lost.
    pub(super) fn forget_old(&mut self, now: Instant) {
        let is_old = |since: &Instant| now.saturating_duration_since(*since) >= TIMEOUT;
        self.unmatched += self.samples.extract_if(|_, (_, since)| is_old(since)).count() as u64;
        self.unmatched += self.releases.extract_if(|_, (_, since)| is_old(since)).count() as u64;
    }

    /// Gives up all.
    pub(super) fn close(&mut self) {
        self.unmatched += (self.samples.drain().count() + self.releases.drain().count()) as u64;
    }

    /// The samples of wakers without the wait that they ended, and those waits without their waker.
    pub(super) fn unmatched(&self) -> u64 {
        self.unmatched
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::LockEvidence;
    use sidewinder_message::LockId;
    use sidewinder_message::test_support::event;

    use super::*;

    fn sample(tid: u32, time_ns: u64) -> SampleEvent {
        let event = event(1, None);
        SampleEvent { tid, time_ns, ..event }
    }

    fn release(tid: u32, time_ns: u64, delay_ns: u64) -> Release {
        let ended = EndedWait { process: sample(1, 1).process, stack: None };
        let lock = LockSample { id: Some(LockId(5)), evidence: LockEvidence::Held };
        Release { waker: WakerSample { tid, time_ns }, delay_ns, lock, ended }
    }

    #[test]
    fn a_waker_has_the_time_of_the_wait_that_it_ended_whichever_is_seen_first() {
        let mut wakers = Wakers::default();
        let value = |event: Option<SampleEvent>| event.map(|event| (event.tid, event.value));
        assert_eq!(value(wakers.add_sample(sample(1, 10))), None);
        assert_eq!(value(wakers.add_release(release(1, 11, 3))), None, "another wait of the same waker");
        assert_eq!(value(wakers.add_release(release(1, 10, 7))), Some((1, 7)));
        assert_eq!(value(wakers.add_sample(sample(1, 11))), Some((1, 3)));
        assert_eq!(wakers.unmatched(), 0);
        assert_eq!(value(wakers.add_sample(sample(2, 10))), None);
        wakers.forget_old(Instant::now() + TIMEOUT);
        assert_eq!(value(wakers.add_release(release(2, 10, 7))), None);
        assert_eq!(wakers.unmatched(), 1);
        wakers.close();
        assert_eq!(wakers.unmatched(), 2);
    }
}
