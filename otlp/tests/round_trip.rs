//! All events that are added to a builder are in its reports, each exactly once.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use sidewinder_kind::Kind;
use sidewinder_otlp::builder::{SampleAttributes, SampleIdentity};
use sidewinder_otlp::decode::{self, DecodeError};
use sidewinder_otlp::{ReportBuilder, ReportOptions, conformance, read};
use sidewinder_profile::{
    BuildIds, Dictionary, FrameType, Line, Link, LinkIndex, Location, Mapping, Marker, StackIndex, Value, key,
};

const START: u64 = 1_700_000_000_000_000_000;
const INTERVAL: Range<u64> = START..START + 5_000_000_000;
const CPU: Kind = Kind::Cpu { samples_per_second: 97 };

/// An event in plain values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Event {
    service: String,
    off_cpu: bool,
    /// The file and address of each frame; its name is derived from both.
    stack: Vec<(Option<u8>, u8)>,
    thread_id: Option<i64>,
    thread_name: Option<String>,
    cpu: Option<i64>,
    outcome: Option<String>,
    link: Option<u8>,
    time_unix_ns: u64,
    value: i64,
}

fn name(file: Option<u8>, address: u8) -> String {
    // Two addresses share a function.
    format!("{file:?}::f{}", address / 2)
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let who =
        (0..3_u8, any::<bool>(), option::of(0..3_i64), option::of("[ab\\n]{0,2}"), option::of(0..2_i64));
    let frame = (option::of(0..3_u8), 1..8_u8);
    let what = (vec(frame, 0..6), option::of("[xy]"), option::of(1..3_u8), 0..7_000_000_000_u64, 1..9_i64);
    let event = (who, what).prop_map(|(who, what)| {
        let (service, off_cpu, thread_id, thread_name, cpu) = who;
        let (stack, outcome, link, time, value) = what;
        Event {
            service: format!("service-{service}"),
            off_cpu,
            stack,
            thread_id,
            thread_name,
            cpu,
            outcome,
            link,
            time_unix_ns: START - 1_000_000_000 + time,
            value: if off_cpu { value } else { 1 },
        }
    });
    vec(event, 1..60)
}

/// Some frames are guessed.
fn is_guessed(address: u8) -> bool {
    address % 2 == 1
}

/// A stack that is cut for this reason ends with a marker.
fn stack(dictionary: &mut Dictionary, frames: &[(Option<u8>, u8)], outcome: Option<&str>) -> StackIndex {
    let mut locations: Vec<_> = frames
        .iter()
        .map(|&(file, address)| {
            let mapping = file.map(|file| {
                let htlhash = format!("{file:032x}");
                let build_ids = BuildIds { htlhash: Some(&htlhash), gnu: Some("00ff"), go: None };
                let mapping = Mapping {
                    memory_start: 0x1000,
                    memory_limit: 0x2000,
                    file_offset: 0x40,
                    filename: dictionary.add_string(&format!("file-{file}")),
                    attributes: dictionary.add_build_ids(&build_ids),
                };
                dictionary.add_mapping(mapping)
            });
            let function = dictionary.add_function_named(&name(file, address));
            dictionary.add_location(&Location {
                mapping: mapping.unwrap_or_default(),
                address: 0x1000 + u64::from(address),
                frame_type: FrameType::Rust,
                is_guessed: is_guessed(address),
                lines: &[Line::new(function)],
                ..Location::default()
            })
        })
        .collect();
    if let Some(reason) = outcome {
        let function = dictionary.add_function_named(&format!("[truncated: {reason}]"));
        locations.push(dictionary.add_location(&Location {
            marker: Some(&Marker::Words),
            lines: &[Line::new(function)],
            ..Location::default()
        }));
    }
    dictionary.add_stack(&locations)
}

