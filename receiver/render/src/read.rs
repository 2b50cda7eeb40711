//! Reads existing profiles, from Sidewinder or from other tools.

mod error;
mod folded;
mod guess;
mod locations;
mod perf;
mod perf_data;
mod perf_script;
mod pprof;
mod protobuf;

use std::borrow::Cow;
use std::io::Read;

use flate2::read::GzDecoder;

#[cfg(test)]
pub(crate) use self::guess::guess_marker;

use self::error::BYTES_MAX;
use self::perf::PerfProfile;
use crate::expansion::ExpansionBudget;
use crate::profile::Profile;

pub use self::error::ReadError;
pub use self::perf_data::{NoNames, PerfBinary, PerfCode, PerfFunction, PerfInode, PerfKernel, PerfNames};

const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads a file in pprof's format, compressed or not, of folded stacks, `perf.data`, or the text of `perf script`, depending on
/// the content. `title`: its name. `sample_type`: which of several events of perf; by default the first. `names` names the code of a `perf.data`.
///
/// # Errors
///
/// [`ReadError`].
pub fn read(
    title: &str,
    file: impl Read,
    sample_type: Option<&str>,
    names: &mut dyn PerfNames,
) -> Result<Profile, ReadError> {
    let stored = read_to_end(file)?;
    let stored_bytes = stored.len() as u64;
    let bytes = if stored.starts_with(&GZIP) { read_to_end(GzDecoder::new(&*stored))? } else { stored };
    let expansion = ExpansionBudget::for_document(bytes.len() as u64, stored_bytes);
    read_within(expansion, title, &bytes, sample_type, names)
}

/// The same for the uncompressed content of a file.
///
/// # Errors
///
/// [`ReadError`].
pub fn read_bytes(
    title: &str,
    bytes: &[u8],
    sample_type: Option<&str>,
    names: &mut dyn PerfNames,
) -> Result<Profile, ReadError> {
    let length = bytes.len() as u64;
    read_within(ExpansionBudget::for_document(length, length), title, bytes, sample_type, names)
}

fn read_within(
    expansion: ExpansionBudget,
    title: &str,
    bytes: &[u8],
    sample_type: Option<&str>,
    names: &mut dyn PerfNames,
) -> Result<Profile, ReadError> {
    if perf_data::is_perf_data(bytes) {
        return perf_data::read(PerfProfile::new(title, sample_type, expansion), bytes, names);
    }
    // Names in perf's text may be any bytes.
    let text = if bytes.contains(&0) { None } else { Some(String::from_utf8_lossy(bytes)) };
    if let Some(text) = text.as_ref().filter(|text| perf_script::is_script(text)) {
        return perf_script::read(PerfProfile::new(title, sample_type, expansion), text);
    }
    if is_page(bytes) {
        return Err(ReadError::Page);
    }
    if sample_type.is_some() {
        return Err(ReadError::NothingToChoose);
    }
    match text {
        Some(Cow::Borrowed(text)) if text.lines().next().is_some_and(folded::is_stack_line) => {
            folded::read(title, text, expansion)
        }
        Some(Cow::Borrowed(text)) if text.chars().all(|c| !c.is_control() || c.is_whitespace()) => {
            Err(ReadError::UnknownFormat)
        }
        _ => pprof::read(title, bytes, expansion),
    }
}

/// Whether these are the bytes of an HTML page, such as those that this crate writes.
fn is_page(bytes: &[u8]) -> bool {
    const START: &[u8] = b"<!doctype html";
    bytes.trim_ascii_start().get(..START.len()).is_some_and(|start| start.eq_ignore_ascii_case(START))
}

