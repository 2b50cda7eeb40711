//! The profile of one event of Linux's `perf`: what its text and its files have in common.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use sidewinder_kind::{CPU_TIME, Counter, Kind, SampleShape, unit};
use sidewinder_profile::{
    Dictionary, FrameType, LinkIndex, Location, LocationIndex, MappingIndex, Marker, Period, SampleType,
    SourceLine, StackIndex, StatedAttributes, Table, ValueType, index_types,
};

use super::error::ReadError;
use super::guess::{FrameHints, guess_frame_type};
use super::locations::common_type;
use crate::counts::TimeSlicedCounts;
use crate::expansion::{ExpansionBudget, ExpansionError};
use crate::profile::{Profile, ProfileSample, ProfileThread, ThreadIndex};

/// The path of the kernel, as in our own profiles; perf has `[kernel.kallsyms]`.
pub(super) const KERNEL: &str = "[kernel]";
/// The name of code about which nothing is known.
pub(super) const UNKNOWN: &str = "[unknown]";
/// The most events that an error lists.
const LISTED_EVENTS_MAX: usize = 20;

index_types! {
    /// An event of a recording.
    EventIndex,
}

/// A thread, as perf records it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct PerfThread<'a> {
    pub(super) name: &'a str,
    /// 0 if unknown.
    pub(super) pid: u32,
    pub(super) tid: u32,
}

/// A frame of a sample.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(super) struct PerfFrame<'a> {
    /// 0 if unknown.
    pub(super) address: u64,
    /// Empty if it has no name.
    pub(super) name: &'a str,
    /// The path of the file that contains it; empty if unknown.
    pub(super) file: &'a str,
    /// The path and line of its source; empty and 0 if unknown.
    pub(super) source: (&'a str, u32),
}

/// A profile under construction, of the samples of one event.
#[derive(Debug)]
pub(super) struct PerfProfile {
    expansion: ExpansionBudget,
    /// Set once the budget is used up: no further sample is added.
    exceeded: Option<ExpansionError>,
    title: String,
    /// The event; `None`: the first one that occurs.
    wanted: Option<String>,
    /// Each event that occurred.
    found: Table<EventIndex, String>,
    pub(super) dictionary: Dictionary,
    threads: Table<ThreadIndex, ProfileThread>,
    /// By PID: the last name of its main thread, which has the same number.
    main_threads: HashMap<u32, Arc<str>>,
    counts: TimeSlicedCounts<(ThreadIndex, StackIndex)>,
    periods: Periods,
    /// The time of the first sample and of the last, in nanoseconds of the recording's clock; `None`: no sample has a time.
    times_ns: Option<(u64, u64)>,
}

/// What the samples of an event stand for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum Periods {
    /// There is no sample yet.
    #[default]
    None,
    /// Samples have no period: each counts as one.
    Unknown,
    /// Each sample stands for so many counts.
    Fixed(u64),
    /// Samples stand for different numbers of counts.
    Varying,
}

impl PerfProfile {
    pub(super) fn new(title: &str, sample_type: Option<&str>, expansion: ExpansionBudget) -> Self {
        Self {
            expansion,
            exceeded: None,
            title: title.to_owned(),
            wanted: sample_type.map(str::to_owned),
            found: Table::default(),
            dictionary: Dictionary::default(),
            threads: Table::default(),
            main_threads: HashMap::new(),
            counts: TimeSlicedCounts::new(),
            periods: Periods::None,
            times_ns: None,
        }
    }

    /// Notes an event of the recording. Returns whether its samples belong to this profile.
    pub(super) fn selects(&mut self, event: &str) -> bool {
        if self.found.values().last().is_none_or(|last| last != event) {
            self.found.intern(event.to_owned());
        }
        self.wanted.get_or_insert_with(|| event.to_owned()) == event
    }

    /// Adds a sample of the selected event. `stack` is leaf first.
    pub(super) fn add(
        &mut self,
        thread: PerfThread<'_>,
        time_ns: Option<u64>,
        period: Option<u64>,
        stack: &[LocationIndex],
    ) {
        let frames = stack.iter().map(|location| self.dictionary.location(*location).lines.len()).sum();
        if let Err(error) = self.expansion.take_frames(frames) {
            self.exceeded = Some(error);
            return;
        }
        self.periods = match (self.periods, period) {
            (Periods::None, Some(period)) => Periods::Fixed(period),
            (Periods::None | Periods::Unknown, None) => Periods::Unknown,
            (Periods::Fixed(before), Some(period)) if before == period => Periods::Fixed(period),
            _ => Periods::Varying,
        };
        if let Some(time_ns) = time_ns {
            let (first, last) = self.times_ns.unwrap_or((time_ns, time_ns));
            self.times_ns = Some((first.min(time_ns), last.max(time_ns)));
        }
        let PerfThread { name, pid, tid } = thread;
        let name: Arc<str> = name.into();
        if pid == tid {
            self.name_process(pid, &name);
        }
        let thread = ProfileThread { process: Arc::clone(&name), pid, name, tid, container: "".into() };
        let key = (self.threads.intern(thread), self.dictionary.add_stack(stack));
        // Without times, all samples are in one slice.
        self.counts.add(time_ns.unwrap_or(0), key, period.unwrap_or(1));
    }

    /// A process has the name that its main thread had last.
    pub(super) fn name_process(&mut self, pid: u32, name: &Arc<str>) {
        if pid != 0 {
            self.main_threads.insert(pid, Arc::clone(name));
        }
    }