fn add((dictionary, builder): (&mut Dictionary, &mut ReportBuilder), event: &Event) {
    let resource = [(key::SERVICE_NAME, Value::Str(&event.service)), ("process.pid", Value::Int(1))];
    let identity = SampleIdentity {
        resource: dictionary.add_attributes(resource),
        profile_type: builder.kind(if event.off_cpu { Kind::OffCpu } else { CPU }),
        stack: stack(dictionary, &event.stack, event.outcome.as_deref()),
        attributes: SampleAttributes {
            thread_id: event.thread_id,
            thread_name: event.thread_name.as_deref(),
            cpu: event.cpu.map(|cpu| cpu as u32),
            outcome: event.outcome.as_deref(),
            extra: &[],
        }
        .add_to(dictionary),
        link: event.link.map_or(LinkIndex::default(), |id| {
            dictionary.add_link(Link { trace_id: [id; 16], span_id: [id; 8] })
        }),
    };
    builder.event(&identity, event.time_unix_ns, event.value);
}

/// Sorted.
fn decoded(bytes: &[u8]) -> Vec<Event> {
    let profiles = decode::decode_profiles_data(bytes).unwrap();
    let mut events: Vec<_> = profiles.iter().flat_map(decode::DecodedProfile::events).map(plain).collect();
    events.sort();
    events
}

fn plain(event: decode::DecodedEvent<'_>) -> Event {
    let (markers, frames): (Vec<_>, Vec<_>) =
        event.sample.stack.iter().partition(|frame| frame.is_marker() == Some(true));
    assert_eq!(markers.len(), usize::from(event.sample.outcome().is_some()));
    let stack = frames.into_iter().map(|frame| {
        let address = (frame.address - 0x1000) as u8;
        let file = frame.mapping.as_ref().map(|mapping| {
            let file = mapping.filename.strip_prefix("file-").unwrap().parse().unwrap();
            assert_eq!(mapping.htlhash(), Some(format!("{file:032x}").as_str()));
            assert_eq!(frame.file_offset(), Some(0x40 + u64::from(address)));
            file
        });
        assert_eq!(frame.function(), Some(name(file, address).as_str()));
        assert_eq!(frame.frame_type(), Some(FrameType::Rust));
        assert_eq!(frame.is_guessed(), is_guessed(address));
        (file, address)
    });
    Event {
        service: event.profile.resource[key::SERVICE_NAME].as_str().unwrap().to_owned(),
        off_cpu: &*event.profile.sample_type == "off_cpu",
        stack: stack.collect(),
        thread_id: event.sample.thread_id(),
        thread_name: event.sample.thread_name().map(str::to_owned),
        cpu: event.sample.cpu(),
        outcome: event.sample.outcome().map(str::to_owned),
        link: event.sample.link.map(|link| link.trace_id[0]),
        time_unix_ns: event.time_unix_ns,
        value: event.value,
    }
}

#[test]
fn the_same_place_known_and_guessed_is_two_locations() {
    let mut dictionary = Dictionary::default();
    let function = dictionary.add_function_named("work");
    let lines = [Line::new(function)];
    let known = Location { address: 1, frame_type: FrameType::Native, lines: &lines, ..Location::default() };
    let guessed = Location { is_guessed: true, ..known };
    let locations = [dictionary.add_location(&known), dictionary.add_location(&guessed)];
    assert_ne!(locations[0], locations[1]);
    assert_eq!(locations, [dictionary.add_location(&known), dictionary.add_location(&guessed)]);
}

fn sorted(mut events: Vec<Event>) -> Vec<Event> {
    events.sort();
    events
}

