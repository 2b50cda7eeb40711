//! Encodes a profile as an OTLP report: the inverse of `import`.

use std::collections::HashMap;
use std::time::UNIX_EPOCH;

use sidewinder_kind::SampleShape;
use sidewinder_otlp::builder::{ProfileType, SampleAttributes, SampleIdentity};
use sidewinder_otlp::{Report, ReportBuilder, ReportOptions, Value, conformance};
use sidewinder_profile::{AttributeSetIndex, Dictionary, Marker, StackIndex, StatedAttributes};
use sidewinder_render::{Profile, ProfileThread, SampleType, ThreadState};

use crate::report::LOCK_ID;
use crate::resource::key;

/// With more events than this, their counts are written instead of a timestamp for each.
const TIMESTAMPS_MAX: u64 = 16 << 20;

/// Why a profile can't be encoded.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// It has no samples.
    #[error("the profile has no samples")]
    Empty,
    /// Its values are in a unit that OTLP has no name for.
    #[error(
        "the unit of its values, {0:?}, is not one that OTLP allows: count, nanoseconds, bytes, or a UCUM code"
    )]
    UnsupportedUnit(String),
}

/// A report with all events, each at the beginning of its slice of time if events have times.
pub fn report(profile: &Profile) -> Result<Report, EncodeError> {
    let profile_type = profile_type(profile)?;
    let shape = profile_type.shape;
    let mut builder = ReportBuilder::new(ReportOptions::new(env!("CARGO_PKG_VERSION")));
    let profile_type = builder.profile_type(profile_type);
    // What is not referred to is not written.
    let mut dictionary = profile.dictionary.clone();
    let mut stacks = HashMap::new();
    let mut contexts = HashMap::new();
    let start_unix_ns = profile.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
    let unix_ns = |slice: u32| u64::try_from(start_unix_ns + profile.slice.as_nanos() * u128::from(slice));
    let mut counts = HashMap::<SampleIdentity, u64>::new();
    for sample in &profile.samples {
        let Some(thread) = profile.threads.get(sample.thread.0 as usize) else { continue };
        let EncodedStack { index: stack, markers } = *stacks
            .entry(sample.stack)
            .or_insert_with(|| encoded_stack(profile, sample.stack, &mut dictionary));
        let state = sample.state.and_then(|state| profile.states.get(state.0 as usize));
        let (resource, attributes) =
            *contexts.entry((sample.thread, sample.state, sample.stated, markers)).or_insert_with(|| {
                let context = SampleContext { thread, state, markers, stated: sample.stated };
                (context.resource(&mut dictionary), context.attributes(&mut dictionary))
            });
        let identity = SampleIdentity { resource, profile_type, stack, attributes, link: sample.span };
        match shape {
            SampleShape::Values => {
                let count = counts.entry(identity).or_default();
                *count = count.saturating_add(sample.count);
            }
            SampleShape::TimestampsAndValues => {
                let value = i64::try_from(sample.count).unwrap_or(i64::MAX);
                builder.event(&identity, unix_ns(sample.slice).unwrap_or(u64::MAX), value);
            }
            SampleShape::Timestamps => {
                for _ in 0..sample.count {
                    builder.event(&identity, unix_ns(sample.slice).unwrap_or(u64::MAX), 1);
                }
            }
        }
    }
    let start = unix_ns(0).unwrap_or(u64::MAX);
    let mut counts: Vec<_> = counts.into_iter().collect();
    // The same profile gives the same report.
    counts.sort_unstable_by_key(|(identity, _)| {
        (identity.resource, identity.stack, identity.attributes, identity.link)
    });
    for (identity, count) in counts {
        builder.event(&identity, start, i64::try_from(count).unwrap_or(i64::MAX));
    }
    let duration_ns = u64::try_from(profile.duration.as_nanos()).unwrap_or(u64::MAX);
    let covered = Some(profile.covered_unix_ns.clone()).filter(|covered| !covered.is_empty());
    builder
        .finish(&mut dictionary, covered.unwrap_or(start..start.saturating_add(duration_ns)))
        .ok_or(EncodeError::Empty)
}

