//! The time of an event is the time of its interrupt, by the clock that everybody else has.

use std::collections::HashMap;
use std::fs;

use anyhow::{Context as _, Result};
use sidewinder_e2e_support::promise::promise;
use sidewinder_e2e_support::recording::record;
use sidewinder_e2e_support::{requirement, workload};

const FUNCTIONS: [&str; 2] = ["turn_left", "turn_right"];
/// How far two clocks may be apart.
const TOLERANCE_NS: u64 = 1_000_000;
/// At 997 Hz, of a second's work and more; fewer on a busy machine.
const EVENTS_MIN: usize = 60;

/// A time in which a thread was in one function.
struct Turn {
    function: String,
    start_ns: u64,
    end_ns: u64,
}

impl Turn {
    fn parse(line: &str) -> Option<(i64, Self)> {
        let mut words = line.split(' ');
        let (thread, function) = (words.next()?.parse().ok()?, words.next()?.to_owned());
        let (start_ns, end_ns) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some((thread, Self { function, start_ns, end_ns }))
    }

    fn holds(&self, time_ns: u64) -> bool {
        (self.start_ns - TOLERANCE_NS..=self.end_ns + TOLERANCE_NS).contains(&time_ns)
    }
}

/// Each thread writes down when it was in which of two functions, by turns of some milliseconds; every event that shows
/// one of them must lie within a turn of that one, up to a millisecond.
#[promise(OtlpProfiles)]
fn an_event_is_at_the_time_at_which_its_thread_was_there() -> Result<()> {
    if !requirement::ebpf("times of events")? {
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("turns");
    let arguments = ["4".to_owned(), "2".to_owned(), log.display().to_string()];
    let received = record(&["-F", "997"], &workload::TURNS.command(&arguments)?)?.received;

    let mut turns: HashMap<i64, Vec<Turn>> = HashMap::new();
    for line in fs::read_to_string(&log)?.lines() {
        let (thread, turn) = Turn::parse(line).with_context(|| format!("{line:?} is no turn"))?;
        turns.entry(thread).or_default().push(turn);
    }
    let (mut events, mut strays) = (0, Vec::new());
    for event in received.events() {
        let names = event.sample.stack.iter().filter_map(|frame| frame.function());
        let Some(function) = names.into_iter().find(|name| FUNCTIONS.contains(name)) else { continue };
        let thread = event.sample.thread_id().context("an event without thread")?;
        let turns = turns.get(&thread).context("an event of a thread that took no turn")?;
        events += 1;
        if !turns.iter().any(|turn| turn.function == function && turn.holds(event.time_unix_ns)) {
            strays.push((thread, function.to_owned(), event.time_unix_ns));
        }
    }
    eprintln!("{events} events in {} turns", turns.values().map(Vec::len).sum::<usize>());
    assert!(events >= EVENTS_MIN, "{events}");
    assert!(strays.is_empty(), "{} of {events}: {:?}", strays.len(), strays.first());

    let samples = received.profiles.iter().flat_map(|profile| &profile.samples);
    for sample in samples {
        assert!(sample.timestamps_unix_ns.is_sorted(), "{:?}", sample.thread_id());
    }
    Ok(())
}
