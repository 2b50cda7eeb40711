//! Reads profiles from files: OTLP here, other formats in the crate that writes them.

mod local_names;
#[cfg(test)]
mod round_trip;
mod tables;
#[cfg(test)]
mod tests;

use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sidewinder_config::open_input;
use sidewinder_debug_files::DebugRoots;
use sidewinder_kind::{CPU_TIME, SAMPLES, SampleShape};
use sidewinder_naming::truncation_with_summary;
use sidewinder_otlp::decode::{DecodeError, MAX_MESSAGE_BYTES, is_collector_file};
use sidewinder_otlp::read::{ReadProfile, ReadSample, read_collector_file, read_profiles_data};
use sidewinder_profile::Dictionary;
use sidewinder_render::{
    ExpansionBudget, ExpansionError, Marker, Profile, ReadError, SampleType, TimeSlicedCounts,
};
use tracing::warn;

use self::local_names::LocalNames;
use self::tables::ImportBuilder;

/// The most files that a warning lists.
const LISTED_FILES_MAX: usize = 5;
/// The most measures, such as CPU time at one rate, of the profiles of a message.
const MEASURES_MAX: usize = 64;

/// Why a file can't be read as a profile.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The file can't be read.
    #[error("it can't be read")]
    Read(#[from] std::io::Error),
    /// It is larger than the largest message.
    #[error("it is larger than {} MiB", MAX_MESSAGE_BYTES >> 20)]
    TooLarge,
    /// It is not OTLP.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// It is in no known format, or not as its format has it.
    #[error(transparent)]
    Other(#[from] ReadError),
    /// It would take too much memory.
    #[error(transparent)]
    Expansion(#[from] ExpansionError),
    /// It has no profile.
    #[error("it holds no profile")]
    NoProfile,
}

/// Reads profiles in any known format: OTLP by the suffix of the file, others by their content. `sample_type`: which one of several
/// in a file; by default all of an OTLP file, the [default one](from_report_bytes) first, and of other formats one. `debug_roots`:
/// where debug files may be, for formats without names. There is at least one.
pub fn read_profiles(
    path: &Path,
    sample_type: Option<&str>,
    debug_roots: &Arc<DebugRoots>,
) -> Result<Vec<Profile>, ImportError> {
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
                "files are missing or have changed here, so their functions have no names; import `perf script` output from the recording machine"
            );
        }
        if profile.start == SystemTime::UNIX_EPOCH {
            // Folded stacks have no time, and perf's none of the day: use the time when the file was written.
            profile.start = written;
        }
        add_truncation_reasons(&mut profile);
        return Ok(vec![profile]);
    }
    // What the file holds is not kept beside what is read of it.
    let (document, expansion) = {
        let mut report = Vec::new();
        file.take(MAX_MESSAGE_BYTES as u64 + 1).read_to_end(&mut report)?;
        if report.len() > MAX_MESSAGE_BYTES {
            return Err(ImportError::TooLarge);
        }
        (Document::read_file(&report)?, message_expansion(&report))
    };
    match sample_type {
        Some(_) => Ok(vec![document.of_sample_type(&title, sample_type, expansion)?]),
        None => document.of_each_sample_type(&title, expansion),
    }
}

/// The profiles of a document, and what they refer to.
struct Document {
    dictionary: Dictionary,
    profiles: Vec<ReadProfile>,
}

impl Document {
    fn read(
        bytes: &[u8],
        read: impl Fn(&[u8], &mut Dictionary) -> Result<Vec<ReadProfile>, DecodeError>,
    ) -> Result<Self, DecodeError> {
        let mut dictionary = Dictionary::default();
        let profiles = read(bytes, &mut dictionary)?;
        Ok(Self { dictionary, profiles })
    }

