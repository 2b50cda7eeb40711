//! The profile that is rendered: stacks with counts, and the outcomes of interrupts.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_kind::{Kind, SampleShape};
use sidewinder_profile::{AttributeSet, FrameType, Marker, SampleType};

use crate::annotation::Annotations;
use crate::container::ProfileContainer;
use crate::escape::escaped;

/// One recording.
#[derive(Clone, PartialEq, Debug)]
pub struct Profile {
    /// The target of the profile, in the user's words: a command line, a process.
    pub title: String,
    /// The meaning of each event.
    pub measure: SampleType,
    /// What a file can say of each event: its time, its value, or only the sum of values.
    pub shape: SampleShape,
    /// The start of the recording.
    pub start: SystemTime,
    /// The duration of the recording.
    pub duration: Duration,
    /// The time that the file covers in which the profile was, in nanoseconds since 1970; empty if that is unknown.
    pub covered_unix_ns: Range<u64>,
    /// The length of the slices that divide the time since `start`; zero if times are not known.
    pub slice: Duration,
    /// The files that contain the code of the frames.
    pub binaries: Vec<ProfileBinary>,
    /// Each distinct frame, once.
    pub frames: Vec<ProfileFrame>,
    /// Each distinct stack, once, leaf first.
    pub stacks: Vec<Vec<FrameIndex>>,
    /// The threads of the samples.
    pub threads: Vec<ProfileThread>,
    /// The spans that threads reported.
    pub spans: Vec<ProfileSpan>,
    /// States of threads.
    pub states: Vec<ThreadState>,
    /// What the senders of samples state of them; the first set is empty.
    pub attribute_sets: Vec<AttributeSet>,
    /// The count of each stack, in any order; equal samples need not be merged.
    pub samples: Vec<ProfileSample>,
    /// The outcomes of interrupts; each interrupt is counted once.
    pub outcomes: Vec<OutcomeCount>,
    /// The recordings that were merged into this one; empty if it is a single one.
    pub recordings: Vec<MergedRecording>,
    /// What pages show of the code of functions.
    pub annotations: Annotations,
    /// Whether threads are shown apart.
    pub is_per_thread: bool,
}

/// Index in [`Profile::binaries`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BinaryIndex(pub u32);

/// Index in [`Profile::frames`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FrameIndex(pub u32);

/// A file that contains code, or a part of one that is mapped into memory.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct ProfileBinary {
    /// Its path as the profiled process sees it; `[kernel]`, `[vdso]` or `[module]` if it has none.
    pub path: String,
    /// The GNU build ID in hexadecimal, if it has one.
    pub build_id: Option<String>,
    /// Go's build ID, if it has one.
    pub go_build_id: Option<String>,
    /// The addresses of the part, in the address space of the frames' addresses; empty if they are unknown.
    pub addresses: Range<u64>,
    /// The offset of the part in the file.
    pub file_offset: u64,
    /// OpenTelemetry's hash of its beginning, end and length (`process.executable.build_id.htlhash`), if known.
    pub htlhash: Option<String>,
}

impl ProfileBinary {
    /// The last component of its path; empty if that ends with a slash.
    pub(crate) fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// A location in code: one for each call that is inlined there, and one for the function that contains them.
#[derive(Clone, PartialEq, Eq, Hash, Default, Debug)]
pub struct ProfileFrame {
    /// The function's name in its source; if it has no name, a description of the location. Frames of one function share it.
    pub name: Arc<str>,
    /// Whether `name` is the name of a function.
    pub is_named: bool,
    /// The function's linker symbol; empty if it equals `name`.
    pub system_name: Arc<str>,
    /// The file that contains its code, if there is one.
    pub binary: Option<BinaryIndex>,
    /// The language or runtime of its code.
    pub frame_type: FrameType,
    /// Whether a process generated its code at run time, if `frame_type` does not say by which runtime.
    pub is_generated: bool,
    /// What the frame stands for if `name` is words of the profiler in brackets, and not from the target.
    pub marker: Option<Marker>,
    /// The address of the instruction, in the binary's address space; 0 if unknown. Calls inlined there have the same
    /// address.
    pub address: u64,
    /// The source file; empty if unknown.
    pub path: Arc<str>,
    /// The line number in it, from 1; 0 if unknown.
    pub line: u32,
    /// The column, from 1; 0 if unknown.
    pub column: u32,
    /// Whether the call is inlined into the next frame of each of its stacks, at the same location.
    pub is_inlined: bool,
    /// Whether this caller was found only by an unproven frame pointer.
    pub is_guessed: bool,
}

impl ProfileFrame {
    /// The frame of a marker that is not code.
    #[must_use]
    pub fn from_marker(marker: Marker) -> Self {
        let name = marker.label().unwrap_or_default().into();
        Self { name, is_named: true, marker: Some(marker), ..Self::default() }
    }

