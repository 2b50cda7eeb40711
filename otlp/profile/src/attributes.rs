//! Attributes of resources, frames and samples.

use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::index::AttributeSetIndex;

/// The attribute keys that have a meaning here.
pub mod key {
    /// On a location: the language or runtime of the frame, a [`FrameType`](crate::FrameType).
    pub const FRAME_TYPE: &str = "profile.frame.type";
    /// On a location: `true` if nothing proves that it is the caller of the previous one; absent otherwise.
    pub const FRAME_GUESSED: &str = "sidewinder.frame.guessed";
    /// On a location: whether its name is the profiler's own words in brackets, such as `[truncated: no_rule]`. `false` if it is a
    /// function's name that only looks so; absent otherwise.
    pub const FRAME_MARKER: &str = "sidewinder.frame.marker";
    /// On a location of the frame type `native`: `true` if a process generated its code at run time; absent otherwise.
    pub const FRAME_GENERATED: &str = "sidewinder.frame.generated";
    /// On a mapping: the hash of the file's head, tail and length.
    pub const BUILD_ID_HTLHASH: &str = "process.executable.build_id.htlhash";
    /// On a mapping: the GNU build ID in hexadecimal digits.
    pub const BUILD_ID_GNU: &str = "process.executable.build_id.gnu";
    /// On a mapping: the Go build ID.
    pub const BUILD_ID_GO: &str = "process.executable.build_id.go";
    /// On a sample: the thread that was running.
    pub const THREAD_ID: &str = "thread.id";
    /// On a sample: the name of that thread.
    pub const THREAD_NAME: &str = "thread.name";
    /// On a sample: the CPU that it was running on.
    pub const CPU: &str = "cpu.logical_number";
    /// On a sample: why its stack is incomplete. Absent if it is complete.
    pub const STACK_OUTCOME: &str = "sidewinder.stack.outcome";
    /// On a resource: the logical name of the service.
    pub const SERVICE_NAME: &str = "service.name";
}

/// The maximum length of strings, which are truncated: names come from files and memory of untrusted processes.
const MAX_STRING_BYTES: usize = 8 * 1024;

/// The maximum length of lists, likewise.
const MAX_LIST_LEN: usize = 256;

/// The value of an attribute to be added. A dictionary can't contain floats, so there is no variant for them.
///
/// Very long strings and lists are truncated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// A string.
    Str(&'a str),
    /// An integer.
    Int(i64),
    /// A boolean.
    Bool(bool),
    /// A list of strings, such as the arguments of a command.
    Strings(&'a [String]),
}

impl<'a> From<&'a str> for Value<'a> {
    fn from(text: &'a str) -> Self {
        Self::Str(text)
    }
}

impl From<i64> for Value<'_> {
    fn from(number: i64) -> Self {
        Self::Int(number)
    }
}

impl From<bool> for Value<'_> {
    fn from(truth: bool) -> Self {
        Self::Bool(truth)
    }
}

/// Values that are equal after truncation have the same hash.
impl Hash for Value<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Str(text) => truncated(text).hash(state),
            Self::Int(number) => number.hash(state),
            Self::Bool(truth) => truth.hash(state),
            Self::Strings(texts) => truncated_list(texts).for_each(|text| text.hash(state)),
        }
    }
}

impl Value<'_> {
    /// Whether `held` is this value, truncated.
    pub(crate) fn is_held_as(self, held: &AttributeValue) -> bool {
        match (self, held) {
            (Self::Str(text), AttributeValue::Str(held)) => *truncated(text) == **held,
            (Self::Int(number), AttributeValue::Int(held)) => number == *held,
            (Self::Bool(truth), AttributeValue::Bool(held)) => truth == *held,
            (Self::Strings(texts), AttributeValue::List(held)) => {
                let texts = truncated_list(texts);
                texts.len() == held.len()
                    && texts.zip(&**held).all(|(text, held)| held.as_str() == Some(text))
            }
            _ => false,
        }
    }

    /// The value to be held.
    pub(crate) fn to_held(self) -> AttributeValue {
        match self {
            Self::Str(text) => AttributeValue::Str(truncated(text).into()),
            Self::Int(number) => AttributeValue::Int(number),
            Self::Bool(truth) => AttributeValue::Bool(truth),
            Self::Strings(texts) => AttributeValue::List(
                truncated_list(texts).map(|text| AttributeValue::Str(text.into())).collect(),
            ),
        }
    }
}

/// The part of `text` that is kept.
pub(crate) fn truncated(text: &str) -> &str {
    if text.len() <= MAX_STRING_BYTES {
        return text;
    }
    let end = (0..=MAX_STRING_BYTES).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

/// The part of `texts` that is kept.
fn truncated_list(texts: &[String]) -> impl ExactSizeIterator<Item = &str> {
    texts.iter().take(MAX_LIST_LEN).map(|text| truncated(text))
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
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

/// The same hash as of the [`Value`] that it holds.
impl Hash for AttributeValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        match self {
            Self::Str(text) | Self::Other(text) => text.hash(state),
            Self::Int(number) => number.hash(state),
            Self::Bool(truth) => truth.hash(state),
            Self::List(values) => values.iter().for_each(|value| value.hash(state)),
        }
    }
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

    /// The size of its strings in bytes.
    pub(crate) fn text_bytes(&self) -> usize {
        match self {
            Self::Str(text) | Self::Other(text) => text.len(),
            Self::Int(_) | Self::Bool(_) => 0,
            Self::List(values) => size_of_val(&**values) + values.iter().map(Self::text_bytes).sum::<usize>(),
        }
    }
}

/// Attributes by key.
pub type Attributes = BTreeMap<Arc<str>, AttributeValue>;

/// What samples have in common, as their sender states it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct StatedAttributes {
    /// The attributes of their resource; empty if nothing is stated.
    pub resource: AttributeSetIndex,
    /// Their own.
    pub sample: AttributeSetIndex,
}