    /// Reads a file of one message, or what the Collector's file exporter and our own write. Of one that was left or is being
    /// written, the last message may not be whole.
    fn read_file(bytes: &[u8]) -> Result<Self, DecodeError> {
        if !is_collector_file(bytes) {
            return Self::read(bytes, read_profiles_data);
        }
        match Self::read(bytes, read_collector_file) {
            Err(error @ DecodeError::CutOff { offset: end @ 1.., .. }) => {
                warn!(%error, "the end of the file is not shown");
                Self::read(bytes.get(..end).unwrap_or_default(), read_collector_file)
            }
            read => read,
        }
    }
}

/// Adds the reasons of truncations of which the format has nothing but the words.
fn add_truncation_reasons(profile: &mut Profile) {
    profile.dictionary.replace_markers(|marker| match marker {
        Marker::Truncated(truncation) => {
            truncation_with_summary(&truncation.summary).map(|known| Marker::Truncated(known.into()))
        }
        Marker::Lock(_) | Marker::Words => None,
    });
}

/// Reads the profiles of this sample type in OpenTelemetry's `ProfilesData`; by default those of CPU samples, or of the first
/// type that it holds.
pub fn from_report_bytes(
    title: &str,
    bytes: &[u8],
    sample_type: Option<&str>,
) -> Result<Profile, ImportError> {
    Document::read_file(bytes)?.of_sample_type(title, sample_type, message_expansion(bytes))
}

/// What a message may expand to. It is not compressed.
fn message_expansion(message: &[u8]) -> ExpansionBudget {
    let length = message.len() as u64;
    ExpansionBudget::for_document(length, length)
}

/// The names of the sample types, that of CPU samples first, then in the order of the profiles.
fn sample_types(profiles: &[ReadProfile]) -> Result<Vec<String>, DecodeError> {
    let mut found: Vec<String> = Vec::new();
    for profile in profiles {
        let name = &profile.sample_type.value_type.name;
        if !found.iter().any(|known| **known == **name) {
            if found.len() == MEASURES_MAX {
                return Err(DecodeError::TooManyTypes(MEASURES_MAX));
            }
            found.push(name.to_string());
        }
    }
    // Stable: the others stay in their order.
    found.sort_by_key(|name| *name != SAMPLES.name);
    Ok(found)
}

/// The meaning of the samples of a profile. If samples have a period without a type, it is CPU time.
fn measure(profile: &ReadProfile) -> SampleType {
    let mut measure = profile.sample_type.clone();
    if let Some(period) = &mut measure.period
        && period.value_type.name.is_empty()
        && *measure.value_type.name == *SAMPLES.name
    {
        period.value_type = CPU_TIME.into();
    }
    measure
}

/// What the samples of profiles say of each event. Where some have times or values and others don't, events are only summed up.
fn shape<'a>(mut samples: impl Iterator<Item = &'a ReadSample>) -> SampleShape {
    let of = |sample: &ReadSample| match (&*sample.times_unix_ns, &*sample.values) {
        ([], _) => SampleShape::Values,
        (_, []) => SampleShape::Timestamps,
        _ => SampleShape::TimestampsAndValues,
    };
    let Some(first) = samples.next().map(of) else { return SampleShape::Values };
    if samples.all(|sample| of(sample) == first) { first } else { SampleShape::Values }
}

/// Reads all profiles of a message, as one for each measure, each with the number of those in it.
/// Together they take no more memory than `memory_bytes`.
pub fn from_message(
    title: &str,
    message: &[u8],
    memory_bytes: usize,
) -> Result<Vec<(Profile, usize)>, ImportError> {
    let document = Document::read(message, read_profiles_data)?;
    let mut by_measure: Vec<(SampleType, Vec<&ReadProfile>)> = Vec::new();
    for profile in &document.profiles {
        let measure = measure(profile);
        let known = by_measure.iter().position(|(known, _)| *known == measure);
        let at = known.unwrap_or(by_measure.len());
        if at == MEASURES_MAX {
            return Err(DecodeError::TooManyTypes(MEASURES_MAX).into());
        }
        if known.is_none() {
            by_measure.push((measure, Vec::new()));
        }
        by_measure[at].1.push(profile);
    }
    let mut expansion = message_expansion(message).within_memory(memory_bytes);
    let read = |(measure, profiles): (_, Vec<_>)| {
        Ok((document.profile(title, &profiles, measure, &mut expansion)?, profiles.len()))
    };
    by_measure.into_iter().map(read).collect()
}

