//! The events of a wait: one for each kind of profile that counts it.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;

use sidewinder_bpf::WaitReason;
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::{EndedWait, LockId, LockSample, SampleEvent};
use sidewinder_process::ProcessKey;

use super::waits::ChargedWait;
use super::wakers::Release;

/// Makes the events of waits.
#[derive(Debug)]
pub(super) struct WaitEvents {
    kinds: Vec<Kind>,
    /// Whether there is a profile of the threads that end waits for locks.
    has_wakers: bool,
    /// Its key is secret, so that nobody learns the address of a lock from its ID.
    lock_ids: RandomState,
}

impl WaitEvents {
    /// For these kinds of profile, of which some may not be of waits.
    pub(super) fn new(kinds: &KindSet) -> Self {
        let of_waits = |kind: &Kind| matches!(kind, Kind::OffCpu | Kind::Wall { .. }) || kind.is_of_locks();
        Self {
            kinds: kinds.iter().filter(of_waits).collect(),
            has_wakers: kinds.contains(Kind::LockWakers),
            lock_ids: RandomState::new(),
        }
    }

    /// The events of a wait. One in a futex may be for a lock, which the names of its callers tell. A thread that lost its CPU to
    /// another was only runnable.
    pub(super) fn of(&self, charged: ChargedWait) -> Vec<SampleEvent> {
        let lock = self.lock_of(&charged);
        let ChargedWait { event, runnable_ns, waits, .. } = charged;
        let has_waited = event.wait != Some(WaitReason::RUNNABLE);
        let mut events = Vec::new();
        for kind in self.kinds.iter().copied() {
            let of_kind = SampleEvent { kind, ..event.clone() };
            match kind {
                Kind::LockContentions if lock.is_some() => {
                    let value = rounded_at_random(waits, rand::random_range(0.0..1.0));
                    events.extend((value > 0).then_some(SampleEvent { value, lock, ..of_kind }));
                }
                Kind::LockDelay if lock.is_some() => events.push(SampleEvent { lock, ..of_kind }),
                Kind::LockContentions | Kind::LockDelay => {}
                Kind::Wall { .. } if runnable_ns > 0 => {
                    let runnable = SampleEvent {
                        value: runnable_ns,
                        wait: Some(WaitReason::RUNNABLE),
                        ..of_kind.clone()
                    };
                    events.extend(has_waited.then_some(of_kind).into_iter().chain([runnable]));
                }
                _ => events.extend(has_waited.then_some(of_kind)),
            }
        }
        events
    }

    /// What its waker's event says of a wait in a futex that has ended; `None` if its waker was not sampled.
    pub(super) fn release_of(&self, charged: &ChargedWait) -> Option<Release> {
        let (waker, delay_ns) = charged.waker.filter(|_| self.has_wakers)?;
        let ended = EndedWait { process: charged.event.process, stack: charged.event.stack.clone() };
        Some(Release { waker, delay_ns, lock: self.lock_of(charged)?, ended })
    }

    fn lock_of(&self, charged: &ChargedWait) -> Option<LockSample> {
        charged.lock.map(|lock| {
            let id = LockId(self.lock_id(charged.event.process, lock.address));
            LockSample { id: Some(id), evidence: lock.evidence }
        })
    }

    fn lock_id(&self, process: ProcessKey, address: u64) -> u64 {
        self.lock_ids.hash_one((process, address))
    }
}

/// One of the two integers next to `number`, of which `random`, between 0 and 1, chooses the nearer one more often: on average
/// it is `number`.
fn rounded_at_random(number: f64, random: f64) -> u64 {
    (number + random).floor() as u64
}

#[cfg(test)]
mod tests {
    use sidewinder_bpf::{LockEvidence, LockWait};
    use sidewinder_message::test_support::event;

    use super::*;

    fn charged(pid: u32, address: Option<u64>, waits: f64) -> ChargedWait {
        let event = event(1, None);
        let lock = address.map(|address| LockWait { address, evidence: LockEvidence::Held });
        let process = ProcessKey { pid, instance: 1 };
        ChargedWait {
            event: SampleEvent { process, value: 700, ..event },
            runnable_ns: 30,
            waits,
            lock,
            waker: None,
        }
    }

    #[test]
    fn a_wait_in_a_futex_has_an_event_in_each_kind_and_another_wait_only_in_off_cpu_time() {
        let events = WaitEvents::new(&KindSet::new(Kind::OffCpu).with_locks());
        let of = |charged| {
            events.of(charged).into_iter().map(|event| (event.kind, event.value)).collect::<Vec<_>>()
        };
        assert_eq!(
            of(charged(7, Some(0x1000), 4.0)),
            [(Kind::OffCpu, 700), (Kind::LockContentions, 4), (Kind::LockDelay, 700)]
        );
        assert_eq!(
            of(charged(7, Some(0x1000), 0.0)),
            [(Kind::OffCpu, 700), (Kind::LockDelay, 700)],
            "a further part of a wait"
        );
        assert_eq!(of(charged(7, None, 4.0)), [(Kind::OffCpu, 700)]);
    }

    #[test]
    fn wall_time_includes_the_time_in_which_a_thread_was_runnable() {
        let wall = Kind::Wall { samples_per_second: 19 };
        let events = WaitEvents::new(&KindSet::new(wall).with(Kind::OffCpu));
        let of = |charged| {
            let of_events = |event: SampleEvent| (event.kind, event.value, event.wait);
            events.of(charged).into_iter().map(of_events).collect::<Vec<_>>()
        };
        let runnable = Some(WaitReason::RUNNABLE);
        let waited = charged(7, None, 4.0);
        let wait = waited.event.wait;
        assert_eq!(of(waited), [(wall, 700, wait), (wall, 30, runnable), (Kind::OffCpu, 700, wait)]);
        let mut preempted = charged(7, None, 4.0);
        preempted.event.wait = runnable;
        assert_eq!(of(preempted), [(wall, 30, runnable)]);
    }

    #[test]
    fn a_lock_has_one_id_and_another_lock_or_the_same_address_elsewhere_has_another() {
        let events = WaitEvents::new(&KindSet::new(Kind::LockDelay));
        let id = |pid, address| {
            events.of(charged(pid, Some(address), 1.0)).into_iter().find_map(|event| event.lock?.id)
        };
        assert_eq!(id(7, 0x1000), id(7, 0x1000));
        assert!(id(7, 0x1000) != id(7, 0x1004) && id(7, 0x1000) != id(8, 0x1000));
        let another_run = WaitEvents::new(&KindSet::new(Kind::LockDelay));
        let other =
            another_run.of(charged(7, Some(0x1000), 1.0)).into_iter().find_map(|event| event.lock?.id);
        assert!(id(7, 0x1000) != other, "without the key of the run, an ID says nothing");
    }

    #[test]
    fn fractions_of_a_wait_add_up() {
        let sum: u64 = (0..100).map(|random| rounded_at_random(3.3, f64::from(random) / 100.0)).sum();
        assert!((329..=331).contains(&sum), "{sum}");
        assert_eq!(rounded_at_random(1.0, 0.999), 1);
    }
}
