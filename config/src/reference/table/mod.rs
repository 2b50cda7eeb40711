//! The table itself, section by section.

mod exporter;
mod extension;
mod receiver;
mod service;

use super::{Key, Reload, Support};

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

const fn key(path: &'static str, description: &'static str) -> Key {
    Key { path, description, unit: "", deviation: None, support: Support::Acts, reload: Reload::Live }
}

impl Key {
    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn deviates(self, deviation: &'static str) -> Self {
        Self { deviation: Some(deviation), ..self }
    }

    const fn not_yet(self, default: &'static str) -> Self {
        Self { support: Support::NotYet { default }, ..self }
    }

    const fn refused(self, default: &'static str, instead: &'static str) -> Self {
        Self { support: Support::Refused { default, instead }, ..self }
    }

    const fn meaningless(self, why: &'static str) -> Self {
        Self { support: Support::Meaningless { why }, ..self }
    }

    const fn restarts(self) -> Self {
        Self { reload: Reload::Restarts, ..self }
    }
}

/// What a refused component is called in its own default: it has none, being there is giving it.
const ABSENT: &str = "absent";
