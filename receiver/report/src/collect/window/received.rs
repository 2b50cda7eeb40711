//! Profiles that another profiler has taken, in a window.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::SystemTime;

use sidewinder_profile::DictionaryCopier;
use sidewinder_render::{Profile, ProfileSample, StateIndex, StatedAttributes, ThreadIndex};

use super::{SLICE_NS, SlidingWindow, monotonic_ns};

/// The most states of threads that are told apart, and the longest in bytes, since they are never dropped. There are six.
const STATES_MAX: usize = 64;
const STATE_BYTES_MAX: usize = 256;

impl SlidingWindow {
    /// Adds a profile of the window's measure. Samples from before the window are counted at its start.
    pub fn add_profile(&mut self, received: &Profile) {
        let profile = &mut self.builder.profile;
        profile.shape = received.shape;
        let threads = merge(&mut profile.threads, &received.threads, |_, _| true);
        let states = merge(&mut profile.states, &received.states, |table, added| {
            table.len() < STATES_MAX && added.state.len() + added.cause.len() <= STATE_BYTES_MAX
        });
        let mut copier = DictionaryCopier::new(&received.dictionary);
        let index_in = |indices: &[Option<u32>], index: u32| indices.get(index as usize).copied().flatten();
        for sample in &received.samples {
            let Some(thread) = index_in(&threads, sample.thread.0) else { continue };
            let dictionary = &mut self.builder.profile.dictionary;
            let (span, stack) =
                (copier.link(dictionary, sample.span), copier.stack(dictionary, sample.stack));
            let row = ProfileSample {
                slice: self.slice_of(received.start + received.slice * sample.slice),
                thread: ThreadIndex(thread),
                span,
                state: sample.state.and_then(|state| index_in(&states, state.0)).map(StateIndex),
                stated: StatedAttributes::default(),
                stack,
                count: 0,
            };
            let count = self.unmerged.entry(row).or_default();
            *count = count.saturating_add(sample.count);
        }
        self.flush();
    }

    /// The slice of a time; at the latest the current one, since clocks of machines differ.
    fn slice_of(&self, time: SystemTime) -> u32 {
        let since_start = time.duration_since(self.builder.profile.start).unwrap_or_default();
        let slice = u32::try_from(since_start.as_nanos() / u128::from(SLICE_NS)).unwrap_or(u32::MAX);
        slice.min(self.slice_at(monotonic_ns()))
    }
}

