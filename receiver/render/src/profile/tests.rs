//! Profiles for tests.

use sidewinder_kind::Kind;
use sidewinder_profile::{
    BuildIds, FrameType, Line, Location, LocationIndex, Mapping, MappingIndex, Marker, SourceLine,
};

use super::*;
use crate::category::FrameCategory;
use crate::read::guess_marker;

/// A frame in plain values: a location, or a line of the location that follows in a stack.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TestFrame {
    pub(crate) name: String,
    pub(crate) is_named: bool,
    /// The path of its file; empty if it has none.
    pub(crate) file: &'static str,
    pub(crate) frame_type: FrameType,
    pub(crate) marker: Option<Marker>,
    pub(crate) address: u64,
    pub(crate) path: String,
    pub(crate) line: u32,
    /// Whether it is inlined into the next frame of each stack.
    pub(crate) is_inlined: bool,
    pub(crate) is_guessed: bool,
}

/// A frame of this category in `/usr/bin/app`, or in the kernel.
pub(crate) fn frame(name: &str, category: FrameCategory, address: u64) -> TestFrame {
    let frame_type = match category {
        FrameCategory::Native | FrameCategory::Lock | FrameCategory::Marker => FrameType::Native,
        FrameCategory::Rust => FrameType::Rust,
        FrameCategory::Go => FrameType::Go,
        FrameCategory::Python => FrameType::CPython,
        FrameCategory::Jit => FrameType::Jvm,
        FrameCategory::Kernel => FrameType::Kernel,
    };
    let is_marker = matches!(category, FrameCategory::Lock | FrameCategory::Marker);
    TestFrame {
        name: name.to_owned(),
        is_named: true,
        file: if category == FrameCategory::Kernel { "[kernel]" } else { "/usr/bin/app" },
        frame_type,
        marker: is_marker.then(|| guess_marker(name)),
        address,
        path: String::new(),
        line: 0,
        is_inlined: false,
        is_guessed: false,
    }
}

/// Adds a file; the program has a build ID.
fn add_file(dictionary: &mut Dictionary, path: &str) -> MappingIndex {
    match path {
        "" => MappingIndex::default(),
        "/usr/bin/app" => {
            let filename = dictionary.add_string(path);
            let build_ids = BuildIds { gnu: Some("0123abcd"), ..BuildIds::default() };
            let attributes = dictionary.add_build_ids(&build_ids);
            dictionary.add_mapping(Mapping { filename, attributes, ..Mapping::default() })
        }
        path => dictionary.add_file(path),
    }
}

/// Adds a stack of frames, leaf first.
pub(crate) fn add_stack<'a>(
    dictionary: &mut Dictionary,
    frames: impl IntoIterator<Item = &'a TestFrame>,
) -> StackIndex {
    let mut locations = Vec::<LocationIndex>::new();
    let mut lines = Vec::<Line>::new();
    for frame in frames {
        let TestFrame { name, path, line, .. } = frame;
        let source = SourceLine { function: name, path, line: *line, ..SourceLine::default() };
        lines.push(dictionary.add_line(&source));
        if frame.is_inlined {
            continue;
        }
        let mapping = add_file(dictionary, frame.file);
        locations.push(dictionary.add_location(&Location {
            mapping,
            address: frame.address,
            frame_type: frame.frame_type,
            is_generated: false,
            is_guessed: frame.is_guessed,
            is_unnamed: !frame.is_named,
            marker: frame.marker.as_ref(),
            lines: &std::mem::take(&mut lines),
        }));
    }
    dictionary.add_stack(&locations)
}

/// The sample, with the callers of `write` guessed.
pub(crate) fn guessed_sample() -> Profile {
    let mut frames = sample_frames();
    frames.push(TestFrame { is_guessed: true, ..frames[0].clone() });
    let mut stacks = SAMPLE_STACKS;
    stacks[4].0 = &[3, 4, 5];
    profile(&frames, &stacks)
}

