//! Profiles whose every number is known.

use std::time::{Duration, UNIX_EPOCH};

use sidewinder_kind::{Counter, CounterRate, Kind, SampledCounter, SampledProbe};
use sidewinder_profile::{
    Dictionary, FrameType, Line, Link, LinkIndex, Location, LocationIndex, Marker, SourceLine, StackIndex,
};
use sidewinder_render::{
    MergedRecording, OutcomeCount, Profile, ProfileSample, ProfileThread, SampleType, Severity, StateIndex,
    StatedAttributes, ThreadIndex, ThreadState,
};

/// A frame of a profile, in plain values.
#[derive(Clone, Debug)]
pub(super) struct PlainFrame<'a> {
    pub(super) name: &'a str,
    /// The path of the file that contains its code.
    pub(super) file: &'a str,
    pub(super) frame_type: FrameType,
    pub(super) address: u64,
    /// The path and line of its source.
    pub(super) source: (&'a str, u32),
    /// Whether it is inlined into the next frame of each stack.
    pub(super) is_inlined: bool,
}

/// A frame of the server, or of the kernel.
fn frame<'a>(name: &'a str, frame_type: FrameType, path: &'a str, line: u32) -> PlainFrame<'a> {
    let file = if frame_type == FrameType::Kernel { "[kernel]" } else { "/srv/server" };
    PlainFrame { name, file, frame_type, address: 0, source: (path, line), is_inlined: false }
}

/// The frames of the server.
fn server_frames() -> [PlainFrame<'static>; 7] {
    [
        frame("main", FrameType::Rust, "src/main.rs", 7),
        frame("serve", FrameType::Rust, "src/serve.rs", 20),
        frame("parse_value", FrameType::Rust, "src/parse.rs", 12),
        frame("parse_value", FrameType::Rust, "src/parse.rs", 15),
        frame("write_all", FrameType::Native, "", 0),
        frame("vfs_write", FrameType::Kernel, "", 0),
        frame("tick", FrameType::Native, "", 0),
    ]
}

/// Its stacks, leaf first.
const SERVER_STACKS: [&[usize]; 4] = [&[2, 1, 0], &[3, 1, 0], &[5, 4, 1, 0], &[6, 0]];

/// A dictionary with stacks of frames, in this order.
pub(super) fn dictionary(frames: &[PlainFrame<'_>], stacks: &[&[usize]]) -> Dictionary {
    let mut dictionary = Dictionary::default();
    for stack in stacks {
        let locations = locations(&mut dictionary, stack.iter().map(|frame| &frames[*frame]));
        dictionary.add_stack(&locations);
    }
    dictionary
}

fn locations<'a>(
    dictionary: &mut Dictionary,
    stack: impl Iterator<Item = &'a PlainFrame<'a>>,
) -> Vec<LocationIndex> {
    let (mut locations, mut lines) = (Vec::new(), Vec::<Line>::new());
    for PlainFrame { name: function, file, frame_type, address, source: (path, line), is_inlined } in stack {
        lines.push(dictionary.add_line(&SourceLine { function, path, line: *line, ..SourceLine::default() }));
        if !is_inlined {
            let location = Location {
                mapping: dictionary.add_file(file),
                address: *address,
                frame_type: *frame_type,
                lines: &std::mem::take(&mut lines),
                ..Location::default()
            };
            locations.push(dictionary.add_location(&location));
        }
    }
    locations
}

/// The index of a stack by its place in the list: the first of a dictionary is empty.
pub(super) fn stack(number: u32) -> StackIndex {
    StackIndex(number + 1)
}

fn outcome(name: &str, count: u64, severity: Severity, help: &str) -> OutcomeCount {
    OutcomeCount { name: name.to_owned(), count, severity, help: help.to_owned() }
}