    /// A frame that is nothing but words of the profiler.
    #[must_use]
    pub fn from_words(words: impl Into<Arc<str>>) -> Self {
        Self { name: words.into(), is_named: true, marker: Some(Marker::Words), ..Self::default() }
    }

    /// Whether it stands for a lock.
    pub(crate) fn is_lock(&self) -> bool {
        matches!(self.marker, Some(Marker::Lock(_)))
    }

    /// Whether it is code of the kernel, or stands for some.
    pub(crate) fn is_kernel(&self) -> bool {
        self.frame_type == FrameType::Kernel
    }

    /// The category by which it is drawn and its name is shortened.
    #[must_use]
    pub fn category(&self) -> FrameCategory {
        match (&self.marker, self.frame_type) {
            (Some(Marker::Truncated(_)), _) => FrameCategory::Marker,
            (Some(Marker::Lock(_)), _) => FrameCategory::Lock,
            (Some(Marker::Words), FrameType::Native) if self.binary.is_none() && self.address == 0 => {
                FrameCategory::Marker
            }
            (_, FrameType::Kernel) => FrameCategory::Kernel,
            (_, FrameType::Rust) => FrameCategory::Rust,
            (_, FrameType::Go) => FrameCategory::Go,
            (_, FrameType::CPython) => FrameCategory::Python,
            (_, FrameType::Native) if !self.is_generated => FrameCategory::Native,
            _ => FrameCategory::Jit,
        }
    }
}

/// The category of a frame's code, which output for people tells apart. It follows from the frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum FrameCategory {
    /// Compiled code of an unknown language: C, C++, assembly.
    Native,
    /// Compiled by rustc.
    Rust,
    /// Compiled by Go.
    Go,
    /// A Python function.
    Python,
    /// Code that a runtime compiled at run time.
    Jit,
    /// The kernel, its modules and BPF programs.
    Kernel,
    /// Not code: the lock that a thread waits for, as `[lock ID]`.
    Lock,
    /// Not code: a marker of the profiler, as `[truncated: REASON]`.
    Marker,
}

impl FrameCategory {
    /// All categories, in the order of legends.
    pub const ALL: [Self; 8] =
        [Self::Native, Self::Rust, Self::Go, Self::Python, Self::Jit, Self::Kernel, Self::Lock, Self::Marker];

    /// The label in legends.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Rust => "Rust",
            Self::Go => "Go",
            Self::Python => "Python",
            Self::Jit => "JIT",
            Self::Kernel => "kernel",
            Self::Lock => "lock",
            Self::Marker => "truncated or missing",
        }
    }
}

/// Index in [`Profile::stacks`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StackIndex(pub u32);

/// Index in [`Profile::threads`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadIndex(pub u32);

/// Index in [`Profile::spans`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SpanIndex(pub u32);

/// A thread.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileThread {
    /// The name of its process; empty if unknown.
    pub process: Arc<str>,
    /// The PID of its process; 0 if unknown.
    pub pid: u32,
    /// Its name; empty if unknown.
    pub name: Arc<str>,
    /// Its TID; 0 if unknown.
    pub tid: u32,
    /// Its container.
    pub container: ProfileContainer,
}

/// Index in [`Profile::states`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct StateIndex(pub u32);

