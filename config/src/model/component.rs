//! IDs of components and pipelines: `type` or `type/name`.

use std::fmt;
use std::str::FromStr;

/// The ID of a component or pipeline, `type` or `type/name`, by the Collector's rules.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ComponentId {
    kind: String,
    name: String,
}

impl ComponentId {
    /// The ID `kind` without a name; the caller guarantees that `kind` is valid.
    pub(crate) fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), name: String::new() }
    }

    /// The part before the slash: the component's type.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The part after the slash; empty if there is none.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

impl fmt::Display for ComponentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.name.is_empty() { Ok(()) } else { write!(f, "/{}", self.name) }
    }
}

/// Why a text is not a component ID.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ComponentIdError {
    /// The part before the slash does not match `[A-Za-z][A-Za-z0-9_]{0,62}`.
    #[error("the type must be a letter followed by at most 62 letters, digits or underscores")]
    Kind,
    /// There is a slash, but no valid name after it.
    #[error(
        "the name after the slash must be 1 to 1024 characters without white space, control characters or slash"
    )]
    Name,
}

impl FromStr for ComponentId {
    type Err = ComponentIdError;

    fn from_str(text: &str) -> Result<Self, ComponentIdError> {
        let (kind, name) = match text.split_once('/') {
            Some((kind, name)) => (kind.trim(), Some(name.trim())),
            None => (text.trim(), None),
        };
        let mut letters = kind.chars();
        let starts_well = letters.next().is_some_and(|first| first.is_ascii_alphabetic());
        if !starts_well || kind.len() > 63 || !letters.all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(ComponentIdError::Kind);
        }
        let named_well = |name: &str| {
            (1..=1024).contains(&name.chars().count())
                && !name.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/')
        };
        match name {
            None => Ok(Self::new(kind)),
            Some(name) if named_well(name) => Ok(Self { kind: kind.to_owned(), name: name.to_owned() }),
            Some(_) => Err(ComponentIdError::Name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_type_with_or_without_a_name() {
        let id: ComponentId = "otlp_grpc/west-1".parse().unwrap();
        assert_eq!(
            (id.kind(), id.name(), id.to_string().as_str()),
            ("otlp_grpc", "west-1", "otlp_grpc/west-1")
        );
        assert_eq!("file".parse::<ComponentId>().unwrap(), ComponentId::new("file"));
    }

    #[test]
    fn an_id_without_type_or_with_an_empty_name_is_refused() {
        for text in ["", "/x", "9a", "a-b", " / "] {
            assert_eq!(text.parse::<ComponentId>(), Err(ComponentIdError::Kind), "{text:?}");
        }
        for text in ["otlp/", "otlp/ ", "otlp/a b", "otlp/a/b"] {
            assert_eq!(text.parse::<ComponentId>(), Err(ComponentIdError::Name), "{text:?}");
        }
    }
}
