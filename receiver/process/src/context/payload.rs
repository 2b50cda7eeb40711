//! The message `ProcessContext` of opentelemetry-proto 1.11, limited to the fields that are used.

use prost::{Message, Oneof};

use super::error::ContextError;

/// Attributes of a resource that are kept; an SDK sets some twenty.
const ATTRIBUTES_MAX: usize = 128;
/// The longest key that is kept, in bytes.
const KEY_BYTES_MAX: usize = 255;
/// Keys of thread attributes that are kept: as many as a record can index.
const THREAD_KEYS_MAX: usize = 256;
const SCHEMA_VERSION: &str = "threadlocal.schema_version";
const PPROF_LABELS: &str = "go_pprof_labels_v1";
const ATTRIBUTE_KEY_MAP: &str = "threadlocal.attribute_key_map";

/// The data that a process publishes.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct ProcessContext {
    /// Attributes of its resource, each key once, in the order of the message.
    pub resource: Vec<(Box<str>, ContextValue)>,
    /// How its threads publish their span, if they do.
    pub threads: Option<ThreadContexts>,
}

/// The value of an attribute. Other types are omitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ContextValue {
    /// A string.
    Text(Box<str>),
    /// An integer.
    Number(i64),
    /// A boolean.
    Truth(bool),
}

/// How the threads of a process publish their span.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ThreadContexts {
    /// In a record that the thread-local variable `otel_thread_ctx_v1` points to (OTEP 4947).
    Records {
        /// The keys of the attributes in records, by index.
        attribute_keys: Vec<Box<str>>,
    },
    /// In the pprof labels of the goroutines that they run.
    PprofLabels,
}

impl ProcessContext {
    /// Parses a payload.
    ///
    /// # Errors
    /// If it is not a valid message.
    pub fn parse(payload: &[u8]) -> Result<Self, ContextError> {
        let message = wire::ProcessContextMessage::decode(payload)?;
        let mut resource: Vec<(Box<str>, ContextValue)> = Vec::new();
        for wire::KeyValue { key, value } in message.resource.unwrap_or_default().attributes {
            let Some(value) = value.and_then(wire::AnyValue::into_simple) else { continue };
            let is_new = !key.is_empty() && resource.iter().all(|(held, _)| **held != *key);
            if is_new && key.len() <= KEY_BYTES_MAX && resource.len() < ATTRIBUTES_MAX {
                resource.push((key.into(), value));
            }
        }
        Ok(Self { resource, threads: ThreadContexts::from_attributes(message.attributes) })
    }
}

impl ThreadContexts {
    fn from_attributes(attributes: Vec<wire::KeyValue>) -> Option<Self> {
        let mut schema = None;
        let mut keys = Vec::new();
        for wire::KeyValue { key, value } in attributes {
            match (key.as_str(), value.and_then(|value| value.value)) {
                (SCHEMA_VERSION, Some(wire::ValueVariant::Text(version))) => schema = Some(version),
                (ATTRIBUTE_KEY_MAP, Some(wire::ValueVariant::Array(array))) => keys = array.values,
                _ => {}
            }
        }
        match schema?.as_str() {
            // Both are names of the same layout: the first is from before it was settled.
            "tlsdesc_v1_dev" | "tls_v1" => {
                // A key that is not a string keeps its index, but is ignored.
                let keys = keys.into_iter().take(THREAD_KEYS_MAX).map(|key| match key.value {
                    Some(wire::ValueVariant::Text(text)) if text.len() <= KEY_BYTES_MAX => text.into(),
                    _ => Box::default(),
                });
                Some(Self::Records { attribute_keys: keys.collect() })
            }
            PPROF_LABELS => Some(Self::PprofLabels),
            _ => None,
        }
    }
}

/// The messages, with only the fields that are used. Sources: `common.proto` and `resource.proto` of opentelemetry-proto.
mod wire {
    use super::{ContextValue, Message, Oneof};

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ProcessContextMessage {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<ResourceMessage>,
        #[prost(message, repeated, tag = "2")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ResourceMessage {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct KeyValue {
        #[prost(string, tag = "1")]
        pub(super) key: String,
        #[prost(message, optional, tag = "2")]
        pub(super) value: Option<AnyValue>,
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct AnyValue {
        #[prost(oneof = "ValueVariant", tags = "1, 2, 3, 5")]
        pub(super) value: Option<ValueVariant>,
    }

    #[derive(Clone, PartialEq, Oneof)]
    pub(super) enum ValueVariant {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(bool, tag = "2")]
        Truth(bool),
        #[prost(int64, tag = "3")]
        Number(i64),
        #[prost(message, tag = "5")]
        Array(ArrayValue),
    }

    #[derive(Clone, PartialEq, Message)]
    pub(super) struct ArrayValue {
        #[prost(message, repeated, tag = "1")]
        pub(super) values: Vec<AnyValue>,
    }

    impl AnyValue {
        pub(super) fn into_simple(self) -> Option<ContextValue> {
            match self.value? {
                ValueVariant::Text(text) => Some(ContextValue::Text(text.into())),
                ValueVariant::Number(number) => Some(ContextValue::Number(number)),
                ValueVariant::Truth(truth) => Some(ContextValue::Truth(truth)),
                ValueVariant::Array(_) => None,
            }
        }
    }
}