/// What a thread does or waits for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ThreadState {
    /// `running`, `runnable`, `sleeping`, `uninterruptible` or `stopped`.
    pub state: Arc<str>,
    /// The kind of system call in which it waits, as `futex`; empty if it does not wait, or if that is unknown.
    pub cause: Arc<str>,
}

impl ThreadState {
    /// The key of the state among the attributes and labels of a sample.
    pub const STATE_KEY: &str = "sidewinder.wait.state";
    /// The key of the cause there.
    pub const CAUSE_KEY: &str = "sidewinder.wait.cause";
    /// The state of a thread that is on a CPU.
    pub const RUNNING: &str = "running";
}

/// Index in [`Profile::attribute_sets`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AttributeSetIndex(pub u32);

impl AttributeSetIndex {
    /// The set without attributes.
    pub const EMPTY: Self = Self(0);
}

/// A span of a trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileSpan {
    /// The trace ID.
    pub trace_id: [u8; 16],
    /// The span ID.
    pub span_id: [u8; 8],
}

/// Events with the same slice, thread, span, state, attributes and stack.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ProfileSample {
    /// The index of the time slice since [`Profile::start`].
    pub slice: u32,
    /// The thread.
    pub thread: ThreadIndex,
    /// The span, if there is one.
    pub span: Option<SpanIndex>,
    /// The state of the thread, in profiles of waits and of wall time.
    pub state: Option<StateIndex>,
    /// What the sender states of it: the thread and the state follow from that, if there is a sender.
    pub attributes: AttributeSetIndex,
    /// The stack.
    pub stack: StackIndex,
    /// The number of events.
    pub count: u64,
}

/// A recording that was merged into a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MergedRecording {
    /// Its label.
    pub name: String,
    /// Its slices.
    pub slices: Range<u32>,
}

/// The effect of an outcome on the accuracy of the profile.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// The sample is complete.
    Complete,
    /// Omitted on purpose: idle, out of scope.
    Excluded,
    /// The sample is present, but part of its stack is missing.
    Truncated,
    /// The sample is missing.
    Lost,
}

impl Severity {
    /// The label.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Excluded => "aside",
            Self::Truncated => "cut",
            Self::Lost => "lost",
        }
    }
}

/// The number of interrupts with one outcome.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutcomeCount {
    /// The outcome's name: `complete`, `no table`.
    pub name: String,
    /// The number of interrupts.
    pub count: u64,
    /// The effect on the profile.
    pub severity: Severity,
    /// Advice for the user; may be empty.
    pub help: String,
}

impl Profile {
    /// An empty profile of a kind.
    #[must_use]
    pub fn of_kind(title: String, kind: Kind) -> Self {
        Self { shape: kind.descriptor().shape, ..Self::new(title, SampleType::from_kind(kind)) }
    }

    /// An empty profile of events whose values are only summed up.
    #[must_use]
    pub fn new(title: String, measure: SampleType) -> Self {
        Self {
            title,
            measure,
            shape: SampleShape::Values,
            start: SystemTime::UNIX_EPOCH,
            duration: Duration::ZERO,
            covered_unix_ns: 0..0,
            slice: Duration::ZERO,
            binaries: Vec::new(),
            frames: Vec::new(),
            stacks: Vec::new(),
            threads: Vec::new(),
            spans: Vec::new(),
            states: Vec::new(),
            attribute_sets: vec![AttributeSet::default()],
            samples: Vec::new(),
            outcomes: Vec::new(),
            recordings: Vec::new(),
            annotations: Annotations::default(),
            is_per_thread: false,
        }
    }

    /// The frames of a stack, leaf first. Invalid indices are skipped.
    pub(crate) fn frames_of(&self, stack: StackIndex) -> impl DoubleEndedIterator<Item = &ProfileFrame> {
        let stack = self.stacks.get(stack.0 as usize).map_or(&[][..], Vec::as_slice);
        stack.iter().filter_map(|index| self.frames.get(index.0 as usize))
    }

