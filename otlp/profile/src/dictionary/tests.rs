//! What is added is held once, and says what was given.

use super::*;
use crate::marker::Truncation;

#[test]
fn a_location_is_held_once_with_its_frames() {
    let mut dictionary = Dictionary::default();
    let [inner, outer] = ["inner", "outer"].map(|name| dictionary.add_function_named(name));
    let lines = [Line { line: 3, ..Line::new(inner) }, Line::new(outer)];
    let location =
        Location { address: 0x1000, frame_type: FrameType::Rust, lines: &lines, ..Location::default() };
    let at = dictionary.add_location(&location);
    assert_eq!(dictionary.add_location(&location), at);
    assert_eq!(dictionary.location(at), location);
    let others = [
        Location { address: 0x1001, ..location },
        Location { is_guessed: true, ..location },
        Location { marker: Some(&Marker::Words), ..location },
        Location { lines: &lines[1..], ..location },
    ];
    for other in others {
        assert_ne!(dictionary.add_location(&other), at, "{other:?}");
    }
    let stack = dictionary.add_stack(&[at, at]);
    let frames: Vec<_> = dictionary.frames_of(stack).filter_map(|frame| dictionary.frame(frame)).collect();
    let seen: Vec<_> = frames.iter().map(|frame| (frame.name(), frame.line.line, frame.is_inlined)).collect();
    let (inner, outer) = (("inner".into(), 3, true), ("outer".into(), 0, false));
    assert_eq!(seen, [inner.clone(), outer.clone(), inner, outer]);
}

#[test]
fn a_location_without_a_function_is_described_by_its_file_and_address() {
    let mut dictionary = Dictionary::default();
    let filename = dictionary.add_string("/usr/lib/libc.so.6");
    let mapping = dictionary.add_mapping(Mapping { filename, ..Mapping::default() });
    let at = dictionary.add_location(&Location { mapping, address: 0x1234, ..Location::default() });
    let frames: Vec<_> = dictionary.frames_at(at).filter_map(|frame| dictionary.frame(frame)).collect();
    assert_eq!(frames.len(), 1);
    assert_eq!((&*frames[0].name(), frames[0].is_named()), ("libc.so.6+0x1234", false));
    assert_eq!(frames[0].binary_path(), "/usr/lib/libc.so.6");
}

#[test]
fn the_description_of_a_location_is_its_name_where_a_message_has_no_mapping() {
    let mut dictionary = Dictionary::default();
    let htlhash = "01".repeat(16);
    let build_ids = BuildIds { htlhash: Some(&htlhash), ..BuildIds::default() };
    let mapping = Mapping {
        memory_start: 0x1000,
        memory_limit: 0x2000,
        file_offset: 0x300,
        filename: dictionary.add_string("/srv/app"),
        attributes: dictionary.add_build_ids(&build_ids),
    };
    let identified = dictionary.add_mapping(mapping);
    let other = dictionary.add_mapping(Mapping { attributes: AttributeSetIndex::default(), ..mapping });
    for (mapping, written) in [(identified, 0), (other, 1)] {
        let location = Location { mapping, address: 0x1004, ..Location::default() };
        let at = dictionary.add_unnamed_location(&location);
        let frame = dictionary.frames_at(at).next().and_then(|frame| dictionary.frame(frame)).unwrap();
        assert_eq!((&*frame.name(), frame.is_named()), ("app+0x304", false));
        assert_eq!(dictionary.written_lines(&frame.location).count(), written);
    }
}

