//! Sidewinder's configuration: the OpenTelemetry Collector's YAML shape, checked whole.
#![forbid(unsafe_code)]

mod model;

pub use model::*;
