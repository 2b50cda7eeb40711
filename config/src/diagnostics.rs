//! Collects all errors and warnings of a configuration.

use std::fmt;
use std::path::{Path, PathBuf};

use sidewinder_text::ExternalText;

use crate::tree::SourceLocation;

/// All errors of a configuration; never empty, in the order of the text.
#[derive(Clone, PartialEq, Debug)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// The errors, at least one.
    #[must_use]
    pub fn as_slice(&self) -> &[ConfigError] {
        &self.0
    }
}

impl fmt::Display for ConfigErrors {
    /// One error per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}

/// One error.
#[derive(Clone, PartialEq, Debug)]
pub struct ConfigError {
    /// The key, `receivers::profiling::samples_per_second`; empty if the error is about a whole source.
    pub path: String,
    /// Its location, if known.
    pub location: Option<SourceLocation>,
    /// The problem.
    pub problem: ConfigProblem,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.path, self.location.as_ref(), &self.problem)
    }
}

impl std::error::Error for ConfigError {}

/// A warning on a valid configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct Warning {
    /// The key it is about.
    pub path: String,
    /// Its location, if known.
    pub location: Option<SourceLocation>,
    /// The message.
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_line(f, &self.path, self.location.as_ref(), &self.message)
    }
}

/// One line, whatever the configuration, the names of its files and the messages of its parser contain.
fn write_line(
    f: &mut fmt::Formatter<'_>,
    path: &str,
    place: Option<&SourceLocation>,
    message: &impl fmt::Display,
) -> fmt::Result {
    if let Some(place) = place {
        write!(f, "{}: ", ExternalText::from(place.to_string()))?;
    }
    if !path.is_empty() {
        write!(f, "{}: ", ExternalText::new(path))?;
    }
    write!(f, "{}", ExternalText::from(message.to_string()))
}

/// The kinds of problems. No message contains a secret or the value of a `${...}`.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum ConfigProblem {
    /// A source can't be read.
    #[error("can't be read: {0}")]
    Unreadable(String),
    /// A source is not valid YAML, or exceeds the limits of a configuration.
    #[error("is not usable YAML: {0}")]
    Syntax(String),
    /// A `${...}` can't be resolved.
    #[error("{reference} can't be resolved: {reason}")]
    Reference {
        /// The reference as written.
        reference: String,
        /// The reason.
        reason: String,
    },
    /// An unknown key.
    #[error("unknown key{}", suggest(.nearest.as_deref(), .known))]
    UnknownKey {
        /// The most similar known key.
        nearest: Option<String>,
        /// The known keys of this group.
        known: Vec<String>,
    },
    /// A component of an unknown type.
    #[error("unknown type {kind:?}{}", suggest(.nearest.as_deref(), .known))]
    UnknownType {
        /// The type given.
        kind: String,
        /// The most similar known type.
        nearest: Option<String>,
        /// The known types of this section.
        known: Vec<String>,
    },
    /// A value that the key does not accept.
    #[error("expected {allowed}, got {found}")]
    Value {
        /// The given value.
        found: String,
        /// The accepted values.
        allowed: String,
    },
    /// A required key is missing.
    #[error("must be given: {allowed}")]
    Missing {
        /// The accepted values.
        allowed: String,
    },
    /// A key or component of the Collector that this version of Sidewinder does not support.
    #[error("is not supported in this version: {instead}")]
    NotInThisVersion {
        /// What to do instead.
        instead: String,
    },
    /// A pipeline names a component that is not configured.
    #[error("{section} has no {id:?}{}", suggest(.nearest.as_deref(), .known))]
    Dangling {
        /// The unknown ID.
        id: String,
        /// The section without it.
        section: &'static str,
        /// The most similar configured ID.
        nearest: Option<String>,
        /// The configured IDs of that section.
        known: Vec<String>,
    },
    /// Values that are valid individually, but not together.
    #[error("{0}")]
    Contradiction(String),
}

fn suggest(nearest: Option<&str>, known: &[String]) -> String {
    match nearest {
        Some(nearest) => format!(", did you mean {nearest:?}?"),
        None if known.is_empty() => String::new(),
        None => format!(", known here: {}", known.join(", ")),
    }
}

