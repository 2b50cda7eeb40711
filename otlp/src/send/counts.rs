//! Counts events by state: each event ends in exactly one.

use std::fmt;
use std::ops::AddAssign;

use crate::report::Tally;

macro_rules! states {
    ($($(#[$meta:meta])* $variant:ident $field:ident = $text:literal,)*) => {
        /// The state of an event: where it is, or how it ended. The list is closed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum State { $($(#[$meta])* $variant,)* }

        impl State {
            /// All states.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name, as a metric label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        /// The number of events and samples in each [`State`]. Their sum is what was enqueued, plus what a queue on disk
        /// contained at the start.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counts { $($(#[$meta])* pub $field: Tally,)* }

        impl Counts {
            /// The events and samples in `state`.
            #[must_use]
            pub const fn get(&self, state: State) -> Tally {
                match state { $(State::$variant => self.$field,)* }
            }

            /// Sets the count of `state` to zero, for tests that check sums.
            pub fn forget(&mut self, state: State) {
                *self.of(state) = Tally::default();
            }

            pub(crate) fn of(&mut self, state: State) -> &mut Tally {
                match state { $(State::$variant => &mut self.$field,)* }
            }
        }
    };
}

states! {
    /// Waiting to be sent, or being sent; also those that a queue on disk keeps for the next start.
    Queued queued = "queued",
    /// Accepted by the receiver.
    Delivered delivered = "delivered",
    /// Rejected by the receiver; not retryable.
    Rejected rejected = "rejected",
    /// In a request with profiles that the receiver rejected: at least one event was rejected and at least one was
    /// accepted.
    PartiallyRejected partially_rejected = "partially_rejected",
    /// Refused by the receiver because it uses another version of the signal.
    Incompatible incompatible = "incompatible",
    /// Sent without a valid response: the receiver may have it.
    Unknown unknown = "unknown",
    /// Not enqueued, because the queue was full.
    DroppedQueueFull dropped_queue_full = "dropped_queue_full",
    /// Larger than the maximum request, on its own.
    DroppedTooLarge dropped_too_large = "dropped_too_large",
    /// Given up after retries: the receiver could not be reached, or kept requesting retries.
    DroppedRetriesExhausted dropped_retries_exhausted = "dropped_retries_exhausted",
    /// Still queued when the exporter ended, or enqueued after that.
    DroppedShutdown dropped_shutdown = "dropped_shutdown",
    /// Could not be written to the file or to the queue on disk.
    DroppedWriteFailed dropped_write_failed = "dropped_write_failed",
    /// In a part of a queue on disk that was damaged later.
    DroppedStorageDamaged dropped_storage_damaged = "dropped_storage_damaged",
}

impl Counts {
    /// All events and samples that were ever enqueued.
    #[must_use]
    pub fn total(&self) -> Tally {
        State::ALL.iter().fold(Tally::default(), |sum, &state| sum + self.get(state))
    }

    /// The events and samples in all `dropped_*` states.
    #[must_use]
    pub fn dropped(&self) -> Tally {
        self.dropped_queue_full
            + self.dropped_too_large
            + self.dropped_retries_exhausted
            + self.dropped_shutdown
            + self.dropped_write_failed
            + self.dropped_storage_damaged
    }
}

/// The states with events: `134 delivered, 2 dropped_shutdown`.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let states = State::ALL.iter().map(|&state| (self.get(state).events, state.as_str()));
        let mut separator = "";
        for (events, state) in states.filter(|(events, _)| *events > 0) {
            write!(f, "{separator}{events} {state}")?;
            separator = ", ";
        }
        if separator.is_empty() { f.write_str("no events") } else { Ok(()) }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, more: Self) {
        for &state in State::ALL {
            *self.of(state) += more.get(state);
        }
    }
}
