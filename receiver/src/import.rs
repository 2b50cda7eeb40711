//! Reads profiles from files: OTLP here, other formats in the crate that writes them.

mod local_names;

use std::collections::HashMap;
use std::io::Read as _;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_config::open_input;
use sidewinder_kind::{Kind, SAMPLES};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::builder::{Link, UNKNOWN_SERVICE};
use sidewinder_otlp::decode::{self, DecodeError, DecodedValue, MAX_MESSAGE_BYTES};
use sidewinder_render::{
    BinaryIndex, EventPeriod, FrameCategory, FrameIndex, Profile, ProfileBinary, ProfileContainer,
    ProfileFrame, ProfileSample, ProfileThread, ReadError, SampleType, SpanIndex, StackIndex, StateIndex,
    ThreadIndex, ThreadState, TimeSlicedCounts,
};
use tracing::warn;

use self::local_names::LocalNames;
use crate::collect::{IndexedSet, LOCK_MARKER, lock_marker};
use crate::naming::marker_summary;
use crate::report::LOCK_ID;
use crate::sampling::debug_files::DebugRoots;

/// The most files that a warning lists.
const LISTED_FILES_MAX: usize = 5;
/// The most measures, such as CPU time at one rate, of the profiles of a message.
const MEASURES_MAX: usize = 64;

/// Why a file can't be read as a profile.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("it can't be read")]
    Read(#[from] std::io::Error),
    #[error("it is larger than {} MiB", MAX_MESSAGE_BYTES >> 20)]
    TooLarge,
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error(transparent)]
    Other(#[from] ReadError),
    #[error("it holds no profile")]
    NoProfile,
}

/// Reads a profile in any known format: OTLP by the suffix of the file, others by their content. `sample_type`: which one of
/// several in a file. `debug_roots`: where debug files may be, for formats without names.
pub(crate) fn read_profile(
    path: &Path,
    sample_type: Option<&str>,
    debug_roots: &Arc<DebugRoots>,
) -> Result<Profile, ImportError> {
    let file = open_input(path)?;
    let title = path.file_name().unwrap_or_default().to_string_lossy();
    if path.extension().is_none_or(|extension| extension != "otlp") {
        let written = file.metadata()?.modified()?;
        let mut names = LocalNames::new(written, Arc::clone(debug_roots));
        let mut profile = sidewinder_render::read(&title, file, sample_type, &mut names)?;
        let missing = names.missing_files();
        if !missing.is_empty() {
            let files = missing.iter().copied().take(LISTED_FILES_MAX).collect::<Vec<_>>().join(", ");
            warn!(
                count = missing.len(),
                files,
                "files are not here as they were recorded: their functions have no names; what perf script prints where they are has"
            );
        }
        if profile.start == SystemTime::UNIX_EPOCH {
            // Folded stacks have no time, and perf's none of the day: use the time when the file was written.
            profile.start = written;
        }
        return Ok(profile);
    }
    let mut report = Vec::new();
    file.take(MAX_MESSAGE_BYTES as u64 + 1).read_to_end(&mut report)?;
    if report.len() > MAX_MESSAGE_BYTES {
        return Err(ImportError::TooLarge);
    }
    from_report_bytes(&title, &report, sample_type)
}

/// Reads the profiles of this sample type in OpenTelemetry's `ProfilesData`; by default those of CPU samples, or of the first
/// type that it holds.
pub(crate) fn from_report_bytes(
    title: &str,
    bytes: &[u8],
    sample_type: Option<&str>,
) -> Result<Profile, ImportError> {
    let profiles = decode::decode_profiles_data(bytes)?;
    let mut found: Vec<String> = Vec::new();
    for profile in &profiles {
        if !found.iter().any(|known| **known == *profile.sample_type) {
            found.push(profile.sample_type.to_string());
        }
    }
    let default = found.iter().find(|name| *name == SAMPLES.name).or(found.first());
    let wanted = sample_type.or(default.map(String::as_str)).ok_or(ImportError::NoProfile)?;
    let of_type: Vec<_> = profiles.iter().filter(|profile| &*profile.sample_type == wanted).collect();
    match of_type.first() {
        Some(first) => Ok(from_otlp_profiles(title, &of_type, measure(first))),
        None => Err(ReadError::NoSuchType { wanted: wanted.to_owned(), found }.into()),
    }
}

