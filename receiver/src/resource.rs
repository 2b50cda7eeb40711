//! Whose events they are: the resource of a process.

use jiff::Timestamp;
use sidewinder_otlp::Value;
use sidewinder_otlp::key::SERVICE_NAME;
use sidewinder_process::ProcessDescription;

use crate::sampling::feed::ProcessKey;

/// Keys of the semantic conventions for resources.
mod key {
    pub(super) const CONTAINER_ID: &str = "container.id";
    pub(super) const K8S_POD_UID: &str = "k8s.pod.uid";
    pub(super) const PROCESS_CREATION_TIME: &str = "process.creation.time";
    pub(super) const PROCESS_EXECUTABLE_NAME: &str = "process.executable.name";
    pub(super) const PROCESS_EXECUTABLE_PATH: &str = "process.executable.path";
    pub(super) const PROCESS_OWNER: &str = "process.owner";
    pub(super) const PROCESS_PID: &str = "process.pid";
}

/// Attributes that own their text; no key twice.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ResourceAttributes {
    held: Vec<(String, OwnedValue)>,
    /// Nobody gave the service a name: the one that is there gives way to any other.
    is_unnamed: bool,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum OwnedValue {
    Text(String),
    Number(i64),
    Truth(bool),
}

impl ResourceAttributes {
    pub(crate) fn get(&self, key: &str) -> Option<&OwnedValue> {
        self.held.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Gives `key` this value, whether or not it had one.
    pub(crate) fn set(&mut self, key: &str, value: OwnedValue) {
        self.is_unnamed &= key != SERVICE_NAME;
        match self.held.iter_mut().find(|(known, _)| known == key) {
            Some((_, held)) => *held = value,
            None => self.held.push((key.to_owned(), value)),
        }
    }

    /// Whether anybody gave `key` a value.
    pub(crate) fn is_given(&self, key: &str) -> bool {
        self.get(key).is_some() && !(self.is_unnamed && key == SERVICE_NAME)
    }

    /// Gives `key` this value where it has none.
    fn offer(&mut self, key: &str, value: OwnedValue) {
        if self.get(key).is_none() {
            self.held.push((key.to_owned(), value));
        }
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.held.retain(|(known, _)| known != key);
    }

    pub(crate) fn borrowed(&self) -> Vec<(&str, Value<'_>)> {
        let value = |value| match value {
            &OwnedValue::Number(number) => Value::Int(number),
            &OwnedValue::Truth(truth) => Value::Bool(truth),
            OwnedValue::Text(text) => Value::Str(text),
        };
        self.held.iter().map(|(key, held)| (key.as_str(), value(held))).collect()
    }
}

/// Who names a process, the strongest first:
///
/// | Source                                                                  | Where it comes from                |
/// |-------------------------------------------------------------------------|------------------------------------|
/// | `resource` processors that update, upsert, hash or delete               | the configuration                  |
/// | `OTEL_SERVICE_NAME`, then `OTEL_RESOURCE_ATTRIBUTES`                    | the environment of the process     |
/// | `container.id`, `k8s.pod.uid` by its cgroup; `process.*`                | what we see of it                  |
/// | `resource` processors that insert: what the pod's spec says of it       | the configuration, of the chart    |
/// | `unknown_service:EXECUTABLE`                                            | where nobody names the service     |
pub(crate) fn attributes_of(process: ProcessKey, description: &ProcessDescription) -> ResourceAttributes {
    let mut attributes = ResourceAttributes::default();
    let mut text = |key: &str, value: String| attributes.offer(key, OwnedValue::Text(value));
    let name = description.executable_name().or(description.comm.as_deref());
    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
    if let Some(service) = &description.resource.service_name {
        text(SERVICE_NAME, service.clone());
    }
    for (key, value) in &description.resource.attributes {
        text(key, value.to_string());
    }
    // As SDKs name a program that was given no name.
    let unknown =
        name.as_deref().map_or("unknown_service".to_owned(), |name| format!("unknown_service:{name}"));
    attributes.is_unnamed = attributes.get(SERVICE_NAME).is_none();
    let mut text = |key: &str, value: String| attributes.offer(key, OwnedValue::Text(value));
    text(SERVICE_NAME, unknown);
    if let Some(id) = &description.container_id {
        text(key::CONTAINER_ID, id.to_string());
    }
    if let Some(uid) = &description.pod_uid {
        text(key::K8S_POD_UID, uid.to_string());
    }
    if let Some(name) = name {
        text(key::PROCESS_EXECUTABLE_NAME, name);
    }
    if let Some(path) = &description.executable_path {
        text(key::PROCESS_EXECUTABLE_PATH, String::from_utf8_lossy(path).into_owned());
    }
    if let Some(uid) = description.owner_uid {
        text(key::PROCESS_OWNER, uid.to_string());
    }
    if let Some(started_at) = description.started_at.and_then(|time| Timestamp::try_from(time).ok()) {
        text(key::PROCESS_CREATION_TIME, format!("{started_at:.3}"));
    }
    attributes.offer(key::PROCESS_PID, OwnedValue::Number(process.pid.into()));
    attributes
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn value_of(description: &ProcessDescription, wanted: &str) -> Option<String> {
        let attributes = attributes_of(ProcessKey { pid: 7, instance: 1 }, description);
        attributes.borrowed().into_iter().find(|(key, _)| *key == wanted).map(|(_, value)| match value {
            Value::Str(text) => text.to_owned(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn what_a_process_says_of_itself_comes_first() {
        let mut description = ProcessDescription {
            executable_path: Some(b"/usr/bin/shop".as_slice().into()),
            ..ProcessDescription::default()
        };
        let name_of = |description: &ProcessDescription| value_of(description, SERVICE_NAME).unwrap();
        assert_eq!(name_of(&description), "unknown_service:shop");
        description.resource.attributes = vec![("service.name".into(), "by-attributes".into())];
        assert_eq!(name_of(&description), "by-attributes");
        description.resource.service_name = Some("by-name".to_owned());
        assert_eq!(name_of(&description), "by-name");
    }

    #[test]
    fn a_start_time_reads_as_the_conventions_write_it() {
        let description = ProcessDescription {
            started_at: Some(UNIX_EPOCH + Duration::from_millis(951_826_154_007)),
            ..ProcessDescription::default()
        };
        let time = value_of(&description, key::PROCESS_CREATION_TIME);
        assert_eq!(time.as_deref(), Some("2000-02-29T12:09:14.007Z"));
    }
}
