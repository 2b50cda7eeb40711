//! Sources of the configuration: `--config`, `--set` and the process's environment.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use sidewinder_text::ExternalText;

use crate::diagnostics::{ConfigProblem, Diagnostics};
use crate::input_file::read_bounded;
use crate::tree::{ConfigNode, ConfigValue, Map, SourceLocation};
use crate::yaml::{self, SyntaxError};

/// One `--config`: later ones are merged into earlier ones; maps are merged and lists are replaced.
#[derive(Clone, PartialEq, Eq)]
pub enum ConfigSource {
    /// `PATH` or `file:PATH`.
    File(PathBuf),
    /// `yaml:TEXT`.
    Yaml(String),
    /// `env:NAME`: the variable contains YAML.
    Variable(String),
}

impl fmt::Debug for ConfigSource {
    /// Hides the YAML: it may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file:{}", ExternalText::new(path)),
            Self::Yaml(_) => f.write_str("yaml:..."),
            Self::Variable(name) => write!(f, "env:{name}"),
        }
    }
}

/// A `--config` with an unsupported scheme.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the scheme {scheme:?} is not one of file, yaml, env")]
pub struct SourceError {
    /// The part before the colon.
    pub scheme: String,
}

impl FromStr for ConfigSource {
    type Err = SourceError;

    fn from_str(text: &str) -> Result<Self, SourceError> {
        match split_scheme(text) {
            None => Ok(Self::File(text.into())),
            Some(("file", path)) => Ok(Self::File(path.into())),
            Some(("yaml", text)) => Ok(Self::Yaml(text.to_owned())),
            Some(("env", name)) => Ok(Self::Variable(name.to_owned())),
            Some((scheme, _)) => Err(SourceError { scheme: scheme.to_owned() }),
        }
    }
}

/// Splits `scheme:rest` if the scheme is valid: at least two characters, a letter first.
pub(crate) fn split_scheme(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once(':')?;
    let mut letters = scheme.chars();
    let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic());
    let goes_on = scheme.len() > 1 && letters.all(|c| c.is_ascii_alphanumeric() || "+.-".contains(c));
    (starts_well && goes_on).then_some((scheme, rest))
}

/// The environment variables that a configuration may refer to.
pub trait Environment {
    /// The variable's value, or `None` if it is not set or not UTF-8.
    fn variable(&self, name: &str) -> Option<String>;
}

/// The environment of this process.
#[derive(Clone, Copy, Default, Debug)]
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn variable(&self, name: &str) -> Option<String> {
        if name.is_empty() || name.contains(['=', '\0']) { None } else { std::env::var(name).ok() }
    }
}

impl Environment for BTreeMap<String, String> {
    fn variable(&self, name: &str) -> Option<String> {
        self.get(name).cloned()
    }
}

/// Reads one source; errors are reported to `report`.
pub(crate) fn read(
    index: usize,
    source: &ConfigSource,
    environment: &dyn Environment,
    report: &mut Diagnostics,
) -> Option<ConfigNode> {
    let name = match source {
        ConfigSource::File(path) => ExternalText::new(path).to_string(),
        ConfigSource::Yaml(_) => format!("--config #{}", index + 1),
        ConfigSource::Variable(name) => format!("environment variable {name}"),
    };
    let name: Arc<str> = name.into();
    let nowhere = SourceLocation { source: name.clone(), position: None };
    let text = match source {
        ConfigSource::File(path) => {
            report.add_file(path);
            read_file(path)
        }
        ConfigSource::Yaml(text) => Ok(text.clone()),
        ConfigSource::Variable(name) => environment.variable(name).ok_or_else(|| "it is not set".to_owned()),
    };
    let text = match text {
        Ok(text) => text,
        Err(reason) => {
            report.error("", Some(&nowhere), ConfigProblem::Unreadable(reason));
            return None;
        }
    };
    match parse(&text, &name) {
        Ok(ConfigNode { value: ConfigValue::Null, .. }) => {
            Some(ConfigNode::new(ConfigValue::Map(Map::new())))
        }
        Ok(tree @ ConfigNode { value: ConfigValue::Map(_), .. }) => Some(tree),
        Ok(other) => {
            let found = match other.value {
                ConfigValue::List(_) => "a list",
                _ => "a single value",
            };
            let problem =
                ConfigProblem::Value { found: found.to_owned(), allowed: "a map of sections".to_owned() };
            report.error("", Some(&nowhere), problem);
            None
        }
        Err(error) => {
            let place = SourceLocation { source: name, position: error.position };
            report.error("", Some(&place), ConfigProblem::Syntax(error.detail));
            None
        }
    }
}

