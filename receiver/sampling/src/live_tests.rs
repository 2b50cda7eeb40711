//! Tests that sample real programs with the real eBPF programs.

mod contexts;
mod counters;
mod descendants;
mod interpreters;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use object::{Object, ObjectSymbol};
use sidewinder_address::{FileOffset, Svma};
use sidewinder_base::memory::SamplingBudget;
use sidewinder_bpf::{AttachedProbe, Opener, Outcome, SampleKind, Storage, WalkMode};
use sidewinder_kind::{Kind, KindSet};
use sidewinder_message::Message;
use sidewinder_naming::{Namer, NamingOptions, NamingStage, Update};
use sidewinder_profile::{Frame, Marker};
use sidewinder_render::Profile;
use sidewinder_report::collect::{ProfileCollector, RecordingMetadata};

use super::{Sampler, SamplingError, SamplingOptions, SamplingScope};

/// A chain of calls without frame pointers that burns CPU at its end, and calls `probed` all the time.
const PROGRAM: &str = r#"
volatile unsigned long sink;
#define LINK(name, callee) __attribute__((noinline)) unsigned long name(unsigned long x) { \
    unsigned long y = callee(x + 1); sink = y; return y + 3; }
__attribute__((noinline)) unsigned long probed(unsigned long x) { sink = x; return x * 7; }
__attribute__((noinline)) unsigned long burn(unsigned long x) {
    for (int i = 0; i < 200; i++) x = x * 6364136223846793005ul + 1;
    x = probed(x); sink = x; return x + 1; }
LINK(fifth, burn) LINK(fourth, fifth) LINK(third, fourth) LINK(second, third) LINK(first, second)
int main(void) { for (;;) sink = first(sink); }
"#;
/// Root first.
const CHAIN: [&str; 8] = ["main", "first", "second", "third", "fourth", "fifth", "burn", "probed"];

/// A recursion deeper than any limit, whose innermost call burns nearly all of the time.
const RECURSION: &str = r#"
volatile unsigned long sink;
__attribute__((noinline)) unsigned long burn(unsigned long x) {
    for (int i = 0; i < 20000000; i++) { x = x * 6364136223846793005ul + 1; sink = x; } return x; }
__attribute__((noinline)) unsigned long recurse(int left, unsigned long x) {
    unsigned long y = left ? recurse(left - 1, x + 1) : burn(x); sink = y; return y + left; }
int main(void) { for (;;) sink = recurse(20000, sink); }
"#;

/// Allows one sampler at a time, since each of them samples every CPU.
static TURN: Mutex<()> = Mutex::new(());

/// The number of occurrences of each outcome.
fn histogram(outcomes: &[Outcome]) -> BTreeMap<Outcome, usize> {
    let mut counts = BTreeMap::new();
    outcomes.iter().for_each(|outcome| *counts.entry(*outcome).or_default() += 1);
    counts
}

struct Burner {
    child: Child,
    program: PathBuf,
    _directory: tempfile::TempDir,
}

impl Burner {
    fn start() -> Self {
        Self::start_with(PROGRAM)
    }

    fn start_with(source: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("burner");
        let arguments = ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-x", "c", "-", "-o"];
        let mut compiler =
            Command::new("cc").args(arguments).arg(&program).stdin(Stdio::piped()).spawn().unwrap();
        compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
        assert!(compiler.wait().unwrap().success());
        let child = Command::new(&program).spawn().unwrap();
        // Wait until it runs its own code.
        std::thread::sleep(Duration::from_millis(200));
        Self { child, program, _directory: directory }
    }
}

impl Drop for Burner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The kind of the samples that test programs take.
const PROBES: Kind = Kind::Aggregated { samples_per_second: 0 };

fn options(pid: u32, samples_per_second: u32, tables_bytes: u64) -> SamplingOptions {
    let scope = SamplingScope::from_pids([pid]);
    let kinds = KindSet::new(Kind::Cpu { samples_per_second }).with(PROBES);
    SamplingOptions {
        off_cpu_threshold: 1.0,
        test_programs: true,
        budget: SamplingBudget::with_tables_bytes(tables_bytes),
        ..SamplingOptions::interactive(scope, kinds, tables_bytes, &std::sync::Arc::default())
    }
}

