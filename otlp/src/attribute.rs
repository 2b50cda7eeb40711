//! Attributes: keys, values and frame types.

use std::hash::{Hash, Hasher};

use crate::wire::{AnyValue, AnyValueKind, ArrayValue, KeyValue, string_value};

/// The attribute keys that this crate interprets.
pub mod key {
    /// On a location: the language or runtime of the frame, a [`FrameType`](crate::FrameType).
    pub const FRAME_TYPE: &str = "profile.frame.type";
    /// On a location: `true` if nothing proves that it is the caller of the previous one; absent otherwise.
    pub const FRAME_GUESSED: &str = "sidewinder.frame.guessed";
    /// On a location: whether its name is words of the profiler in brackets, as `[truncated: no_rule]`. `false` if it is a
    /// function's and only looks so; absent otherwise.
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

/// The value of an attribute. A dictionary can't contain floats, so there is no variant for them.
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

impl Value<'_> {
    /// Whether `wire` has the same value.
    pub(crate) fn matches_wire(self, wire: &AnyValue) -> bool {
        match (self, &wire.value) {
            (Self::Str(text), Some(AnyValueKind::StringValue(other))) => truncated(text) == other,
            (Self::Int(number), Some(AnyValueKind::IntValue(other))) => number == *other,
            (Self::Bool(truth), Some(AnyValueKind::BoolValue(other))) => truth == *other,
            (Self::Strings(texts), Some(AnyValueKind::ArrayValue(other))) => {
                let texts = truncated_list(texts);
                texts.len() == other.values.len()
                    && texts.zip(&other.values).all(|(text, value)| Value::Str(text).matches_wire(value))
            }
            _ => false,
        }
    }

    pub(crate) fn to_wire(self) -> AnyValue {
        match self {
            Self::Str(text) => string_value(truncated(text)),
            Self::Int(number) => AnyValue { value: Some(AnyValueKind::IntValue(number)) },
            Self::Bool(truth) => AnyValue { value: Some(AnyValueKind::BoolValue(truth)) },
            Self::Strings(texts) => {
                let values = truncated_list(texts).map(string_value).collect();
                AnyValue { value: Some(AnyValueKind::ArrayValue(ArrayValue { values })) }
            }
        }
    }
}

/// The attributes of a resource: sorted by key, each key once (the first value given counts).
///
/// Keys and values are inline: some receivers never resolve indices here.
pub(crate) fn inline_attributes(attributes: &[(&str, Value<'_>)]) -> Vec<KeyValue> {
    let mut sorted: Vec<_> = attributes.iter().filter(|(key, _)| !key.is_empty()).collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted.dedup_by_key(|(key, _)| *key);
    sorted
        .into_iter()
        .map(|(key, value)| KeyValue {
            key: (*key).to_owned(),
            value: Some(value.to_wire()),
            ..KeyValue::default()
        })
        .collect()
}