/// Each stack one second after the previous one, on one thread.
pub(crate) fn profile(frames: &[TestFrame], stacks: &[(&[usize], u64)]) -> Profile {
    let mut dictionary = Dictionary::default();
    let add = |(&(stack, count), number): (&(&[usize], u64), u32)| ProfileSample {
        slice: number,
        thread: ThreadIndex(0),
        span: LinkIndex::default(),
        state: None,
        stated: StatedAttributes::default(),
        stack: add_stack(&mut dictionary, stack.iter().map(|frame| &frames[*frame])),
        count,
    };
    let samples = stacks.iter().zip(0..).map(add).collect();
    let outcome = |name: &str, count, severity, help: &str| OutcomeCount {
        name: name.to_owned(),
        count,
        severity,
        help: help.to_owned(),
    };
    Profile {
        title: String::from("app --fast"),
        measure: SampleType::from_kind(Kind::Cpu { samples_per_second: 100 }),
        shape: SampleShape::Timestamps,
        start: SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000),
        duration: Duration::from_secs(5),
        covered_unix_ns: 0..0,
        slice: Duration::from_secs(1),
        dictionary,
        threads: vec![ProfileThread {
            process: "app".into(),
            pid: 7,
            name: "worker".into(),
            tid: 8,
            container: "".into(),
        }],
        states: Vec::new(),
        samples,
        recordings: Vec::new(),
        annotations: Annotations::default(),
        is_per_thread: false,
        outcomes: vec![
            outcome("complete", 10, Severity::Complete, ""),
            outcome("idle", 86, Severity::Excluded, ""),
            outcome("no table", 4, Severity::Truncated, "raise memory_limit_mib"),
            outcome("ring full", 0, Severity::Lost, "raise the ring's size"),
        ],
    }
}

/// The stacks of [`sample`], and the events of each.
pub(crate) const SAMPLE_STACKS: [(&[usize], u64); 5] =
    [(&[0], 3), (&[1, 0], 4), (&[2, 0], 1), (&[2, 1, 0], 2), (&[3, 4, 0], 4)];

/// The frames of [`sample`].
pub(crate) fn sample_frames() -> Vec<TestFrame> {
    vec![
        frame("main", FrameCategory::Rust, 0x1000),
        frame("work", FrameCategory::Native, 0x2000),
        frame("work", FrameCategory::Native, 0x2010),
        frame("vfs_write", FrameCategory::Kernel, 0xffff_ffff_8100_0000),
        frame("write_it", FrameCategory::Native, 0x3000),
    ]
}

/// Fourteen events; `work` recurses, and occurs at two addresses.
pub(crate) fn sample() -> Profile {
    profile(&sample_frames(), &SAMPLE_STACKS)
}

/// Ten events in `hot`, whose line 21 calls `hash`, or another function, which is inlined there, and whose line 30 is of another
/// file. `hot` calls itself once from line 25.
pub(crate) fn lines_with(inlined: &str) -> Profile {
    let line = |name: &str, address, path: &str, line| TestFrame {
        path: path.to_owned(),
        line,
        ..frame(name, FrameCategory::Native, address)
    };
    let frames = [
        line("main", 0x1000, "src/main.c", 7),
        line("hot", 0x2000, "src/hot.c", 20),
        TestFrame { is_inlined: true, ..line(inlined, 0x2010, "src/hash.h", 4) },
        line("hot", 0x2010, "src/hot.c", 21),
        line("hot", 0x2020, "src/hot.c", 25),
        line("hot", 0x2030, "src/table.inc", 30),
    ];
    profile(&frames, &[(&[1, 0], 3), (&[2, 3, 0], 4), (&[2, 3, 4, 0], 2), (&[5, 0], 1)])
}

/// The same with `hash`.
pub(crate) fn lines() -> Profile {
    lines_with("hash")
}

/// One event with a stack of these names, leaf first, in process `p`.
pub(crate) fn one_stack(names: &[&str]) -> Profile {
    let frames: Vec<_> = names.iter().map(|name| frame(name, FrameCategory::Native, 0)).collect();
    let stack: Vec<_> = (0..names.len()).collect();
    let mut profile = profile(&frames, &[(&stack, 1)]);
    profile.threads[0].process = "p".into();
    profile
}

/// The name of each frame that is in a stack.
pub(crate) fn frame_names(profile: &Profile) -> Vec<String> {
    profile.stacked_frames().map(|(_, frame)| frame.name().into_owned()).collect()
}
