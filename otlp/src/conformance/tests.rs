//! Each rule is broken at least once; conforming messages are accepted.

use prost::Message;
use sidewinder_kind::Kind;

use super::{check, check_data};
use crate::builder::{ReportBuilder, ReportOptions, SampleAttributes, SampleIdentity};
use crate::wire::{self, AnyValue, AnyValueKind, Profile, ProfilesData, ProfilesDictionary, Sample};
use sidewinder_profile::{
    BuildIds, Dictionary, FrameType, Line, Link, LinkIndex, Location, Mapping, MappingIndex, Marker, Value,
    key,
};

const START: u64 = 1_700_000_000_000_000_000;
const CPU: Kind = Kind::Cpu { samples_per_second: 19 };
const TRUNCATED: &str = "[truncated: no_table]";

/// Two resources; the first has a CPU and an off-CPU profile. Two samples: one with a kernel, a native and a truncated
/// frame, one with only a native frame.
fn conforming() -> ProfilesData {
    let mut dictionary = Dictionary::default();
    let mut builder = ReportBuilder::new(ReportOptions::new("0.1.0"));
    let shop =
        dictionary.add_attributes([(key::SERVICE_NAME, Value::Str("shop")), ("process.pid", Value::Int(7))]);
    let till = dictionary.add_attributes([(key::SERVICE_NAME, Value::Str("till"))]);
    let build_ids = BuildIds { htlhash: Some(&"0f".repeat(16)), gnu: Some("abcd"), go: None };
    let mapping = Mapping {
        memory_start: 0x1000,
        memory_limit: 0x2000,
        file_offset: 0,
        filename: dictionary.add_string("/usr/bin/shop"),
        attributes: dictionary.add_build_ids(&build_ids),
    };
    let mapping = dictionary.add_mapping(mapping);
    let mut frame = |name, frame_type, mapping, address| {
        let function = dictionary.add_function_named(name);
        dictionary.add_location(&Location {
            mapping,
            address,
            frame_type,
            is_guessed: frame_type == FrameType::Native,
            marker: (name == TRUNCATED).then_some(&Marker::Words),
            lines: &[Line { function, line: 3, column: 9 }],
            ..Location::default()
        })
    };
    let read = frame("ksys_read", FrameType::Kernel, MappingIndex::default(), 0xffff_ffff_8100_0000);
    let work = frame("work", FrameType::Native, mapping, 0x1234);
    let cut = frame(TRUNCATED, FrameType::Native, MappingIndex::default(), 0);
    let stacks = [dictionary.add_stack(&[read, work, cut]), dictionary.add_stack(&[work])];
    let truncated = SampleAttributes {
        thread_id: Some(7),
        cpu: Some(1),
        outcome: Some("no_table"),
        ..Default::default()
    };
    let attributes = [
        truncated.add_to(&mut dictionary),
        SampleAttributes { thread_id: Some(8), ..Default::default() }.add_to(&mut dictionary),
    ];
    let link = dictionary.add_link(Link { trace_id: [1; 16], span_id: [2; 8] });
    for (at, resource, kind) in [(0, shop, Kind::OffCpu), (1, shop, CPU), (2, till, CPU)] {
        let profile_type = builder.kind(kind);
        let first =
            SampleIdentity { resource, profile_type, stack: stacks[0], attributes: attributes[0], link };
        builder.event(&first, START + at, 5);
        builder.event(&first, START + at + 100, 6);
        let second = SampleIdentity {
            stack: stacks[1],
            attributes: attributes[1],
            link: LinkIndex::default(),
            ..first
        };
        builder.event(&second, START + at + 50, 7);
    }
    ProfilesData::decode(builder.finish(&mut dictionary, START..START + 1000).unwrap().as_bytes()).unwrap()
}

fn dictionary(data: &mut ProfilesData) -> &mut ProfilesDictionary {
    data.dictionary.as_mut().unwrap()
}

fn profile(data: &mut ProfilesData) -> &mut Profile {
    &mut data.resource_profiles[0].scope_profiles[0].profiles[0]
}

fn sample(data: &mut ProfilesData) -> &mut Sample {
    &mut profile(data).samples[0]
}

fn resource(data: &mut ProfilesData) -> &mut wire::Resource {
    data.resource_profiles[0].resource.as_mut().unwrap()
}

fn add_string(data: &mut ProfilesData, text: &str) -> i32 {
    let strings = &mut dictionary(data).string_table;
    strings.push(text.to_owned());
    strings.len() as i32 - 1
}

fn float() -> Option<AnyValue> {
    Some(AnyValue { value: Some(AnyValueKind::DoubleValue(0.5)) })
}

type Break = fn(&mut ProfilesData);