/// Ten seconds of a server at 100 Hz: 500 samples of parsing in the first five, four fifths of them on one line; 400
/// of writing in the others, within a span; and 100 of ticking all the while.
pub(crate) fn server() -> Profile {
    let mut dictionary = dictionary(&server_frames(), &SERVER_STACKS);
    let writing = dictionary.add_link(Link { trace_id: [0xab; 16], span_id: [0xcd; 8] });
    let none = LinkIndex::default();
    let sample = |slice, thread, span, number| ProfileSample {
        slice,
        thread: ThreadIndex(thread),
        span,
        state: None,
        stated: StatedAttributes::default(),
        stack: stack(number),
        count: 1,
    };
    let samples = (0..100).flat_map(|slice| {
        let parsing = (0..10).map(move |number| sample(slice, 1, none, u32::from(number % 5 == 4)));
        let writing = (0..8).map(move |_| sample(slice, 2, writing, 2));
        let busy: Vec<_> = if slice < 50 { parsing.collect() } else { writing.collect() };
        busy.into_iter().chain([sample(slice, 0, none, 3)])
    });
    let container = "c0ffee".repeat(11);
    let thread = |name: &str, tid| ProfileThread {
        process: "server".into(),
        pid: 100,
        name: name.into(),
        tid,
        // All but the writer are in one.
        container: if tid == 102 { "".into() } else { container[..64].into() },
    };
    let measure = SampleType::from_kind(Kind::Cpu { samples_per_second: 100 });
    Profile {
        start: UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        duration: Duration::from_secs(10),
        slice: Duration::from_millis(100),
        dictionary,
        threads: vec![thread("main", 100), thread("worker", 101), thread("writer", 102)],
        samples: samples.collect(),
        outcomes: vec![
            outcome("complete", 1000, Severity::Complete, ""),
            outcome(
                "no table",
                7,
                Severity::Truncated,
                "the binary's unwind table did not fit: raise memory_limit_mib",
            ),
            outcome("ring full", 2, Severity::Lost, "the receiver was late: give it more CPU"),
            outcome("idle", 900, Severity::Excluded, "the CPU had nothing to do"),
        ],
        ..Profile::new(String::from("target/release/server --listen 127.0.0.1:8080"), measure)
    }
}

/// The server, as if its halves were two recordings without times.
pub(crate) fn two() -> Profile {
    let mut profile = server();
    for sample in &mut profile.samples {
        sample.slice /= 50;
    }
    let part = |name: &str, slice| MergedRecording { name: name.to_owned(), slices: slice..slice + 1 };
    profile.recordings = vec![part("before.pb.gz", 0), part("after.pb.gz", 1)];
    profile.slice = Duration::ZERO;
    profile
}

/// The server's samples as values of another kind, each `value` times as much, and its stacks with the name of a lock in front
/// where there are locks.
fn of_kind(kind: Kind, value: u64, locks: &[&str]) -> Profile {
    let mut profile = Profile { measure: SampleType::from_kind(kind), outcomes: Vec::new(), ..server() };
    for sample in &mut profile.samples {
        sample.count = value;
    }
    if !locks.is_empty() {
        // The stacks with locks follow the others.
        let dictionary = &mut profile.dictionary;
        let waiting: Vec<_> = (0..)
            .zip(locks)
            .map(|(number, lock)| {
                let lock = dictionary.add_marker(&Marker::Lock((*lock).into()));
                let locations = [&[lock], dictionary.stack(stack(number))].concat();
                dictionary.add_stack(&locations)
            })
            .collect();
        for sample in &mut profile.samples {
            sample.stack = waiting[sample.stack.0 as usize - 1];
        }
    }
    profile
}

/// Page faults: 64 in each place of a sample of the server, 64,000 in all.
pub(crate) fn faults() -> Profile {
    let faults = SampledCounter { counter: Counter::PageFaults, rate: CounterRate::Period(64) };
    of_kind(Kind::Counter(faults), 64, &[])
}

/// Off-CPU time: 250 ms in each place, 250 s in all. That is more than the recording took: waits are as long as they are, and
/// threads wait at the same time.
pub(crate) fn off_cpu() -> Profile {
    of_kind(Kind::OffCpu, 250_000_000, &[])
}

