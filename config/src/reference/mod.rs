//! The reference documentation: the table of keys, combined with the accepted values and defaults of their types.
//!
//! Suggestions for misspelt keys, and the refusal of keys that this version does not support, also use the
//! [table](crate::table).

use std::path::PathBuf;

use sidewinder_kind::Counter;

use crate::model::{
    AttributeAction, AttributeChange, BinaryMatch, ComponentId, Config, CounterEvent, ExporterConfig,
    Extension, Keepalive, MetricReader, OtlpTelemetry, PeriodicReader, ProbePlace, ProbePoint, ProbeSpec,
    PrometheusReader, ResourceProcessor, ResponseBody, UnwindMode, UnwindOverride,
};
use crate::schema::{WriteContext, WrittenKey, default_exporter, default_extension, write_config};
use crate::table::{KeySupport, Reload, keys};
use crate::tree::ConfigValue;

mod json_schema;
mod markdown;

pub use json_schema::json_schema;
pub use markdown::reference_markdown;

/// The reference documentation of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyReference {
    /// Sections, component types and keys, `exporters::otlp_grpc::tls::ca_file`; `[]` follows a list of maps, `*` stands for
    /// user-defined keys.
    pub path: &'static str,
    /// Its meaning.
    pub description: &'static str,
    /// Its accepted values; `None` for sections, and for keys without effect.
    pub allowed: Option<String>,
    /// The unit of a plain number; empty if there is none, or if the value contains it.
    pub unit: &'static str,
    /// Its default as YAML; `None` where there is none.
    pub default: Option<String>,
    /// How it differs from the Collector or OpenTelemetry's profiler, and why.
    pub deviation: Option<&'static str>,
    /// What this version does with it, if it has no effect.
    pub limitation: Option<String>,
    /// What a change of it requires at run time.
    pub reload: Reload,
}

/// The reference documentation of every key, section by section.
#[must_use]
pub fn reference() -> Vec<KeyReference> {
    let written = written_keys();
    keys()
        .map(|row| {
            let found =
                written.iter().find(|key| row.path.strip_suffix("[]").unwrap_or(row.path) == key.path);
            let (default, limitation) = match row.support {
                KeySupport::Supported => (found.and_then(|key| default_of(&key.value)), None),
                KeySupport::NotYet { default } => {
                    (Some(default.to_owned()), Some("accepted, but has no effect in this version".to_owned()))
                }
                KeySupport::Refused { default, instead } => {
                    (Some(default.to_owned()), Some(format!("not supported in this version: {instead}")))
                }
                KeySupport::Ignored { why } => (None, Some(format!("no effect: {why}"))),
            };
            KeyReference {
                path: row.path,
                description: row.description,
                allowed: found.map(|key| key.allowed.clone()),
                unit: row.unit,
                default,
                deviation: row.deviation,
                limitation,
                reload: row.reload,
            }
        })
        .collect()
}

fn default_of(value: &ConfigValue) -> Option<String> {
    let node = crate::tree::ConfigNode::new(value.clone());
    (*value != ConfigValue::Null).then(|| crate::yaml::write(&node).trim_end().to_owned())
}

