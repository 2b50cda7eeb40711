//! What is read from a file and written again is what the file holds, and so is every output that is made of it.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use sidewinder_kind::{Counter, CounterRate, Kind, SampleShape, SampledCounter, SampledProbe};
use sidewinder_naming::truncation_with_reason;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::decode::decode_profiles_data;
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions, conformance};
use sidewinder_profile::{
    BuildIds, Dictionary, DictionaryCopier, FrameType, Function, Line, Link, LinkIndex, Location,
    LocationIndex, Mapping, MappingIndex, Marker, StackIndex, Value, key,
};
use sidewinder_render::{
    DifferenceBasis, DisplayNames, NameStyle, Profile, ProfileFormat, ProfileSample, StateIndex,
    StatedAttributes, TableOptions, ThreadIndex, ThreadState, container_table, difference, table,
    thread_tables,
};

use super::{Document, message_expansion};
use crate::encode;
use crate::report::LOCK_ID;

const START: u64 = 1_790_000_000_000_000_000;
/// The length of the first slices of time: profiles in memory tell no closer times apart.
const SLICE_NS: u64 = 1_000_000;
const INTERVAL: Range<u64> = START - 3 * SLICE_NS..START + 500 * SLICE_NS;

/// A location, in plain values.
#[derive(Clone, Debug)]
struct Place {
    frame_type: FrameType,
    is_generated: bool,
    is_guessed: bool,
    /// Whether its names are words of the profiler.
    is_marker: bool,
    file: Option<u8>,
    address: u64,
    /// The number of a function, its line and its column: more than one if calls are inlined.
    lines: Vec<(u8, u32, u32)>,
}

/// An event, in plain values.
#[derive(Clone, Debug)]
struct Event {
    resource: u8,
    thread: Option<u8>,
    cpu: Option<u32>,
    outcome: Option<&'static str>,
    wait: Option<(&'static str, &'static str)>,
    lock: Option<u8>,
    label: Option<u8>,
    span: Option<u8>,
    stack: Vec<Place>,
    value: i64,
}

fn kinds() -> impl Strategy<Value = Kind> {
    let samples_per_second = 97;
    let probe = |unit| Kind::Probe(SampledProbe::new("uprobe_f", unit));
    let counters = Counter::ALL.iter().flat_map(|&counter| {
        let kind = move |rate| Kind::Counter(SampledCounter { counter, rate });
        [kind(CounterRate::Period(64)), kind(CounterRate::Frequency(samples_per_second))]
    });
    let others = [
        Kind::Cpu { samples_per_second },
        Kind::OffCpu,
        Kind::LockContentions,
        Kind::LockDelay,
        Kind::LockWakers,
        Kind::Wall { samples_per_second },
        Kind::Aggregated { samples_per_second },
        Kind::Aggregated { samples_per_second: 0 },
        probe(None),
        probe(Some("bytes")),
    ];
    prop_oneof![select(others.to_vec()), select(counters.collect::<Vec<_>>())]
}

fn places() -> impl Strategy<Value = Place> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>());
    let code = (option::of(0..4_u8), 0..6_u64, vec((0..6_u8, 0..9_u32, 0..3_u32), 0..4));
    (select(FrameType::ALL.to_vec()), flags, code).prop_map(|(frame_type, flags, (file, offset, lines))| {
        let (is_generated, is_guessed, is_marker) = flags;
        // Without a file there are names, and without a line there is no column.
        let unnamed = lines.is_empty() && file.is_none();
        let lines = if unnamed { vec![(0, 0, 0)] } else { lines };
        Place {
            frame_type,
            is_generated: is_generated && frame_type == FrameType::Native,
            is_guessed,
            is_marker,
            file,
            address: file.map_or(0, |file| 0x1000 * u64::from(file)) + offset,
            lines: lines.into_iter().map(|(of, line, column)| (of, line, column.min(line))).collect(),
        }
    })
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let reasons =
        [None, Some("no_rule"), Some("stack_body_missing"), Some("idle"), Some("of_another_version")];
    let waits = [None, Some(("sleeping", "futex")), Some(("running", "")), Some(("stopped", ""))];
    let sender =
        (0..3_u8, option::of(0..3_u8), option::of(0..2_u32), option::of(0..2_u8), option::of(1..3_u8));
    let what = (select(reasons.to_vec()), select(waits.to_vec()), option::of(0..2_u8));
    let event = (sender, what, vec(places(), 0..6), 1..9_i64);
    let event = event.prop_map(|(sender, (outcome, wait, lock), mut stack, value)| {
        let (resource, thread, cpu, label, span) = sender;
        // The kernel comes first.
        stack.sort_by_key(|place| place.frame_type != FrameType::Kernel);
        Event { resource, thread, cpu, outcome, wait, lock, label, span, stack, value }
    });
    vec(event, 1..12)
}