/// The bytes that a probe sums up: 512 in each place, 512,000 in all.
pub(crate) fn probe() -> Profile {
    of_kind(Kind::Probe(SampledProbe::new("written", Some("bytes"))), 512, &[])
}

/// Waits for two locks, 20 ms in each place, 20 s in all: 10 s of the parsers for one, 8 s of the writers for the other, 2 s of
/// the ticks for the second, too.
pub(crate) fn lock_delay() -> Profile {
    const LOCKS: [&str; 4] = ["1111111111111111", "1111111111111111", "2222222222222222", "2222222222222222"];
    of_kind(Kind::LockDelay, 20_000_000, &LOCKS)
}

/// The same waits, one in each place: 1,000 in all.
pub(crate) fn lock_contentions() -> Profile {
    Profile { measure: SampleType::from_kind(Kind::LockContentions), ..of_counts(lock_delay()) }
}

fn of_counts(mut profile: Profile) -> Profile {
    profile.samples.iter_mut().for_each(|sample| sample.count = 1);
    profile
}

/// Wall time of the server's three threads, 30 s in ten seconds. The worker runs for 5 s and waits in a futex for the rest; the writer
/// reads for 2 s, waits for a CPU for 1 s and polls for 7 s, which came in two parts; the main thread sleeps for 9 s and is then stopped.
/// Waits are events at their ends.
pub(crate) fn wall() -> Profile {
    const STATES: [(&str, &str); 7] = [
        ("running", ""),
        ("sleeping", "futex"),
        ("uninterruptible", "read"),
        ("runnable", ""),
        ("sleeping", "poll"),
        ("sleeping", "sleep"),
        ("stopped", "none"),
    ];
    let sample = |slice, thread, number, state, ms: u64| ProfileSample {
        slice,
        thread: ThreadIndex(thread),
        span: LinkIndex::default(),
        state: Some(StateIndex(state)),
        stated: StatedAttributes::default(),
        stack: stack(number),
        count: ms * 1_000_000,
    };
    let waits = [
        sample(99, 1, 0, 1, 5_000),
        sample(19, 2, 2, 2, 2_000),
        sample(29, 2, 2, 3, 1_000),
        sample(64, 2, 2, 4, 3_500),
        sample(99, 2, 2, 4, 3_500),
        sample(89, 0, 3, 5, 9_000),
        sample(99, 0, 3, 6, 1_000),
        // It had ended when the profiler looked.
        sample(50, 0, 3, 5, 0),
    ];
    let runs = (0..50).map(|slice| sample(slice, 1, slice % 2, 0, 100));
    Profile {
        measure: SampleType::from_kind(Kind::Wall { samples_per_second: 100 }),
        states: STATES
            .map(|(state, cause)| ThreadState { state: state.into(), cause: cause.into() })
            .to_vec(),
        samples: runs.chain(waits).collect(),
        outcomes: Vec::new(),
        ..server()
    }
}

/// The server in Rust: 600 samples in `core::ptr::write`, inlined into `parse_value`, and 300 in `hash`, inlined into `core::iter::fold`,
/// which is inlined into `serve`; and 100 of `tick`.
pub(crate) fn inlined() -> Profile {
    let at = |name, address| PlainFrame { address, ..frame(name, FrameType::Rust, "", 0) };
    let inlined = |name, address| PlainFrame { is_inlined: true, ..at(name, address) };
    let more = [
        inlined("core::ptr::write", 0x1000),
        at("parse_value", 0x1000),
        inlined("hash", 0x2000),
        inlined("core::iter::fold", 0x2000),
        at("serve", 0x2000),
    ];
    let frames = [&server_frames()[..], &more].concat();
    let stacks: [&[usize]; 4] = [&[7, 8, 1, 0], &[7, 8, 0], &[9, 10, 11, 0], &[6, 0]];
    with_stacks(&frames, &stacks)
}