/// The properties shared by the events that are counted together.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct ImportedEventKey {
    thread: ThreadIndex,
    span: Option<SpanIndex>,
    state: Option<StateIndex>,
    stack: StackIndex,
}

/// The meaning of the samples of a profile.
fn measure(profile: &decode::DecodedProfile) -> SampleType {
    if &*profile.sample_type != SAMPLES.name {
        let period = u64::try_from(profile.period).ok().filter(|amount| *amount > 0);
        let period = period.map(|amount| EventPeriod {
            name: profile.period_type.to_string(),
            unit: profile.period_unit.to_string(),
            amount,
        });
        let [name, unit] = [&profile.sample_type, &profile.sample_unit].map(ToString::to_string);
        return SampleType::of_values(name, unit, period);
    }
    let period_ns = u64::try_from(profile.period).unwrap_or(0);
    let rate_hz = 1_000_000_000_u64.checked_div(period_ns).unwrap_or(0);
    let kind = match period_ns {
        0 => Kind::Aggregated { samples_per_second: 0 },
        _ => Kind::Cpu { samples_per_second: u32::try_from(rate_hz).unwrap_or(u32::MAX) },
    };
    // The period may not be a whole fraction of a second.
    SampleType { rate_hz, period_ns, ..SampleType::from_kind(kind) }
}

/// The ID of the lock that the thread of a sample waited for.
fn lock_of(sample: &decode::DecodedSample) -> Option<&str> {
    sample.attributes.get(LOCK_ID).and_then(DecodedValue::as_str)
}

/// Reads all profiles of a message, as one for each measure, each with the number of those in it.
pub(crate) fn from_message(title: &str, message: &[u8]) -> Result<Vec<(Profile, usize)>, DecodeError> {
    let profiles = decode::decode_profiles_data(message)?;
    let mut by_measure: Vec<(SampleType, Vec<&decode::DecodedProfile>)> = Vec::new();
    for profile in &profiles {
        let measure = measure(profile);
        let known = by_measure.iter().position(|(known, _)| *known == measure);
        let at = known.unwrap_or(by_measure.len());
        if at == MEASURES_MAX {
            return Err(DecodeError::TooManyTypes(MEASURES_MAX));
        }
        if known.is_none() {
            by_measure.push((measure, Vec::new()));
        }
        by_measure[at].1.push(profile);
    }
    let read =
        |(measure, profiles): (_, Vec<_>)| (from_otlp_profiles(title, &profiles, measure), profiles.len());
    Ok(by_measure.into_iter().map(read).collect())
}

/// Merges profiles of one measure, whatever their processes.
fn from_otlp_profiles(title: &str, profiles: &[&decode::DecodedProfile], measure: SampleType) -> Profile {
    let of_type = || profiles.iter().copied();
    let times = || {
        let samples = of_type().flat_map(|profile| &profile.samples);
        samples.flat_map(|sample| sample.timestamps_unix_ns.iter().copied())
    };
    // If events have no times, the time range of the profiles is used.
    let end_of = |profile: &decode::DecodedProfile| profile.time_unix_ns.saturating_add(profile.duration_ns);
    let start_ns = times().min().or_else(|| of_type().map(|profile| profile.time_unix_ns).min()).unwrap_or(0);
    let has_times = times().next().is_some();
    let end_ns = times().max().or_else(|| of_type().map(end_of).max()).unwrap_or(0).max(start_ns);
    let mut builder = ImportBuilder::default();
    let mut counts = TimeSlicedCounts::new();
    for profile in of_type() {
        for sample in &profile.samples {
            let key = ImportedEventKey {
                thread: builder.thread(profile, sample),
                span: sample.link.map(|link| SpanIndex(builder.spans.intern(link))),
                state: builder.state(sample),
                stack: builder.stack(&sample.stack, lock_of(sample)),
            };
            for (at, time_ns) in sample.timestamps_unix_ns.iter().enumerate() {
                // Events without a value are only counted.
                let value = sample.values.get(at).map_or(1, |value| u64::try_from(*value).unwrap_or(0));
                counts.add(*time_ns, key, value);
            }
            if let ([], [value]) = (&*sample.timestamps_unix_ns, &*sample.values) {
                counts.add(start_ns, key, u64::try_from(*value).unwrap_or(0));
            }
        }
    }
    let samples = counts.rows_since(start_ns).map(|(slice, key, count)| ProfileSample {
        slice,
        thread: key.thread,
        span: key.span,
        state: key.state,
        stack: key.stack,
        count,
    });
    let samples = samples.collect();
    Profile {
        start: SystemTime::UNIX_EPOCH + Duration::from_nanos(start_ns),
        duration: Duration::from_nanos(end_ns - start_ns),
        slice: if has_times && end_ns > start_ns { counts.slice() } else { Duration::ZERO },
        binaries: builder.binaries,
        frames: builder.frames,
        stacks: builder.stacks,
        threads: builder.threads,
        spans: builder.spans.to_spans(),
        states: builder.states,
        samples,
        ..Profile::new(title.to_owned(), measure)
    }
}