fn mapping(dictionary: &mut Dictionary, file: u8) -> MappingIndex {
    let start = 0x1000 * u64::from(file);
    // The first two are parts of one file; the others have one path.
    let htlhash = format!("{:032x}", file / 2);
    let paths = ["/usr/bin/app", "/usr/bin/app", "[vdso]", "/usr/bin/app"];
    let build_ids =
        BuildIds { htlhash: Some(&htlhash), gnu: Some("0123abcd"), go: (file > 2).then_some("go") };
    let mapping = Mapping {
        memory_start: start,
        memory_limit: start + 0x1000,
        file_offset: start / 2,
        filename: dictionary.add_string(paths[usize::from(file)]),
        attributes: dictionary.add_build_ids(&build_ids),
    };
    dictionary.add_mapping(mapping)
}

fn location(dictionary: &mut Dictionary, place: &Place) -> LocationIndex {
    let mapping = place.file.map(|file| mapping(dictionary, file));
    let names =
        ["main", "a::b<c>(int)", "java.util.Map.get(Object)", "[unknown Java method]", "work", "[lock 1]"];
    let lines = place.lines.iter().map(|(number, line, column)| {
        let function = Function {
            name: dictionary.add_string(names[usize::from(*number)]),
            system_name: dictionary.add_string(if *number == 1 { "_ZN1a1bE" } else { "" }),
            filename: dictionary.add_string(if *number > 2 { "" } else { "src/main.rs" }),
            ..Function::default()
        };
        Line { function: dictionary.add_function(function), line: *line, column: *column }
    });
    let lines: Vec<_> = lines.collect();
    let looks_like_marker =
        place.lines.iter().any(|(number, ..)| names[usize::from(*number)].starts_with('['));
    dictionary.add_location(&Location {
        mapping: mapping.unwrap_or_default(),
        address: place.address,
        frame_type: place.frame_type,
        is_generated: place.is_generated,
        is_guessed: place.is_guessed,
        marker: (looks_like_marker && place.is_marker).then_some(&Marker::Words),
        lines: &lines,
        ..Location::default()
    })
}

fn resource(number: u8) -> Vec<(&'static str, Value<'static>)> {
    let named = [
        (key::SERVICE_NAME, Value::Str("shop")),
        ("process.pid", Value::Int(7)),
        ("is.canary", Value::Bool(true)),
    ];
    let container = [
        ("process.executable.name", Value::Str("app")),
        ("container.id", Value::Str("c0ffee")),
        ("k8s.pod.name", Value::Str("shop-1")),
        ("host.name", Value::Str("node")),
    ];
    match number {
        0 => Vec::new(),
        1 => named.to_vec(),
        _ => [&named[..], &container].concat(),
    }
}

fn report(kind: Kind, events: &[Event]) -> Report {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let profile_type = builder.kind(kind);
    for (event, number) in events.iter().zip(0..) {
        let mut stack: Vec<_> = event.stack.iter().map(|place| location(&mut dictionary, place)).collect();
        let truncation = event.outcome.map(truncation_with_reason);
        if let Some(truncation) = truncation {
            stack.push(dictionary.add_marker(&Marker::Truncated(truncation.into())));
        }
        let lock = event.lock.map(|lock| format!("{lock:016x}"));
        let label = event.label.map(|label| format!("/route/{label}"));
        let mut extra = Vec::new();
        extra.extend(lock.as_deref().map(|lock| (LOCK_ID, Value::Str(lock))));
        extra.extend(label.as_deref().map(|label| ("http.route", Value::Str(label))));
        if let Some((state, cause)) = event.wait {
            extra.push((ThreadState::STATE_KEY, Value::Str(state)));
            extra.extend((!cause.is_empty()).then_some((ThreadState::CAUSE_KEY, Value::Str(cause))));
        }
        let identity = SampleIdentity {
            resource: dictionary.add_attributes(resource(event.resource)),
            profile_type,
            stack: dictionary.add_stack(&stack),
            attributes: SampleAttributes {
                thread_id: event.thread.map(|thread| i64::from(thread) + 100),
                thread_name: event.thread.map(|_| "worker"),
                cpu: event.cpu,
                outcome: event.outcome,
                extra: &extra,
            }
            .add_to(&mut dictionary),
            link: event.span.map_or(LinkIndex::default(), |span| {
                dictionary.add_link(Link { trace_id: [span; 16], span_id: [span; 8] })
            }),
        };
        builder.event(&identity, START + number * SLICE_NS, event.value);
    }
    builder.finish(&mut dictionary, INTERVAL).unwrap()
}

/// Everything that a file says of each event, in an order that does not depend on its dictionary.
fn content(file: &[u8]) -> Vec<String> {
    let profiles = decode_profiles_data(file).unwrap();
    let mut content = Vec::new();
    for profile in &profiles {
        let head = format!(
            "{:?}",
            (
                (&profile.resource, &profile.sample_type, &profile.sample_unit),
                (&profile.period_type, &profile.period_unit, profile.period),
                (profile.time_unix_ns, profile.duration_ns),
            )
        );
        for sample in &profile.samples {
            let shape = (!sample.timestamps_unix_ns.is_empty(), !sample.values.is_empty());
            let what =
                format!("{head} {:?} {:?} {:?} {shape:?}", sample.stack, sample.attributes, sample.link);
            content.extend(sample.timestamps_unix_ns.iter().map(|time| format!("{what} at {time}")));
            content.extend(sample.values.iter().map(|value| format!("{what} with {value}")));
        }
    }
    content.sort();
    content
}

