//! What a message shares is shared in memory, and what it expands to is limited.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::*;
use crate::read::NoNames;

/// A profile of one sample, which has one location so often, with so many inlined calls of one function.
fn profile(references: usize, lines: usize, function: &str) -> proto::Profile {
    proto::Profile {
        sample_type: vec![proto::ValueType { r#type: 1, unit: 2 }],
        sample: vec![proto::Sample { location_id: vec![1; references], value: vec![1], label: Vec::new() }],
        location: vec![proto::Location {
            id: 1,
            line: vec![proto::Line { function_id: 1, line: 0 }; lines],
            ..proto::Location::default()
        }],
        function: vec![proto::Function { id: 1, name: 3, system_name: 0, filename: 4 }],
        string_table: ["", "samples", "count", function, "main.c"].map(str::to_owned).to_vec(),
        ..proto::Profile::default()
    }
}

/// Reads a message as a compressed file; also returns the size of that.
fn read_compressed(message: &[u8]) -> (Result<Profile, ReadError>, usize) {
    let mut file = GzEncoder::new(Vec::new(), Compression::best());
    file.write_all(message).unwrap();
    let file = file.finish().unwrap();
    (crate::read::read("", &*file, None, &mut NoNames), file.len())
}

#[test]
fn references_to_inlined_calls_are_refused_before_they_become_frames() {
    let (profile, size) = read_compressed(&profile(20_000, 20_000, "main").encode_to_vec());
    assert!(size < 300, "{size} bytes");
    let error = profile.unwrap_err().to_string();
    let limit = (1 << 20) + size as u64 * 16 * 4;
    assert_eq!(error, format!("it expands to more than {limit} frames, the limit for its size"));
}

#[test]
fn a_long_name_in_many_lines_is_refused() {
    let name = "x".repeat(1_000_000);
    let (profile, _) = read_compressed(&profile(1, 1000, &name).encode_to_vec());
    assert!(matches!(profile, Err(ReadError::Expansion(_))), "{profile:?}");
}

#[test]
fn entries_that_are_nothing_on_the_wire_are_refused() {
    let message = profile(1, 1, "main").encode_to_vec();
    for tag in [2_u8, 3, 4, 5, 6] {
        let empty = [tag << 3 | 2, 0].repeat(300_000);
        let (profile, _) = read_compressed(&[&*message, &empty].concat());
        // Samples that count nothing are not held.
        assert_eq!(profile.is_ok(), tag == 2, "field {tag}");
    }
}

#[test]
fn frames_share_their_texts_and_samples_their_stacks() {
    let mut message = profile(2, 3, "main");
    message.sample.extend(message.sample.clone());
    let profile = read("", &message.encode_to_vec(), ExpansionBudget::for_document(0, 0)).unwrap();
    let dictionary = &profile.dictionary;
    assert_eq!((profile.samples.len(), dictionary.stack_count()), (2, 2), "and the empty one");
    assert_eq!((dictionary.functions().len(), dictionary.location_count()), (2, 2), "and the unknown ones");
    let frames: Vec<_> = profile.frames_of(profile.samples[0].stack).collect();
    assert_eq!(frames.len(), 6);
    assert!(frames.iter().all(|frame| (&*frame.name(), frame.path()) == ("main", "main.c")));
}

#[test]
fn folded_stacks_that_compress_to_nothing_are_refused() {
    let text = format!("{}a 1\n", "a;".repeat(2_000_000));
    let (profile, _) = read_compressed(text.as_bytes());
    assert!(matches!(profile, Err(ReadError::Expansion(_))));
    let profile = crate::read::read("", text.as_bytes(), None, &mut NoNames).unwrap();
    assert_eq!(
        profile.frames_of(profile.samples[0].stack).count(),
        2_000_001,
        "uncompressed it is as long as it says"
    );
}
