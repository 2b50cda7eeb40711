//! Tests of the contexts that real processes publish.

use std::sync::Arc;

use sidewinder_bpf::ContextCounts;
use sidewinder_message::SampleEvent;
use sidewinder_process::context::ContextValue;
use sidewinder_profile::Link;

use super::*;

/// Publishes a process context by the steps of OTEP 4719 four seconds after its start, while a thread burns CPU.
const PUBLISHER: &str = include_str!("programs/publisher.c");

/// A process that publishes its context long after it was announced is announced again.
#[test]
fn a_context_that_is_published_late_is_found() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let burner = Burner::start_with(PUBLISHER);
    for is_enabled in [true, false] {
        let mut storage = Storage::uninit();
        let mut options = options(burner.child.id(), 97, 8 << 20);
        options.trace_context.enabled = is_enabled;
        let Some(mut sampler) = sampler(&mut storage, options) else { return };
        sampler.start().unwrap();
        let mut contexts = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(if is_enabled { 20 } else { 2 });
        while Instant::now() < deadline && !contexts.iter().any(Option::is_some) {
            let messages = poll_for(&mut sampler, Duration::from_millis(200));
            contexts.extend(messages.into_iter().filter_map(|message| match message {
                Message::Process(_, description) => Some(description.context.clone()),
                _ => None,
            }));
        }
        if is_enabled {
            let [None, Some(context)] = &contexts[..] else {
                panic!("announced without a context, then with it: {contexts:?}");
            };
            assert_eq!(context.resource[..], [("service.name".into(), ContextValue::Text("by-sdk".into()))]);
        } else {
            assert!(matches!(contexts[..], [None]), "reading contexts is disabled: {contexts:?}");
        }
    }
}

/// Four threads that alternate between a span of their own, another span nested in it, and no span. Each of these is a
/// separate function, so that stacks show the actual state. IDs contain the thread's ID. Records lie across the end of a
/// page, and all of them are valid except those of the threads in hostile mode.
const SPANS: &str = include_str!("programs/spans.c");

/// Compiles a program into a directory.
fn compile(directory: &Path, name: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let output = directory.join(name);
    let arguments = [&["-O1", "-x", "c", "-", "-o", output.to_str().unwrap()], arguments].concat();
    let mut compiler = Command::new("cc").args(arguments).stdin(Stdio::piped()).spawn().unwrap();
    compiler.stdin.take().unwrap().write_all(source.as_bytes()).unwrap();
    assert!(compiler.wait().unwrap().success());
    output
}

fn namer() -> Namer {
    Namer::new(NamingOptions { native: true, budget_bytes: 8 << 20, ..NamingOptions::default() })
}

/// The functions on an event's stack.
fn functions_of(event: &SampleEvent, namer: &mut Namer) -> Vec<Arc<str>> {
    let frames = event.stack.iter().flat_map(|stack| &stack.frames);
    let functions = frames
        .filter_map(|frame| namer.resolve(event.process, *frame, event.time_ns))
        .flat_map(|named| named.functions.to_vec());
    functions.map(|function| function.name.demangled).collect()
}

/// The function of [`SPANS`] that an event was in, unless its stack was cut.
fn function_of(event: &SampleEvent, namer: &mut Namer) -> Option<&'static str> {
    const FUNCTIONS: [&str; 6] = ["in_outer", "in_inner", "outside", "changing", "wild", "cut"];
    let names = functions_of(event, namer);
    FUNCTIONS.into_iter().find(|function| names.iter().any(|name| **name == **function))
}

