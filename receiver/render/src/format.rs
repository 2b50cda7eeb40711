//! Output formats, and their file suffixes.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sidewinder_profile::Index as _;
use sidewinder_text::ExternalText;

use crate::names::{DisplayNames, NameStyle};
use crate::profile::Profile;
use crate::{firefox, folded, page, pprof, speedscope, svg};

/// An output format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileFormat {
    /// pprof's `profile.proto`, compressed.
    Pprof,
    /// One line per stack, for FlameGraph and compatible tools.
    Folded,
    /// A flame graph as an SVG image with search.
    Svg,
    /// An interactive page that needs no network.
    Html,
    /// For the Firefox Profiler.
    Firefox,
    /// For speedscope.
    Speedscope,
}

impl ProfileFormat {
    /// All formats.
    pub const ALL: [Self; 6] =
        [Self::Pprof, Self::Folded, Self::Svg, Self::Html, Self::Firefox, Self::Speedscope];

    /// The suffix of this format's files.
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Pprof => ".pb.gz",
            Self::Folded => ".folded",
            Self::Svg => ".svg",
            Self::Html => ".html",
            Self::Firefox => ".firefox.json",
            Self::Speedscope => ".speedscope.json",
        }
    }

    /// How functions are named in this format by default: in full where the output is for other tools.
    #[must_use]
    pub const fn default_names(self) -> NameStyle {
        match self {
            Self::Svg | Self::Html => NameStyle::Short,
            Self::Pprof | Self::Folded | Self::Firefox | Self::Speedscope => NameStyle::Full,
        }
    }

    /// The format for a file name's suffix, in upper or lower case. `others` are suffixes that the caller handles itself;
    /// the error lists them too.
    ///
    /// # Errors
    ///
    /// [`UnknownFormat`], which lists the suffixes.
    pub fn from_path(path: &Path, others: &[&'static str]) -> Result<Self, UnknownFormat> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        Self::ALL.into_iter().find(|form| name.ends_with(form.suffix())).ok_or_else(|| UnknownFormat {
            path: path.to_owned(),
            known: others.iter().copied().chain(Self::ALL.map(Self::suffix)).collect(),
        })
    }
}

/// A file name without a known suffix.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the format of {} is not clear from its name: use one of the suffixes {}", ExternalText::new(path), known.join(", "))]
pub struct UnknownFormat {
    /// The file name.
    pub path: PathBuf,
    /// The known suffixes.
    pub known: Vec<&'static str>,
}

/// Why a profile could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// Writing to the file failed.
    #[error("cannot write the profile")]
    Write(#[from] io::Error),
    /// The profile has no samples.
    #[error("the profile holds no samples")]
    Empty,
    /// The format repeats names in each stack, and they are too long for that.
    #[error(
        "the names of all stacks take more than {limit_mib} MiB in this format; .pb.gz and .html store each name once"
    )]
    TooMuchText {
        /// The limit.
        limit_mib: u64,
    },
}

/// The most text in bytes that stacks may have where each repeats the names of its frames.
const REPEATED_TEXT_BYTES_MAX: u64 = 2 << 30;

/// Writes a profile in a format. `names` says how functions are named, in folded stacks, in pictures, and at first in a page;
/// other formats always have full names.
///
/// # Errors
///
/// [`RenderError`]; an image of no samples is refused, the other formats can be empty. Text that is too long is refused before any
/// is made.
pub fn write(
    profile: &Profile,
    form: ProfileFormat,
    names: NameStyle,
    out: &mut impl Write,
) -> Result<(), RenderError> {
    let display_names = || DisplayNames::new([profile], names);
    if matches!(form, ProfileFormat::Folded | ProfileFormat::Svg)
        && repeated_text_bytes(profile) > REPEATED_TEXT_BYTES_MAX
    {
        return Err(RenderError::TooMuchText { limit_mib: REPEATED_TEXT_BYTES_MAX >> 20 });
    }
    match form {
        ProfileFormat::Pprof => pprof::write(profile, out)?,
        ProfileFormat::Folded => folded::write(profile, &display_names(), out)?,
        ProfileFormat::Svg if profile.total_count() == 0 => return Err(RenderError::Empty),
        ProfileFormat::Svg => svg::write(profile, &display_names(), out)?,
        ProfileFormat::Html => page::write_page(std::slice::from_ref(profile), names, out)?,
        ProfileFormat::Firefox => firefox::write(profile, out)?,
        ProfileFormat::Speedscope => speedscope::write(profile, out)?,
    }
    Ok(())
}

/// The length of the names of all stacks in bytes.
fn repeated_text_bytes(profile: &Profile) -> u64 {
    let dictionary = &profile.dictionary;
    let lengths: Vec<_> = dictionary.frames().map(|frame| frame.name().len() as u64 + 1).collect();
    let frames = dictionary.stacks().flatten().flat_map(|location| dictionary.frames_at(*location));
    let lengths = frames.filter_map(|frame| lengths.get(frame.position()));
    lengths.fold(0, |sum, length| sum.saturating_add(*length))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::category::FrameCategory;
    use crate::profile::tests::{frame, profile};

    #[test]
    fn long_names_that_each_stack_would_repeat_are_refused_before_there_is_such_text() {
        let long = frame(&"x".repeat(1 << 15), FrameCategory::Native, 0);
        let profile = profile(&[long], &[(&[0; 300_000], 1)]);
        for form in [ProfileFormat::Folded, ProfileFormat::Svg, ProfileFormat::Pprof] {
            let written = write(&profile, form, NameStyle::Full, &mut io::sink());
            let is_refused = matches!(written, Err(RenderError::TooMuchText { .. }));
            assert_eq!(is_refused, form != ProfileFormat::Pprof, "{form:?}");
        }
    }

    #[test]
    fn the_end_of_the_name_decides() {
        for form in ProfileFormat::ALL {
            let path = PathBuf::from(format!("/some.html/out{}", form.suffix().to_uppercase()));
            assert_eq!(ProfileFormat::from_path(&path, &[]), Ok(form));
        }
    }

    #[test]
    fn the_error_for_an_unknown_suffix_lists_the_known_ones() {
        let error = ProfileFormat::from_path(Path::new("out.gz"), &[".otlp"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the format of out.gz is not clear from its name: use one of the suffixes .otlp, .pb.gz, .folded, \
             .svg, .html, .firefox.json, .speedscope.json"
        );
    }
}
