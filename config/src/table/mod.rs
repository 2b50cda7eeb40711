//! Every key of the configuration, in one table: its meaning, how it differs from the Collector, and whether this version
//! supports it.
//!
//! The accepted values and the default of a key come from its type, in [`schema`](crate::schema);
//! [`reference()`](crate::reference()) combines both.

mod exporter;
mod extension;
mod key;
mod receiver;
mod service;

pub use key::Reload;
pub(crate) use key::{Key, KeySupport};

/// Every key, in the order of the documentation.
pub(crate) fn keys() -> impl Iterator<Item = &'static Key> {
    [
        receiver::KEYS,
        extension::PROCESSORS,
        exporter::KEYS,
        exporter::OTLP_GRPC,
        exporter::OTLP_HTTP,
        exporter::WRITERS,
        extension::KEYS,
        service::KEYS,
        service::METRIC_EXPORTER,
        service::LOG_EXPORTER,
        service::REST,
    ]
    .into_iter()
    .flatten()
}

/// The row of `path`, or of the `*` that matches it.
pub(crate) fn find(path: &str) -> Option<&'static Key> {
    let any = path.rsplit_once("::").map(|(parent, _)| format!("{parent}::*"));
    keys()
        .find(|row| row.path == path || row.path.strip_suffix("[]") == Some(path))
        .or_else(|| keys().find(|row| Some(row.path) == any.as_deref()))
}

/// The keys directly below `parent`, each with its row.
pub(crate) fn children(parent: &str) -> impl Iterator<Item = (&'static str, &'static Key)> {
    keys().filter_map(move |row| {
        let below = match parent {
            "" => row.path,
            _ => row.path.strip_prefix(parent)?.strip_prefix("::")?,
        };
        let name = below.strip_suffix("[]").unwrap_or(below);
        (!name.contains("::") && name != "*").then_some((name, row))
    })
}