/// A sampler, or `None` with a printed reason if this machine can't run one.
fn sampler(storage: &mut Storage, options: SamplingOptions) -> Option<Sampler<'_>> {
    match Sampler::new(storage, options, Opener::start().unwrap()) {
        Ok(sampler) => Some(sampler),
        Err(SamplingError::Load(error))
            if error.is_permission_denied() && std::env::var_os("CI").is_none() =>
        {
            eprintln!("SKIPPED: eBPF is not allowed here: {error}");
            None
        }
        Err(error) => panic!("no sampler: {error}"),
    }
}

fn poll_for(sampler: &mut Sampler<'_>, time: Duration) -> Vec<Message> {
    let end = Instant::now() + time;
    while Instant::now() < end {
        sampler.poll(Duration::from_millis(50));
    }
    sampler.take_messages()
}

/// Polls until there are this many events, or half a minute has passed.
fn poll_until(sampler: &mut Sampler<'_>, events: u64) -> Vec<Message> {
    let mut messages = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(30);
    while sampler.tally().events < events && Instant::now() < deadline {
        messages.append(&mut poll_for(sampler, Duration::from_millis(200)));
    }
    messages
}

/// Forgets the files that no process has mapped for this long.
fn forget_files(sampler: &mut Sampler<'_>, age: Duration) -> Vec<Message> {
    sampler.control.forget_files(age, &mut sampler.profiler);
    sampler.control.take_announcements()
}

/// Stops sampling. Returns the messages since the last poll.
fn stop(sampler: &mut Sampler<'_>) -> Vec<Message> {
    sampler.stop(None);
    sampler.take_messages()
}

fn profile(messages: Vec<Message>, sampler: &Sampler<'_>) -> Profile {
    profile_of(SampleKind::Cpu, messages, sampler)
}

fn profile_of(kind: SampleKind, messages: Vec<Message>, sampler: &Sampler<'_>) -> Profile {
    let kind = kind.profile_kind(&sampler.data.kinds).unwrap();
    let options = NamingOptions { native: true, budget_bytes: 8 << 20, ..NamingOptions::default() };
    let mut stage = NamingStage::new(Namer::new(options)).keeping_all();
    let mut collection = ProfileCollector::new(&KindSet::new(kind));
    for message in messages {
        if let Some(Update::Event(event)) = stage.read(message) {
            collection.add_event(event, &mut stage.namer);
        }
    }
    let recording = RecordingMetadata {
        title: "test".to_owned(),
        start: SystemTime::now(),
        start_ns: 0,
        duration: Duration::ZERO,
        outcomes: &|_| Vec::new(),
    };
    collection.into_profiles(&mut stage, &recording).into_iter().next().unwrap()
}

/// For each stack: the names of the chain's functions, root first, its count, and whether it is marked as truncated.
fn chains(profile: &Profile) -> Vec<(Vec<&'static str>, u64, bool)> {
    let chain = |(stack, count)| {
        let frames = || profile.frames_of(stack);
        let known = |frame: Frame<'_>| CHAIN.into_iter().find(|name| frame.name() == *name);
        let chain = frames().rev().filter_map(known).collect();
        let is_cut = frames().any(|frame| matches!(frame.location.marker, Some(Marker::Truncated(_))));
        (chain, count, is_cut)
    };
    profile.stack_counts().map(chain).collect()
}

fn offset_of(program: &Path, symbol: &str) -> FileOffset {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    offset_of_symbol(&file, file.symbols().find(|s| s.name() == Ok(symbol)).unwrap().address())
}

/// The same of a function that a stripped file exports.
fn offset_of_exported(program: &Path, symbol: &str) -> FileOffset {
    let bytes = std::fs::read(program).unwrap();
    let file = object::File::parse(&*bytes).unwrap();
    let found = file.dynamic_symbols().find(|s| s.is_definition() && s.name() == Ok(symbol)).unwrap();
    offset_of_symbol(&file, found.address())
}

fn offset_of_symbol(file: &object::File<'_>, address: u64) -> FileOffset {
    sidewinder_unwind::load_segments(file).iter().find_map(|load| load.file_offset_of(Svma(address))).unwrap()
}

/// Samples each call of `probed` in the burner; `None` with a printed reason if this machine can't.
fn probe(sampler: &Sampler<'_>, burner: &Burner) -> Option<AttachedProbe> {
    probe_at(sampler, &burner.program, offset_of(&burner.program, "probed"))
}

