//! Attributes of resources, frames and samples.

use std::collections::BTreeMap;
use std::sync::Arc;

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttributeValue {
    /// A string.
    Str(Arc<str>),
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A list.
    List(Arc<[AttributeValue]>),
    /// A type that this project does not use, formatted by the wire crate.
    Other(Arc<str>),
}

impl AttributeValue {
    /// The string, if it is one.
    #[must_use]
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::Str(text) => Some(text),
            _ => None,
        }
    }

    /// The integer, if it is one.
    #[must_use]
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }
}

/// Attributes by key.
pub type Attributes = BTreeMap<Arc<str>, AttributeValue>;

/// What samples have in common, as their sender states it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct AttributeSet {
    /// The attributes of their resource; empty if nothing is stated.
    pub resource: Arc<Attributes>,
    /// Their own.
    pub sample: Arc<Attributes>,
}
