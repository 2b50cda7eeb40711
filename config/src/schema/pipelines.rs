//! The top-level sections: components by ID, and the pipelines that connect them.

use std::collections::{BTreeMap, BTreeSet};

use super::components::{
    Component, components, exporter_group, exporter_kind, extension_group, extension_kind, known_type,
    read_exporter, read_extension,
};
use super::fields::{WriteContext, read_group, write_fields};
use super::known::{check_keys, join, map_of};
use super::scalar::{Scalar, as_text};
use crate::diagnostics::{ConfigProblem, Diagnostics, nearest};
use crate::model::*;
use crate::tree::{ConfigNode, ConfigValue, Map};

/// Reads the whole configuration. The result is only valid if `report` has no error afterwards.
pub(crate) fn read_config(tree: &ConfigNode, report: &mut Diagnostics) -> Config {
    let mut config = Config {
        receivers: BTreeMap::new(),
        processors: BTreeMap::new(),
        exporters: BTreeMap::new(),
        extensions: BTreeMap::new(),
        pipelines: BTreeMap::new(),
        telemetry: Telemetry::default(),
        ui: Ui::default(),
    };
    let Some(sections) = map_of("", tree, report) else { return config };
    check_keys("", "", sections, report);

    let receivers = components("receivers", sections.get("receivers"), report);
    for (id, path, node) in &receivers {
        if known_type("receivers", id, path, node, report) {
            let mut receiver = ProfilingReceiver::default();
            read_group(&mut receiver, path, "receivers::profiling", node, report);
            config.receivers.insert(id.clone(), receiver);
        }
    }
    let processors = components("processors", sections.get("processors"), report);
    for (id, path, node) in &processors {
        if known_type("processors", id, path, node, report) {
            let mut processor = ResourceProcessor::default();
            read_group(&mut processor, path, "processors::resource", node, report);
            config.processors.insert(id.clone(), processor);
        }
    }
    let exporters = components("exporters", sections.get("exporters"), report);
    for (id, path, node) in &exporters {
        if let Some(exporter) = read_exporter(id, path, node, report) {
            config.exporters.insert(id.clone(), exporter);
        }
    }
    let extensions = components("extensions", sections.get("extensions"), report);
    for (id, path, node) in &extensions {
        if let Some(extension) = read_extension(id, path, node, report) {
            config.extensions.insert(id.clone(), extension);
        }
    }
    for (id, path, node) in &components("connectors", sections.get("connectors"), report) {
        known_type("connectors", id, path, node, report);
    }

    let service = sections.get("service");
    let Some(service) = service.and_then(|node| map_of("service", node, report)) else {
        let allowed = "service::pipelines::profiles with its receivers and exporters".to_owned();
        if service.is_none() {
            report.error("service", tree.location.as_ref(), ConfigProblem::Missing { allowed });
        }
        return config;
    };
    check_keys("service", "service", service, report);
    if let Some(node) = service.get("telemetry") {
        read_group(&mut config.telemetry, "service::telemetry", "service::telemetry", node, report);
    }
    if let Some(node) = service.get("ui") {
        read_group(&mut config.ui, "service::ui", "service::ui", node, report);
    }
    let running =
        read_ids("service::extensions", "extensions", service.get("extensions"), &extensions, report);
    config.extensions.retain(|id, _| running.contains(id));
    check_references(&config, &exporters, &extensions, report);
    let configured =
        DeclaredComponents { receivers: &receivers, processors: &processors, exporters: &exporters };
    config.pipelines = read_pipelines(service, tree, &configured, report);
    let used: BTreeSet<&ComponentId> = config.pipelines.values().flat_map(Pipeline::ids).collect();
    warn_of_unused(
        &[&receivers, &processors, &exporters],
        &used,
        "is in no pipeline and does nothing",
        report,
    );
    let message = "is not in service::extensions and does nothing";
    warn_of_unused(&[&extensions], &running.iter().collect(), message, report);
    config
}