/// What is written of a profile's events.
fn profile_type(profile: &Profile) -> Result<ProfileType, EncodeError> {
    let SampleType { value_type, period } = &profile.measure;
    let value_types = [Some(value_type), period.as_ref().map(|period| &period.value_type)];
    let mut units = value_types.into_iter().flatten().map(|value_type| &*value_type.unit);
    if let Some(unit) = units.find(|unit| !conformance::is_value_unit(unit)) {
        return Err(EncodeError::UnsupportedUnit(unit.to_owned()));
    }
    let shape = match profile.shape {
        SampleShape::Timestamps if profile.total_count() > TIMESTAMPS_MAX => SampleShape::Values,
        shape => shape,
    };
    Ok(ProfileType { sample_type: profile.measure.clone(), shape, display_rank: 0 })
}

/// The stack of a sample, and the markers in it that are attributes of the sample.
#[derive(Clone, Copy)]
struct EncodedStack<'a> {
    index: StackIndex,
    markers: StackMarkers<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct StackMarkers<'a> {
    /// The ID of the lock that the thread waits for.
    lock: Option<&'a str>,
    /// Why frames are missing.
    outcome: Option<&'a str>,
}

/// A stack of a profile in a report, whose dictionary has the same indices. A lock is no location there.
fn encoded_stack<'a>(
    profile: &'a Profile,
    stack: StackIndex,
    dictionary: &mut Dictionary,
) -> EncodedStack<'a> {
    let mut markers = StackMarkers::default();
    let locations = profile.dictionary.stack(stack);
    let mut code = Vec::with_capacity(locations.len());
    for location in locations {
        match profile.dictionary.location(*location).marker {
            Some(Marker::Lock(id)) => {
                markers.lock = Some(id);
                continue;
            }
            Some(Marker::Truncated(truncation)) => markers.outcome = Some(&truncation.reason),
            Some(Marker::Words) | None => {}
        }
        code.push(*location);
    }
    let index = if code.len() == locations.len() { stack } else { dictionary.add_stack(&code) };
    EncodedStack { index, markers }
}

/// What the attributes of a sample and of its resource are made of.
struct SampleContext<'a> {
    thread: &'a ProfileThread,
    state: Option<&'a ThreadState>,
    markers: StackMarkers<'a>,
    /// What its sender has stated.
    stated: StatedAttributes,
}

