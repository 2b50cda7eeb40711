//! The sections at the top: components by id, and the pipelines that connect them.

use std::collections::{BTreeMap, BTreeSet};

use super::fields::{Group, Written, read_group, write_fields};
use super::known::{check_keys, join, map_of};
use super::scalar::{Scalar, text_of};
use crate::model::*;
use crate::reference;
use crate::report::{Problem, Report, nearest};
use crate::tree::{Map, Node, Value};

/// Reads the whole configuration. It is worth something only where `report` has no error afterwards.
pub(crate) fn read_config(tree: &Node, report: &mut Report) -> Config {
    let mut config = Config {
        receivers: BTreeMap::new(),
        exporters: BTreeMap::new(),
        pipelines: BTreeMap::new(),
        telemetry: Telemetry::default(),
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
    let exporters = components("exporters", sections.get("exporters"), report);
    for (id, path, node) in &exporters {
        if let Some(exporter) = read_exporter(id, path, node, report) {
            config.exporters.insert(id.clone(), exporter);
        }
    }
    for section in ["processors", "connectors", "extensions"] {
        for (id, path, node) in &components(section, sections.get(section), report) {
            known_type(section, id, path, node, report);
        }
    }

    let service = sections.get("service");
    let Some(service) = service.and_then(|node| map_of("service", node, report)) else {
        let allowed = "service::pipelines::profiles with its receivers and exporters".to_owned();
        if service.is_none() {
            report.error("service", tree.place.as_ref(), Problem::Missing { allowed });
        }
        return config;
    };
    check_keys("service", "service", service, report);
    if let Some(node) = service.get("telemetry") {
        read_group(&mut config.telemetry, "service::telemetry", "service::telemetry", node, report);
    }
    for (index, node) in items("service::extensions", service.get("extensions"), report).iter().enumerate() {
        let instead = "remove it".to_owned();
        let path = format!("service::extensions[{index}]");
        report.error(&path, node.place.as_ref(), Problem::NotInThisVersion { instead });
    }
    let configured = Configured { receivers: &receivers, exporters: &exporters };
    config.pipelines = read_pipelines(service, tree, &configured, report);
    configured.warn_of_unused(&config.pipelines, report);
    config
}

type Component<'a> = (ComponentId, String, &'a Node);

/// The components of a section, or the pipelines, whose ids have the form of one.
fn components<'a>(section: &str, node: Option<&'a Node>, report: &mut Report) -> Vec<Component<'a>> {
    let Some(map) = node.and_then(|node| map_of(section, node, report)) else {
        return Vec::new();
    };
    map.iter()
        .filter_map(|(key, node)| {
            let path = join(section, key);
            match key.parse() {
                Ok(id) => Some((id, path, node)),
                Err(error) => {
                    let problem = Problem::Value {
                        found: format!("{key:?}: {error}"),
                        allowed: ComponentId::allowed(),
                    };
                    report.error(&path, node.key_place.as_ref(), problem);
                    None
                }
            }
        })
        .collect()
}

/// Whether a component's type is one that this version has; what is not is reported.
fn known_type(section: &str, id: &ComponentId, path: &str, node: &Node, report: &mut Report) -> bool {
    let place = node.key_place.as_ref();
    let Some(row) = reference::find(&join(section, id.kind())) else {
        let types = || reference::children(section);
        let problem = Problem::UnknownType {
            kind: id.kind().to_owned(),
            nearest: nearest(id.kind(), types().map(|(kind, _)| kind)),
            known: types()
                .filter(|(_, row)| row.support.takes_values())
                .map(|(kind, _)| kind.to_owned())
                .collect(),
        };
        report.error(path, place, problem);
        return false;
    };
    match row.support {
        reference::Support::Refused { instead, .. } => {
            report.error(path, place, Problem::NotInThisVersion { instead: instead.to_owned() });
            false
        }
        _ => true,
    }
}

/// The deprecated name of `otlp_grpc`, there and here.
const OTLP_ALIAS: &str = "otlp";

fn read_exporter(id: &ComponentId, path: &str, node: &Node, report: &mut Report) -> Option<Exporter> {
    if !known_type("exporters", id, path, node, report) {
        return None;
    }
    if id.kind() == OTLP_ALIAS {
        report.warn(path, node.key_place.as_ref(), "the type otlp is deprecated, its name is otlp_grpc");
    }
    let mut read = |group: &mut dyn Group, schema: &str| read_group(group, path, schema, node, report);
    Some(match id.kind() {
        "file" => {
            let mut exporter = FileExporter::new("profile.otlp".into());
            read(&mut exporter, "exporters::file");
            Exporter::File(exporter)
        }
        "debug" => {
            let mut exporter = DebugExporter::default();
            read(&mut exporter, "exporters::debug");
            Exporter::Debug(exporter)
        }
        _ => {
            let mut exporter = OtlpGrpcExporter::new(Endpoint::local());
            read(&mut exporter, "exporters::otlp_grpc");
            Exporter::OtlpGrpc(Box::new(exporter))
        }
    })
}

/// The ids that pipelines may name: all that were given, so that a wrong component is one error.
struct Configured<'a> {
    receivers: &'a [Component<'a>],
    exporters: &'a [Component<'a>],
}

