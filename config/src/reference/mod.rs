//! Every key of the configuration, in one table: what it means, where it departs from the Collector,
//! and whether this version acts on it.
//!
//! Suggestions for misspelt keys, the refusal of keys that are not in this version, and the reference
//! documentation all come from here. What a key allows and its default come from the types
//! themselves; [`reference()`] joins the two.

use crate::model::{
    BinaryMatch, ComponentId, Endpoint, PeriodicReader, PrometheusReader, UnwindMode, UnwindOverride,
};
use crate::model::{Config, DebugExporter, Exporter, MetricReader, OtlpGrpcExporter};
use crate::schema::{Written, write_config};
use crate::tree::Value;

mod table;

pub(crate) use table::KEYS;

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// Sections, component types and keys, `exporters::otlp_grpc::tls::ca_file`; `[]` follows a list of
    /// maps, `*` stands for keys that are the user's own.
    pub(crate) path: &'static str,
    /// What it means.
    pub(crate) description: &'static str,
    /// The unit of a plain number, empty where there is none or the value names it.
    pub(crate) unit: &'static str,
    /// Where it departs from the Collector or OpenTelemetry's profiler, and why.
    pub(crate) deviation: Option<&'static str>,
    /// Whether this version acts on it.
    pub(crate) support: Support,
}

/// Whether this version acts on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Support {
    /// It does.
    Acts,
    /// It does not yet: a value other than `default` (in YAML) is a warning.
    NotYet { default: &'static str },
    /// It does not: a value other than `default` (in YAML) is an error that says what to do instead.
    Refused { default: &'static str, instead: &'static str },
    /// It never will, there is nothing here that it could mean: giving it is a warning that says why.
    Meaningless { why: &'static str },
}

impl Support {
    /// Whether a user has any reason to give the key.
    pub(crate) const fn takes_values(self) -> bool {
        matches!(self, Self::Acts | Self::NotYet { .. })
    }
}

/// The row of `path`, or of the `*` in its place.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    let any = path.rsplit_once("::").map(|(parent, _)| format!("{parent}::*"));
    KEYS.iter()
        .find(|row| row.path == path || row.path.strip_suffix("[]") == Some(path))
        .or_else(|| KEYS.iter().find(|row| Some(row.path) == any.as_deref()))
}

/// The keys directly below `parent`, each with its row.
pub(crate) fn children(parent: &str) -> impl Iterator<Item = (&'static str, &'static Key)> {
    KEYS.iter().filter_map(move |row| {
        let below = match parent {
            "" => row.path,
            _ => row.path.strip_prefix(parent)?.strip_prefix("::")?,
        };
        let name = below.strip_suffix("[]").unwrap_or(below);
        (!name.contains("::") && name != "*").then_some((name, row))
    })
}

/// What the reference documentation says of one key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyReference {
    /// Sections, component types and keys, `exporters::otlp_grpc::tls::ca_file`; `[]` follows a list of
    /// maps, `*` stands for keys that are the user's own.
    pub path: &'static str,
    /// What it means.
    pub description: &'static str,
    /// What it allows; `None` for sections, and for keys that are not acted on.
    pub allowed: Option<String>,
    /// The unit of a plain number, empty where there is none or the value names it.
    pub unit: &'static str,
    /// Its default as YAML; `None` where there is none.
    pub default: Option<String>,
    /// Where it departs from the Collector or OpenTelemetry's profiler, and why.
    pub deviation: Option<&'static str>,
    /// What this version does with it where it does not act on it.
    pub limitation: Option<String>,
}

/// The reference documentation of every key, section by section.
#[must_use]
pub fn reference() -> Vec<KeyReference> {
    let written = written_keys();
    KEYS.iter()
        .map(|row| {
            let found =
                written.iter().find(|(path, ..)| row.path.strip_suffix("[]").unwrap_or(row.path) == path);
            let (default, limitation) = match row.support {
                Support::Acts => (found.and_then(|(_, _, value)| default_of(value)), None),
                Support::NotYet { default } => {
                    (Some(default.to_owned()), Some("accepted, not acted on in this version".to_owned()))
                }
                Support::Refused { default, instead } => {
                    (Some(default.to_owned()), Some(format!("not in this version: {instead}")))
                }
                Support::Meaningless { why } => (None, Some(format!("no effect: {why}"))),
            };
            KeyReference {
                path: row.path,
                description: row.description,
                allowed: found.map(|(_, allowed, _)| allowed.clone()),
                unit: row.unit,
                default,
                deviation: row.deviation,
                limitation,
            }
        })
        .collect()
}

