//! What a message of OTLP refers to often is held once, and what it expands to is limited.

use super::*;
use crate::report::LOCK_ID;

/// A field of a message: its number, and what it contains.
fn field(number: u8, content: &[u8]) -> Vec<u8> {
    let mut field = vec![number << 3 | 2];
    field.extend(varint(content.len() as u64));
    field.extend(content);
    field
}

fn integer(number: u8, value: u64) -> Vec<u8> {
    [vec![number << 3], varint(value)].concat()
}

fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A message of one stack, which has one location so often, with so many inlined calls of one function; and of a sample for each
/// of some locks that its thread waited for.
fn message(references: usize, lines: usize, function: &str, locks: usize) -> Vec<u8> {
    let empty = |number| field(number, &[]);
    let line = |line| field(3, &[integer(1, 1), integer(2, line)].concat());
    let lines: Vec<u8> = (1..=lines as u64).flat_map(line).collect();
    let mut strings: Vec<String> = ["", "samples", "count", function, LOCK_ID].map(str::to_owned).to_vec();
    strings.extend((0..locks).map(|lock| lock.to_string()));
    let strings: Vec<u8> = strings.iter().flat_map(|text| field(5, text.as_bytes())).collect();
    let lock = |lock: usize| {
        let value = integer(8, lock as u64 + 5);
        field(6, &[integer(1, 4), field(2, &value)].concat())
    };
    let locks_table: Vec<u8> = (0..locks).flat_map(lock).collect();
    let dictionary = [
        empty(1),
        empty(2),
        field(2, &lines),
        empty(3),
        field(3, &integer(1, 3)),
        empty(4),
        strings,
        empty(6),
        locks_table,
        empty(7),
        field(7, &field(1, &vec![1; references])),
    ];
    let sample =
        |lock: usize| field(2, &[integer(1, 1), field(2, &varint(lock as u64)), field(4, &[1])].concat());
    let samples = (1..=locks).flat_map(sample);
    let plain = field(2, &[integer(1, 1), field(4, &[1])].concat());
    let samples: Vec<u8> = plain.into_iter().chain(samples).collect();
    let profile = [field(1, &[integer(1, 1), integer(2, 2)].concat()), samples].concat();
    [field(1, &field(2, &field(2, &profile))), field(2, &dictionary.concat())].concat()
}

/// Why a message is refused, as a file and as one that is received.
fn refusals(message: &[u8]) -> [String; 2] {
    let file = from_report_bytes("", message, None).unwrap_err().to_string();
    let received = from_message("", message, usize::MAX).unwrap_err().to_string();
    [file, received]
}

#[test]
fn references_to_inlined_calls_are_refused_before_they_become_frames() {
    let message = message(30_000, 30_000, "main", 0);
    let limit = (1 << 20) + 4 * message.len();
    for refusal in refusals(&message) {
        assert_eq!(refusal, format!("it expands to more than {limit} frames, the limit for its size"));
    }
}

#[test]
fn a_received_message_takes_no_more_memory_than_there_is_for_it() {
    let message = message(500, 1000, "main", 0);
    assert!(from_message("", &message, usize::MAX).is_ok());
    assert!(matches!(from_message("", &message, 16 << 20), Err(ImportError::Expansion(_))));
}

#[test]
fn a_long_name_in_many_lines_is_refused() {
    let message = message(1, 20_000, &"x".repeat(8 << 10), 0);
    for refusal in refusals(&message) {
        assert!(refusal.contains("expands to more than"), "{refusal}");
    }
}

#[test]
fn a_stack_with_many_locks_counts_with_each() {
    let few = from_report_bytes("", &message(1, 1000, "main", 500), None).unwrap();
    assert_eq!(few.dictionary.stack_count(), 1 + 501, "and the empty one");
    let message = message(1, 1000, "main", 5000);
    for refusal in refusals(&message) {
        assert!(refusal.contains("expands to more than"), "{refusal}");
    }
}

#[test]
fn lines_of_a_function_share_its_name() {
    let profile = from_report_bytes("", &message(2, 3, "main", 0), None).unwrap();
    let dictionary = &profile.dictionary;
    let frames = dictionary.frames_of(profile.samples[0].stack).filter_map(|frame| dictionary.frame(frame));
    let frames: Vec<_> = frames.map(|frame| (frame.name().into_owned(), frame.line.line)).collect();
    assert_eq!(frames, [1, 2, 3, 1, 2, 3].map(|line| ("main".to_owned(), line)));
    assert_eq!((profile.total_count(), dictionary.functions().len()), (1, 1 + 1), "and the unknown one");
}

#[test]
fn profiles_of_too_many_types_are_refused_as_a_file_too() {
    let of_type = |number: u64| field(2, &field(1, &integer(1, number)));
    let profiles: Vec<u8> = (0..=MEASURES_MAX as u64).flat_map(of_type).collect();
    let text = |number| field(5, format!("type {number}").as_bytes());
    let strings: Vec<u8> = (0..=MEASURES_MAX).flat_map(text).collect();
    let message = [field(1, &field(2, &profiles)), field(2, &strings)].concat();
    for refusal in refusals(&message) {
        assert!(refusal.contains("more than 64 types"), "{refusal}");
    }
}

#[test]
fn a_file_of_several_messages_is_read_up_to_the_last_whole_one() {
    let message = message(1, 1, "main", 0);
    let framed = [&(message.len() as u32).to_be_bytes(), &*message].concat();
    let count = |file: &[u8]| {
        let profile = from_report_bytes("", file, None)?;
        Ok(profile.samples.iter().map(|sample| sample.count).sum::<u64>())
    };
    let one = count(&message).unwrap();
    assert!(one > 0);
    let file = framed.repeat(3);
    assert_eq!(count(&file).unwrap(), 3 * one);
    assert_eq!(count(&file[..file.len() - 1]).unwrap(), 2 * one);
    assert!(matches!(count(&framed[..7]), Err(ImportError::Decode(DecodeError::CutOff { .. }))));
}