impl Document {
    /// The profiles of this sample type, by default of the first one.
    fn of_sample_type(
        &self,
        title: &str,
        sample_type: Option<&str>,
        mut expansion: ExpansionBudget,
    ) -> Result<Profile, ImportError> {
        let found = sample_types(&self.profiles)?;
        let wanted = sample_type.or(found.first().map(String::as_str)).ok_or(ImportError::NoProfile)?;
        let of_type = self.of_type(wanted);
        match of_type.first() {
            Some(first) => Ok(self.profile(title, &of_type, measure(first), &mut expansion)?),
            None => Err(ReadError::NoSuchType { wanted: wanted.to_owned(), found }.into()),
        }
    }

    /// The profiles of each sample type, in the order of [`sample_types`].
    fn of_each_sample_type(
        &self,
        title: &str,
        mut expansion: ExpansionBudget,
    ) -> Result<Vec<Profile>, ImportError> {
        let mut read = Vec::new();
        for wanted in sample_types(&self.profiles)? {
            let of_type = self.of_type(&wanted);
            if let Some(first) = of_type.first() {
                read.push(self.profile(title, &of_type, measure(first), &mut expansion)?);
            }
        }
        if read.is_empty() { Err(ImportError::NoProfile) } else { Ok(read) }
    }

    /// The profiles of a sample type.
    fn of_type(&self, name: &str) -> Vec<&ReadProfile> {
        self.profiles.iter().filter(|profile| *profile.sample_type.value_type.name == *name).collect()
    }

    /// Merges profiles of one measure, whatever their processes.
    fn profile(
        &self,
        title: &str,
        profiles: &[&ReadProfile],
        measure: SampleType,
        expansion: &mut ExpansionBudget,
    ) -> Result<Profile, ExpansionError> {
        let of_type = || profiles.iter().copied();
        let samples = || of_type().flat_map(|profile| &profile.samples);
        let times = || samples().flat_map(|sample| sample.times_unix_ns.iter().copied());
        // If events have no times, the time range of the profiles is used.
        let first_ns = || of_type().map(|profile| profile.time_unix_ns).min();
        let end_of = |profile: &ReadProfile| profile.time_unix_ns.saturating_add(profile.duration_ns);
        let last_ns = || of_type().map(end_of).max();
        let start_ns = times().min().or_else(first_ns).unwrap_or(0);
        let has_times = times().next().is_some();
        let end_ns = times().max().or_else(last_ns).unwrap_or(0).max(start_ns);
        let mut builder = ImportBuilder::new(&self.dictionary, expansion);
        let mut counts = TimeSlicedCounts::new();
        for profile in of_type() {
            for sample in &profile.samples {
                let key = builder.event_key(profile.resource, sample)?;
                for (at, time_ns) in sample.times_unix_ns.iter().enumerate() {
                    // Events without a value are only counted.
                    let value = sample.values.get(at).map_or(1, |value| u64::try_from(*value).unwrap_or(0));
                    counts.add(*time_ns, key, value);
                }
                if let ([], [value]) = (&*sample.times_unix_ns, &*sample.values) {
                    counts.add(start_ns, key, u64::try_from(*value).unwrap_or(0));
                }
            }
        }
        let rows = counts.rows_since(start_ns);
        Ok(Profile {
            covered_unix_ns: first_ns().unwrap_or(0)..last_ns().unwrap_or(0),
            shape: shape(samples()),
            start: SystemTime::UNIX_EPOCH + Duration::from_nanos(start_ns),
            duration: Duration::from_nanos(end_ns - start_ns),
            slice: if has_times && end_ns > start_ns { counts.slice() } else { Duration::ZERO },
            samples: rows.map(|(slice, key, count)| ImportBuilder::sample(slice, key, count)).collect(),
            ..builder.into_profile(Profile::new(title.to_owned(), measure))
        })
    }
}
