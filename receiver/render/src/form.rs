//! Which form a file's name asks for.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::profile::Profile;
use crate::{firefox, folded, page, pprof, speedscope, svg};

/// A form that a profile can be written in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
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

impl Form {
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
    /// [`UnknownForm`], which lists the suffixes.
    pub fn of_path(path: &Path, others: &[&'static str]) -> Result<Self, UnknownForm> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        Self::ALL.into_iter().find(|form| name.ends_with(form.suffix())).ok_or_else(|| UnknownForm {
            path: path.to_owned(),
            known: others.iter().copied().chain(Self::ALL.map(Self::suffix)).collect(),
        })
    }
}

/// A file's name that ends in no known way.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the name of {} does not tell its form: let it end in one of {}", path.display(), known.join(", "))]
pub struct UnknownForm {
    /// The name.
    pub path: PathBuf,
    /// What it might end in.
    pub known: Vec<&'static str>,
}

/// Why a profile could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
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
/// [`Error`]; a picture of no samples is refused, the other forms can be empty.
pub fn write(profile: &Profile, form: Form, out: &mut impl Write) -> Result<(), Error> {
    match form {
        Form::Pprof => pprof::write(profile, out)?,
        Form::Folded => folded::write(profile, out)?,
        Form::Svg if profile.total() == 0 => return Err(Error::Empty),
        Form::Svg => svg::write(profile, out)?,
        Form::Html => page::write(profile, out)?,
        Form::Firefox => firefox::write(profile, out)?,
        Form::Speedscope => speedscope::write(profile, out)?,
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_name_decides() {
        for form in Form::ALL {
            let path = PathBuf::from(format!("/some.html/out{}", form.suffix().to_uppercase()));
            assert_eq!(Form::of_path(&path, &[]), Ok(form));
        }
    }

    #[test]
    fn an_unknown_end_is_told_what_is_known() {
        let error = Form::of_path(Path::new("out.gz"), &[".otlp"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the name of out.gz does not tell its form: let it end in one of .otlp, .pb.gz, .folded, .svg, \
             .html, .firefox.json, .speedscope.json"
        );
    }
}