#[test]
fn a_location_says_whether_words_in_brackets_are_the_profilers() {
    let mut dictionary = Dictionary::default();
    let bracketed = dictionary.add_function_named("[x]");
    let lines = [Line::new(bracketed)];
    let mut says = |marker: Option<&Marker>| {
        let location = Location { marker, lines: &lines, ..Location::default() };
        let at = dictionary.add_location(&location);
        let attributes = dictionary.attributes_of(dictionary.attributes_of_location(at));
        let marker = attributes.filter(|(key, _)| *key == key::FRAME_MARKER);
        marker.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(says(None), [AttributeValue::Bool(false)]);
    assert_eq!(says(Some(&Marker::Words)), [AttributeValue::Bool(true)]);
    let lost = dictionary.add_marker(&Marker::truncated("lost"));
    let name = dictionary.frames_at(lost).next().and_then(|frame| Some(dictionary.frame(frame)?.name()));
    assert_eq!(name.as_deref(), Some("[truncated: lost]"));
}

#[test]
fn of_two_values_of_a_key_the_first_counts() {
    let mut dictionary = Dictionary::default();
    let texts = ["x".to_owned()];
    let list = ("list", Value::Strings(&texts));
    let twice = [("a", Value::Int(1)), ("", Value::Int(2)), ("a", Value::Int(3)), list];
    let set = dictionary.add_attributes(twice);
    let held: Vec<_> = dictionary.attributes_of(set).collect();
    let held_list = AttributeValue::List([AttributeValue::Str("x".into())].into());
    assert_eq!(held, [("a", &AttributeValue::Int(1)), ("list", &held_list)]);
    assert_eq!(dictionary.add_attributes([list, ("a", Value::Int(1))]), set);
    let again: Vec<_> = [("list", &held_list), ("a", &AttributeValue::Int(1))]
        .into_iter()
        .map(|(key, value)| {
            let key = dictionary.add_string(key);
            dictionary.add_held_attribute(key, value)
        })
        .collect();
    assert_eq!(dictionary.add_attribute_set(again), set);
    assert_eq!(dictionary.add_attributes([]), AttributeSetIndex::default());
}

#[test]
fn of_two_sets_the_first_counts() {
    let mut dictionary = Dictionary::default();
    let [first, second] = [[("a", 1), ("b", 1)], [("b", 2), ("c", 2)]]
        .map(|set| dictionary.add_attributes(set.map(|(key, number)| (key, Value::Int(number)))));
    let union = dictionary.add_union(first, second);
    let numbers: Vec<_> = dictionary.attributes_of(union).map(|(key, value)| (key, value.as_int())).collect();
    assert_eq!(numbers, [("a", Some(1)), ("b", Some(1)), ("c", Some(2))]);
}

#[test]
fn files_and_markers_that_are_replaced_are_found_by_what_they_are_now() {
    let mut dictionary = Dictionary::default();
    let mapping = dictionary.add_file("/opt/app-1");
    let lost = dictionary.add_marker(&Marker::truncated("lost"));
    let lock = dictionary.add_marker(&Marker::Lock("7f".into()));
    dictionary.rename_files(|path| (path == "/opt/app-1").then(|| "/opt/app-2".to_owned()));
    assert_eq!((dictionary.add_file("/opt/app-2"), dictionary.mappings().len()), (mapping, 2));
    let known = Truncation { reason: "no_rule".into(), summary: "lost".into(), is_loss: true };
    let known = Marker::Truncated(known.into());
    dictionary.replace_markers(|marker| matches!(marker, Marker::Truncated(_)).then(|| known.clone()));
    assert_eq!(
        [&known, &Marker::Lock("7f".into())].map(|marker| dictionary.add_marker(marker)),
        [lost, lock]
    );
    assert_eq!(dictionary.location(lost).marker, Some(&known));
}

#[test]
fn stacks_can_be_forgotten_and_the_rest_stays() {
    let mut dictionary = Dictionary::default();
    let at = dictionary.add_marker(&Marker::truncated("lost"));
    let before = dictionary.bytes();
    let stack = dictionary.add_stack(&[at]);
    assert!(dictionary.bytes() > before);
    dictionary.forget_stacks();
    assert_eq!((dictionary.bytes(), dictionary.stack(stack).len()), (before, 0));
    assert_eq!(dictionary.add_stack(&[at]), stack);
}