impl SampleContext<'_> {
    /// The resource as its sender stated it, or else with what is known of the process.
    fn resource(&self, dictionary: &mut Dictionary) -> AttributeSetIndex {
        if self.stated.resource != AttributeSetIndex::default() {
            return self.stated.resource;
        }
        let ProfileThread { process, pid, container, .. } = self.thread;
        let texts = [(key::PROCESS_EXECUTABLE_NAME, &**process)].into_iter().chain(container.attributes());
        let texts = texts.filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key, Value::Str(text)));
        let pid = (*pid > 0).then_some((key::PROCESS_PID, Value::Int((*pid).into())));
        dictionary.add_attributes(texts.chain(pid))
    }

    /// What the profile says of the sample, and what else its sender has stated.
    fn attributes(&self, dictionary: &mut Dictionary) -> AttributeSetIndex {
        let state = self.state.into_iter().flat_map(|state| {
            [(ThreadState::STATE_KEY, &*state.state), (ThreadState::CAUSE_KEY, &*state.cause)]
        });
        let texts = state.chain(self.markers.lock.map(|id| (LOCK_ID, id)));
        let texts = texts.filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key, Value::Str(text)));
        let extra: Vec<_> = texts.collect();
        let attributes = SampleAttributes {
            thread_id: (self.thread.tid > 0).then_some(self.thread.tid.into()),
            thread_name: Some(&*self.thread.name).filter(|name| !name.is_empty()),
            outcome: self.markers.outcome,
            extra: &extra,
            ..SampleAttributes::default()
        };
        let known = attributes.add_to(dictionary);
        dictionary.add_union(known, self.stated.sample)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use sidewinder_kind::Kind;
    use sidewinder_naming::truncation_with_reason;
    use sidewinder_otlp::decode;
    use sidewinder_profile::{BuildIds, FrameType, Location, SourceLine};
    use sidewinder_render::{NameStyle, ProfileSample, StateIndex, ThreadIndex, ValueType, frame_label};

    use super::*;
    use crate::import;

    type Places = Vec<sidewinder_profile::LocationIndex>;

    /// `inner` is inlined into `outer`, which calls itself once.
    fn profile() -> Profile {
        profile_with(|_| Vec::new())
    }

    /// The same with other locations at the leaf of the second stack.
    fn profile_with(leaf: impl Fn(&mut Dictionary) -> Places) -> Profile {
        let mut dictionary = Dictionary::default();
        let htlhash = "01".repeat(16);
        let build_ids = BuildIds { htlhash: Some(&htlhash), gnu: Some("0123abcd"), go: None };
        let [app, kernel] = ["/srv/app", "[kernel]"].map(|path| {
            let filename = dictionary.add_string(path);
            let attributes = dictionary.add_build_ids(&build_ids);
            let mapping = sidewinder_profile::Mapping::default();
            dictionary.add_mapping(sidewinder_profile::Mapping { filename, attributes, ..mapping })
        });
        let [inner, outer, vfs_write] = ["inner", "outer", "vfs_write"].map(|function| {
            let path = "src/a.rs";
            dictionary.add_line(&SourceLine { function, path, line: 3, ..SourceLine::default() })
        });
        let in_app =
            Location { mapping: app, address: 0x1000, frame_type: FrameType::Rust, ..Location::default() };
        let inlined = dictionary.add_location(&Location { lines: &[inner, outer], ..in_app });
        let alone = dictionary.add_location(&Location { lines: &[outer], ..in_app });
        let guessed = dictionary.add_location(&Location { lines: &[outer], is_guessed: true, ..in_app });
        let address = 0xffff_ffff_8100_0000;
        let in_kernel = Location { mapping: kernel, address, frame_type: FrameType::Kernel, ..in_app };
        let in_kernel = dictionary.add_location(&Location { lines: &[vfs_write], ..in_kernel });
        let truncation = Marker::Truncated(truncation_with_reason("no_rule").into());
        let truncation = dictionary.add_marker(&truncation);
        let leaf = leaf(&mut dictionary);
        let second = match &leaf[..] {
            [] => vec![in_kernel, alone, guessed, truncation],
            leaf => [leaf, &[alone, truncation]].concat(),
        };
        let stacks = [vec![inlined, inlined], second].map(|stack| dictionary.add_stack(&stack));
        let span = dictionary.add_link(sidewinder_profile::Link { trace_id: [1; 16], span_id: [2; 8] });
        let sample = |slice, stack: usize, count| ProfileSample {
            slice,
            thread: ThreadIndex(0),
            span,
            state: Some(StateIndex(0)),
            stated: StatedAttributes::default(),
            stack: stacks[stack],
            count,
        };
        Profile {
            start: SystemTime::UNIX_EPOCH + Duration::from_secs(1_790_000_000),
            duration: Duration::from_secs(2),
            slice: Duration::from_secs(1),
            dictionary,
            threads: vec![ProfileThread {
                process: "app".into(),
                pid: 7,
                name: "worker".into(),
                tid: 8,
                container: "c0ffee".into(),
            }],
            states: vec![ThreadState { state: "sleeping".into(), cause: "futex".into() }],
            samples: vec![sample(0, 0, 2), sample(1, 1, 1)],
            ..Profile::of_kind("app".to_owned(), Kind::Cpu { samples_per_second: 100 })
        }
    }

    #[test]
    fn a_report_conforms_and_can_be_read_back() {
        let report = report(&profile()).unwrap();
        assert_eq!(conformance::check(report.as_bytes()), []);
        let decoded = decode::decode_profiles_data(report.as_bytes()).unwrap();
        let outermost = decoded[0].samples.iter().filter_map(|sample| sample.stack.last()?.function());
        assert!(
            outermost.into_iter().any(|name| name == "[truncated: no_rule]"),
            "the marker has the outcome's label"
        );
        let mut shapes: Vec<Vec<usize>> = decoded[0]
            .samples
            .iter()
            .map(|sample| sample.stack.iter().map(|frame| frame.lines.len()).collect())
            .collect();
        shapes.sort();
        assert_eq!(
            shapes,
            [vec![1, 1, 1, 1], vec![2, 2]],
            "an inlined call is at the location of its caller"
        );
        let file = tempfile::Builder::new().suffix(".otlp").tempfile().unwrap();
        std::fs::write(file.path(), report.as_bytes()).unwrap();
        let read = import::read_profiles(file.path(), None, &Arc::default()).unwrap().remove(0);
        let mut out = [Vec::new(), Vec::new()];
        for (profile, out) in [&profile(), &read].into_iter().zip(&mut out) {
            sidewinder_render::write(profile, sidewinder_render::ProfileFormat::Folded, NameStyle::Full, out)
                .unwrap();
        }
        assert_eq!(out[0], out[1]);
        let text = String::from_utf8(out[0].clone()).unwrap();
        assert!(text.contains(";[guessed] outer;outer;"), "{text}");
        assert_eq!(
            (&read.threads, read.dictionary.links()),
            (&profile().threads, profile().dictionary.links())
        );
        assert_eq!(read.states, profile().states);
        assert_eq!(read.measure.period_ns(), 10_000_000);
    }

    /// Functions without a file, as an interpreter's, that have the names of markers.
    #[test]
    fn functions_that_look_like_markers_are_functions_after_a_round_trip() {
        let names = ["[truncated: no unwind information]", "[lock 7]", "[guessed] main"];
        let posing = profile_with(|dictionary| {
            let location = |function| {
                let lines = [dictionary.add_line(&SourceLine { function, ..SourceLine::default() })];
                let frame_type = FrameType::CPython;
                dictionary.add_location(&Location { frame_type, lines: &lines, ..Location::default() })
            };
            names.map(location).to_vec()
        });
        let report = report(&posing).unwrap();
        assert_eq!(conformance::check(report.as_bytes()), [], "a truncation is at the root alone");
        let read = import::from_report_bytes("", report.as_bytes(), None).unwrap();
        let kinds = |name: &str| -> Vec<_> {
            let named = read.dictionary.frames().filter(|frame| frame.name() == name);
            let locations = named.map(|frame| frame.location);
            locations.map(|of| (of.frame_type, of.marker.is_some(), of.is_guessed)).collect()
        };
        let function = (FrameType::CPython, false, false);
        assert_eq!(kinds(names[0]), [(FrameType::Native, true, false), function]);
        assert_eq!((kinds(names[1]), kinds(names[2])), (vec![function], vec![function]));
        let labels: Vec<_> = read.dictionary.frames().map(|frame| frame_label(&frame).into_owned()).collect();
        assert!(names.iter().all(|name| labels.contains(&format!("\\{name}"))), "{labels:?}");
    }

    #[test]
    fn a_profile_that_cant_be_encoded_is_an_error() {
        let empty = report(&Profile { samples: Vec::new(), ..profile() });
        assert!(matches!(empty, Err(EncodeError::Empty)));
        let of_unit = |unit: &str| {
            let value_type = ValueType::new("inuse_space", unit);
            report(&Profile { measure: SampleType { value_type, period: None }, ..profile() })
        };
        assert_eq!(conformance::check(of_unit("bytes").unwrap().as_bytes()), []);
        assert!(matches!(of_unit("pages"), Err(EncodeError::UnsupportedUnit(unit)) if unit == "pages"));
    }

    /// Converts a profile to a format without times, and that to OTLP. The result can be read and encoded again.
    #[test]
    fn other_formats_become_conforming_reports_with_the_same_stacks() {
        let folder = tempfile::tempdir().unwrap();
        let folded = |profile: &Profile| {
            let mut out = Vec::new();
            sidewinder_render::write(
                profile,
                sidewinder_render::ProfileFormat::Folded,
                NameStyle::Full,
                &mut out,
            )
            .unwrap();
            String::from_utf8(out).unwrap()
        };
        for format in [sidewinder_render::ProfileFormat::Folded, sidewinder_render::ProfileFormat::Pprof] {
            let other = folder.path().join(format!("other{}", format.suffix()));
            let mut file = std::fs::File::create(&other).unwrap();
            sidewinder_render::write(&profile(), format, NameStyle::Full, &mut file).unwrap();
            let read = import::read_profiles(&other, None, &Arc::default()).unwrap().remove(0);
            let report = report(&read).unwrap();
            assert_eq!(conformance::check(report.as_bytes()), [], "{format:?}");
            let path = folder.path().join("out.otlp");
            std::fs::write(&path, report.as_bytes()).unwrap();
            let again = import::read_profiles(&path, None, &Arc::default()).unwrap().remove(0);
            // Folded stacks have the process as their outermost frame.
            assert_eq!(folded(&again), folded(&read), "{format:?}");
            assert_eq!(
                (again.measure.rate_hz(), again.measure.period_ns()),
                (read.measure.rate_hz(), read.measure.period_ns())
            );
            let third = super::report(&again).unwrap();
            assert_eq!(conformance::check(third.as_bytes()), [], "{format:?}");
        }
    }

    #[test]
    fn huge_counts_are_written_as_counts() {
        let mut large = profile();
        large.samples[0].count = u64::MAX / 2;
        let report = report(&large).unwrap();
        assert!(report.as_bytes().len() < 10_000);
        assert_eq!(conformance::check(report.as_bytes()), []);
    }
}