fn warn_of_unused(
    sections: &[&[Component<'_>]],
    used: &BTreeSet<&ComponentId>,
    message: &str,
    report: &mut Diagnostics,
) {
    for (id, path, node) in sections.iter().copied().flatten() {
        if !used.contains(id) {
            report.warn(path, node.key_location.as_ref(), message);
        }
    }
}

/// Finds exporters that refer to an extension that is not running, or does not provide the service.
fn check_references(
    config: &Config,
    exporters: &[Component<'_>],
    extensions: &[Component<'_>],
    report: &mut Diagnostics,
) {
    for (id, path, node) in exporters {
        let (auth, queue) = match config.exporters.get(id) {
            Some(ExporterConfig::OtlpGrpc(exporter)) => (&exporter.auth, &exporter.sending_queue),
            Some(ExporterConfig::OtlpHttp(exporter)) => (&exporter.auth, &exporter.sending_queue),
            Some(ExporterConfig::File(_) | ExporterConfig::Debug(_)) | None => continue,
        };
        for (named, key, service) in [
            (auth, "auth::authenticator", ExtensionService::Authenticator),
            (&queue.storage, "sending_queue::storage", ExtensionService::Storage),
        ] {
            let Some(named) = named else { continue };
            let problem = match config.extensions.get(named) {
                Some(extension) if extension.provides(service) => continue,
                Some(_) => ConfigProblem::Contradiction(match service {
                    ExtensionService::Authenticator => {
                        format!("{named} is not an authenticator: bearertokenauth and basicauth are")
                    }
                    ExtensionService::Storage => {
                        format!("{named} is not a storage extension: file_storage is")
                    }
                }),
                None if extensions.iter().any(|(present, ..)| present == named) => {
                    ConfigProblem::Contradiction(format!(
                        "{named} does not run: add it to service::extensions"
                    ))
                }
                None => dangling(named, "extensions", extensions),
            };
            report.error(&join(path, key), node.get(key).and_then(|node| node.location.as_ref()), problem);
        }
    }
}

/// The IDs that pipelines may name: all given ones, so that an invalid component causes one error only.
struct DeclaredComponents<'a> {
    receivers: &'a [Component<'a>],
    processors: &'a [Component<'a>],
    exporters: &'a [Component<'a>],
}

fn read_pipelines(
    service: &Map,
    tree: &ConfigNode,
    configured: &DeclaredComponents<'_>,
    report: &mut Diagnostics,
) -> BTreeMap<ComponentId, Pipeline> {
    const PATH: &str = "service::pipelines";
    let node = service.get("pipelines");
    let given = components(PATH, node, report);
    if node.is_none_or(|node| match &node.value {
        ConfigValue::Map(map) => map.is_empty(),
        value => *value == ConfigValue::Null,
    }) {
        let allowed = "at least the pipeline profiles, with its receivers and exporters".to_owned();
        let place = node.and_then(|node| node.location.as_ref()).or(tree.location.as_ref());
        report.error(PATH, place, ConfigProblem::Missing { allowed });
    }
    let mut pipelines = BTreeMap::new();
    for (id, path, node) in given {
        if known_type(PATH, &id, &path, node, report)
            && let Some(pipeline) = read_pipeline(&path, node, configured, report)
        {
            pipelines.insert(id, pipeline);
        }
    }
    pipelines
}

fn read_pipeline(
    path: &str,
    node: &ConfigNode,
    configured: &DeclaredComponents<'_>,
    report: &mut Diagnostics,
) -> Option<Pipeline> {
    let map = map_of(path, node, report)?;
    check_keys(path, "service::pipelines::profiles", map, report);
    let mut ids = |section: &'static str, components: &[Component<'_>]| {
        read_ids(&join(path, section), section, map.get(section), components, report)
    };
    let pipeline = Pipeline {
        receivers: ids("receivers", configured.receivers),
        processors: ids("processors", configured.processors),
        exporters: ids("exporters", configured.exporters),
    };
    for section in ["receivers", "exporters"] {
        let list = map.get(section);
        if list.is_none_or(|list| match &list.value {
            ConfigValue::List(items) => items.is_empty(),
            value => *value == ConfigValue::Null,
        }) {
            let allowed = format!("the ids of at least one of the {section}");
            let place = list.unwrap_or(node).key_location.as_ref();
            report.error(&join(path, section), place, ConfigProblem::Missing { allowed });
        }
    }
    Some(pipeline)
}