/// Sorts a table by its content. Returns the new index of each entry.
fn sort_table<T: Clone + Ord>(table: &mut Vec<T>) -> Vec<u32> {
    let mut order: Vec<_> = (0..table.len()).collect();
    order.sort_by(|one, other| table[*one].cmp(&table[*other]));
    *table = order.iter().map(|at| table[*at].clone()).collect();
    let new: BTreeMap<_, _> = order.into_iter().zip(0..).collect();
    new.into_values().collect()
}

/// Everything that a dictionary says of a stack.
fn described(dictionary: &Dictionary, stack: StackIndex) -> String {
    let frames = dictionary.frames_of(stack).filter_map(|index| dictionary.frame(index));
    let frames = frames.map(|frame| {
        let location = Location { mapping: MappingIndex::default(), lines: &[], ..frame.location };
        let mapping = frame.mapping().unwrap_or_default();
        let addresses = (mapping.memory_start, mapping.memory_limit, mapping.file_offset);
        let file = (frame.binary_path(), addresses, dictionary.build_ids(&mapping));
        let function = (frame.name(), frame.system_name(), frame.path());
        format!("{:?}", (location, file, function, frame.line.line, frame.line.column, frame.is_inlined))
    });
    frames.collect::<Vec<_>>().join(";")
}

/// The same profile with its tables in the order of their content.
fn normal_form(mut profile: Profile) -> Profile {
    let threads = sort_table(&mut profile.threads);
    let states = sort_table(&mut profile.states);
    for sample in &mut profile.samples {
        sample.thread = ThreadIndex(threads[sample.thread.0 as usize]);
        sample.state = sample.state.map(|state| StateIndex(states[state.0 as usize]));
        sample.stated = StatedAttributes::default();
    }
    let old = std::mem::take(&mut profile.dictionary);
    profile.samples.sort_by_cached_key(|sample| {
        let ProfileSample { slice, thread, state, count, .. } = *sample;
        (slice, thread, old.link(sample.span), state, described(&old, sample.stack), count)
    });
    let mut copier = DictionaryCopier::new(&old);
    for sample in &mut profile.samples {
        sample.span = copier.link(&mut profile.dictionary, sample.span);
        sample.stack = copier.stack(&mut profile.dictionary, sample.stack);
    }
    profile.samples.sort_unstable();
    profile
}

/// Reads the first profile of a report.
fn read(report: &Report) -> Profile {
    let document = Document::read_file(report.as_bytes()).unwrap();
    let expansion = message_expansion(report.as_bytes());
    document.of_each_sample_type("given", expansion).unwrap().swap_remove(0)
}

/// Everything that is made of a profile, but for OTLP. `before` is what it is compared with.
fn outputs(profile: &Profile, before: &Profile) -> Vec<Vec<u8>> {
    let names = DisplayNames::new([profile], NameStyle::Short).with_lock_sites([profile]);
    let options = TableOptions::default();
    let mut outputs: Vec<_> = ProfileFormat::ALL
        .into_iter()
        .map(|format| {
            let mut out = Vec::new();
            sidewinder_render::write(profile, format, NameStyle::Short, &mut out).unwrap();
            out
        })
        .collect();
    let mut folded = profile.clone();
    folded.fold(sidewinder_render::InlinedFunctions::None);
    let changes = difference(before, profile, &[], &names, DifferenceBasis::Total, options).unwrap();
    let texts = [
        sidewinder_render::summary(profile),
        table(profile, &names, options),
        table(&folded, &names, options),
        thread_tables(profile, &names, options),
        container_table(profile, options),
        changes,
    ];
    outputs.extend(texts.map(String::into_bytes));
    outputs
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn what_is_read_and_written_again_is_equal_and_so_is_what_is_made_of_it(
        kind in kinds(),
        events in events(),
    ) {
        let given = report(kind, &events);
        prop_assert_eq!(conformance::check(given.as_bytes()), []);
        let first = read(&given);
        let written = encode::report(&first).unwrap();
        prop_assert_eq!(conformance::check(written.as_bytes()), []);
        prop_assert_eq!(content(written.as_bytes()), content(given.as_bytes()));
        prop_assert_eq!(first.shape, kind.descriptor().shape);
        prop_assert!(first.shape != SampleShape::Values || first.slice.is_zero());

        let [first, second] = [first, read(&written)].map(normal_form);
        for (one, other) in outputs(&first, &first).into_iter().zip(outputs(&second, &first)) {
            prop_assert_eq!(String::from_utf8_lossy(&one), String::from_utf8_lossy(&other));
        }
    }
}
