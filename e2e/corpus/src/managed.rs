//! Whether the frames of Java or JavaScript in a program's stacks are complete, and their functions known.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;
use std::time::Duration;

use sidewinder_e2e_support::received::Received;
use sidewinder_otlp::FrameType;
use sidewinder_otlp::decode::{DecodedEvent, DecodedFrame};

use super::outcome::is_user_stack;

/// While a program starts, and the unwind tables of its virtual machine are built.
const START: Duration = Duration::from_secs(10);
/// Frames whose text starts with these stand for what is not known.
const MARKERS: [&str; 5] = [
    "[unknown Java",
    "[unknown WebAssembly",
    "[JavaScript frames missing",
    "[JavaScript not detected yet",
    "[anonymous]",
];

/// Of samples behind a program's start, in threads that run code of the language.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ManagedFrames {
    /// All that have a user stack.
    pub samples: u64,
    /// Those whose stack reaches the thread's root.
    pub complete: u64,
    /// Their frames of the language.
    pub frames: u64,
    /// Samples with frames that say what is not known, by their text.
    pub marked: BTreeMap<String, u64>,
    /// Samples with any of them.
    pub marked_samples: u64,
}

impl ManagedFrames {
    /// Judges the samples of a program whose virtual machine has frames of a type.
    pub(crate) fn of(frame_type: FrameType, received: &Received) -> Self {
        let events: Vec<DecodedEvent<'_>> = received.events().collect();
        let first_ns = events.iter().map(|event| event.time_unix_ns).min().unwrap_or_default();
        let start_ns = first_ns + START.as_nanos() as u64;
        let is_of_language = |frame: &DecodedFrame| frame.frame_type() == Some(frame_type);
        let frames = |event: &DecodedEvent<'_>| {
            event.sample.stack.iter().filter(|frame| is_of_language(frame)).count()
        };
        let warm = events
            .iter()
            .filter(|event| event.time_unix_ns >= start_ns && is_user_stack(event.sample.outcome()));
        let warm: Vec<_> = warm.collect();
        let threads: HashSet<_> =
            warm.iter().filter(|event| frames(event) > 0).map(|event| event.sample.thread_id()).collect();
        let mut found = Self::default();
        for event in warm.into_iter().filter(|event| threads.contains(&event.sample.thread_id())) {
            found.samples += 1;
            found.complete += u64::from(event.sample.outcome().is_none());
            found.frames += frames(event) as u64;
            let names = event.sample.stack.iter().filter_map(|frame| frame.function());
            let markers: BTreeSet<&str> = names.filter_map(marker).collect();
            found.marked_samples += u64::from(!markers.is_empty());
            for marker in markers {
                *found.marked.entry(marker.to_owned()).or_default() += 1;
            }
        }
        found
    }

    /// The share of samples whose stack reaches the thread's root.
    #[must_use]
    pub fn complete_share(&self) -> f64 {
        if self.samples == 0 { 1.0 } else { self.complete as f64 / self.samples as f64 }
    }

    /// The share of samples in which all functions are known and none is missing.
    #[must_use]
    pub fn known_share(&self) -> f64 {
        if self.samples == 0 { 1.0 } else { 1.0 - self.marked_samples as f64 / self.samples as f64 }
    }
}

/// The text of a frame that says what is not known, without its address.
fn marker(name: &str) -> Option<&str> {
    let is_marker = MARKERS.iter().any(|marker| name.starts_with(marker));
    is_marker.then(|| name.split('+').next().unwrap_or(name))
}

impl fmt::Display for ManagedFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { samples, frames, marked, .. } = self;
        write!(
            f,
            "{samples} samples in threads with {frames} frames of the language, {:.3}% complete, all known in {:.3}%",
            100.0 * self.complete_share(),
            100.0 * self.known_share(),
        )?;
        marked.iter().try_for_each(|(marker, count)| write!(f, "; {count} x {marker}"))
    }
}
