//! The processor `resource`: changes the attributes of a resource, like the Collector's processor of this name.

use sha2::{Digest as _, Sha256};
use sidewinder_config::{
    AttributeChange, AttributeOrigin, AttributeSource, AttributeValue, ResourceProcessor,
};

use crate::resource::{ResourceAttributes, ResourceValue};

/// Applies the processors to the attributes, in order.
pub(crate) fn apply(processors: &[ResourceProcessor], attributes: &mut ResourceAttributes) {
    for action in processors.iter().flat_map(|processor| &processor.attributes) {
        let key = action.key.as_str();
        let is_present = attributes.get(key).is_some();
        let is_explicit = attributes.is_explicitly_set(key);
        let value = match &action.change {
            AttributeChange::Insert(source) if !is_explicit => source_value(source, attributes),
            AttributeChange::Update(source) if is_present => source_value(source, attributes),
            AttributeChange::Upsert(source) => source_value(source, attributes),
            AttributeChange::Insert(_) | AttributeChange::Update(_) => None,
            AttributeChange::Hash => attributes.get(key).map(hash),
            AttributeChange::Delete => {
                attributes.remove(key);
                None
            }
        };
        if let Some(value) = value {
            attributes.set(key, value);
        }
    }
}

fn source_value(source: &AttributeSource, attributes: &ResourceAttributes) -> Option<ResourceValue> {
    let value = match &source.from {
        Some(AttributeOrigin::Value(value)) => Some(to_resource_value(value)),
        Some(AttributeOrigin::Attribute(key)) => attributes.get(key).cloned(),
        None => None,
    };
    value.or_else(|| source.default_value.as_ref().map(to_resource_value))
}

fn to_resource_value(value: &AttributeValue) -> ResourceValue {
    match value {
        AttributeValue::Text(text) => ResourceValue::Text(text.clone()),
        AttributeValue::Integer(number) => ResourceValue::Int(*number),
        AttributeValue::Bool(flag) => ResourceValue::Bool(*flag),
    }
}

/// The SHA-256 digest in hexadecimal: of a text's bytes, of an integer's eight bytes in little-endian order, or of one byte
/// for a boolean.
fn hash(value: &ResourceValue) -> ResourceValue {
    let digest = match value {
        ResourceValue::Text(text) => Sha256::digest(text),
        ResourceValue::Int(number) => Sha256::digest(number.to_le_bytes()),
        ResourceValue::Bool(flag) => Sha256::digest([u8::from(*flag)]),
    };
    ResourceValue::Text(hex::encode(digest))
}

#[cfg(test)]
mod tests {
    use sidewinder_config::AttributeAction;
    use sidewinder_otlp::key::SERVICE_NAME;
    use sidewinder_process::{ProcessDescription, ProcessKey};

    use super::*;
    use crate::resource::resource_attributes;

    fn text(text: &str) -> ResourceValue {
        ResourceValue::Text(text.to_owned())
    }

    fn source(text: &str) -> AttributeSource {
        let value = AttributeOrigin::Value(AttributeValue::Text(text.to_owned()));
        AttributeSource { from: Some(value), default_value: None }
    }

    fn from(key: &str, default: Option<&str>) -> AttributeSource {
        AttributeSource {
            from: Some(AttributeOrigin::Attribute(key.to_owned())),
            default_value: default.map(|text| AttributeValue::Text(text.to_owned())),
        }
    }

    /// The value of `key` after `change`. Before it, `a` is "old" and `b` is absent.
    fn after(key: &str, change: AttributeChange) -> Option<ResourceValue> {
        let mut attributes = ResourceAttributes::default();
        attributes.set("a", text("old"));
        let action = AttributeAction { key: key.to_owned(), change };
        apply(&[ResourceProcessor { attributes: vec![action] }], &mut attributes);
        attributes.get(key).cloned()
    }

    #[test]
    fn actions_behave_like_those_of_the_collector() {
        use AttributeChange::{Delete, Hash, Insert, Update, Upsert};
        for (key, change, value) in [
            ("a", Insert(source("new")), Some("old")),
            ("b", Insert(source("new")), Some("new")),
            ("a", Update(source("new")), Some("new")),
            ("b", Update(source("new")), None),
            ("a", Upsert(source("new")), Some("new")),
            ("b", Upsert(source("new")), Some("new")),
            ("b", Upsert(from("a", None)), Some("old")),
            ("a", Upsert(from("b", None)), Some("old")),
            ("a", Upsert(from("b", Some("default"))), Some("default")),
            ("a", Delete, None),
            ("b", Delete, None),
            ("b", Hash, None),
        ] {
            assert_eq!(after(key, change.clone()), value.map(text), "{key} {change:?}");
        }
    }

    /// Checks the table at [`resource_attributes`], from the last row to the first.
    #[test]
    fn each_source_of_a_service_name_yields_to_those_above_it() {
        let mut description = ProcessDescription {
            executable_path: Some(b"/usr/bin/shop".as_slice().into()),
            ..ProcessDescription::default()
        };
        let name = |description: &ProcessDescription, changes: Vec<AttributeChange>| {
            let mut attributes = resource_attributes(ProcessKey { pid: 7, instance: 1 }, description);
            let action = |change| AttributeAction { key: SERVICE_NAME.to_owned(), change };
            apply(
                &[ResourceProcessor { attributes: changes.into_iter().map(action).collect() }],
                &mut attributes,
            );
            attributes.get(SERVICE_NAME).cloned()
        };
        let insert = |name| AttributeChange::Insert(source(name));
        assert_eq!(name(&description, vec![]), Some(text("unknown_service:shop")));
        assert_eq!(name(&description, vec![AttributeChange::Delete]), None);
        let by_pod = vec![insert("by-annotation"), insert("by-label")];
        assert_eq!(name(&description, by_pod.clone()), Some(text("by-annotation")));
        description.resource.attributes = vec![(SERVICE_NAME.into(), "by-attributes".into())];
        assert_eq!(name(&description, by_pod.clone()), Some(text("by-attributes")));
        description.resource.service_name = Some("by-name".to_owned());
        assert_eq!(name(&description, by_pod), Some(text("by-name")));
        let upsert = AttributeChange::Upsert(source("by-configuration"));
        assert_eq!(name(&description, vec![upsert]), Some(text("by-configuration")));
    }

    /// Digests by `sha256sum`.
    #[test]
    fn a_hash_is_sha_256_in_hexadecimal() {
        let old = "cba06b5736faf67e54b07b561eae94395e774c517a7d910a54369e1263ccfbd4";
        assert_eq!(after("a", AttributeChange::Hash), Some(text(old)));
        let one = "7c9fa136d4413fa6173637e883b6998d32e1d675f88cddff9dcbcf331820f4b8";
        assert_eq!(hash(&ResourceValue::Int(1)), text(one));
    }
}