impl Configured<'_> {
    fn warn_of_unused(&self, pipelines: &BTreeMap<ComponentId, Pipeline>, report: &mut Report) {
        let used: BTreeSet<&ComponentId> = pipelines
            .values()
            .flat_map(|pipeline| pipeline.receivers.iter().chain(&pipeline.exporters))
            .collect();
        for (id, path, node) in self.receivers.iter().chain(self.exporters) {
            if !used.contains(id) {
                report.warn(path, node.key_place.as_ref(), "is in no pipeline and does nothing");
            }
        }
    }
}

fn read_pipelines(
    service: &Map,
    tree: &Node,
    configured: &Configured<'_>,
    report: &mut Report,
) -> BTreeMap<ComponentId, Pipeline> {
    const PATH: &str = "service::pipelines";
    let node = service.get("pipelines");
    let given = components(PATH, node, report);
    if node.is_none_or(|node| match &node.value {
        Value::Map(map) => map.is_empty(),
        value => *value == Value::Null,
    }) {
        let allowed = "at least the pipeline profiles, with its receivers and exporters".to_owned();
        let place = node.and_then(|node| node.place.as_ref()).or(tree.place.as_ref());
        report.error(PATH, place, Problem::Missing { allowed });
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
    node: &Node,
    configured: &Configured<'_>,
    report: &mut Report,
) -> Option<Pipeline> {
    let map = map_of(path, node, report)?;
    check_keys(path, "service::pipelines::profiles", map, report);
    let mut ids = |section: &'static str, components: &[Component<'_>]| {
        read_ids(&join(path, section), section, map.get(section), node, components, report)
    };
    Some(Pipeline {
        receivers: ids("receivers", configured.receivers),
        exporters: ids("exporters", configured.exporters),
    })
}

/// The ids that a pipeline names, each of which a section must have.
fn read_ids(
    path: &str,
    section: &'static str,
    list: Option<&Node>,
    pipeline: &Node,
    components: &[Component<'_>],
    report: &mut Report,
) -> Vec<ComponentId> {
    let given = items(path, list, report);
    if list.is_none_or(|list| matches!(&list.value, Value::Null | Value::List(_)) && given.is_empty()) {
        let allowed = format!("the ids of at least one of the {section}");
        report.error(path, list.unwrap_or(pipeline).key_place.as_ref(), Problem::Missing { allowed });
    }
    let mut ids = Vec::new();
    for (index, node) in given.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let problem = match text_of(node).map(str::parse::<ComponentId>) {
            Some(Ok(id)) if ids.contains(&id) => Problem::Contradiction(format!("{id} is given twice")),
            Some(Ok(id)) if components.iter().any(|(present, ..)| *present == id) => {
                ids.push(id);
                continue;
            }
            Some(Ok(id)) => {
                let known: Vec<String> = components.iter().map(|(present, ..)| present.to_string()).collect();
                let id = id.to_string();
                Problem::Dangling {
                    nearest: nearest(&id, known.iter().map(String::as_str)),
                    id,
                    section,
                    known,
                }
            }
            Some(Err(_)) | None => Problem::Value { found: node.describe(), allowed: ComponentId::allowed() },
        };
        report.error(&path, node.place.as_ref(), problem);
    }
    ids
}

/// The items of a node that must be a list or absent.
fn items<'a>(path: &str, node: Option<&'a Node>, report: &mut Report) -> &'a [Node] {
    match node.map(|node| (&node.value, node)) {
        Some((Value::List(items), _)) => items,
        Some((Value::Null, _)) | None => &[],
        Some((_, node)) => {
            let problem =
                Problem::Value { found: node.kind().to_owned(), allowed: "a list of ids".to_owned() };
            report.error(path, node.place.as_ref(), problem);
            &[]
        }
    }
}

/// Writes the whole configuration, every key of it.
pub(crate) fn write_config(config: &Config, written: &mut Written) -> Node {
    let mut config = config.clone();
    let entry = |id: &ComponentId, node: Node| (id.to_string(), node);
    let receivers = config
        .receivers
        .iter_mut()
        .map(|(id, receiver)| entry(id, write_fields(receiver, "receivers::profiling", written)))
        .collect();
    let exporters = config
        .exporters
        .iter_mut()
        .map(|(id, exporter)| entry(id, write_exporter(exporter, written)))
        .collect();
    let ids = |ids: &[ComponentId]| {
        Node::new(Value::List(ids.iter().map(|id| Node::text(id.to_string())).collect()))
    };
    let pipelines = config
        .pipelines
        .iter()
        .map(|(id, pipeline)| {
            let lists = [("receivers", ids(&pipeline.receivers)), ("exporters", ids(&pipeline.exporters))];
            entry(id, Node::map(lists))
        })
        .collect();
    Node::map([
        ("receivers", Node::new(Value::Map(receivers))),
        ("exporters", Node::new(Value::Map(exporters))),
        (
            "service",
            Node::map([
                ("pipelines", Node::new(Value::Map(pipelines))),
                ("telemetry", write_fields(&mut config.telemetry, "service::telemetry", written)),
            ]),
        ),
    ])
}

fn write_exporter(exporter: &mut Exporter, written: &mut Written) -> Node {
    match exporter {
        Exporter::OtlpGrpc(exporter) => write_fields(exporter.as_mut(), "exporters::otlp_grpc", written),
        Exporter::File(exporter) => write_fields(exporter, "exporters::file", written),
        Exporter::Debug(exporter) => write_fields(exporter, "exporters::debug", written),
    }
}