/// The server's samples in other stacks.
fn with_stacks(frames: &[PlainFrame<'_>], stacks: &[&[usize]]) -> Profile {
    let server = server();
    let mut dictionary = dictionary(frames, stacks);
    for link in server.dictionary.links() {
        dictionary.add_link(*link);
    }
    Profile { dictionary, ..server }
}

/// One stack of 120 functions, `level_0` at its root, sampled all the while.
pub(crate) fn deep() -> Profile {
    const DEPTH: usize = 120;
    let names: Vec<_> = (0..DEPTH).map(|level| format!("level_{level}")).collect();
    let frames: Vec<_> = names.iter().map(|name| frame(name, FrameType::Native, "", 0)).collect();
    let levels: Vec<_> = (0..DEPTH).rev().collect();
    let mut profile = with_stacks(&frames, &[&levels]);
    for sample in &mut profile.samples {
        sample.stack = stack(0);
    }
    profile
}

/// The server in C++, Rust and Go: `regex_match` is a template that is instantiated twice, and `visit` calls itself.
pub(crate) fn languages() -> Profile {
    const NAMES: [(&str, FrameType, usize); 9] = [
        ("main", FrameType::Native, 0),
        ("app::Server::serve(app::Request const&)", FrameType::Native, 0),
        (
            "bool std::regex_match<char, true>(char const*, std::basic_regex<char> const&)",
            FrameType::Native,
            2,
        ),
        (
            "bool std::regex_match<wchar_t, true>(wchar_t const*, std::basic_regex<wchar_t> const&)",
            FrameType::Native,
            2,
        ),
        ("<alloc::vec::Vec<json::Value> as json::Visit>::visit", FrameType::Rust, 3),
        ("<json::Value as json::Visit>::visit", FrameType::Rust, 3),
        ("github.com/example/shop/cart.(*Cart[go.shape.int]).Add", FrameType::Go, 4),
        ("runtime.mallocgc", FrameType::Go, 4),
        ("vfs_write", FrameType::Kernel, 1),
    ];
    const PATHS: [&str; 5] =
        ["/srv/server", "[kernel]", "/usr/lib/libregex.so.1", "/usr/lib/libjson.so", "/srv/cart"];
    let code =
        |(name, kind, file): (_, _, usize)| PlainFrame { file: PATHS[file], ..frame(name, kind, "", 0) };
    let frames = NAMES.map(code);
    // 400 in one instance, 100 in the other, 400 where `visit` is four levels deep, 100 of allocating.
    with_stacks(&frames, &[&[2, 1, 0], &[3, 1, 0], &[8, 5, 4, 5, 4, 1, 0], &[7, 6, 0]])
}

/// The same as the server, with names that nobody should be harmed by.
pub(crate) fn hostile() -> Profile {
    const NAMES: [&str; 5] = [
        "</script><script>globalThis.pwned=1</script>",
        "<img src=x onerror=\"globalThis.pwned=1\">",
        "\u{1b}[31m\u{202e}\u{0}",
        "{{document}}<!--",
        "__proto__",
    ];
    let long = "x".repeat(10_000);
    let mut frames = server_frames();
    // Both lines of the third are of one function.
    for (frame, name) in frames.iter_mut().zip([0, 1, 2, 2, 3, 4]) {
        frame.name = NAMES[name];
        frame.source.0 = NAMES[name];
    }
    frames[6].name = &long;
    for frame in frames.iter_mut().filter(|frame| frame.frame_type != FrameType::Kernel) {
        frame.file = NAMES[1];
    }
    let mut profile = with_stacks(&frames, &SERVER_STACKS);
    profile.title = NAMES[0].to_owned();
    for thread in &mut profile.threads {
        thread.name = NAMES[1].into();
        thread.process = NAMES[2].into();
    }
    for outcome in &mut profile.outcomes {
        outcome.help = NAMES[1].to_owned();
    }
    profile
}