const BREAKS: &[(u8, &str, Break)] = &[
    (1, "no strings", |data| dictionary(data).string_table.clear()),
    (1, "a link of zero bytes", |data| dictionary(data).link_table[0].trace_id = vec![0; 16]),
    (1, "a stack at 0", |data| dictionary(data).stack_table.swap(0, 1)),
    (1, "no dictionary", |data| data.dictionary = None),
    (2, "a string twice", |data| {
        let text = dictionary(data).string_table[1].clone();
        add_string(data, &text);
    }),
    (2, "functions that differ in the index of one name only", |data| {
        let name = dictionary(data).function_table[1].name_strindex;
        let text = dictionary(data).string_table[name as usize].clone();
        let name_strindex = add_string(data, &text);
        let twin = wire::Function { name_strindex, ..dictionary(data).function_table[1] };
        dictionary(data).function_table.push(twin);
    }),
    (2, "a stack twice", |data| {
        let twin = dictionary(data).stack_table[1].clone();
        dictionary(data).stack_table.push(twin);
    }),
    (3, "a string that nobody uses", |data| {
        add_string(data, "orphan");
    }),
    (3, "a stack without samples", |data| {
        let location_indices = vec![1, 1, 1];
        dictionary(data).stack_table.push(wire::Stack { location_indices });
    }),
    (4, "a stack too far", |data| sample(data).stack_index = 1000),
    (4, "a negative function", |data| {
        dictionary(data).location_table[1].lines[0].function_index = -1;
    }),
    (4, "a unit too far", |data| dictionary(data).attribute_table[1].unit_strindex = 1000),
    (5, "a sample with two thread ids", |data| {
        let other = profile(data).samples[1].attribute_indices[0];
        sample(data).attribute_indices.push(other);
    }),
    (5, "a resource with two names", |data| {
        let twin = resource(data).attributes[0].clone();
        resource(data).attributes.push(twin);
    }),
    (6, "a key and its index", |data| resource(data).attributes[0].key_strindex = 1),
    (6, "an index only", |data| {
        resource(data).attributes[0].key.clear();
        resource(data).attributes[0].key_strindex = 1;
    }),
    (7, "a unit in words", |data| {
        let unit = add_string(data, "seconds");
        dictionary(data).attribute_table[1].unit_strindex = unit;
    }),
    (7, "a sample type in words", |data| {
        let unit_strindex = add_string(data, "ticks");
        profile(data).sample_type.as_mut().unwrap().unit_strindex = unit_strindex;
    }),
    (8, "a float in the dictionary", |data| dictionary(data).attribute_table[1].value = float()),
    (8, "a float in a resource", |data| resource(data).attributes[0].value = float()),
    (9, "a resource twice", |data| {
        let mut twin = data.resource_profiles[0].clone();
        twin.resource.as_mut().unwrap().attributes.reverse();
        data.resource_profiles.push(twin);
    }),
    (10, "no resources", |data| data.resource_profiles.clear()),
    (10, "no resource", |data| data.resource_profiles[0].resource = None),
    (10, "no scopes", |data| data.resource_profiles[0].scope_profiles.clear()),
    (10, "no scope", |data| data.resource_profiles[0].scope_profiles[0].scope = None),
    (10, "no profiles", |data| data.resource_profiles[0].scope_profiles[0].profiles.clear()),
    (10, "no samples", |data| profile(data).samples.clear()),
    (11, "off-CPU first", |data| data.resource_profiles[0].scope_profiles[0].profiles.reverse()),
    (11, "a resource without CPU profile first", |data| {
        data.resource_profiles[0].scope_profiles[0].profiles.remove(0);
    }),
    (12, "no schema of a resource", |data| data.resource_profiles[0].schema_url.clear()),
    (12, "no schema of a scope", |data| data.resource_profiles[0].scope_profiles[0].schema_url.clear()),
    (13, "no sample type", |data| profile(data).sample_type = None),
    (13, "an empty sample type", |data| profile(data).sample_type = Some(wire::ValueType::default())),
    (14, "a short id", |data| profile(data).profile_id.truncate(8)),
    (14, "an id of zeros", |data| profile(data).profile_id = vec![0; 16]),
    (14, "an id twice", |data| {
        let id = profile(data).profile_id.clone();
        data.resource_profiles[1].scope_profiles[0].profiles[0].profile_id = id;
    }),
    (15, "a payload", |data| profile(data).original_payload = vec![1]),
    (16, "a time in seconds", |data| profile(data).time_unix_nano /= 1_000_000_000),
    (16, "a rate for a period", |data| profile(data).period = 19),
    (16, "no period type", |data| profile(data).period_type = None),
    (16, "a period of nothing", |data| profile(data).period_type = Some(wire::ValueType::default())),
    (17, "no observations", |data| sample(data).timestamps_unix_nano.clear()),
    (18, "a value too few", |data| sample(data).values.push(1)),
    (19, "two values without time", |data| {
        sample(data).timestamps_unix_nano.clear();
        sample(data).values = vec![1, 2];
    }),
    (20, "an identity twice", |data| {
        let twin = sample(data).clone();
        profile(data).samples.push(twin);
    }),
    (20, "an identity twice, in another order", |data| {
        let mut twin = sample(data).clone();
        assert!(twin.attribute_indices.len() > 1);
        twin.attribute_indices.reverse();
        profile(data).samples.push(twin);
    }),
    (21, "two shapes", |data| {
        sample(data).timestamps_unix_nano.clear();
        sample(data).values = vec![1];
    }),
    (22, "an event before", |data| profile(data).time_unix_nano += 10),
    (22, "an event at the end", |data| {
        let profile = profile(data);
        profile.duration_nano = profile.samples[0].timestamps_unix_nano[1] - profile.time_unix_nano;
    }),
    (23, "a long span id", |data| dictionary(data).link_table[1].span_id = vec![1; 16]),
    (23, "no trace id", |data| dictionary(data).link_table[1].trace_id.clear()),
    (24, "root first", |data| dictionary(data).stack_table[1].location_indices.reverse()),
    (24, "a frame beyond the truncation", |data| {
        dictionary(data).stack_table[1].location_indices.swap(1, 2);
    }),
    (24, "a frame beyond the truncation of another stack", |data| {
        let truncation = dictionary(data).stack_table[1].location_indices[2];
        dictionary(data).stack_table[2].location_indices.insert(0, truncation);
    }),
    (24, "a truncation that could be a function", |data| {
        let truncation = dictionary(data).stack_table[1].location_indices[2] as usize;
        dictionary(data).location_table[truncation].attribute_indices.clear();
    }),
    (25, "an address beyond its mapping", |data| {
        let locations = &mut dictionary(data).location_table;
        locations.iter_mut().find(|location| location.mapping_index != 0).unwrap().address = 0x2001;
    }),
    (26, "a negative line", |data| dictionary(data).location_table[1].lines[0].line = -1),
    (26, "a column of no line", |data| dictionary(data).location_table[1].lines[0].line = 0),
    (27, "a mapping that ends where it starts", |data| {
        let mapping = &mut dictionary(data).mapping_table[1];
        mapping.memory_start = mapping.memory_limit;
    }),
    (28, "a function without a name", |data| {
        dictionary(data).function_table[1] = wire::Function { start_line: 3, ..Default::default() };
    }),
    (29, "no htlhash", |data| dictionary(data).mapping_table[1].attribute_indices.clear()),
    (29, "an htlhash that is too short", |data| {
        let value = &mut dictionary(data).attribute_table;
        let htlhash =
            value.iter_mut().find(|attribute| attribute.value == Some(wire::string_value(&"0f".repeat(16))));
        htlhash.unwrap().value = Some(wire::string_value("0f0f"));
    }),
    (29, "a GNU build ID in capitals", |data| {
        let attributes = &mut dictionary(data).attribute_table;
        let gnu = attributes.iter_mut().find(|attribute| attribute.value == Some(wire::string_value("abcd")));
        gnu.unwrap().value = Some(wire::string_value("ABCD"));
    }),
];