    /// The thread of a sample, if known.
    pub(crate) fn thread_of(&self, sample: &ProfileSample) -> Option<&ProfileThread> {
        self.threads.get(sample.thread.0 as usize)
    }

    /// The label of a thread among those of other processes.
    pub(crate) fn thread_name(&self, thread: ThreadIndex) -> String {
        let Some(thread) = self.threads.get(thread.0 as usize) else { return String::from("[unknown]") };
        let numbered = |name: &str, number: u32| match number {
            0 => escaped(name).into_owned(),
            number => format!("{} {number}", escaped(name)),
        };
        if thread.name.is_empty() {
            return numbered(&thread.process, thread.pid);
        }
        format!("{} / {}", numbered(&thread.process, thread.pid), numbered(&thread.name, thread.tid))
    }

    fn binary(&self, frame: &ProfileFrame) -> Option<&ProfileBinary> {
        frame.binary.and_then(|index| self.binaries.get(index.0 as usize))
    }

    /// The path of a frame's binary; empty if there is none.
    pub(crate) fn binary_path(&self, frame: &ProfileFrame) -> &str {
        self.binary(frame).map_or("", |binary| &binary.path)
    }

    /// The last component of the path of a frame's binary; empty if there is none.
    pub(crate) fn binary_name(&self, frame: &ProfileFrame) -> &str {
        self.binary(frame).map_or("", ProfileBinary::file_name)
    }

    /// Events of all samples.
    #[must_use]
    pub fn total_count(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.count))
    }

    /// The samples without their times and attributes, sorted, with equal ones merged.
    pub(crate) fn samples_without_time(&self) -> Vec<ProfileSample> {
        merged(
            self.samples_without_attributes().into_iter().map(|sample| ProfileSample { slice: 0, ..sample }),
        )
    }

    /// The samples as they are shown, without their attributes: sorted, with equal ones merged.
    pub(crate) fn samples_without_attributes(&self) -> Vec<ProfileSample> {
        let shown =
            |sample: &ProfileSample| ProfileSample { attributes: AttributeSetIndex::EMPTY, ..*sample };
        merged(self.samples.iter().map(shown))
    }

    /// The number of events of each stack.
    #[must_use]
    pub fn stack_counts(&self) -> Vec<u64> {
        self.stack_counts_of_process(None)
    }

    /// The number of events of each stack in a process, or in all.
    pub(crate) fn stack_counts_of_process(&self, pid: Option<u32>) -> Vec<u64> {
        let is_counted = |sample: &&ProfileSample| {
            let thread = self.threads.get(sample.thread.0 as usize);
            pid.is_none() || thread.map(|thread| thread.pid) == pid
        };
        let mut counts = vec![0_u64; self.stacks.len()];
        for sample in self.samples.iter().filter(is_counted) {
            if let Some(count) = counts.get_mut(sample.stack.0 as usize) {
                *count = count.saturating_add(sample.count);
            }
        }
        counts
    }
}

