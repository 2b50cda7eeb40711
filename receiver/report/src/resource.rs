//! The OpenTelemetry resource of a process: whose events they are.
//!
//! Input: the description of a process. Output: its attributes, which `resource` processors may change.

use jiff::Timestamp;
use sidewinder_otlp::Value;
use sidewinder_otlp::key::SERVICE_NAME;
use sidewinder_process::context::ContextValue;
use sidewinder_process::{ProcessDescription, ProcessKey};

/// Keys of the semantic conventions for resources.
pub(crate) mod key {
    pub(super) const CONTAINER_ID: &str = "container.id";
    pub(super) const CONTAINER_IMAGE_NAME: &str = "container.image.name";
    pub(super) const CONTAINER_NAME: &str = "container.name";
    pub(super) const K8S_NAMESPACE_NAME: &str = "k8s.namespace.name";
    pub(super) const K8S_POD_NAME: &str = "k8s.pod.name";
    /// Followed by the name of the variable.
    pub(super) const PROCESS_ENVIRONMENT_VARIABLE_PREFIX: &str = "process.environment_variable.";
    pub(super) const K8S_POD_UID: &str = "k8s.pod.uid";
    pub(super) const PROCESS_CREATION_TIME: &str = "process.creation.time";
    pub(crate) const PROCESS_EXECUTABLE_NAME: &str = "process.executable.name";
    pub(super) const PROCESS_EXECUTABLE_PATH: &str = "process.executable.path";
    pub(super) const PROCESS_OWNER: &str = "process.owner";
    pub(crate) const PROCESS_PID: &str = "process.pid";
    /// The conventions have none.
    pub(super) const SYSTEMD_UNIT: &str = "sidewinder.systemd.unit";
}

/// The beginning of a service's default name (semantic conventions, "Service").
const UNKNOWN_SERVICE_PREFIX: &str = "unknown_service";

/// Owned attributes with unique keys.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct ResourceAttributes {
    entries: Vec<(String, ResourceValue)>,
    /// Whether `service.name` is the default: any other name replaces it.
    has_default_name: bool,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ResourceValue {
    Text(String),
    Int(i64),
    Bool(bool),
}

