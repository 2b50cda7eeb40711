//! Keys of `service::telemetry`.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::client::{TIMES, check_header};
use super::fields::{FieldVisitor, KeyGroup};
use super::scalar::as_text;
use crate::diagnostics::ConfigProblem;
use crate::model::*;
use crate::tree::ConfigValue;

impl KeyGroup for Telemetry {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.group("logs", &mut self.logs);
        fields.group("metrics", &mut self.metrics);
        fields.group("resource", &mut Resource(&mut self.resource));
    }
}

impl KeyGroup for LogTelemetry {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("level", &mut self.level);
        fields.value("encoding", &mut self.encoding);
        if fields.list("output_paths", &mut self.output_paths) && self.output_paths.is_empty() {
            let reason = "has no output: omit it for stderr".to_owned();
            fields.error("output_paths", ConfigProblem::Contradiction(reason));
        }
        let mut sampling =
            Sampling { enabled: self.sampling.is_some(), keys: self.sampling.take().unwrap_or_default() };
        fields.group("sampling", &mut sampling);
        self.sampling = sampling.enabled.then_some(sampling.keys);
        let mut processors: Vec<ProcessorForm> =
            std::mem::take(&mut self.processors).into_iter().map(ProcessorForm).collect();
        fields.groups("processors", &mut processors);
        self.processors = processors.into_iter().map(|form| form.0).collect();
    }
}

/// The form `{enabled: ..., tick: ...}`.
struct Sampling {
    enabled: bool,
    keys: LogSampling,
}

/// A shorter tick would not count anything.
const TICKS: RangeInclusive<Duration> = Duration::from_millis(1)..=*TIMES.end();

impl KeyGroup for Sampling {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("enabled", &mut self.enabled);
        fields.duration("tick", &mut self.keys.tick, &TICKS);
        fields.value_or_zero("initial", &mut self.keys.initial);
        fields.value_or_zero("thereafter", &mut self.keys.thereafter);
    }
}

/// The form `batch: {exporter: {otlp: ...}}`.
#[derive(Default)]
struct ProcessorForm(OtlpTelemetry);

impl KeyGroup for ProcessorForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        NestedGroup("batch", &mut NestedGroup("exporter", &mut NestedGroup("otlp", &mut self.0)))
            .fields(fields);
    }
}

impl KeyGroup for MetricTelemetry {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("level", &mut self.level);
        let mut readers: Vec<ReaderForm> =
            std::mem::take(&mut self.readers).into_iter().map(|reader| ReaderForm(Some(reader))).collect();
        fields.groups("readers", &mut readers);
        self.readers = readers.into_iter().filter_map(|form| form.0).collect();
    }
}

/// A reader before its kind is known.
#[derive(Default)]
struct ReaderForm(Option<MetricReader>);

impl KeyGroup for ReaderForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        let current = match &self.0 {
            Some(MetricReader::Prometheus(_)) => "pull",
            Some(MetricReader::Periodic(_)) | None => "periodic",
        };
        self.0 = match (fields.choice(&["periodic", "pull"], true, Some(current)), self.0.take()) {
            (Some("periodic"), Some(MetricReader::Periodic(mut reader))) => {
                fields.group("periodic", &mut reader);
                Some(MetricReader::Periodic(reader))
            }
            (Some("periodic"), _) => {
                let mut reader = PeriodicReader::default();
                fields.group("periodic", &mut reader);
                Some(MetricReader::Periodic(reader))
            }
            (Some("pull"), reader) => {
                let mut form = PullForm(match reader {
                    Some(MetricReader::Prometheus(reader)) => reader,
                    _ => PrometheusReader::default(),
                });
                fields.group("pull", &mut form);
                Some(MetricReader::Prometheus(form.0))
            }
            _ => None,
        };
    }
}

impl KeyGroup for PeriodicReader {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.milliseconds("interval", &mut self.interval);
        fields.milliseconds("timeout", &mut self.timeout);
        NestedGroup("exporter", &mut NestedGroup("otlp", &mut self.exporter)).fields(fields);
    }
}

/// The form `pull: {exporter: {prometheus: ...}}`.
struct PullForm(PrometheusReader);

impl KeyGroup for PullForm {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        NestedGroup("exporter", &mut NestedGroup("prometheus", &mut self.0)).fields(fields);
    }
}

/// A group below a required key.
struct NestedGroup<'a, G>(&'static str, &'a mut G);

impl<G: KeyGroup> KeyGroup for NestedGroup<'_, G> {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        if fields.choice(&[self.0], true, Some(self.0)).is_some() {
            fields.group(self.0, self.1);
        }
    }
}

impl KeyGroup for OtlpTelemetry {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.required("protocol", &mut self.protocol);
        if self.protocol != OtlpProtocol::Grpc {
            let instead = "use grpc, which a Collector takes on port 4317".to_owned();
            fields.error("protocol", ConfigProblem::NotInThisVersion { instead });
        }
        fields.required("endpoint", &mut self.endpoint);
        fields.value("insecure", &mut self.insecure);
        fields.headers("headers", &mut self.headers, check_header);
        fields.milliseconds("timeout", &mut self.timeout);
        fields.value("temporality_preference", &mut self.temporality_preference);
    }
}

impl KeyGroup for PrometheusReader {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        fields.value("host", &mut self.host);
        fields.value("port", &mut self.port);
        fields.value("without_scope_info", &mut self.without_scope_info);
        fields.value("without_units", &mut self.without_units);
        fields.value("without_type_suffix", &mut self.without_type_suffix);
    }
}

/// Attributes by name; null removes one. The Collector's newer form, a list of names and values under `attributes`, is
/// accepted as well.
struct Resource<'a>(&'a mut BTreeMap<String, Option<String>>);

impl KeyGroup for Resource<'_> {
    fn fields(&mut self, fields: &mut FieldVisitor<'_>) {
        for (name, value) in self.0.iter() {
            let value = value.as_ref().map_or(ConfigValue::Null, |text| ConfigValue::Text(text.clone()));
            fields.write_entry(name, value);
        }
        for (name, node) in fields.entries() {
            match (name.as_str(), &node.value) {
                ("schema_url" | "detection/development", _) => {}
                ("attributes", ConfigValue::List(items)) => {
                    for item in items {
                        let ConfigValue::Map(item) = &item.value else { continue };
                        match (item.get("name").and_then(as_text), item.get("value").and_then(as_text)) {
                            (Some(name), Some(value)) => {
                                self.0.insert(name.to_owned(), Some(value.to_owned()));
                            }
                            _ => fields.error(
                                "attributes",
                                ConfigProblem::Contradiction(
                                    "each item needs a name and a value, both text".to_owned(),
                                ),
                            ),
                        }
                    }
                }
                (_, ConfigValue::Null) => drop(self.0.insert(name, None)),
                _ => match as_text(&node) {
                    Some(text) => drop(self.0.insert(name, Some(text.to_owned()))),
                    None => {
                        let allowed = "text, in quotes if it looks like something else, or null".to_owned();
                        fields.error(&name, ConfigProblem::Value { found: node.describe(), allowed });
                    }
                },
            }
        }
    }
}