/// The most similar one of `known` to `given`, if any is similar.
pub(crate) fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<String> {
    const ENOUGH: f64 = 0.75;
    // The comparison's time grows with the product of both lengths: a text longer than any key is similar to none.
    const LONGEST: usize = 64;
    if given.len() > LONGEST {
        return None;
    }
    known
        .into_iter()
        .map(|known| (strsim::jaro_winkler(given, known), known))
        .filter(|(alike, _)| *alike >= ENOUGH)
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .map(|(_, known)| known.to_owned())
}

/// Errors and warnings as they are collected.
#[derive(Default, Debug)]
pub(crate) struct Diagnostics {
    errors: Vec<ConfigError>,
    warnings: Vec<Warning>,
    files: Vec<PathBuf>,
}

impl Diagnostics {
    /// Records that the content of a file is part of the configuration.
    pub(crate) fn add_file(&mut self, file: &Path) {
        self.files.push(file.to_owned());
    }

    pub(crate) fn error(&mut self, path: &str, place: Option<&SourceLocation>, problem: ConfigProblem) {
        self.errors.push(ConfigError { path: path.to_owned(), location: place.cloned(), problem });
    }

    pub(crate) fn warn(&mut self, path: &str, place: Option<&SourceLocation>, message: impl Into<String>) {
        self.warnings.push(Warning {
            path: path.to_owned(),
            location: place.cloned(),
            message: message.into(),
        });
    }

    pub(crate) const fn has_errors(&self) -> bool {
        !self.errors.is_empty()
    }

    /// All errors, at least one, in the order of the text.
    pub(crate) fn into_errors(mut self) -> ConfigErrors {
        self.errors.sort_by(|a, b| (&a.location, &a.path).cmp(&(&b.location, &b.path)));
        ConfigErrors(self.errors)
    }

    /// `Ok` with the warnings and the files if there is no error; warnings and errors are in the order of the text.
    pub(crate) fn finish(mut self) -> Result<(Vec<Warning>, Vec<PathBuf>), ConfigErrors> {
        self.warnings.sort_by(|a, b| (&a.location, &a.path).cmp(&(&b.location, &b.path)));
        if self.has_errors() { Err(self.into_errors()) } else { Ok((self.warnings, self.files)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_key_gets_the_one_it_resembles_and_a_foreign_one_gets_none() {
        let known = ["samples_per_second", "reporter_interval", "scope"];
        assert_eq!(nearest("sample_per_second", known).as_deref(), Some("samples_per_second"));
        assert_eq!(nearest("reporter_intervall", known).as_deref(), Some("reporter_interval"));
        assert_eq!(nearest("zzz", known), None);
        assert_eq!(nearest(&"s".repeat(100_000), known), None);
    }

    #[test]
    fn text_of_the_configuration_adds_no_line_and_no_escape_sequence() {
        let location = Some(SourceLocation { source: "a\u{1b}[2J.yaml".into(), position: None });
        let problem = ConfigProblem::Syntax("unexpected \u{9b}1m\nok".to_owned());
        let error = ConfigError { path: "x\nb".to_owned(), location: location.clone(), problem };
        assert_eq!(
            error.to_string(),
            "a\\u{1b}[2J.yaml: x\\u{a}b: is not usable YAML: unexpected \\u{9b}1m\\u{a}ok"
        );
        let warning = Warning { path: String::new(), location, message: "\u{7}".to_owned() };
        assert_eq!(warning.to_string(), "a\\u{1b}[2J.yaml: \\u{7}");
    }

    #[test]
    fn an_error_contains_the_location_the_problem_and_the_alternative() {
        let error = ConfigError {
            path: "receivers::profiling::samples".to_owned(),
            location: Some(SourceLocation { source: "a.yaml".into(), position: Some((3, 5)) }),
            problem: ConfigProblem::UnknownKey { nearest: Some("scope".to_owned()), known: Vec::new() },
        };
        assert_eq!(
            error.to_string(),
            "a.yaml:3:5: receivers::profiling::samples: unknown key, did you mean \"scope\"?"
        );
    }
}
