//! A fixed number of slots for peers. Whoever comes last gets one: if none is free, the peer that has kept us waiting longest
//! gives way. So peers that only hold connections open can't shut others out.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use sidewinder_base::lock::lock;

/// Since when we wait for a peer: for its next request, or for the rest of one. `None` while the peer waits for us.
#[derive(Debug)]
pub struct PeerClock(Mutex<Option<Instant>>);

/// A request of a peer, until it is answered or given up: then we wait for the peer again.
#[derive(Debug)]
pub(crate) struct PeerRequest(Arc<PeerClock>);

impl PeerClock {
    pub(crate) fn start() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Some(Instant::now()))))
    }

    /// The peer has sent something that a request needs.
    pub(crate) fn restart(&self) {
        *lock(&self.0) = Some(Instant::now());
    }

    /// The peer has begun a request.
    pub(crate) fn begin_request(self: &Arc<Self>) -> PeerRequest {
        self.restart();
        PeerRequest(Arc::clone(self))
    }

    /// Returns once we have waited for the peer for this long without a break.
    pub(crate) async fn waited(&self, timeout: Duration) {
        loop {
            let deadline = self.waiting_since().unwrap_or_else(Instant::now) + timeout;
            if deadline <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(deadline).await;
        }
    }

    fn waiting_since(&self) -> Option<Instant> {
        *lock(&self.0)
    }
}

impl PeerRequest {
    /// A part of the request has arrived.
    pub(crate) fn note_progress(&self) {
        self.0.restart();
    }

    /// All of the request has arrived: the peer waits for us.
    pub(crate) fn complete(&self) {
        *lock(&self.0.0) = None;
    }
}

impl Drop for PeerRequest {
    fn drop(&mut self) {
        self.0.restart();
    }
}

/// The slots, and who holds them.
#[derive(Debug)]
pub(crate) struct Slots {
    max: usize,
    holders: Mutex<Vec<Arc<Holder>>>,
    freed: Notify,
}

#[derive(Debug)]
struct Holder {
    clock: Arc<PeerClock>,
    revoked: Notify,
}

/// A slot, held until it is dropped or revoked.
#[derive(Debug)]
pub(crate) struct Slot {
    slots: Arc<Slots>,
    holder: Arc<Holder>,
}

impl Slots {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, holders: Mutex::default(), freed: Notify::new() })
    }

    /// Takes a free slot, or the slot of the peer that we have waited for longest. Waits only while all peers wait for us.
    pub(crate) async fn take(self: &Arc<Self>, clock: Arc<PeerClock>) -> Slot {
        let holder = Arc::new(Holder { clock, revoked: Notify::new() });
        while !self.insert(&holder) {
            self.freed.notified().await;
        }
        Slot { slots: Arc::clone(self), holder }
    }

    /// Returns false if no slot is free, and no holder can give way.
    fn insert(&self, holder: &Arc<Holder>) -> bool {
        let mut holders = lock(&self.holders);
        if holders.len() >= self.max {
            let waiting = holders.iter().enumerate();
            let waiting = waiting.filter_map(|(at, holder)| Some((holder.clock.waiting_since()?, at)));
            let Some((_, oldest)) = waiting.min() else { return false };
            holders.swap_remove(oldest).revoked.notify_one();
        }
        holders.push(Arc::clone(holder));
        true
    }
}

impl Slot {
    /// Returns once the slot has been given to another peer: its holder must end.
    pub(crate) async fn revoked(&self) {
        self.holder.revoked.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        lock(&self.slots.holders).retain(|holder| !Arc::ptr_eq(holder, &self.holder));
        self.slots.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn is_revoked(slot: &Slot) -> bool {
        tokio::time::timeout(Duration::ZERO, slot.revoked()).await.is_ok()
    }

    async fn clocks<const N: usize>() -> [Arc<PeerClock>; N] {
        let mut clocks = Vec::new();
        for _ in 0..N {
            clocks.push(PeerClock::start());
            tokio::time::advance(SECOND).await;
        }
        clocks.try_into().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn the_peer_that_was_waited_for_longest_gives_way() {
        let slots = Slots::new(2);
        let [first, second, third, fourth] = clocks().await;
        let first_slot = slots.take(Arc::clone(&first)).await;
        let second_slot = slots.take(second).await;
        first.restart();
        let third_slot = slots.take(third).await;
        assert!(is_revoked(&second_slot).await && !is_revoked(&first_slot).await);
        drop(second_slot);
        drop(third_slot);
        let _free = slots.take(fourth).await;
        assert!(!is_revoked(&first_slot).await, "a slot was free");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_waits_for_us_keeps_its_slot() {
        let slots = Slots::new(2);
        let [first, second, third, fourth] = clocks().await;
        let (first_slot, second_slot) =
            (slots.take(Arc::clone(&first)).await, slots.take(Arc::clone(&second)).await);
        let first_request = first.begin_request();
        first_request.complete();
        let _third_slot = slots.take(Arc::clone(&third)).await;
        assert!(is_revoked(&second_slot).await && !is_revoked(&first_slot).await);
        let third_request = third.begin_request();
        third_request.complete();
        let taken = slots.take(fourth);
        tokio::pin!(taken);
        assert!(tokio::time::timeout(SECOND, &mut taken).await.is_err(), "nobody gives way");
        drop((first_request, first_slot));
        assert!(tokio::time::timeout(SECOND, taken).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_that_a_peer_waits_for_us_does_not_count() {
        let clock = PeerClock::start();
        let request = clock.begin_request();
        request.complete();
        let start = Instant::now();
        let waiting = clock.waited(2 * SECOND);
        tokio::pin!(waiting);
        assert!(tokio::time::timeout(9 * SECOND, &mut waiting).await.is_err());
        drop(request);
        waiting.await;
        assert!(start.elapsed() >= 11 * SECOND, "{:?}", start.elapsed());
    }
}