fn read_to_end(from: impl Read) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    let read = from.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if read as u64 > BYTES_MAX { Err(ReadError::TooLarge) } else { Ok(bytes) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::FrameCategory;
    use crate::profile::tests::{TestFrame, frame, frame_names, guessed_sample, sample, sample_frames};
    use crate::{NameStyle, ProfileFormat};
    use proptest::prelude::*;
    use sidewinder_profile::{FrameType, Location, Mapping};

    fn read_back(form: ProfileFormat) -> Profile {
        let file = tempfile::NamedTempFile::new().unwrap();
        crate::write(&sample(), form, NameStyle::Full, &mut file.as_file()).unwrap();
        read("", std::fs::File::open(file.path()).unwrap(), None, &mut NoNames).unwrap()
    }

    fn folded(profile: &Profile) -> Vec<String> {
        crate::folded::lines(profile, &crate::DisplayNames::default()).collect()
    }

    #[test]
    fn a_guess_is_read_back_as_one() {
        for form in [ProfileFormat::Folded, ProfileFormat::Pprof] {
            let file = tempfile::NamedTempFile::new().unwrap();
            crate::write(&guessed_sample(), form, NameStyle::Full, &mut file.as_file()).unwrap();
            let back = read("", std::fs::File::open(file.path()).unwrap(), None, &mut NoNames).unwrap();
            assert_eq!(folded(&back), folded(&guessed_sample()));
            let frames = back.stacked_frames().map(|(_, frame)| frame);
            let guessed: Vec<_> = frames.filter(|frame| frame.location.is_guessed).collect();
            assert_eq!(guessed.len(), 1);
            assert_eq!((&*guessed[0].name(), guessed[0].system_name()), ("main", ""));
        }
    }

    #[test]
    fn every_format_marks_guesses() {
        for form in ProfileFormat::ALL {
            let mut out = Vec::new();
            crate::write(&guessed_sample(), form, NameStyle::Full, &mut out).unwrap();
            let mut text = out.clone();
            if form == ProfileFormat::Pprof {
                text.clear();
                GzDecoder::new(&*out).read_to_end(&mut text).unwrap();
            }
            let text = match form {
                ProfileFormat::Html => {
                    crate::page::tests::document_of(&String::from_utf8(text).unwrap()).to_string()
                }
                _ => String::from_utf8_lossy(&text).into_owned(),
            };
            assert!(text.contains("[guessed] main"), "{form:?}");
        }
    }

    /// Functions with names that look like words of ours.
    const LOOK_ALIKES: [&str; 8] = [
        "[guessed] main",
        "[truncated: no unwind information]",
        "[lock 7]",
        " [guessed] main",
        "\\[guessed] main",
        "\\",
        "\u{1b}[31m",
        "\\App\\Kernel::handle",
    ];

    #[test]
    fn a_function_cannot_pose_as_a_marker() {
        let mut profile = crate::profile::tests::one_stack(&LOOK_ALIKES);
        profile.threads[0].process = "[truncated: process]".into();
        for form in [ProfileFormat::Folded, ProfileFormat::Pprof] {
            let again = |profile: &Profile| {
                let mut bytes = Vec::new();
                crate::write(profile, form, NameStyle::Full, &mut bytes).unwrap();
                read("", &*bytes, None, &mut NoNames).unwrap()
            };
            let back = again(&profile);
            for (_, frame) in back.stacked_frames() {
                let Location { frame_type, is_guessed, marker, .. } = frame.location;
                let is_code = frame_type == FrameType::Native && !is_guessed && marker.is_none();
                assert!(is_code, "{form:?}: {frame:?}");
            }
            let names = frame_names(&back);
            let names: Vec<_> = names.iter().map(|name| name.trim()).collect();
            for name in LOOK_ALIKES {
                let name = crate::escape::escaped(name.trim());
                assert!(names.contains(&&*name), "{form:?}: {name} of {names:?}");
            }
            assert_eq!(folded(&again(&back)), folded(&back), "{form:?}");
        }
    }

    #[test]
    fn every_format_escapes_a_function_that_looks_like_a_marker() {
        let profile = crate::profile::tests::one_stack(&["[guessed] main", "ns::[guessed] inner(int)"]);
        for form in ProfileFormat::ALL {
            for names in [NameStyle::Full, NameStyle::Short] {
                let mut out = Vec::new();
                crate::write(&profile, form, names, &mut out).unwrap();
                let mut bytes = out.clone();
                if form == ProfileFormat::Pprof {
                    bytes.clear();
                    GzDecoder::new(&*out).read_to_end(&mut bytes).unwrap();
                }
                let text = match form {
                    ProfileFormat::Html => {
                        crate::page::tests::document_of(&String::from_utf8(bytes).unwrap()).to_string()
                    }
                    _ => String::from_utf8_lossy(&bytes).into_owned(),
                };
                let text = text.replace("\\\\", "\\");
                assert!(text.contains("\\[guessed] main"), "{form:?}: {text}");
                // pprof has the symbol beside the name.
                let escaped = text.matches("\\[guessed] ").count() + text.matches("::[guessed] ").count();
                let symbols = usize::from(form == ProfileFormat::Pprof);
                assert_eq!(text.matches("[guessed] ").count(), escaped + symbols, "{form:?}: {text}");
            }
        }
    }

    #[test]
    fn markers_keep_their_form() {
        for line in
            ["p;[truncated: no unwind information];main 1", "[lock 7];main 1", "[guessed] main;[unknown] 1"]
        {
            assert_eq!(folded(&read("", line.as_bytes(), None, &mut NoNames).unwrap()), [line]);
        }
    }

    #[test]
    fn what_was_written_is_read_back() {
        assert_eq!(folded(&read_back(ProfileFormat::Folded)), folded(&sample()));
        let pprof = read_back(ProfileFormat::Pprof);
        assert_eq!(folded(&pprof), folded(&sample()));
        assert_eq!(pprof.measure.period_ns(), 10_000_000);
        assert_eq!(pprof.duration, sample().duration);
        let files = |profile: &Profile| -> Vec<_> {
            let dictionary = &profile.dictionary;
            let file = |mapping: &Mapping| {
                let build_id = dictionary.build_ids(mapping).gnu.map(str::to_owned);
                (dictionary.string(mapping.filename).to_owned(), build_id)
            };
            dictionary.mappings().iter().map(file).collect()
        };
        assert_eq!(files(&pprof), files(&sample()));
    }

    #[test]
    fn functions_of_python_are_read_back_from_pprof_as_such() {
        let python = |(name, path): (&str, &str)| TestFrame {
            path: path.to_owned(),
            line: 1,
            file: "",
            ..frame(name, FrameCategory::Python, 0)
        };
        let functions = [
            ("main", "/srv/app.py"),
            ("Made.call", "<string>"),
            ("_find_and_load", "<frozen importlib._bootstrap>"),
            ("<module>", "setup"),
            ("main", "/usr/bin/pip"),
        ];
        let frames = [sample_frames(), functions.map(python).to_vec()].concat();
        let stack: Vec<_> = (0..frames.len()).collect();
        let profile = crate::profile::tests::profile(&frames, &[(&stack, 3)]);
        let file = tempfile::NamedTempFile::new().unwrap();
        crate::write(&profile, ProfileFormat::Pprof, NameStyle::Full, &mut file.as_file()).unwrap();
        let back = read("", std::fs::File::open(file.path()).unwrap(), None, &mut NoNames).unwrap();
        let types: Vec<_> = back.stacked_frames().map(|(_, frame)| frame.location.frame_type).collect();
        let (others, python) = types.split_at(sample_frames().len());
        assert_eq!(python, [FrameType::CPython; 5]);
        assert!(!others.contains(&FrameType::CPython));
    }

    #[test]
    fn numbers_without_a_time_stay_numbers_in_pprofs_form() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "main;work 3\n").unwrap();
        let counted = read("", std::fs::File::open(file.path()).unwrap(), None, &mut NoNames).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        crate::write(&counted, ProfileFormat::Pprof, NameStyle::Full, &mut file.as_file()).unwrap();
        let again = read("", std::fs::File::open(file.path()).unwrap(), None, &mut NoNames).unwrap();
        assert_eq!((folded(&again), &again.measure), (folded(&counted), &counted.measure));
        assert_eq!(again.total_count(), 3);
    }

    #[test]
    fn the_error_for_an_invalid_profile_gives_the_reason() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (text, message) in [
            (
                "# A title\n",
                "its format is unknown: not pprof, folded stacks, perf.data or the output of perf script",
            ),
            ("<!DOCTYPE html>\n<title>a</title>", "HTML pages can't be read; use .otlp"),
            ("a;b 1\na;c\n", "line 2 does not end in a number of samples, as folded stacks do"),
            ("\u{1}\0\u{fffd}", "it is not a pprof profile"),
        ] {
            std::fs::write(file.path(), text).unwrap();
            assert_eq!(
                read("", std::fs::File::open(file.path()).unwrap(), None, &mut NoNames)
                    .unwrap_err()
                    .to_string(),
                message
            );
        }
    }

    proptest! {
        #[test]
        fn no_bytes_are_too_much(bytes: Vec<u8>) {
            let expansion = ExpansionBudget::for_document(0, 0);
            let _ = pprof::read("", &bytes, expansion);
            let text = String::from_utf8_lossy(&bytes);
            let _ = folded::read("", &text, expansion);
            let _ = perf_script::read(PerfProfile::new("", None, expansion), &text);
        }
    }
}
