//! Profiles as a receiver got them: checked against every rule of conformance, decoded, counted once. And spans.

pub mod span;

use std::collections::HashSet;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use sidewinder_otlp::FrameType;
use sidewinder_otlp::conformance::{self, Violation};
use sidewinder_otlp::decode::{self, DecodedEvent, DecodedProfile};

use span::Span;

/// Everything that one receiver got.
#[derive(Debug, Default)]
pub struct Received {
    /// The profiles, without those that came twice.
    pub profiles: Vec<DecodedProfile>,
    /// How many came twice: a retry of a request whose answer was lost.
    pub duplicates: usize,
    /// The events in those that came twice.
    pub duplicate_events: u64,
    /// The spans.
    pub spans: Vec<Span>,
}

impl Received {
    /// Reads a file in the form of the Collector's file exporter.
    ///
    /// # Errors
    /// When the file is cut off, no profiles, or breaks a rule of conformance.
    pub fn from_collector_file(bytes: &[u8]) -> Result<Self> {
        let mut received = Self::default();
        let mut seen = HashSet::new();
        for message in decode::file_messages(bytes) {
            let message = message?;
            received.add(message, &mut seen, |violation| !is_the_collectors(violation))?;
        }
        Ok(received)
    }

    /// Reads requests as a server of our own got them.
    ///
    /// # Errors
    /// When one is no profiles, or breaks a rule of conformance.
    pub fn from_requests<M: AsRef<[u8]>>(requests: impl IntoIterator<Item = M>) -> Result<Self> {
        let mut received = Self::default();
        let mut seen = HashSet::new();
        for message in requests {
            received.add(message.as_ref(), &mut seen, |_| true)?;
        }
        Ok(received)
    }

    /// Reads a file that holds one encoded `ProfilesData`, as `sidewinder record -o x.otlp` writes it.
    ///
    /// # Errors
    /// When the file cannot be read, is no profiles, or breaks a rule of conformance.
    pub fn from_otlp_file(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut received = Self::default();
        received.add(&bytes, &mut HashSet::new(), |_| true).with_context(|| path.display().to_string())?;
        Ok(received)
    }

    fn add(
        &mut self,
        message: &[u8],
        seen: &mut HashSet<Vec<u8>>,
        counts: impl Fn(&Violation) -> bool,
    ) -> Result<()> {
        let broken: Vec<String> = conformance::check(message)
            .iter()
            .filter(|violation| counts(violation))
            .map(ToString::to_string)
            .collect();
        if !broken.is_empty() {
            bail!("{} rules of conformance are broken:\n{}", broken.len(), broken.join("\n"));
        }
        for profile in decode::decode_profiles_data(message)? {
            if seen.insert(profile.profile_id.clone()) {
                self.profiles.push(profile);
            } else {
                self.duplicates += 1;
                self.duplicate_events += profile.events().count() as u64;
            }
        }
        Ok(())
    }

    /// All events.
    pub fn events(&self) -> impl Iterator<Item = DecodedEvent<'_>> {
        self.profiles.iter().flat_map(DecodedProfile::events)
    }

    /// The time that the profiles cover, in nanoseconds since 1970; `None` without profiles. A service sends one after the other.
    #[must_use]
    pub fn period_unix_ns(&self) -> Option<Range<u64>> {
        let ends = self.profiles.iter().map(|profile| profile.time_unix_ns + profile.duration_ns);
        Some(self.profiles.iter().map(|profile| profile.time_unix_ns).min()?..ends.max()?)
    }

    /// The events of one type of sample, such as `off_cpu`.
    pub fn events_of_type(&self, sample_type: &str) -> impl Iterator<Item = DecodedEvent<'_>> {
        self.events().filter(move |event| &*event.profile.sample_type == sample_type)
    }

    /// The profiles of one process.
    pub fn profiles_of(&self, pid: u32) -> impl Iterator<Item = &DecodedProfile> {
        self.profiles.iter().filter(move |profile| is_of(profile, pid))
    }

    /// The events of one process.
    pub fn events_of(&self, pid: u32) -> impl Iterator<Item = DecodedEvent<'_>> {
        self.profiles_of(pid).flat_map(DecodedProfile::events)
    }

    /// The events of all processes but one.
    pub fn events_of_others(&self, pid: u32) -> impl Iterator<Item = DecodedEvent<'_>> {
        self.profiles.iter().filter(move |profile| !is_of(profile, pid)).flat_map(DecodedProfile::events)
    }
}

fn is_of(profile: &DecodedProfile, pid: u32) -> bool {
    resource_int(profile, "process.pid") == Some(i64::from(pid))
}

/// Whether a rule is broken by the Collector and not by the profiler: when it encodes again what it received, it
/// moves the keys of resource attributes into the dictionary (rules 5 and 6), and gives the first, empty attribute
/// of the dictionary an empty value (rule 1).
fn is_the_collectors(violation: &Violation) -> bool {
    match violation.rule {
        1 => violation.path == "dictionary.attribute_table[0]",
        5 | 6 => violation.path.ends_with(".resource"),
        _ => false,
    }
}

/// Whether the interrupt came while the program itself was running, not the kernel on its behalf.
#[must_use]
pub fn in_user_mode(event: &DecodedEvent<'_>) -> bool {
    event.sample.stack.first().is_none_or(|leaf| leaf.frame_type() != Some(FrameType::Kernel))
}

fn resource_int(profile: &DecodedProfile, key: &str) -> Option<i64> {
    profile.resource.get(key)?.as_int()
}