/// The samples, sorted, with equal ones merged.
fn merged(samples: impl Iterator<Item = ProfileSample>) -> Vec<ProfileSample> {
    let mut samples: Vec<_> = samples.collect();
    samples.sort_unstable();
    samples.dedup_by(|sample, before| {
        let is_same = *sample == ProfileSample { count: sample.count, ..*before };
        if is_same {
            before.count = before.count.saturating_add(sample.count);
        }
        is_same
    });
    samples
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A frame of this category. That of a marker has its words as its reason, and that of a lock as its ID.
    pub(crate) fn frame(name: &str, kind: FrameCategory, address: u64) -> ProfileFrame {
        let (frame_type, marker) = match kind {
            FrameCategory::Native => (FrameType::Native, None),
            FrameCategory::Rust => (FrameType::Rust, None),
            FrameCategory::Go => (FrameType::Go, None),
            FrameCategory::Python => (FrameType::CPython, None),
            FrameCategory::Jit => (FrameType::Jvm, None),
            FrameCategory::Kernel => (FrameType::Kernel, None),
            FrameCategory::Lock => (FrameType::Native, Some(Marker::Lock(name.into()))),
            FrameCategory::Marker => (FrameType::Native, Some(Marker::truncated(name))),
        };
        ProfileFrame {
            name: name.into(),
            is_named: true,
            binary: Some(BinaryIndex(u32::from(kind == FrameCategory::Kernel))),
            frame_type,
            marker,
            address,
            ..ProfileFrame::default()
        }
    }

    /// The sample, with the callers of `write` guessed.
    pub(crate) fn guessed_sample() -> Profile {
        let mut profile = sample();
        profile.frames.push(ProfileFrame { is_guessed: true, ..profile.frames[0].clone() });
        profile.stacks[4] = vec![FrameIndex(3), FrameIndex(4), FrameIndex(5)];
        profile
    }

    /// Each stack one second after the previous one, on one thread.
    fn profile(frames: Vec<ProfileFrame>, stacks: &[(&[u32], u64)]) -> Profile {
        let samples = stacks.iter().zip(0..).map(|(&(_, count), number)| ProfileSample {
            slice: number,
            thread: ThreadIndex(0),
            span: None,
            state: None,
            attributes: AttributeSetIndex::EMPTY,
            stack: StackIndex(number),
            count,
        });
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
            binaries: vec![
                ProfileBinary {
                    path: String::from("/usr/bin/app"),
                    build_id: Some(String::from("0123abcd")),
                    ..ProfileBinary::default()
                },
                ProfileBinary { path: String::from("[kernel]"), ..ProfileBinary::default() },
            ],
            frames,
            stacks: stacks.iter().map(|(stack, _)| stack.iter().copied().map(FrameIndex).collect()).collect(),
            threads: vec![ProfileThread {
                process: "app".into(),
                pid: 7,
                name: "worker".into(),
                tid: 8,
                container: "".into(),
            }],
            spans: Vec::new(),
            states: Vec::new(),
            attribute_sets: vec![AttributeSet::default()],
            samples: samples.collect(),
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

    /// Fourteen events; `work` recurses, and occurs at two addresses.
    pub(crate) fn sample() -> Profile {
        let frames = vec![
            frame("main", FrameCategory::Rust, 0x1000),
            frame("work", FrameCategory::Native, 0x2000),
            frame("work", FrameCategory::Native, 0x2010),
            frame("vfs_write", FrameCategory::Kernel, 0xffff_ffff_8100_0000),
            frame("write_it", FrameCategory::Native, 0x3000),
        ];
        profile(frames, &[(&[0], 3), (&[1, 0], 4), (&[2, 0], 1), (&[2, 1, 0], 2), (&[3, 4, 0], 4)])
    }

    /// Ten events in `hot`, whose line 21 calls `hash`, which is inlined there, and whose line 30 is of another file.
    /// `hot` calls itself once from line 25.
    pub(crate) fn lines() -> Profile {
        let line = |name: &str, address, path: &str, line| ProfileFrame {
            path: path.into(),
            line,
            ..frame(name, FrameCategory::Native, address)
        };
        let frames = vec![
            line("main", 0x1000, "src/main.c", 7),
            line("hot", 0x2000, "src/hot.c", 20),
            ProfileFrame { is_inlined: true, ..line("hash", 0x2010, "src/hash.h", 4) },
            line("hot", 0x2010, "src/hot.c", 21),
            line("hot", 0x2020, "src/hot.c", 25),
            line("hot", 0x2030, "src/table.inc", 30),
        ];
        profile(frames, &[(&[1, 0], 3), (&[2, 3, 0], 4), (&[2, 3, 4, 0], 2), (&[5, 0], 1)])
    }

    /// One event with a stack of these names, leaf first, in process `p`.
    pub(crate) fn one_stack(names: &[&str]) -> Profile {
        let frames = names.iter().map(|name| frame(name, FrameCategory::Native, 0)).collect();
        let indices: Vec<_> = (0..names.len() as u32).collect();
        let mut profile = profile(frames, &[(&indices, 1)]);
        profile.threads[0].process = "p".into();
        profile
    }
}