/// The same at an offset of a file.
fn probe_at(sampler: &Sampler<'_>, program: &Path, offset: FileOffset) -> Option<AttachedProbe> {
    match sampler.profiler().attach_probe(program, offset) {
        Ok(probe) => Some(probe),
        Err(error) if std::env::var_os("CI").is_none() => {
            eprintln!("SKIPPED: no uprobes here: {error}");
            None
        }
        Err(error) => panic!("no probe: {error}"),
    }
}

/// During a pause no interrupt is due, and the side band is still read.
#[test]
fn a_pause_ends_interrupts_and_nothing_else() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start();
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(burner.child.id(), 997, 8 << 20)) else { return };
    sampler.start().unwrap();
    poll_until(&mut sampler, 100);
    let expected = |sampler: &Sampler<'_>| sampler.tally().clock_interrupts().expected;

    sampler.profiler.set_paused(true).unwrap();
    poll_for(&mut sampler, Duration::from_millis(200));
    let (paused_events, paused_expected) = (sampler.tally().events, expected(&sampler));
    poll_for(&mut sampler, Duration::from_millis(500));
    assert_eq!((sampler.tally().events, expected(&sampler)), (paused_events, paused_expected));

    sampler.profiler.set_paused(false).unwrap();
    poll_until(&mut sampler, paused_events + 100);
    assert!(sampler.tally().events >= paused_events + 100 && expected(&sampler) > paused_expected);
}

/// A launched command begins as a process of this program, of which nothing is needed once it runs.
#[test]
fn the_table_of_this_program_is_built_once_a_walk_misses_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(std::process::id(), 997, 32 << 20)) else { return };
    let of_libraries = sampler.profiler.tables.loaded_bytes();
    sampler.start().unwrap();
    let (is_over, deadline) = (AtomicBool::new(false), Instant::now() + Duration::from_secs(30));
    let mut complete = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        while complete < 100 && Instant::now() < deadline {
            let messages = poll_for(&mut sampler, Duration::from_millis(200));
            let is_complete = |message: &&Message| matches!(message, Message::Event(event) if event.outcome == Outcome::Complete);
            complete += messages.iter().filter(is_complete).count();
        }
        is_over.store(true, Relaxed);
    });
    assert!(complete >= 100, "{:?}", sampler.tally());
    let own = sampler.profiler.tables.loaded_bytes() - of_libraries;
    assert!(of_libraries < own, "{of_libraries} bytes of tables at the start, {own} since then");
}

/// Every sample of a chain of calls has the chain in order, from the root on, without gaps or repetitions: both the samples
/// of the probe, and those of the clock interrupts that interrupt the probe's own program.
#[test]
fn programs_that_interrupt_each_other_never_mix_their_stacks() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start();
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(burner.child.id(), 9_973, 8 << 20)) else { return };
    let Some(probe) = probe(&sampler, &burner) else { return };
    sampler.start().unwrap();
    let mut messages = poll_for(&mut sampler, Duration::from_secs(3));
    drop(probe);
    messages.append(&mut stop(&mut sampler));

    let outcomes_of = |kind: SampleKind| {
        let outcomes = messages.iter().filter_map(|message| match message {
            Message::Event(event) if Some(event.kind) == kind.profile_kind(&sampler.data.kinds) => {
                Some(event.outcome)
            }
            _ => None,
        });
        outcomes.collect::<Vec<_>>()
    };
    let (probes, interrupts) = (outcomes_of(SampleKind::Probe), outcomes_of(SampleKind::Cpu));
    assert!(probes.len() > 1_000 && interrupts.len() > 1_000, "{} and {}", probes.len(), interrupts.len());
    let complete_of =
        |outcomes: &[Outcome]| histogram(outcomes).get(&Outcome::Complete).copied().unwrap_or(0);
    assert!(complete_of(&probes) * 1000 >= probes.len() * 990, "{:?}", histogram(&probes));
    // Most interrupts hit the thread on the kernel's page for probed instructions, whose caller can't be determined.
    assert!(complete_of(&interrupts) >= 500, "{:?}", histogram(&interrupts));
    let lost = sampler.profiler().probes_lost();
    assert!(lost <= probes.len() as u64, "{lost} passes lost, {} sampled", probes.len());
    let nested = sampler.profiler().nested_walks();
    assert!(nested > 100, "only {nested} walks started inside another one");

    let profiles =
        [SampleKind::Probe, SampleKind::Cpu].map(|kind| profile_of(kind, messages.clone(), &sampler));
    for (chain, count, is_cut) in profiles.iter().flat_map(chains) {
        if !is_cut {
            assert_eq!(chain, CHAIN[..chain.len()], "a stack that never existed, {count} times");
            assert!(!chain.is_empty(), "a complete stack without main");
        }
    }
}