/// A child process that is killed on drop.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The number of samples of each function in each span, by one byte of the span ID.
type SpanCounts = BTreeMap<(&'static str, u8), u64>;

/// Polls until there are this many more events, or half a minute has passed.
fn poll_until_more(sampler: &mut Sampler<'_>, events: u64) -> Vec<Message> {
    let before = sampler.tally().events;
    poll_until(sampler, before + events)
}

/// Waits up to 20 s for the first event with a span, then for this many more events. Returns all messages, and a time at
/// which the span was known.
fn linked_messages(sampler: &mut Sampler<'_>, events: u64) -> (Vec<Message>, u64) {
    let mut messages = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_linked = |message: &Message| matches!(message, Message::Event(event) if event.span.is_some());
    while !messages.iter().any(is_linked) && Instant::now() < deadline {
        messages.append(&mut poll_for(sampler, Duration::from_millis(100)));
    }
    // A wait that ends now may have begun before.
    let known_ns = sidewinder_bpf::monotonic_ns() + 200_000_000;
    messages.append(&mut poll_until_more(sampler, events));
    messages.append(&mut stop(sampler));
    (messages, known_ns)
}

/// Samples a program, and counts the samples from the time when its threads were known to publish.
fn spans_by_function(
    program: &mut Command,
    walk: Option<WalkMode>,
    attributes: &[&str],
) -> Option<(SpanCounts, ContextCounts)> {
    spans_in(program, KindSet::new(Kind::Cpu { samples_per_second: 997 }).with(PROBES), walk, attributes)
}

/// The same of samples of these kinds.
fn spans_in(
    program: &mut Command,
    kinds: KindSet,
    walk: Option<WalkMode>,
    attributes: &[&str],
) -> Option<(SpanCounts, ContextCounts)> {
    let child = KillOnDrop(program.spawn().unwrap());
    std::thread::sleep(Duration::from_millis(200));
    let mut storage = Storage::uninit();
    let mut options = SamplingOptions { walk, kinds, ..options(child.0.id(), 997, 8 << 20) };
    options.trace_context.attributes = attributes.iter().map(|key| (*key).to_owned()).collect();
    let mut sampler = sampler(&mut storage, options)?;
    sampler.start().unwrap();
    let (messages, known_ns) = linked_messages(&mut sampler, 2_000);
    let mut namer = namer();
    let mut counts = BTreeMap::new();
    for message in messages {
        match message {
            Message::File(id, info) => namer.add_file(id, info),
            Message::Event(event) if event.time_ns > known_ns => {
                let Some(function) = function_of(&event, &mut namer) else { continue };
                let span = event.span.map_or(0, |link| link.span_id[0]);
                if let Some(Link { trace_id, span_id }) = event.span {
                    assert_eq!(trace_id[..4], event.tid.to_ne_bytes(), "another thread's, in {function}");
                    assert_eq!((&trace_id[4..], span_id), (&[1; 12][..], [span; 8]), "torn, in {function}");
                    let labels: Vec<_> = event.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
                    let is_cut = function == "cut";
                    let expected = [("http.route", "/cart"), ("user", "x")];
                    let expected = expected.into_iter().filter(|(key, _)| attributes.contains(key));
                    let expected: Vec<_> = expected.filter(|(key, _)| !is_cut || *key != "user").collect();
                    let without_user: Vec<_> =
                        labels.iter().copied().filter(|(key, _)| !is_cut || *key != "user").collect();
                    assert_eq!(without_user, expected, "in {function}");
                }
                *counts.entry((function, span)).or_insert(0) += 1;
            }
            _ => {}
        }
    }
    Some((counts, sampler.profiler().thread_contexts()))
}

/// There is no call between the write that ends a span and the first instruction of the function, so every sample of the
/// function shows the right span.
#[test]
fn samples_have_the_span_that_their_thread_is_in() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let exported = compile(directory.path(), "exported", SPANS, &["-rdynamic"]);
    let opened = compile(directory.path(), "opened", SPANS, &["-DOPENED"]);
    let library = "__thread void *otel_thread_ctx_v1; void **where(void) { return &otel_thread_ctx_v1; }";
    let library = compile(directory.path(), "libwhere.so", library, &["-shared", "-fPIC"]);
    for (what, walk, attributes) in [
        ("by an offset", WalkMode::Loop, &["http.route", "user"][..]),
        ("by an offset, without loops", WalkMode::TailCalls, &[]),
        ("by the thread's vector", WalkMode::Loop, &["http.route"]),
    ] {
        let mut program = Command::new(if what.contains("vector") { &opened } else { &exported });
        if what.contains("vector") {
            program.arg(&library);
        }
        let Some((counts, contexts)) = spans_by_function(&mut program, Some(walk), attributes) else {
            return;
        };
        let wrong: Vec<_> = counts
            .keys()
            .filter(|key| ![("in_outer", 0xa), ("in_inner", 0xb), ("outside", 0)].contains(key))
            .collect();
        assert!(wrong.is_empty(), "{what}: {counts:?}");
        let seen = counts.values().sum::<u64>();
        assert!(counts.len() == 3 && seen > 1000, "{what}: {counts:?}");
        assert!(contexts.read > seen / 2 && contexts.unreadable == 0, "{what}: {contexts:?}");
    }
}