impl ResourceAttributes {
    pub(crate) fn get(&self, key: &str) -> Option<&ResourceValue> {
        self.entries.iter().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// Sets the value of `key`, which may have one already.
    pub(crate) fn set(&mut self, key: &str, value: ResourceValue) {
        self.has_default_name &= key != SERVICE_NAME;
        match self.entries.iter_mut().find(|(known, _)| known == key) {
            Some((_, current)) => *current = value,
            None => self.entries.push((key.to_owned(), value)),
        }
    }

    /// Whether `key` has a value other than the default name of a service.
    pub(crate) fn is_explicitly_set(&self, key: &str) -> bool {
        self.get(key).is_some() && !(self.has_default_name && key == SERVICE_NAME)
    }

    /// Sets the value of `key` if it has none.
    fn set_if_absent(&mut self, key: &str, value: ResourceValue) {
        if self.get(key).is_none() {
            self.entries.push((key.to_owned(), value));
        }
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.entries.retain(|(known, _)| known != key);
    }

    pub(crate) fn borrowed(&self) -> Vec<(&str, Value<'_>)> {
        let value = |value| match value {
            &ResourceValue::Int(number) => Value::Int(number),
            &ResourceValue::Bool(flag) => Value::Bool(flag),
            ResourceValue::Text(text) => Value::Str(text),
        };
        self.entries.iter().map(|(key, current)| (key.as_str(), value(current))).collect()
    }
}

/// The attributes of a process. The sources, in the order of precedence:
///
/// | Attributes                                                              | Source                             |
/// |-------------------------------------------------------------------------|------------------------------------|
/// | `resource` processors that update, upsert, hash or delete               | the configuration                  |
/// | the resource of its SDK, except `process.*` and `telemetry.sdk.*`       | its process context (OTEP 4719)    |
/// | `OTEL_SERVICE_NAME`, then `OTEL_RESOURCE_ATTRIBUTES`                    | the environment of the process     |
/// | `container.id`, `k8s.pod.uid` from its cgroup; `process.*`              | observed in `/proc`                |
/// | `container.name`, `container.image.name`, `k8s.pod.name`, `k8s.namespace.name` | files of container runtimes |
/// | `sidewinder.systemd.unit` from its cgroup, outside of containers        | observed in `/proc`                |
/// | `process.environment_variable.NAME` for each of `include_env_vars`      | the environment of the process     |
/// | `resource` processors that insert: values from the pod's spec           | the configuration of the chart     |
/// | `unknown_service:EXECUTABLE`                                            | the default name of a service      |
///
/// The resource of an SDK takes the environment into account already. Its `process.*` are ignored: its IDs are those of
/// another namespace, and its command line may contain secrets. Its `telemetry.sdk.*` are ignored because no SDK made these
/// profiles.
pub(crate) fn resource_attributes(
    process: ProcessKey,
    description: &ProcessDescription,
) -> ResourceAttributes {
    let mut attributes = ResourceAttributes::default();
    for (key, value) in description.context.iter().flat_map(|context| &context.resource) {
        if is_context_attribute_allowed(key, value) {
            attributes.set_if_absent(key, to_resource_value(value));
        }
    }
    let mut text = |key: &str, value: String| attributes.set_if_absent(key, ResourceValue::Text(value));
    let name = description.executable_name().or(description.comm.as_deref());
    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
    if let Some(service) = &description.resource.service_name {
        text(SERVICE_NAME, service.clone());
    }
    for (key, value) in &description.resource.attributes {
        text(key, value.to_string());
    }
    // The default name, as SDKs form it.
    let default_name = name
        .as_deref()
        .map_or(UNKNOWN_SERVICE_PREFIX.to_owned(), |name| format!("{UNKNOWN_SERVICE_PREFIX}:{name}"));
    attributes.has_default_name = attributes.get(SERVICE_NAME).is_none();
    let mut text = |key: &str, value: String| attributes.set_if_absent(key, ResourceValue::Text(value));
    text(SERVICE_NAME, default_name);
    if let Some(id) = &description.container_id {
        text(key::CONTAINER_ID, id.to_string());
    }
    if let Some(uid) = &description.pod_uid {
        text(key::K8S_POD_UID, uid.to_string());
    }
    if let Some(names) = description.container_names.as_deref() {
        for (key, name) in [
            (key::CONTAINER_NAME, &names.container),
            (key::CONTAINER_IMAGE_NAME, &names.image),
            (key::K8S_POD_NAME, &names.pod),
            (key::K8S_NAMESPACE_NAME, &names.namespace),
        ] {
            if let Some(name) = name {
                text(key, name.to_string());
            }
        }
    }
    if let Some(unit) = description.systemd_unit.as_ref().filter(|_| description.container_id.is_none()) {
        text(key::SYSTEMD_UNIT, unit.to_string());
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
    for (name, value) in &description.resource.included {
        text(&format!("{}{name}", key::PROCESS_ENVIRONMENT_VARIABLE_PREFIX), value.to_string());
    }
    if let Some(started_at) = description.started_at.and_then(|time| Timestamp::try_from(time).ok()) {
        text(key::PROCESS_CREATION_TIME, format!("{started_at:.3}"));
    }
    attributes.set_if_absent(key::PROCESS_PID, ResourceValue::Int(process.pid.into()));
    attributes
}

fn is_context_attribute_allowed(key: &str, value: &ContextValue) -> bool {
    // The default name of an SDK is ignored: any other source overrides it.
    let is_default_name = key == SERVICE_NAME
        && matches!(value, ContextValue::Text(name) if name.is_empty() || name.starts_with(UNKNOWN_SERVICE_PREFIX));
    !is_default_name && !key.starts_with("process.") && !key.starts_with("telemetry.sdk.")
}

fn to_resource_value(value: &ContextValue) -> ResourceValue {
    match value {
        ContextValue::Text(text) => ResourceValue::Text(text.to_string()),
        ContextValue::Number(number) => ResourceValue::Int(*number),
        ContextValue::Truth(flag) => ResourceValue::Bool(*flag),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, UNIX_EPOCH};

    use sidewinder_process::context::ProcessContext;

    use super::*;

    fn value_of(description: &ProcessDescription, wanted: &str) -> Option<String> {
        let attributes = resource_attributes(ProcessKey { pid: 7, instance: 1 }, description);
        attributes.borrowed().into_iter().find(|(key, _)| *key == wanted).map(|(_, value)| match value {
            Value::Str(text) => text.to_owned(),
            other => format!("{other:?}"),
        })
    }

    #[test]
    fn the_environment_of_a_process_overrides_the_default_name() {
        let mut description = ProcessDescription {
            executable_path: Some(b"/usr/bin/shop".as_slice().into()),
            ..ProcessDescription::default()
        };
        let service_name = |description: &ProcessDescription| value_of(description, SERVICE_NAME).unwrap();
        assert_eq!(service_name(&description), "unknown_service:shop");
        description.resource.attributes = vec![("service.name".into(), "by-attributes".into())];
        assert_eq!(service_name(&description), "by-attributes");
        description.resource.service_name = Some("by-name".to_owned());
        assert_eq!(service_name(&description), "by-name");
    }

    #[test]
    fn names_of_the_container_yield_to_those_that_the_process_states() {
        let names = sidewinder_process::ContainerNames {
            container: Some("api".into()),
            pod: Some("api-7f9".into()),
            ..Default::default()
        };
        let mut description = ProcessDescription {
            container_names: Some(Arc::new(names)),
            systemd_unit: Some("shop.service".into()),
            ..ProcessDescription::default()
        };
        description.resource.attributes = vec![("k8s.pod.name".into(), "stated".into())];
        let value = |key| value_of(&description, key);
        assert_eq!(value("container.name").as_deref(), Some("api"));
        assert_eq!(value("k8s.pod.name").as_deref(), Some("stated"));
        assert_eq!(value("container.image.name"), None);
        assert_eq!(value("sidewinder.systemd.unit").as_deref(), Some("shop.service"));
    }

    #[test]
    fn an_included_variable_is_an_attribute_of_its_own() {
        let mut description = ProcessDescription::default();
        description.resource.included = vec![("REGION".into(), "eu".into())];
        let value = value_of(&description, "process.environment_variable.REGION");
        assert_eq!(value.as_deref(), Some("eu"));
    }

    #[test]
    fn the_resource_of_an_sdk_overrides_the_environment_but_not_observed_attributes() {
        let text = |text: &str| ContextValue::Text(text.into());
        let resource = vec![
            (SERVICE_NAME.into(), text("by-sdk")),
            ("service.version".into(), text("2")),
            ("shard".into(), ContextValue::Number(3)),
            ("process.pid".into(), ContextValue::Number(1)),
            ("process.command_line".into(), text("--password=x")),
            ("telemetry.sdk.name".into(), text("sdk")),
        ];
        let context = |resource| Some(Arc::new(ProcessContext { resource, threads: None }));
        let mut description =
            ProcessDescription { context: context(resource), ..ProcessDescription::default() };
        description.resource.service_name = Some("by-name".to_owned());
        description.resource.attributes =
            vec![("service.version".into(), "1".into()), ("team".into(), "a".into())];
        let value = |key| value_of(&description, key);
        assert_eq!(value(SERVICE_NAME).as_deref(), Some("by-sdk"));
        assert_eq!((value("service.version").as_deref(), value("team").as_deref()), (Some("2"), Some("a")));
        assert_eq!(
            (value("shard").as_deref(), value("process.pid").as_deref()),
            (Some("Int(3)"), Some("Int(7)"))
        );
        assert_eq!((value("process.command_line"), value("telemetry.sdk.name")), (None, None));

        description.context = context(vec![(SERVICE_NAME.into(), text("unknown_service:java"))]);
        assert_eq!(value_of(&description, SERVICE_NAME).as_deref(), Some("by-name"));
    }

    #[test]
    fn a_start_time_has_the_format_of_the_conventions() {
        let description = ProcessDescription {
            started_at: Some(UNIX_EPOCH + Duration::from_millis(951_826_154_007)),
            ..ProcessDescription::default()
        };
        let time = value_of(&description, key::PROCESS_CREATION_TIME);
        assert_eq!(time.as_deref(), Some("2000-02-29T12:09:14.007Z"));
    }
}
