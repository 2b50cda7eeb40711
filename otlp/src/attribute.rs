//! Attributes on the wire.

use sidewinder_profile::{AttributeSetIndex, AttributeValue, Dictionary, key};

use crate::wire::{AnyValue, AnyValueKind, ArrayValue, KeyValue, string_value};

/// The name of a service that none was given for, as for every OpenTelemetry resource.
pub const UNKNOWN_SERVICE: &str = "unknown_service";

/// The value as a message has it; `None` if it is of a type that this project does not use.
pub(crate) fn to_wire(value: &AttributeValue) -> Option<AnyValue> {
    let value = match value {
        AttributeValue::Str(text) => return Some(string_value(text)),
        AttributeValue::Int(number) => AnyValueKind::IntValue(*number),
        AttributeValue::Bool(truth) => AnyValueKind::BoolValue(*truth),
        AttributeValue::List(values) => {
            AnyValueKind::ArrayValue(ArrayValue { values: values.iter().filter_map(to_wire).collect() })
        }
        AttributeValue::Other(_) => return None,
    };
    Some(AnyValue { value: Some(value) })
}

/// The attributes of a resource, sorted by key. Without any, it is an unknown service.
///
/// Keys and values are inline: some receivers never resolve indices here.
pub(crate) fn resource_attributes(dictionary: &Dictionary, set: AttributeSetIndex) -> Vec<KeyValue> {
    let key_value = |key: &str, value| KeyValue { key: key.to_owned(), value, ..KeyValue::default() };
    let attributes = dictionary.attributes_of(set).map(|(key, value)| key_value(key, to_wire(value)));
    let mut attributes: Vec<_> = attributes.filter(|attribute| attribute.value.is_some()).collect();
    if attributes.is_empty() {
        attributes.push(key_value(key::SERVICE_NAME, Some(string_value(UNKNOWN_SERVICE))));
    }
    attributes.sort_by(|first, second| first.key.cmp(&second.key));
    attributes
}
