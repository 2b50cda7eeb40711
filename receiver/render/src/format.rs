//! Which form a file's name asks for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::profile::Profile;
use crate::{firefox, folded, page, pprof, speedscope, svg};

/// A form that a profile can be written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProfileFormat {
    /// pprof's `profile.proto`, compressed.
    Pprof,
    /// A line for each stack, for FlameGraph and its kin.
    Folded,
    /// A flame graph as a picture with a search.
    Svg,
    /// A page with everything to look at it by, which needs no network.
    Html,
    /// For the Firefox Profiler.
    Firefox,
    /// For speedscope.
    Speedscope,
}

impl ProfileFormat {
    /// Every form.
    pub const ALL: [Self; 6] =
        [Self::Pprof, Self::Folded, Self::Svg, Self::Html, Self::Firefox, Self::Speedscope];

    /// How the names of files of this form end.
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

    /// The form that a file's name asks for by its end, in upper or lower case. `others` are suffixes that the
    /// caller understands itself, to be told to the user as well.
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

/// A file's name that ends in no known way.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the name of {} does not tell its form: let it end in one of {}", path.display(), known.join(", "))]
pub struct UnknownFormat {
    /// The name.
    pub path: PathBuf,
    /// What it might end in.
    pub known: Vec<&'static str>,
}

/// Why a profile could not be written.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    /// The file does not take what is written.
    #[error("cannot write the profile")]
    Write(#[from] io::Error),
    /// There is nothing to show.
    #[error("the profile holds no samples")]
    Empty,
}

/// Writes a profile in one of the forms.
///
/// # Errors
///
/// [`RenderError`]; a picture of no samples is refused, the other forms can be empty.
pub fn write(profile: &Profile, form: ProfileFormat, out: &mut impl Write) -> Result<(), RenderError> {
    match form {
        ProfileFormat::Pprof => pprof::write(profile, out)?,
        ProfileFormat::Folded => folded::write(profile, out)?,
        ProfileFormat::Svg if profile.total_count() == 0 => return Err(RenderError::Empty),
        ProfileFormat::Svg => svg::write(profile, out)?,
        ProfileFormat::Html => page::write(profile, out)?,
        ProfileFormat::Firefox => firefox::write(profile, out)?,
        ProfileFormat::Speedscope => speedscope::write(profile, out)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_name_decides() {
        for form in ProfileFormat::ALL {
            let path = PathBuf::from(format!("/some.html/out{}", form.suffix().to_uppercase()));
            assert_eq!(ProfileFormat::from_path(&path, &[]), Ok(form));
        }
    }

    #[test]
    fn an_unknown_end_is_told_what_is_known() {
        let error = ProfileFormat::from_path(Path::new("out.gz"), &[".otlp"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the name of out.gz does not tell its form: let it end in one of .otlp, .pb.gz, .folded, .svg, \
             .html, .firefox.json, .speedscope.json"
        );
    }
}