    /// Adds a location that perf itself, or nobody, has named: the last of `frames` contains the others, which are inlined there, the
    /// innermost first.
    pub(super) fn location(&mut self, frames: &[PerfFrame<'_>], mapping: MappingIndex) -> LocationIndex {
        let outermost = frames.last().copied().unwrap_or_default();
        let (mut lines, mut frame_types, mut is_generated) = (Vec::new(), Vec::new(), false);
        for PerfFrame { address, name, file, source: (path, line) } in frames.iter().copied() {
            let (name, path) = python_function(name).unwrap_or((name, path));
            let frame_type;
            (frame_type, is_generated) = code_type(name, path, file, address);
            frame_types.push(frame_type);
            let function = if name.is_empty() { UNKNOWN } else { name };
            lines.push(self.dictionary.add_line(&SourceLine {
                function,
                path,
                line,
                ..SourceLine::default()
            }));
        }
        let is_unnamed = outermost.name.is_empty();
        // A file has its whole path; `[vdso]` is perf's word.
        let is_marker = is_unnamed && (outermost.file.is_empty() || outermost.file.starts_with('['));
        let location = Location {
            mapping,
            address: outermost.address,
            frame_type: common_type(frame_types.into_iter()),
            is_generated,
            is_guessed: false,
            is_unnamed,
            marker: is_marker.then_some(&Marker::Words),
            lines: &lines,
        };
        if is_unnamed && !outermost.file.is_empty() {
            self.dictionary.add_unnamed_location(&location)
        } else {
            self.dictionary.add_location(&location)
        }
    }

    /// The profile.
    ///
    /// # Errors
    ///
    /// [`ReadError::NoSuchType`]: there are events, and none is the selected one; [`ReadError::Expansion`].
    pub(super) fn finish(self) -> Result<Profile, ReadError> {
        if let Some(error) = self.exceeded {
            return Err(error.into());
        }
        let event = self.wanted.unwrap_or_default();
        let mut found = self.found.into_values();
        if !found.is_empty() && !found.contains(&event) {
            found.truncate(LISTED_EVENTS_MAX);
            return Err(ReadError::NoSuchType { wanted: event, found });
        }
        let mut threads = self.threads.into_values();
        for thread in &mut threads {
            if let Some(name) = self.main_threads.get(&thread.pid) {
                thread.process = Arc::clone(name);
            }
        }
        let (measure, divisor) = measure(&event, self.periods);
        let (first_ns, last_ns) = self.times_ns.unwrap_or_default();
        let has_times = last_ns > first_ns;
        let samples = self.counts.rows_since(first_ns).map(|(slice, (thread, stack), count)| ProfileSample {
            slice: if has_times { slice } else { 0 },
            thread,
            span: LinkIndex::default(),
            state: None,
            stated: StatedAttributes::default(),
            stack,
            count: count / divisor,
        });
        let is_at_rate = has_times && measure.rate_hz() > 0;
        Ok(Profile {
            shape: if is_at_rate { SampleShape::Timestamps } else { SampleShape::Values },
            duration: Duration::from_nanos(last_ns - first_ns),
            slice: if has_times { self.counts.slice() } else { Duration::ZERO },
            samples: samples.collect(),
            dictionary: self.dictionary,
            threads,
            ..Profile::new(self.title, measure)
        })
    }
}

/// How the samples of an event are measured, and by what the sum of their periods is divided for it.
fn measure(event: &str, periods: Periods) -> (SampleType, u64) {
    if matches!(periods, Periods::None | Periods::Unknown) {
        return (SampleType::from_kind(Kind::Aggregated { samples_per_second: 0 }), 1);
    }
    // What follows are modifiers as `u`, or the event of a tracepoint's subsystem, which no counter has as its name.
    let base = event.split(':').next().unwrap_or_default();
    let named = |counter: &&Counter| {
        let row = counter.descriptor();
        row.name == base || row.aliases.contains(&base)
    };
    let counted = match Counter::ALL.iter().find(named) {
        _ if base == "cpu-clock" => Some(CPU_TIME),
        counter => counter.map(|counter| counter.descriptor().value_type),
    };
    let value_type = counted.map_or_else(|| ValueType::new(event, unit::COUNT), ValueType::from);
    match periods {
        // As our own samples of CPU time.
        Periods::Fixed(period_ns @ 1..) if base == "cpu-clock" => {
            (SampleType::at_rate(value_type.name, period_ns), period_ns)
        }
        Periods::Fixed(amount @ 1..) => {
            let period = Period { value_type: value_type.clone(), amount };
            (SampleType { value_type, period: Some(period) }, 1)
        }
        _ => (SampleType { value_type, period: None }, 1),
    }
}

/// The name and the path in a symbol of CPython's trampolines (`python -X perf`), which have the form `py::NAME:PATH`.
fn python_function(symbol: &str) -> Option<(&str, &str)> {
    symbol.strip_prefix("py::")?.split_once(':').filter(|(name, _)| !name.is_empty())
}

/// The type of code, and whether it was generated at run time.
fn code_type(name: &str, source: &str, file: &str, address: u64) -> (FrameType, bool) {
    let file_name = file.rsplit('/').next().unwrap_or_default();
    let is_generated = (file_name.starts_with("perf-") && file_name.ends_with(".map"))
        || (file_name.starts_with("jitted-") && file_name.ends_with(".so"));
    match guess_frame_type(FrameHints { name, source, binary: file, has_address: true }) {
        FrameType::Native if is_kernel_address(address) || file == "[guest.kernel.kallsyms]" => {
            (FrameType::Kernel, false)
        }
        frame_type => (frame_type, is_generated && frame_type == FrameType::Native),
    }
}

/// Whether an address is in the upper half of the address space, which the kernel has for itself on every 64-bit machine.
pub(super) fn is_kernel_address(address: u64) -> bool {
    address >> 63 == 1
}
