//! Components by ID: receivers, processors, exporters and extensions.

use super::fields::{KeyGroup, read_group};
use super::known::{join, map_of};
use super::scalar::Scalar;
use crate::diagnostics::{ConfigProblem, Diagnostics, nearest};
use crate::model::*;
use crate::table;
use crate::tree::ConfigNode;

pub(super) type Component<'a> = (ComponentId, String, &'a ConfigNode);

/// The components of a section, or the pipelines, with valid IDs.
pub(super) fn components<'a>(
    section: &str,
    node: Option<&'a ConfigNode>,
    report: &mut Diagnostics,
) -> Vec<Component<'a>> {
    let Some(map) = node.and_then(|node| map_of(section, node, report)) else {
        return Vec::new();
    };
    map.iter()
        .filter_map(|(key, node)| {
            let path = join(section, key);
            match key.parse() {
                Ok(id) => Some((id, path, node)),
                Err(error) => {
                    let problem = ConfigProblem::Value {
                        found: format!("{key:?}: {error}"),
                        allowed: ComponentId::allowed(),
                    };
                    report.error(&path, node.key_location.as_ref(), problem);
                    None
                }
            }
        })
        .collect()
}

/// Whether this version supports the component's type; an unsupported type is reported.
pub(super) fn known_type(
    section: &str,
    id: &ComponentId,
    path: &str,
    node: &ConfigNode,
    report: &mut Diagnostics,
) -> bool {
    let place = node.key_location.as_ref();
    let Some(row) = table::find(&join(section, id.kind())) else {
        let types = || table::children(section);
        let problem = ConfigProblem::UnknownType {
            kind: id.kind().to_owned(),
            nearest: nearest(id.kind(), types().map(|(kind, _)| kind)),
            known: types()
                .filter(|(_, row)| row.support.accepts_values())
                .map(|(kind, _)| kind.to_owned())
                .collect(),
        };
        report.error(path, place, problem);
        return false;
    };
    match row.support {
        table::KeySupport::Refused { instead, .. } => {
            report.error(path, place, ConfigProblem::NotInThisVersion { instead: instead.to_owned() });
            false
        }
        _ => true,
    }
}

/// Deprecated names of exporters, in the Collector and here.
pub(crate) const ALIASES: [(&str, &str); 2] = [("otlp", "otlp_grpc"), ("otlphttp", "otlp_http")];

pub(super) fn read_exporter(
    id: &ComponentId,
    path: &str,
    node: &ConfigNode,
    report: &mut Diagnostics,
) -> Option<ExporterConfig> {
    if !known_type("exporters", id, path, node, report) {
        return None;
    }
    let kind = match ALIASES.iter().find(|(alias, _)| *alias == id.kind()) {
        Some((alias, kind)) => {
            let message = format!("the type {alias} is deprecated, its name is {kind}");
            report.warn(path, node.key_location.as_ref(), message);
            kind
        }
        None => id.kind(),
    };
    let mut exporter = default_exporter(kind)?;
    read_group(exporter_group(&mut exporter), path, &join("exporters", kind), node, report);
    Some(exporter)
}

/// An exporter with defaults, by type.
pub(crate) fn default_exporter(kind: &str) -> Option<ExporterConfig> {
    Some(match kind {
        "otlp_grpc" => ExporterConfig::OtlpGrpc(Box::new(OtlpGrpcExporter::new(Endpoint::localhost()))),
        "otlp_http" => ExporterConfig::OtlpHttp(Box::new(OtlpHttpExporter::new(None))),
        "file" => ExporterConfig::File(FileExporter::new("profile.otlp".into())),
        "debug" => ExporterConfig::Debug(DebugExporter::default()),
        _ => return None,
    })
}

pub(super) fn exporter_group(exporter: &mut ExporterConfig) -> &mut dyn KeyGroup {
    match exporter {
        ExporterConfig::OtlpGrpc(exporter) => exporter.as_mut(),
        ExporterConfig::OtlpHttp(exporter) => exporter.as_mut(),
        ExporterConfig::File(exporter) => exporter,
        ExporterConfig::Debug(exporter) => exporter,
    }
}

pub(super) fn exporter_kind(exporter: &ExporterConfig) -> &'static str {
    match exporter {
        ExporterConfig::OtlpGrpc(_) => "otlp_grpc",
        ExporterConfig::OtlpHttp(_) => "otlp_http",
        ExporterConfig::File(_) => "file",
        ExporterConfig::Debug(_) => "debug",
    }
}

pub(super) fn read_extension(
    id: &ComponentId,
    path: &str,
    node: &ConfigNode,
    report: &mut Diagnostics,
) -> Option<Extension> {
    if !known_type("extensions", id, path, node, report) {
        return None;
    }
    let mut extension = default_extension(id.kind())?;
    read_group(extension_group(&mut extension), path, &join("extensions", id.kind()), node, report);
    Some(extension)
}

/// An extension with defaults, by type.
pub(crate) fn default_extension(kind: &str) -> Option<Extension> {
    Some(match kind {
        "file_storage" => Extension::FileStorage(FileStorage::default()),
        "bearertokenauth" => Extension::BearerTokenAuth(BearerTokenAuth::default()),
        "basicauth" => Extension::BasicAuth(BasicAuth::default()),
        "health_check" => Extension::HealthCheck(HealthCheck::default()),
        "zpages" => Extension::Zpages(Zpages::default()),
        _ => return None,
    })
}

pub(super) fn extension_kind(extension: &Extension) -> &'static str {
    match extension {
        Extension::FileStorage(_) => "file_storage",
        Extension::BearerTokenAuth(_) => "bearertokenauth",
        Extension::BasicAuth(_) => "basicauth",
        Extension::HealthCheck(_) => "health_check",
        Extension::Zpages(_) => "zpages",
    }
}

pub(super) fn extension_group(extension: &mut Extension) -> &mut dyn KeyGroup {
    match extension {
        Extension::FileStorage(extension) => extension,
        Extension::BearerTokenAuth(extension) => extension,
        Extension::BasicAuth(extension) => extension,
        Extension::HealthCheck(extension) => extension,
        Extension::Zpages(extension) => extension,
    }
}