/// While tables are evicted continuously, truncated stacks are counted, and complete stacks are correct.
#[test]
fn stacks_walked_while_tables_are_evicted_are_correct_or_truncated() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start();
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(burner.child.id(), 9_973, 8 << 20)) else { return };
    sampler.start().unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while sampler.profiler.tables.evictions() < 12 || sampler.control_counts().tables_reloads < 4 {
        assert!(Instant::now() < deadline, "tables were not evicted, or not reloaded on demand");
        let profiler = &mut sampler.profiler;
        profiler.tables.evict_oldest(&mut profiler.arena);
        sampler.poll(Duration::from_millis(5));
    }
    let messages = stop(&mut sampler);

    let tally = sampler.tally();
    let counted = |outcome| {
        tally.clock_interrupts().outcomes.iter().find(|(o, _)| *o == outcome).map_or(0, |(_, count)| *count)
    };
    assert!(counted(Outcome::NoTable) > 0, "no walk missed a table, so nothing was tested");
    assert!(counted(Outcome::Complete) > 0, "no table was ever loaded");
    for (chain, count, is_cut) in chains(&profile(messages, &sampler)) {
        if !is_cut {
            assert_eq!(chain, CHAIN[..chain.len()], "a stack that never existed, {count} times");
        }
    }
}

#[test]
fn unmapped_files_are_forgotten_with_their_tables() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start();
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(burner.child.id(), 97, 8 << 20)) else { return };
    let without_files = |sampler: &Sampler<'_>| sampler.profiler.tables.loaded_bytes() < 1_000;
    sampler.start().unwrap();
    let mut messages = poll_until(&mut sampler, 10);
    messages.append(&mut forget_files(&mut sampler, Duration::ZERO));
    assert!(!messages.iter().any(|message| matches!(message, Message::ForgetFile(_))), "all are in use");
    assert!(!without_files(&sampler));

    drop(burner);
    messages.append(&mut poll_for(&mut sampler, Duration::from_millis(300)));
    messages.append(&mut forget_files(&mut sampler, Duration::from_secs(60)));
    assert!(!without_files(&sampler), "they may be run again soon");
    messages.append(&mut forget_files(&mut sampler, Duration::ZERO));
    assert!(without_files(&sampler));
    let announced = messages.iter().filter_map(|message| match message {
        Message::File(id, _) => Some(*id),
        _ => None,
    });
    let forgotten = messages.iter().filter_map(|message| match message {
        Message::ForgetFile(id) => Some(*id),
        _ => None,
    });
    assert_eq!(announced.collect::<BTreeSet<_>>(), forgotten.collect());
    assert_eq!(sampler.profiler.tables.evictions(), 0, "no table was evicted to make room");
}

/// The sum of the outcomes matches the independently counted interrupts, and all counted events are emitted.
#[test]
fn every_interrupt_ends_in_one_outcome() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start();
    let mut storage = Storage::uninit();
    let Some(mut sampler) = sampler(&mut storage, options(burner.child.id(), 997, 8 << 20)) else { return };
    sampler.start().unwrap();
    let mut messages = poll_until(&mut sampler, 501);
    messages.append(&mut stop(&mut sampler));

    let tally = sampler.tally();
    let sum: u64 = tally.clock_interrupts().outcomes.iter().map(|(_, count)| count).sum();
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    assert!(
        sum <= tally.clock_interrupts().expected + cpus,
        "{sum} outcomes of {} interrupts",
        tally.clock_interrupts().expected
    );
    let without_event =
        [Outcome::Idle, Outcome::OutOfScope, Outcome::KernelThread, Outcome::Busy, Outcome::RingFull];
    let interrupts = tally.clock_interrupts();
    let outcomes = interrupts.outcomes.iter();
    let expected: u64 = outcomes.filter(|(o, _)| !without_event.contains(o)).map(|(_, count)| count).sum();
    let events = messages.iter().filter(|message| matches!(message, Message::Event(_))).count() as u64;
    assert_eq!((expected, events), (tally.events, tally.events));
    assert!(events > 500, "only {events} events");
    // The control experiment: a sum without one of the outcomes doesn't match.
    let without_complete: u64 =
        interrupts.outcomes.iter().filter(|(o, _)| *o != Outcome::Complete).map(|(_, count)| count).sum();
    assert!(without_complete + interrupts.missed() < interrupts.expected);
}