/// Adds entries that a table does not have and that `is_taken`, and returns the index of each.
fn merge<T: Clone + Eq + Hash>(
    table: &mut Vec<T>,
    entries: &[T],
    is_taken: impl Fn(&[T], &T) -> bool,
) -> Vec<Option<u32>> {
    let mut indices: HashMap<T, u32> = table.iter().cloned().zip(0..).collect();
    let mut index_of = |entry: &T| {
        if let Some(index) = indices.get(entry) {
            return Some(*index);
        }
        let index = u32::try_from(table.len()).ok().filter(|_| is_taken(table, entry))?;
        table.push(entry.clone());
        indices.insert(entry.clone(), index);
        Some(index)
    };
    entries.iter().map(&mut index_of).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sidewinder_kind::Kind;
    use sidewinder_profile::{LinkIndex, Location, SourceLine};
    use sidewinder_render::{PageViews, ProfileThread, SampleType, ThreadState, decode_document};

    use super::*;
    use crate::collect::WindowLimits;

    fn limits(max_bytes: usize) -> WindowLimits {
        WindowLimits { max_age: Duration::from_secs(600), max_bytes }
    }

    fn measure() -> SampleType {
        SampleType::from_kind(Kind::Cpu { samples_per_second: 20 })
    }

    /// A profile with a sample of each function, one slice after the other.
    fn profile(functions: impl Iterator<Item = String>) -> Profile {
        profile_of("/bin/app", functions)
    }

    /// The same of a file.
    fn profile_of(path: &str, functions: impl Iterator<Item = String>) -> Profile {
        let mut profile = Profile::new("received".to_owned(), measure());
        (profile.start, profile.slice) = (SystemTime::now(), Duration::from_millis(1));
        profile.threads = vec![ProfileThread {
            process: "app".into(),
            pid: 7,
            name: "worker".into(),
            tid: 8,
            container: "0123".into(),
        }];
        profile.states = vec![ThreadState { state: "running".into(), cause: "".into() }];
        for (name, number) in functions.zip(0..) {
            let dictionary = &mut profile.dictionary;
            let lines = [dictionary.add_line(&SourceLine { function: &name, ..SourceLine::default() })];
            let (mapping, address) = (dictionary.add_file(path), 0x1000 + u64::from(number));
            let location = Location { mapping, address, lines: &lines, ..Location::default() };
            let location = dictionary.add_location(&location);
            profile.samples.push(ProfileSample {
                slice: number,
                thread: ThreadIndex(0),
                span: LinkIndex::default(),
                state: Some(StateIndex(0)),
                stated: StatedAttributes::default(),
                stack: dictionary.add_stack(&[location]),
                count: 2,
            });
        }
        profile
    }

    fn total(window: &mut SlidingWindow) -> u64 {
        let update = decode_document(&window.update_since("0", Vec::new(), PageViews::default())).unwrap();
        update["samples"]["count"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).sum()
    }

    #[test]
    fn equal_entries_of_several_messages_are_there_once() {
        let mut window = SlidingWindow::for_received("t".to_owned(), measure(), limits(1 << 20));
        for _ in 0..3 {
            window.add_profile(&profile(["main", "work"].map(str::to_owned).into_iter()));
        }
        assert_eq!(total(&mut window), 12);
        let shown = window.profile(0..u32::MAX, Vec::new());
        let dictionary = &shown.dictionary;
        let lengths = (dictionary.mappings().len(), dictionary.location_count(), dictionary.stack_count());
        assert_eq!(lengths, (1 + 1, 1 + 2, 1 + 2), "the first of each is none");
        assert_eq!((shown.threads.len(), shown.states.len()), (1, 1));
        assert_eq!((&*shown.threads[0].container.id, shown.measure.rate_hz()), ("0123", 20));
    }

    #[test]
    fn what_never_repeats_is_held_within_the_limit() {
        let mut window = SlidingWindow::for_received("t".to_owned(), measure(), limits(1 << 18));
        for message in 0..6 {
            let functions = (0..200).map(|function| format!("function_{message}_{function}"));
            let mut profile = profile_of(&format!("/{message}{}", "x".repeat(40_000)), functions);
            let state =
                |number| ThreadState { state: format!("{message} {number}").into(), cause: "".into() };
            profile.states = (0..20).map(state).collect();
            window.add_profile(&profile);
        }
        assert!(window.tables_bytes() <= 1 << 17, "{}", window.tables_bytes());
        assert!(window.evicted_events > 0 && total(&mut window) > 0);
        assert_eq!(window.builder.profile.states.len(), STATES_MAX);
    }

    #[test]
    fn a_state_that_is_too_long_is_left_out() {
        let mut window = SlidingWindow::for_received("t".to_owned(), measure(), limits(1 << 20));
        let mut long = profile(std::iter::once("main".to_owned()));
        long.states[0].state = "x".repeat(STATE_BYTES_MAX + 1).into();
        window.add_profile(&long);
        assert!(window.builder.profile.states.is_empty());
        assert_eq!(total(&mut window), 2);
    }

    #[test]
    fn samples_of_the_past_and_of_the_future_are_in_the_window() {
        let mut window = SlidingWindow::for_received("t".to_owned(), measure(), limits(1 << 20));
        for start in [SystemTime::UNIX_EPOCH, SystemTime::now() + Duration::from_secs(1 << 40)] {
            window.add_profile(&Profile { start, ..profile(std::iter::once("main".to_owned())) });
        }
        assert_eq!(window.profile(0..u32::MAX, Vec::new()).total_count(), 4);
    }
}