#[test]
fn what_the_builder_makes_breaks_no_rule() {
    assert_eq!(check(&conforming().encode_to_vec()), []);
}

#[test]
fn each_way_to_break_a_rule_is_found() {
    for (rule, how, break_it) in BREAKS {
        let mut data = conforming();
        break_it(&mut data);
        let violations = check_data(&data);
        assert!(violations.iter().any(|found| found.rule == *rule), "{rule}, {how}: {violations:?}");
    }
}

#[test]
fn each_rule_is_broken_once() {
    for rule in 1..=29 {
        assert!(BREAKS.iter().any(|(broken, ..)| *broken == rule), "{rule}");
    }
}

#[test]
fn what_is_no_message_is_said_to_be_none() {
    let rules: Vec<u8> = check(b"\xff\xff\xff").iter().map(|violation| violation.rule).collect();
    assert_eq!(rules, [0]);
}

#[test]
fn aggregated_samples_have_one_value_and_no_time() {
    let mut data = conforming();
    for resource in &mut data.resource_profiles {
        for sample in resource.scope_profiles[0].profiles.iter_mut().flat_map(|p| &mut p.samples) {
            sample.timestamps_unix_nano.clear();
            sample.values = vec![4];
        }
    }
    assert_eq!(check_data(&data), []);
}

#[test]
fn a_violation_says_where_it_is() {
    let mut data = conforming();
    profile(&mut data).samples[1].stack_index = -5;
    let violations = check_data(&data);
    assert!(violations.iter().any(|violation| violation.to_string()
        == "rule 4: resource_profiles[0].scope_profiles[0].profiles[0].samples[1]: -5 is outside of stack_table"));
}
