//! Merges the events of several CPUs in order of time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::ProcessEvent;

/// Holds back the events of several rings until no earlier one can arrive.
///
/// Each CPU's ring is in order, but the rings are not in order with each other: a fork on one CPU may be read after the
/// child's first mapping on another. The caller reads all rings and then releases all events up to a watermark, a time
/// before it started to read.
///
/// The queue is bounded: if it contains `capacity` events, the earliest are released without waiting, and counted.
#[derive(Debug)]
pub struct EventQueue {
    events: BinaryHeap<Reverse<QueuedEvent>>,
    capacity: usize,
    arrived: u64,
    released_early: u64,
}

/// An event and its arrival index, which orders events with equal times.
#[derive(Debug)]
struct QueuedEvent {
    event: ProcessEvent,
    arrival: u64,
}

impl QueuedEvent {
    fn key(&self) -> (u64, u64) {
        (self.event.time_ns, self.arrival)
    }
}

impl PartialEq for QueuedEvent {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for QueuedEvent {}

impl PartialOrd for QueuedEvent {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for QueuedEvent {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl EventQueue {
    /// A queue that holds back at most `capacity` events.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { events: BinaryHeap::new(), capacity, arrived: 0, released_early: 0 }
    }

    /// Adds an event.
    pub fn push(&mut self, event: ProcessEvent) {
        self.events.push(Reverse(QueuedEvent { event, arrival: self.arrived }));
        self.arrived += 1;
    }

    /// Releases the earliest event if it is no later than `watermark_ns`, or if the queue exceeds its capacity. Call it
    /// until it returns `None`.
    pub fn pop(&mut self, watermark_ns: u64) -> Option<ProcessEvent> {
        let is_due = self.events.peek()?.0.event.time_ns <= watermark_ns;
        if !is_due && self.events.len() <= self.capacity {
            return None;
        }
        self.released_early += u64::from(!is_due);
        self.events.pop().map(|Reverse(waiting)| waiting.event)
    }

    /// The number of waiting events.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Whether no event is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The number of events that were released early because the queue was full.
    #[must_use]
    pub const fn released_early(&self) -> u64 {
        self.released_early
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::ProcessEventKind;
    use crate::id::Pid;

    fn event(time_ns: u64, number: u32) -> ProcessEvent {
        ProcessEvent { time_ns, pid: Pid(number), kind: ProcessEventKind::Lost { count: 0 } }
    }

    fn drain(queue: &mut EventQueue, watermark_ns: u64) -> Vec<(u64, u32)> {
        std::iter::from_fn(|| queue.pop(watermark_ns)).map(|event| (event.time_ns, event.pid.0)).collect()
    }

    #[test]
    fn events_wait_for_the_watermark_and_leave_in_order() {
        let mut queue = EventQueue::new(10);
        for (number, time_ns) in [30, 10, 20, 10].into_iter().enumerate() {
            queue.push(event(time_ns, number as u32));
        }
        assert_eq!(drain(&mut queue, 20), [(10, 1), (10, 3), (20, 2)]);
        assert_eq!((queue.len(), queue.released_early()), (1, 0));
        assert_eq!(drain(&mut queue, 30), [(30, 0)]);
    }

    #[test]
    fn a_full_queue_lets_the_earliest_go_and_counts_them() {
        let mut queue = EventQueue::new(2);
        for time_ns in [50, 40, 30, 20] {
            queue.push(event(time_ns, 0));
        }
        assert_eq!(drain(&mut queue, 0), [(20, 0), (30, 0)]);
        assert_eq!((queue.len(), queue.released_early()), (2, 2));
    }

    proptest! {
        #[test]
        fn several_rings_come_out_as_one(mut rings in prop::collection::vec(prop::collection::vec(0_u64..100, 0..40), 1..5)) {
            let mut queue = EventQueue::new(usize::MAX);
            let mut expected: Vec<u64> = rings.concat();
            expected.sort_unstable();
            for ring in &mut rings {
                ring.sort_unstable();
                ring.iter().for_each(|&time_ns| queue.push(event(time_ns, 0)));
            }
            let mut left = Vec::new();
            for watermark_ns in [10, 50, 99] {
                let batch = drain(&mut queue, watermark_ns);
                prop_assert!(batch.iter().all(|&(time_ns, _)| time_ns <= watermark_ns));
                left.extend(batch.into_iter().map(|(time_ns, _)| time_ns));
            }
            prop_assert_eq!(left, expected);
            prop_assert!(queue.is_empty());
        }
    }
}
