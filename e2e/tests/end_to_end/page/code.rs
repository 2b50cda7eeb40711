//! The code of functions in the page, with what each line and each instruction costs.

use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use sidewinder_kind::Kind;
use sidewinder_render::{
    BinaryIndex, FrameCategory, FrameIndex, Profile, ProfileBinary, ProfileFrame, ProfileSample,
    ProfileThread, SampleType, SourceExcerpt, SourcePart, StackIndex, ThreadIndex,
};

use super::{judge, write_form};

/// A hundred samples of a program: 60 in what is inlined at line 12 of `search`, 20 at line 14, 10 in `compare`, which line 14
/// calls, and 10 in `main`. The first half of `search` is in the first second.
pub(super) fn search() -> Profile {
    let frame = |name: &str, address, path: &str, line| ProfileFrame {
        name: name.to_owned(),
        is_named: true,
        system_name: String::new(),
        binary: Some(BinaryIndex(0)),
        kind: FrameCategory::Native,
        address,
        path: path.to_owned(),
        line,
        is_guessed: false,
    };
    let stack = |frames: &[u32]| frames.iter().copied().map(FrameIndex).collect();
    let sample = |slice, stack, count| ProfileSample {
        slice,
        thread: ThreadIndex(0),
        span: None,
        state: None,
        stack: StackIndex(stack),
        count,
    };
    let source: Vec<_> = (1..=40).map(|line| format!("\tline {line} of <b>search</b>;")).collect();
    let mut profile = Profile {
        start: UNIX_EPOCH + Duration::from_secs(1_790_000_000),
        duration: Duration::from_secs(2),
        slice: Duration::from_secs(1),
        binaries: vec![ProfileBinary { path: "/srv/search".to_owned(), build_id: None, htlhash: None }],
        frames: vec![
            frame("main", 0x1000, "src/main.c", 5),
            frame("hash", 0x2010, "src/hash.h", 3),
            frame("search", 0x2010, "src/search.c", 12),
            frame("search", 0x2020, "src/search.c", 14),
            frame("compare", 0x3000, "", 0),
        ],
        stacks: vec![stack(&[1, 2, 0]), stack(&[3, 0]), stack(&[4, 3, 0]), stack(&[0])],
        threads: vec![ProfileThread {
            process: "search".into(),
            pid: 7,
            name: "search".into(),
            tid: 7,
            container: "".into(),
        }],
        samples: vec![sample(0, 0, 60), sample(1, 1, 20), sample(1, 2, 10), sample(1, 3, 10)],
        ..Profile::new(String::from("./search"), SampleType::from_kind(Kind::Cpu { samples_per_second: 50 }))
    };
    profile.annotations.sources = vec![SourceExcerpt {
        path: "src/search.c".to_owned(),
        parts: vec![SourcePart::new(1, source.iter().map(String::as_str))],
    }];
    profile
}

/// Costs of lines, with the text of the source and without.
#[test]
fn lines_have_their_costs_beside_them() -> Result<()> {
    write_form("code.html", &search())?;
    judge("lines_have_their_costs_beside_them", "code.test.mjs").map(drop)
}
