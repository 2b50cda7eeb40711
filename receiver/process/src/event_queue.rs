//! Events of several CPUs, put in order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::event::ProcessEvent;

/// Holds events of several rings back until no earlier one can come.
///
/// Each CPU's ring is in order by itself, the rings together are not: a fork on one CPU may be read after
/// the child's first mapping on another. The caller reads all rings and then releases everything up to a
/// watermark: a time before that reading began.
///
/// The queue is bounded: with `capacity` events in it, the earliest leave without waiting, and are counted.
#[derive(Debug)]
pub struct EventQueue {
    waiting: BinaryHeap<Reverse<Waiting>>,
    capacity: usize,
    arrived: u64,
    released_early: u64,
}

/// An event and the order of its arrival, which decides between equal times.
#[derive(Debug)]
struct Waiting {
    event: ProcessEvent,
    arrival: u64,
}

impl Waiting {
    fn key(&self) -> (u64, u64) {
        (self.event.time_ns, self.arrival)
    }
}

impl PartialEq for Waiting {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Waiting {}

impl PartialOrd for Waiting {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Waiting {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl EventQueue {
    /// A queue that holds at most `capacity` events back.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { waiting: BinaryHeap::new(), capacity, arrived: 0, released_early: 0 }
    }

    /// Takes an event up.
    pub fn push(&mut self, event: ProcessEvent) {
        self.waiting.push(Reverse(Waiting { event, arrival: self.arrived }));
        self.arrived += 1;
    }

    /// The earliest event that may leave: one no later than `watermark_ns`, or any while there are more
    /// than the queue may hold. Call it until it returns `None`.
    pub fn pop(&mut self, watermark_ns: u64) -> Option<ProcessEvent> {
        let is_due = self.waiting.peek()?.0.event.time_ns <= watermark_ns;
        if !is_due && self.waiting.len() <= self.capacity {
            return None;
        }
        self.released_early += u64::from(!is_due);
        self.waiting.pop().map(|Reverse(waiting)| waiting.event)
    }

    /// How many events are waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether none is waiting.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many events left before their time because the queue was full.
    #[must_use]
    pub const fn released_early(&self) -> u64 {
        self.released_early
    }
}
