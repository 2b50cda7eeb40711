//! What became of events: each one ends in exactly one state.

use std::fmt;
use std::ops::AddAssign;

use crate::report::Tally;

macro_rules! states {
    ($($(#[$meta:meta])* $variant:ident $field:ident = $text:literal,)*) => {
        /// Where an event is, or how it ended. The list is closed.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum State { $($(#[$meta])* $variant,)* }

        impl State {
            /// All states.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name, as the label of a metric.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }
        }

        /// How many events and samples are in each [`State`]. Their sum is what was handed over, and what
        /// a queue on disk had from before.
        #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
        pub struct Counts { $($(#[$meta])* pub $field: Tally,)* }

        impl Counts {
            /// Those in `state`.
            #[must_use]
            pub const fn get(&self, state: State) -> Tally {
                match state { $(State::$variant => self.$field,)* }
            }

            /// Counts none in `state` any more: for tests of who adds up.
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
    /// Waiting to be sent, or being sent; also what a queue on disk keeps for the next start.
    Queued queued = "queued",
    /// Accepted by the receiver.
    Delivered delivered = "delivered",
    /// Refused by the receiver, for good.
    Rejected rejected = "rejected",
    /// In a request of which the receiver refused some profiles: at least one event was refused and
    /// at least one was accepted.
    PartiallyRejected partially_rejected = "partially_rejected",
    /// Refused by the receiver because it speaks another version of the signal.
    Incompatible incompatible = "incompatible",
    /// Sent, but never answered in a way that could be understood: the receiver may have it.
    Unknown unknown = "unknown",
    /// Not taken into the queue, which was full.
    DroppedQueueFull dropped_queue_full = "dropped_queue_full",
    /// Larger than a request may be, on its own.
    DroppedTooLarge dropped_too_large = "dropped_too_large",
    /// Given up after the receiver, each time, could not be reached or asked for another attempt.
    DroppedRetriesExhausted dropped_retries_exhausted = "dropped_retries_exhausted",
    /// Still queued when the exporter had to end, or handed over after that.
    DroppedShutdown dropped_shutdown = "dropped_shutdown",
    /// Could not be written to the file, or to the disk of the queue.
    DroppedWriteFailed dropped_write_failed = "dropped_write_failed",
    /// Was in a queue on disk that has been damaged since.
    DroppedStorageDamaged dropped_storage_damaged = "dropped_storage_damaged",
}

impl Counts {
    /// All events and samples that were ever handed over.
    #[must_use]
    pub fn total(&self) -> Tally {
        State::ALL.iter().fold(Tally::default(), |sum, &state| sum + self.get(state))
    }

    /// Those that ended in any `dropped_*` state.
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

/// The states in which there are events: `134 delivered, 2 dropped_shutdown`.
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