/// Of a stack of 20,000 frames those nearest to the leaf are kept, up to the limit of the walk mode. The outermost frame
/// says that it was truncated, and why.
#[test]
fn a_stack_deeper_than_the_limit_is_marked_as_truncated_and_keeps_its_leaf_end() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start_with(RECURSION);
    for (walk, limit) in [(WalkMode::Loop, 8192), (WalkMode::TailCalls, 1056)] {
        let mut storage = Storage::uninit();
        let options = SamplingOptions { walk: Some(walk), ..options(burner.child.id(), 199, 8 << 20) };
        let Some(mut sampler) = sampler(&mut storage, options) else { return };
        sampler.start().unwrap();
        let mut messages = poll_until(&mut sampler, 100);
        messages.append(&mut stop(&mut sampler));

        let tally = sampler.tally();
        let interrupts = tally.clock_interrupts();
        let cut = interrupts.outcomes.iter().find(|(outcome, _)| *outcome == Outcome::FrameLimit);
        let cut = cut.map_or(0, |(_, count)| *count);
        let profile = profile(messages, &sampler);
        let is_at_limit = |frame: &Frame<'_>| match frame.location.marker {
            Some(Marker::Truncated(truncation)) => *truncation.reason == *Outcome::FrameLimit.label(),
            _ => false,
        };
        let (mut at_limit, mut all) = (0, 0);
        for (stack, count) in profile.stack_counts() {
            all += count;
            let frames: Vec<_> = profile.frames_of(stack).collect();
            let Some((marker, frames)) = frames.split_last() else { continue };
            let names: Vec<_> = frames.iter().map(Frame::name).collect();
            if is_at_limit(marker) && names.len() == limit && names[0] == "burn" {
                assert!(
                    names[1..].iter().all(|name| *name == "recurse"),
                    "{walk:?}: a stack that never existed"
                );
                at_limit += count;
            }
        }
        assert!(all >= 100 && at_limit * 100 >= all * 95, "{walk:?}: {at_limit} of {all} cut at {limit}");
        assert!(cut >= at_limit, "{walk:?}: {cut} counted as cut");
    }
}

/// On kernels where programs can't loop, stacks within the limit are complete, however programs interrupt each other.
#[test]
fn stacks_are_complete_without_loops_too() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start();
    let mut storage = Storage::uninit();
    let options =
        SamplingOptions { walk: Some(WalkMode::TailCalls), ..options(burner.child.id(), 9_973, 8 << 20) };
    let Some(mut sampler) = sampler(&mut storage, options) else { return };
    sampler.start().unwrap();
    let mut messages = poll_for(&mut sampler, Duration::from_secs(1));
    let Some(probe) = probe(&sampler, &burner) else { return };
    messages.append(&mut poll_for(&mut sampler, Duration::from_secs(1)));
    drop(probe);
    messages.append(&mut stop(&mut sampler));

    assert!(sampler.profiler().nested_walks() > 20, "nothing interrupted the walk of a probe");
    let (mut all, mut complete) = (0, 0);
    let profiles =
        [SampleKind::Probe, SampleKind::Cpu].map(|kind| profile_of(kind, messages.clone(), &sampler));
    for (chain, count, is_cut) in profiles.iter().flat_map(chains) {
        all += count;
        if !is_cut {
            complete += count;
            assert_eq!(chain, CHAIN[..chain.len()], "a stack that never existed, {count} times");
        }
    }
    // The truncated ones hit the thread on the kernel's page for probed instructions.
    assert!(all > 1_000 && complete * 100 >= all * 60, "{complete} of {all} are complete");
}
