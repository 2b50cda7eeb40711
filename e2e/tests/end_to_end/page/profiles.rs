//! Profiles whose every number is known.

use std::time::{Duration, UNIX_EPOCH};

use sidewinder_kind::{Counter, CounterRate, Kind, SampledCounter, SampledProbe};
use sidewinder_render::{
    AttributeSetIndex, BinaryIndex, FrameIndex, FrameType, Marker, MergedRecording, OutcomeCount, Profile,
    ProfileBinary, ProfileFrame, ProfileSample, ProfileSpan, ProfileThread, SampleType, Severity, SpanIndex,
    StackIndex, StateIndex, ThreadIndex, ThreadState,
};

fn frame(name: &str, frame_type: FrameType, path: &str, line: u32) -> ProfileFrame {
    let binary = if frame_type == FrameType::Kernel { 1 } else { 0 };
    ProfileFrame {
        name: name.into(),
        is_named: true,
        binary: Some(BinaryIndex(binary)),
        frame_type,
        path: path.into(),
        line,
        ..ProfileFrame::default()
    }
}

fn outcome(name: &str, count: u64, severity: Severity, help: &str) -> OutcomeCount {
    OutcomeCount { name: name.to_owned(), count, severity, help: help.to_owned() }
}

fn stack(frames: &[u32]) -> Vec<FrameIndex> {
    frames.iter().copied().map(FrameIndex).collect()
}

/// Ten seconds of a server at 100 Hz: 500 samples of parsing in the first five, four fifths of them on one line; 400
/// of writing in the others, within a span; and 100 of ticking all the while.
pub(crate) fn server() -> Profile {
    let sample = |slice, thread, span: Option<u32>, stack| ProfileSample {
        slice,
        thread: ThreadIndex(thread),
        span: span.map(SpanIndex),
        state: None,
        attributes: AttributeSetIndex::EMPTY,
        stack: StackIndex(stack),
        count: 1,
    };
    let samples = (0..100).flat_map(|slice| {
        let parsing = (0..10).map(move |number| sample(slice, 1, None, u32::from(number % 5 == 4)));
        let writing = (0..8).map(move |_| sample(slice, 2, Some(0), 2));
        let busy: Vec<_> = if slice < 50 { parsing.collect() } else { writing.collect() };
        busy.into_iter().chain([sample(slice, 0, None, 3)])
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
        binaries: ["/srv/server", "[kernel]"]
            .map(|path| ProfileBinary { path: path.to_owned(), ..ProfileBinary::default() })
            .to_vec(),
        frames: vec![
            frame("main", FrameType::Rust, "src/main.rs", 7),
            frame("serve", FrameType::Rust, "src/serve.rs", 20),
            frame("parse_value", FrameType::Rust, "src/parse.rs", 12),
            frame("parse_value", FrameType::Rust, "src/parse.rs", 15),
            frame("write_all", FrameType::Native, "", 0),
            frame("vfs_write", FrameType::Kernel, "", 0),
            frame("tick", FrameType::Native, "", 0),
        ],
        stacks: vec![stack(&[2, 1, 0]), stack(&[3, 1, 0]), stack(&[5, 4, 1, 0]), stack(&[6, 0])],
        threads: vec![thread("main", 100), thread("worker", 101), thread("writer", 102)],
        spans: vec![ProfileSpan { trace_id: [0xab; 16], span_id: [0xcd; 8] }],
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
    for (stack, lock) in profile.stacks.iter_mut().zip(locks) {
        let lock = ProfileFrame::from_marker(Marker::Lock((*lock).into()));
        let known = profile.frames.iter().position(|frame| *frame == lock);
        let at = known.unwrap_or(profile.frames.len());
        if known.is_none() {
            profile.frames.push(lock);
        }
        stack.insert(0, FrameIndex(at as u32));
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
    let sample = |slice, thread, stack, state, ms: u64| ProfileSample {
        slice,
        thread: ThreadIndex(thread),
        span: None,
        state: Some(StateIndex(state)),
        attributes: AttributeSetIndex::EMPTY,
        stack: StackIndex(stack),
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
    let at = |name: &str, address| ProfileFrame { address, ..frame(name, FrameType::Rust, "", 0) };
    let inlined = |name: &str, address| ProfileFrame { is_inlined: true, ..at(name, address) };
    let mut profile = server();
    profile.frames.extend([
        inlined("core::ptr::write", 0x1000),
        at("parse_value", 0x1000),
        inlined("hash", 0x2000),
        inlined("core::iter::fold", 0x2000),
        at("serve", 0x2000),
    ]);
    profile.stacks = vec![stack(&[7, 8, 1, 0]), stack(&[7, 8, 0]), stack(&[9, 10, 11, 0]), stack(&[6, 0])];
    profile
}

/// One stack of 120 functions, `level_0` at its root, sampled all the while.
pub(crate) fn deep() -> Profile {
    const DEPTH: u32 = 120;
    let mut profile = server();
    profile.frames =
        (0..DEPTH).map(|level| frame(&format!("level_{level}"), FrameType::Native, "", 0)).collect();
    profile.stacks = vec![stack(&(0..DEPTH).rev().collect::<Vec<_>>())];
    for sample in &mut profile.samples {
        sample.stack = StackIndex(0);
    }
    profile
}

/// The server in C++, Rust and Go: `regex_match` is a template that is instantiated twice, and `visit` calls itself.
pub(crate) fn languages() -> Profile {
    const NAMES: [(&str, FrameType, u32); 9] = [
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
    let mut profile = server();
    profile.binaries =
        PATHS.map(|path| ProfileBinary { path: path.to_owned(), ..ProfileBinary::default() }).to_vec();
    profile.frames = NAMES
        .map(|(name, kind, binary)| ProfileFrame {
            binary: Some(BinaryIndex(binary)),
            ..frame(name, kind, "", 0)
        })
        .to_vec();
    // 400 in one instance, 100 in the other, 400 where `visit` is four levels deep, 100 of allocating.
    profile.stacks =
        vec![stack(&[2, 1, 0]), stack(&[3, 1, 0]), stack(&[8, 5, 4, 5, 4, 1, 0]), stack(&[7, 6, 0])];
    profile
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
    let mut profile = server();
    // Both lines of the third are of one function.
    for (frame, name) in [0, 1, 2, 3, 4, 5].into_iter().zip([0, 1, 2, 2, 3, 4]) {
        profile.frames[frame].name = NAMES[name].into();
        profile.frames[frame].path = NAMES[name].into();
    }
    profile.frames[6].name = "x".repeat(10_000).into();
    profile.title = NAMES[0].to_owned();
    profile.binaries[0].path = NAMES[1].to_owned();
    for thread in &mut profile.threads {
        thread.name = NAMES[1].into();
        thread.process = NAMES[2].into();
    }
    for outcome in &mut profile.outcomes {
        outcome.help = NAMES[1].to_owned();
    }
    profile
}