/// Parses one `--set`: `a.b=c` or `a::b=c`; the value is YAML.
pub(crate) fn read_set(index: usize, set: &str, report: &mut Diagnostics) -> Option<ConfigNode> {
    let name: Arc<str> = format!("--set #{}", index + 1).into();
    let place = SourceLocation { source: name.clone(), position: None };
    let Some((key, value)) = set.split_once('=').filter(|(key, _)| !key.trim().is_empty()) else {
        let allowed = "key=value, as in receivers.profiling.samples_per_second=97".to_owned();
        report.error(
            "",
            Some(&place),
            ConfigProblem::Value { found: "no key and equals sign".to_owned(), allowed },
        );
        return None;
    };
    let path = key.trim().replace('.', "::");
    let too_deep = SyntaxError { detail: yaml::too_deep(), position: None };
    let read = yaml::parse(value, &name).and_then(|node| {
        let mut tree = ConfigNode::map([(path.as_str(), node.with_location(&place))]);
        tree.split_keys(yaml::MAX_DEPTH).map(|()| tree).ok_or(too_deep)
    });
    match read {
        Ok(tree) => Some(tree),
        Err(error) => {
            report.error(&path, Some(&place), ConfigProblem::Syntax(error.detail));
            None
        }
    }
}

/// Parses YAML in which `a::b` is a nested key.
pub(crate) fn parse(text: &str, name: &Arc<str>) -> Result<ConfigNode, SyntaxError> {
    let mut tree = yaml::parse(text, name)?;
    let too_deep = || SyntaxError { detail: yaml::too_deep(), position: None };
    tree.split_keys(yaml::MAX_DEPTH).ok_or_else(too_deep)?;
    Ok(tree)
}

/// Reads a text file of bounded size; the error is the reason.
pub(crate) fn read_file(path: &Path) -> Result<String, String> {
    let bytes = read_bounded(path, yaml::MAX_BYTES as u64).map_err(|error| error.to_string())?;
    String::from_utf8(bytes)
        .map_err(|error| format!("it is not UTF-8 from byte {} on", error.utf8_error().valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_path_unless_it_names_a_scheme() {
        let source = |text: &str| text.parse::<ConfigSource>();
        assert_eq!(source("a/b.yaml"), Ok(ConfigSource::File("a/b.yaml".into())));
        assert_eq!(source("./a:b.yaml"), Ok(ConfigSource::File("./a:b.yaml".into())));
        assert_eq!(source("file:/x.yaml"), Ok(ConfigSource::File("/x.yaml".into())));
        assert_eq!(source("yaml:a::b: 1"), Ok(ConfigSource::Yaml("a::b: 1".to_owned())));
        assert_eq!(source("env:CONFIG"), Ok(ConfigSource::Variable("CONFIG".to_owned())));
        assert_eq!(source("https://x"), Err(SourceError { scheme: "https".to_owned() }));
    }

    #[test]
    fn a_source_of_yaml_shows_none_of_it() {
        assert_eq!(format!("{:?}", ConfigSource::Yaml("token: hunter2".to_owned())), "yaml:...");
    }

    #[test]
    fn an_odd_variable_name_is_an_unset_variable() {
        for name in ["", "A=B", "A\0B"] {
            assert_eq!(ProcessEnvironment.variable(name), None, "{name:?}");
        }
    }
}