/// Every key that is read and written, with its accepted values and default.
fn written_keys() -> Vec<WrittenKey> {
    let mut everything = Config::default();
    for kind in ["otlp_grpc", "otlp_http", "debug"] {
        let mut exporter = default_exporter(kind);
        match &mut exporter {
            Some(ExporterConfig::OtlpGrpc(exporter)) => {
                exporter.keepalive = Some(Keepalive::default());
                exporter.auth = Some(ComponentId::new("bearertokenauth"));
            }
            Some(ExporterConfig::OtlpHttp(exporter)) => {
                exporter.auth = Some(ComponentId::new("bearertokenauth"));
            }
            _ => {}
        }
        everything.exporters.extend(exporter.map(|exporter| (ComponentId::new(kind), exporter)));
    }
    for kind in ["file_storage", "bearertokenauth", "basicauth", "health_check", "zpages"] {
        let mut extension = default_extension(kind);
        if let Some(Extension::HealthCheck(extension)) = &mut extension {
            extension.response_body = Some(ResponseBody::default());
        }
        everything.extensions.extend(extension.map(|extension| (ComponentId::new(kind), extension)));
    }
    let action = AttributeAction { key: String::new(), change: AttributeChange::Delete };
    let processor = ResourceProcessor { attributes: vec![action] };
    everything.processors.insert(ComponentId::new("resource"), processor);
    everything.telemetry.logs.processors = vec![OtlpTelemetry::default()];
    everything.telemetry.metrics.readers = vec![
        MetricReader::Periodic(PeriodicReader::default()),
        MetricReader::Prometheus(PrometheusReader::default()),
    ];
    for receiver in everything.receivers.values_mut() {
        let binary = BinaryMatch::Name(String::new());
        receiver.events = vec![CounterEvent { counter: Counter::PageFaults, rate: None }];
        let point = ProbePoint::Function { name: String::new(), offset: 0 };
        receiver.probes = vec![ProbeSpec::new(ProbePlace::Program { path: PathBuf::new(), point })];
        receiver.unwind.overrides = vec![UnwindOverride { binary, mode: UnwindMode::Auto }];
    }
    let mut written = WriteContext::default();
    write_config(&everything, &mut written);
    written.keys
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::table::{Key, find};
    use crate::yaml;

    fn plain(path: &str) -> &str {
        path.strip_suffix("[]").unwrap_or(path)
    }

    #[test]
    fn every_key_that_is_read_is_in_the_table() {
        for WrittenKey { path, .. } in written_keys() {
            assert!(find(&path).is_some(), "{path}");
        }
    }

    /// Sections, components and user-defined keys are not values; everything else is.
    #[test]
    fn every_key_in_the_table_that_acts_is_read() {
        let read: BTreeSet<String> = written_keys().into_iter().map(|key| key.path).collect();
        let by_hand = [
            "service::extensions",
            "service::pipelines::profiles::receivers",
            "service::pipelines::profiles::exporters",
            "service::pipelines::profiles::processors",
            "service::telemetry::resource::attributes[]::name",
            "service::telemetry::resource::attributes[]::value",
            "exporters::otlp",
            "processors",
            "connectors",
            "extensions",
        ];
        for row in keys() {
            let path = plain(row.path);
            let is_section = keys().any(|other| other.path.starts_with(&format!("{}::", row.path)));
            let is_component = path.matches("::").count() == 1 && !path.starts_with("service");
            if row.support == KeySupport::Supported && !is_section && !is_component && !path.ends_with('*') {
                assert!(read.contains(path) || by_hand.contains(&path), "{path} is read by nothing");
            }
        }
    }

    #[test]
    fn a_default_in_the_table_is_the_default_of_the_type() {
        for WrittenKey { path, value, .. } in written_keys() {
            let Some(Key {
                support: KeySupport::NotYet { default } | KeySupport::Refused { default, .. },
                ..
            }) = find(&path)
            else {
                continue;
            };
            let same = match (&yaml::parse(default, &"default".into()).unwrap().value, &value) {
                (ConfigValue::Integer(table), ConfigValue::Float(held)) => {
                    table.to_string() == held.to_string()
                }
                // The Collector's notation for an absent text.
                (ConfigValue::Text(table), ConfigValue::Null) => table.is_empty(),
                (table, held) => table == held,
            };
            assert!(same, "{path}: {default} in the table, {value:?} in the type");
        }
    }

    #[test]
    fn every_default_in_the_table_is_yaml_and_every_row_is_one_sentence_of_prose() {
        let mut paths = BTreeSet::new();
        for row in keys() {
            assert!(paths.insert(row.path), "{} is there twice", row.path);
            assert!(row.description.ends_with('.'), "{}", row.path);
            if let KeySupport::NotYet { default } | KeySupport::Refused { default, .. } = row.support {
                assert!(yaml::parse(default, &"default".into()).is_ok(), "{}", row.path);
            }
        }
    }

    #[test]
    fn the_reference_states_the_accepted_values_and_the_default() {
        let keys = reference();
        let key = |path: &str| keys.iter().find(|key| key.path == path).cloned().unwrap();
        let rate = key("receivers::profiling::samples_per_second");
        assert_eq!(rate.allowed.as_deref(), Some("a whole number from 1 to 10000"));
        assert_eq!((rate.default.as_deref(), rate.unit), (Some("20"), "Hz"));
        assert_eq!(key("exporters::otlp_grpc::timeout").default.as_deref(), Some("5s"));
        assert!(
            key("exporters::otlp_http::encoding")
                .limitation
                .unwrap()
                .contains("not supported in this version")
        );
    }
}