fn default_of(value: &Value) -> Option<String> {
    let node = crate::tree::Node::new(value.clone());
    (*value != Value::Null).then(|| crate::yaml::write(&node).trim_end().to_owned())
}

/// Every key that reading and writing know, with what it allows and its default.
fn written_keys() -> Vec<(String, String, Value)> {
    let mut everything = Config::default();
    let otlp = OtlpGrpcExporter::new(Endpoint::local());
    let exporters = [
        ("otlp_grpc", Exporter::OtlpGrpc(Box::new(otlp))),
        ("debug", Exporter::Debug(DebugExporter::default())),
    ];
    everything.exporters.extend(exporters.map(|(kind, exporter)| (ComponentId::of(kind), exporter)));
    everything.telemetry.metrics.readers = vec![
        MetricReader::Periodic(PeriodicReader::default()),
        MetricReader::Prometheus(PrometheusReader::default()),
    ];
    for receiver in everything.receivers.values_mut() {
        let binary = BinaryMatch::Name(String::new());
        receiver.unwind.overrides = vec![UnwindOverride { binary, mode: UnwindMode::Auto }];
    }
    let mut written = Written::default();
    write_config(&everything, &mut written);
    written.keys
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::yaml;

    fn plain(path: &str) -> &str {
        path.strip_suffix("[]").unwrap_or(path)
    }

    #[test]
    fn every_key_that_is_read_is_in_the_table() {
        for (path, ..) in written_keys() {
            assert!(find(&path).is_some(), "{path}");
        }
    }

    /// Sections, components and keys of the user's own are not values; everything else is.
    #[test]
    fn every_key_in_the_table_that_acts_is_read() {
        let read: BTreeSet<String> = written_keys().into_iter().map(|(path, ..)| path).collect();
        let by_hand = [
            "service::extensions",
            "service::pipelines::profiles::receivers",
            "service::pipelines::profiles::exporters",
            "exporters::otlp",
            "processors",
            "connectors",
            "extensions",
        ];
        for row in KEYS {
            let path = plain(row.path);
            let is_section = KEYS.iter().any(|other| other.path.starts_with(&format!("{}::", row.path)));
            let is_component = path.matches("::").count() == 1 && path.starts_with("exporters");
            if row.support == Support::Acts && !is_section && !is_component && !path.ends_with('*') {
                assert!(read.contains(path) || by_hand.contains(&path), "{path} is read by nothing");
            }
        }
    }

    #[test]
    fn a_default_in_the_table_is_the_default_of_the_type() {
        for (path, _, value) in written_keys() {
            let Some(Key { support: Support::NotYet { default } | Support::Refused { default, .. }, .. }) =
                find(&path)
            else {
                continue;
            };
            let same = match (&yaml::parse(default).unwrap().value, &value) {
                (Value::Integer(table), Value::Float(held)) => table.to_string() == held.to_string(),
                (table, held) => table == held,
            };
            assert!(same, "{path}: {default} in the table, {value:?} in the type");
        }
    }

    #[test]
    fn every_default_in_the_table_is_yaml_and_every_row_is_one_sentence_of_prose() {
        let mut paths = BTreeSet::new();
        for row in KEYS {
            assert!(paths.insert(row.path), "{} is there twice", row.path);
            assert!(row.description.ends_with('.'), "{}", row.path);
            if let Support::NotYet { default } | Support::Refused { default, .. } = row.support {
                assert!(yaml::parse(default).is_ok(), "{}", row.path);
            }
        }
    }

    #[test]
    fn the_reference_tells_what_a_key_allows_and_its_default() {
        let keys = reference();
        let key = |path: &str| keys.iter().find(|key| key.path == path).cloned().unwrap();
        let rate = key("receivers::profiling::samples_per_second");
        assert_eq!(rate.allowed.as_deref(), Some("a whole number from 1 to 10000"));
        assert_eq!((rate.default.as_deref(), rate.unit), (Some("20"), "Hz"));
        assert_eq!(key("exporters::otlp_grpc::timeout").default.as_deref(), Some("5s"));
        assert!(key("exporters::otlp_http").limitation.unwrap().contains("not in this version"));
    }
}