/// The IDs in a list, each of which must be in a section.
fn read_ids(
    path: &str,
    section: &'static str,
    list: Option<&ConfigNode>,
    components: &[Component<'_>],
    report: &mut Diagnostics,
) -> Vec<ComponentId> {
    let mut ids = Vec::new();
    for (index, node) in items(path, list, report).iter().enumerate() {
        let path = format!("{path}[{index}]");
        let problem = match as_text(node).map(str::parse::<ComponentId>) {
            Some(Ok(id)) if ids.contains(&id) => ConfigProblem::Contradiction(format!("{id} is given twice")),
            Some(Ok(id)) if components.iter().any(|(present, ..)| *present == id) => {
                ids.push(id);
                continue;
            }
            Some(Ok(id)) => dangling(&id, section, components),
            Some(Err(_)) | None => {
                ConfigProblem::Value { found: node.describe(), allowed: ComponentId::allowed() }
            }
        };
        report.error(&path, node.location.as_ref(), problem);
    }
    ids
}

fn dangling(id: &ComponentId, section: &'static str, components: &[Component<'_>]) -> ConfigProblem {
    let known: Vec<String> = components.iter().map(|(present, ..)| present.to_string()).collect();
    let id = id.to_string();
    ConfigProblem::Dangling { nearest: nearest(&id, known.iter().map(String::as_str)), id, section, known }
}

/// The items of a node that must be a list or absent.
fn items<'a>(path: &str, node: Option<&'a ConfigNode>, report: &mut Diagnostics) -> &'a [ConfigNode] {
    match node.map(|node| (&node.value, node)) {
        Some((ConfigValue::List(items), _)) => items,
        Some((ConfigValue::Null, _)) | None => &[],
        Some((_, node)) => {
            let problem =
                ConfigProblem::Value { found: node.kind().to_owned(), allowed: "a list of ids".to_owned() };
            report.error(path, node.location.as_ref(), problem);
            &[]
        }
    }
}

/// Writes the whole configuration, with all keys.
pub(crate) fn write_config(config: &Config, written: &mut WriteContext) -> ConfigNode {
    let mut config = config.clone();
    let receivers =
        section(&mut config.receivers, |receiver| write_fields(receiver, "receivers::profiling", written));
    let processors =
        section(&mut config.processors, |processor| write_fields(processor, "processors::resource", written));
    let exporters = section(&mut config.exporters, |exporter| {
        let schema = join("exporters", exporter_kind(exporter));
        write_fields(exporter_group(exporter), &schema, written)
    });
    let running = ids(config.extensions.keys());
    let extensions = section(&mut config.extensions, |extension| {
        let schema = join("extensions", extension_kind(extension));
        write_fields(extension_group(extension), &schema, written)
    });
    let pipelines = section(&mut config.pipelines, |pipeline| {
        ConfigNode::map([
            ("receivers", ids(&pipeline.receivers)),
            ("processors", ids(&pipeline.processors)),
            ("exporters", ids(&pipeline.exporters)),
        ])
    });
    ConfigNode::map([
        ("receivers", receivers),
        ("processors", processors),
        ("exporters", exporters),
        ("extensions", extensions),
        (
            "service",
            ConfigNode::map([
                ("extensions", running),
                ("pipelines", pipelines),
                ("telemetry", write_fields(&mut config.telemetry, "service::telemetry", written)),
                ("ui", write_fields(&mut config.ui, "service::ui", written)),
            ]),
        ),
    ])
}

fn section<T>(
    components: &mut BTreeMap<ComponentId, T>,
    mut write: impl FnMut(&mut T) -> ConfigNode,
) -> ConfigNode {
    let entries = components.iter_mut().map(|(id, component)| (id.to_string(), write(component)));
    ConfigNode::new(ConfigValue::Map(entries.collect()))
}

fn ids<'a>(ids: impl IntoIterator<Item = &'a ComponentId>) -> ConfigNode {
    ConfigNode::new(ConfigValue::List(ids.into_iter().map(|id| ConfigNode::text(id.to_string())).collect()))
}