proptest! {
    #[test]
    fn events_come_back_as_they_went_in(first in events(), second in events()) {
        let mut dictionary = Dictionary::default();
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        // Interned, but not in a report unless an event reaches it.
        let idle = dictionary.add_function_named("idle");
        dictionary.add_location(&Location {
            address: 1,
            frame_type: FrameType::Go,
            lines: &[Line::new(idle)],
            ..Location::default()
        });
        for events in [first, second] {
            for event in &events {
                add((&mut dictionary, &mut builder), event);
            }
            prop_assert_eq!(builder.pending_events(), events.len());
            let report = builder.drain(&mut dictionary, INTERVAL, usize::MAX).pop().unwrap();
            prop_assert_eq!(conformance::check(report.as_bytes()), []);
            prop_assert_eq!(report.tally().events, events.len() as u64);
            prop_assert_eq!(decoded(report.as_bytes()), sorted(events));
        }
        prop_assert_eq!(builder.finish(&mut dictionary, INTERVAL), None);
    }

    #[test]
    fn the_order_of_events_does_not_matter(events in events()) {
        let report = |events: &[Event]| {
            let mut dictionary = Dictionary::default();
            let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
            events.iter().for_each(|event| add((&mut dictionary, &mut builder), event));
            builder.finish(&mut dictionary, INTERVAL).unwrap()
        };
        let forward = report(&events);
        let backward = report(&events.iter().rev().cloned().collect::<Vec<_>>());
        prop_assert_eq!(forward.tally(), backward.tally());
        prop_assert_eq!(forward.profiles(), backward.profiles());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in vec(any::<u8>(), 0..300)) {
        let _ = decode::decode_profiles_data(&bytes);
        let _ = decode::decode_collector_file(&bytes);
        let _ = read::read_profiles_data(&bytes, &mut Dictionary::default());
        let _ = read::read_collector_file(&bytes, &mut Dictionary::default());
        let _ = conformance::check(&bytes);
    }

    #[test]
    fn a_damaged_report_is_decoded_or_refused(
        events in events(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
    ) {
        let mut dictionary = Dictionary::default();
        let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
        events.iter().for_each(|event| add((&mut dictionary, &mut builder), event));
        let mut bytes = builder.finish(&mut dictionary, INTERVAL).unwrap().as_bytes().to_vec();
        for (at, byte) in damage {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let decoded = decode::decode_profiles_data(&bytes);
        let read = read::read_profiles_data(&bytes, &mut Dictionary::default());
        prop_assert_eq!(read.is_ok(), decoded.is_ok(), "both refuse the same");
        let _ = conformance::check(&bytes);
    }
}

fn an_event() -> Event {
    Event {
        service: "service-0".to_owned(),
        off_cpu: false,
        stack: vec![(Some(1), 3), (None, 4)],
        thread_id: Some(1),
        thread_name: Some("main".to_owned()),
        cpu: Some(0),
        outcome: None,
        link: None,
        time_unix_ns: START + 5,
        value: 1,
    }
}

#[test]
fn events_of_one_identity_are_one_sample_in_the_order_of_time() {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    for time_unix_ns in [START + 9, START + 3, START + 5] {
        add((&mut dictionary, &mut builder), &Event { time_unix_ns, ..an_event() });
    }
    let report = builder.finish(&mut dictionary, INTERVAL).unwrap();
    let profiles = decode::decode_profiles_data(report.as_bytes()).unwrap();
    assert_eq!(profiles[0].samples[0].timestamps_unix_ns, [START + 3, START + 5, START + 9]);
    assert_eq!((report.tally().events, report.tally().samples, report.profiles()), (3, 1, 1));
    assert_eq!(profiles[0].period, 1_000_000_000 / 97);
}

#[test]
fn a_resource_is_its_attributes_in_any_order_and_never_without_a_name() {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let [one, two] = [("a", Value::Int(1)), ("b", Value::Bool(true))];
    assert_eq!(dictionary.add_attributes([one, two]), dictionary.add_attributes([two, one, one]));
    assert_ne!(dictionary.add_attributes([one]), dictionary.add_attributes([("a", Value::Str("1"))]));
    let nobody = dictionary.add_attributes([]);
    let stack = dictionary.add_stack(&[]);
    let attributes = SampleAttributes::default().add_to(&mut dictionary);
    let profile_type = builder.kind(CPU);
    builder.event(
        &SampleIdentity { resource: nobody, profile_type, stack, attributes, link: LinkIndex::default() },
        START,
        1,
    );
    let report = builder.finish(&mut dictionary, INTERVAL).unwrap();
    let profiles = decode::decode_profiles_data(report.as_bytes()).unwrap();
    assert_eq!(profiles[0].resource[key::SERVICE_NAME].as_str(), Some("unknown_service"));
    assert_eq!(conformance::check(report.as_bytes()), []);
}

#[test]
fn sample_attributes_are_a_set_without_repeated_keys() {
    let mut dictionary = Dictionary::default();
    let named = SampleAttributes { thread_id: Some(3), cpu: Some(1), ..SampleAttributes::default() };
    let spelt = [("cpu.logical_number", Value::Int(1)), ("thread.id", Value::Int(3))];
    let spelt = SampleAttributes { extra: &spelt, ..SampleAttributes::default() };
    assert_eq!(named.add_to(&mut dictionary), spelt.add_to(&mut dictionary));
    let contradicted = [("thread.id", Value::Int(4))];
    let contradicted = SampleAttributes { extra: &contradicted, ..named };
    assert_eq!(named.add_to(&mut dictionary), contradicted.add_to(&mut dictionary));
}

#[test]
fn a_huge_name_is_cut() {
    let mut dictionary = Dictionary::default();
    let before = dictionary.bytes();
    dictionary.add_function_named(&"\u{e9}".repeat(1 << 20));
    assert!(dictionary.bytes() - before < 10_000);
    let [one, two] = ["x", "y"].map(|end| vec!["\u{e9}".repeat(5 << 10) + end; 1000]);
    let arguments = |dictionary: &mut Dictionary, list: &[String]| {
        let extra = [("process.command_args", Value::Strings(list))];
        SampleAttributes { extra: &extra, ..SampleAttributes::default() }.add_to(dictionary)
    };
    // The kept parts of both are equal.
    assert_eq!(arguments(&mut dictionary, &one), arguments(&mut dictionary, &two));
    assert!(dictionary.bytes() - before < 4 << 20);
}

#[test]
fn a_collector_file_is_read_to_its_last_complete_message() {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let mut file = Vec::new();
    for _ in 0..2 {
        add((&mut dictionary, &mut builder), &an_event());
        let report = builder.drain(&mut dictionary, INTERVAL, usize::MAX).pop().unwrap();
        file.extend((report.as_bytes().len() as u32).to_be_bytes());
        file.extend(report.as_bytes());
    }
    assert_eq!(decode::decode_collector_file(&file).unwrap().len(), 2);
    let cut = &file[..file.len() - 1];
    assert_eq!(decode::file_messages(cut).filter(Result::is_ok).count(), 1);
    assert!(matches!(decode::decode_collector_file(cut), Err(DecodeError::CutOff { .. })));
    assert!(matches!(
        decode::decode_collector_file(&[0, 0]),
        Err(DecodeError::CutOff { offset: 0, needed: 4, left: 2 })
    ));
}

#[test]
fn an_index_out_of_range_is_refused_by_name() {
    // A ProfilesData whose only sample has stack 5.
    let sample = [8, 5];
    let nest = |field: u8, inner: &[u8]| [&[field << 3 | 2, inner.len() as u8], inner].concat();
    let profile = nest(2, &sample);
    let message = nest(1, &nest(2, &nest(2, &profile)));
    let refused = decode::decode_profiles_data(&message);
    assert_eq!(refused, Err(DecodeError::IndexOutOfRange { table: "stack", index: 5, len: 0 }));
}

#[test]
fn equal_events_are_counted_not_merged() {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let mut expected: BTreeMap<Event, usize> = BTreeMap::new();
    for _ in 0..3 {
        add((&mut dictionary, &mut builder), &an_event());
        *expected.entry(an_event()).or_default() += 1;
    }
    let mut counted: BTreeMap<Event, usize> = BTreeMap::new();
    for event in decoded(builder.finish(&mut dictionary, INTERVAL).unwrap().as_bytes()) {
        *counted.entry(event).or_default() += 1;
    }
    assert_eq!(counted, expected);
}