/// The tables of a profile under construction. Decoded profiles contain each frame and stack once, so that its address
/// identifies it.
#[derive(Default)]
struct ImportBuilder {
    binaries: Vec<ProfileBinary>,
    frames: Vec<ProfileFrame>,
    stacks: Vec<Vec<FrameIndex>>,
    threads: Vec<ProfileThread>,
    spans: IndexedSet<Link>,
    binary_indices: HashMap<Arc<str>, BinaryIndex>,
    /// The range of `frames` that each is: more than one where calls are inlined.
    frame_indices: HashMap<*const decode::DecodedFrame, Range<u32>>,
    /// With the lock that the thread waited for.
    stack_indices: HashMap<(*const Arc<decode::DecodedFrame>, Option<String>), StackIndex>,
    lock_frames: HashMap<String, FrameIndex>,
    thread_indices: HashMap<ProfileThread, ThreadIndex>,
    states: Vec<ThreadState>,
    state_indices: HashMap<ThreadState, StateIndex>,
}

impl ImportBuilder {
    fn thread(&mut self, profile: &decode::DecodedProfile, sample: &decode::DecodedSample) -> ThreadIndex {
        let resource = |key: &str| profile.resource.get(key);
        let to_u32 = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok()).unwrap_or(0);
        let name = resource("process.executable.name").or_else(|| resource("service.name"));
        let thread = ProfileThread {
            process: name
                .and_then(DecodedValue::as_str)
                .filter(|name| *name != UNKNOWN_SERVICE)
                .unwrap_or_default()
                .into(),
            pid: to_u32(resource("process.pid").and_then(DecodedValue::as_int)),
            name: sample.thread_name().unwrap_or_default().into(),
            tid: to_u32(sample.thread_id()),
            container: ProfileContainer::from_attributes(|key| resource(key).and_then(DecodedValue::as_str)),
        };
        let threads = &mut self.threads;
        *self.thread_indices.entry(thread).or_insert_with_key(|thread| {
            threads.push(thread.clone());
            ThreadIndex(threads.len() as u32 - 1)
        })
    }

    /// What the thread did or waited for, if the sample says so.
    fn state(&mut self, sample: &decode::DecodedSample) -> Option<StateIndex> {
        let text = |key: &str| sample.attributes.get(key).and_then(DecodedValue::as_str);
        let state = text(ThreadState::STATE_KEY)?.into();
        let cause = text(ThreadState::CAUSE_KEY).unwrap_or_default().into();
        let states = &mut self.states;
        let index = self.state_indices.entry(ThreadState { state, cause }).or_insert_with_key(|state| {
            states.push(state.clone());
            StateIndex(states.len() as u32 - 1)
        });
        Some(*index)
    }

    /// A lock that the thread waited for becomes the innermost frame.
    fn stack(&mut self, stack: &Arc<[Arc<decode::DecodedFrame>]>, lock: Option<&str>) -> StackIndex {
        let key = (stack.as_ptr(), lock.map(str::to_owned));
        if let Some(index) = self.stack_indices.get(&key) {
            return *index;
        }
        let lock: Vec<_> = lock.map(|lock| self.lock_frame(lock)).into_iter().collect();
        let named = stack.iter().flat_map(|frame| self.frames_of(frame).map(FrameIndex));
        let frames = lock.into_iter().chain(named).collect();
        let index = StackIndex(self.stacks.len() as u32);
        self.stacks.push(frames);
        // Empty stacks don't have a unique address.
        if !stack.is_empty() {
            self.stack_indices.insert(key, index);
        }
        index
    }

    fn lock_frame(&mut self, lock: &str) -> FrameIndex {
        let frames = &mut self.frames;
        *self.lock_frames.entry(lock.to_owned()).or_insert_with(|| {
            frames.push(ProfileFrame {
                name: lock_marker(lock),
                is_named: true,
                system_name: String::new(),
                binary: None,
                kind: FrameCategory::Lock,
                address: 0,
                path: String::new(),
                line: 0,
                is_guessed: false,
            });
            FrameIndex(frames.len() as u32 - 1)
        })
    }

    /// One frame for each inlined call, leaf first.
    fn frames_of(&mut self, frame: &Arc<decode::DecodedFrame>) -> Range<u32> {
        if let Some(frames) = self.frame_indices.get(&Arc::as_ptr(frame)) {
            return frames.clone();
        }
        let path = match (&frame.mapping, frame.frame_type()) {
            (Some(mapping), _) => Some(Arc::clone(&mapping.filename)),
            (None, Some(FrameType::Kernel)) => Some("[kernel]".into()),
            (None, _) => None,
        };
        let build_id = frame.mapping.as_ref().and_then(|mapping| mapping.gnu_build_id());
        let htlhash = frame.mapping.as_ref().and_then(|mapping| mapping.htlhash());
        let binary = path.map(|path| {
            let binaries = &mut self.binaries;
            *self.binary_indices.entry(path).or_insert_with_key(|path| {
                binaries.push(ProfileBinary {
                    path: path.to_string(),
                    build_id: build_id.map(str::to_owned),
                    htlhash: htlhash.map(str::to_owned),
                });
                BinaryIndex(binaries.len() as u32 - 1)
            })
        });
        let is_marker = frame.mapping.is_none()
            && frame.address == 0
            && frame.function().is_some_and(|name| name.starts_with('['));
        let kind = match frame.frame_type() {
            _ if is_marker && frame.function().is_some_and(|name| name.starts_with(LOCK_MARKER)) => {
                FrameCategory::Lock
            }
            _ if is_marker => FrameCategory::Marker,
            Some(FrameType::Kernel) => FrameCategory::Kernel,
            Some(FrameType::Rust) => FrameCategory::Rust,
            Some(FrameType::Go) => FrameCategory::Go,
            Some(FrameType::CPython) => FrameCategory::Python,
            Some(FrameType::Native) | None => FrameCategory::Native,
            Some(_) => FrameCategory::Jit,
        };
        let file = frame.mapping.as_ref().and_then(|mapping| mapping.filename.rsplit('/').next());
        let unnamed = decode::DecodedLine {
            function: format!("{}+{:#x}", file.unwrap_or_default(), frame.address).into(),
            ..decode::DecodedLine::default()
        };
        let lines = if frame.lines.is_empty() { std::slice::from_ref(&unnamed) } else { &frame.lines };
        let first = self.frames.len() as u32;
        let summary = |line: &decode::DecodedLine| marker_summary(&line.function).filter(|_| is_marker);
        self.frames.extend(lines.iter().map(|line| ProfileFrame {
            name: summary(line).unwrap_or_else(|| line.function.to_string()),
            is_named: !frame.lines.is_empty(),
            system_name: line.system_name.to_string(),
            binary,
            kind,
            address: frame.address,
            path: line.filename.to_string(),
            line: u32::try_from(line.line).unwrap_or(0),
            is_guessed: frame.is_guessed(),
        }));
        let frames = first..self.frames.len() as u32;
        self.frame_indices.insert(Arc::as_ptr(frame), frames.clone());
        frames
    }
}