#[test]
fn waits_have_the_span_in_which_their_thread_waited() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "waits", SPANS, &["-rdynamic", "-DWAITS"]);
    for walk in [WalkMode::Loop, WalkMode::TailCalls] {
        let (mut program, kinds) = (Command::new(&program), KindSet::new(Kind::OffCpu));
        let Some((counts, _)) = spans_in(&mut program, kinds, Some(walk), &["http.route"]) else { return };
        let expected = [("in_inner", 0xb), ("in_outer", 0xa), ("outside", 0)];
        assert!(counts.keys().eq(&expected), "{walk:?}: {counts:?}");
        assert!(counts.values().all(|count| *count > 100), "{walk:?}: {counts:?}");
    }
}

#[test]
fn hostile_records_yield_no_span_and_are_counted() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::tempdir().unwrap();
    let program = compile(directory.path(), "exported", SPANS, &["-rdynamic"]);
    let mut program = Command::new(program);
    let Some((counts, contexts)) = spans_by_function(program.arg("hostile"), None, &["http.route", "user"])
    else {
        return;
    };
    let expected_spans =
        [("in_outer", 0xa), ("in_inner", 0xb), ("outside", 0), ("changing", 0), ("wild", 0), ("cut", 0xc)];
    assert!(counts.keys().all(|key| expected_spans.contains(key)), "{counts:?}");
    assert_eq!(counts.len(), expected_spans.len(), "{counts:?}");
    assert!(contexts.changing >= counts[&("changing", 0)], "{contexts:?} {counts:?}");
    assert!(contexts.unreadable >= counts[&("wild", 0)], "{contexts:?} {counts:?}");
}

/// Goroutines that alternate between spans of their own and no span, each in a separate function, as in [`SPANS`].
const GOROUTINES: &str = include_str!("programs/goroutines.go");

/// Runs with the installed version of Go, linked by Go and by the C compiler; and with the versions in `SIDEWINDER_GO`, for
/// example `go1.21.13,go1.24.13`, which are then downloaded.
#[test]
fn samples_have_the_span_that_their_goroutine_is_in() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIPPED: no go");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("main.go"), GOROUTINES).unwrap();
    std::fs::write(directory.path().join("go.mod"), "module spans\n\ngo 1.21\n").unwrap();
    let others = std::env::var("SIDEWINDER_GO").unwrap_or_default();
    let others = others.split(',').filter(|version| !version.is_empty()).map(|version| (version, false));
    for (version, is_external) in [("local", false), ("local", true)].into_iter().chain(others) {
        let mut build = Command::new("go");
        build
            .arg("build")
            .args(is_external.then_some("-ldflags=-linkmode=external"))
            .args(["-o", "spans", "."]);
        build.env("GOTOOLCHAIN", version).env("CGO_ENABLED", if is_external { "1" } else { "0" });
        assert!(build.current_dir(directory.path()).status().unwrap().success(), "{version} builds nothing");
        let child = KillOnDrop(Command::new(directory.path().join("spans")).spawn().unwrap());
        std::thread::sleep(Duration::from_millis(200));
        let mut storage = Storage::uninit();
        let mut options = options(child.0.id(), 997, 8 << 20);
        options.trace_context.attributes = vec!["http.route".to_owned()];
        let Some(mut sampler) = sampler(&mut storage, options) else { return };
        sampler.start().unwrap();
        let (messages, known_ns) = linked_messages(&mut sampler, 1_200);
        let mut namer = namer();
        let mut counts = SpanCounts::new();
        for message in messages {
            match message {
                Message::File(id, info) => namer.add_file(id, info),
                Message::Event(event) if event.time_ns > known_ns => {
                    let names = functions_of(&event, &mut namer);
                    let functions = ["in_outer", "in_inner", "outside"];
                    let shown =
                        |function: &&str| names.iter().any(|name| **name == format!("main.{function}"));
                    let Some(function) = functions.into_iter().find(shown) else { continue };
                    let span = event.span.map_or(0, |link| link.span_id[7]);
                    let routes: Vec<_> = event.labels.iter().map(|(_, value)| &**value).collect();
                    assert_eq!(routes, if span == 0 { vec![] } else { vec!["/cart"] }, "{version}");
                    *counts.entry((function, span)).or_insert(0) += 1;
                }
                _ => {}
            }
        }
        let expected_spans = [("in_inner", 0xb), ("in_outer", 0xa), ("outside", 0)];
        let seen: u64 = counts.values().sum();
        let wrong: u64 =
            counts.iter().filter(|(key, _)| !expected_spans.contains(key)).map(|(_, count)| count).sum();
        eprintln!("{version}, external linker {is_external}: {counts:?}");
        assert!(
            expected_spans.iter().all(|key| counts.get(key).is_some_and(|count| *count > 100)),
            "{version}: {counts:?}"
        );
        assert_eq!(wrong, 0, "{version}: {counts:?} of {seen}");
    }
}
