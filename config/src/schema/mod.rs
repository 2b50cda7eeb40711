//! The keys of the configuration: each group of keys is listed once, in its [`KeyGroup`], and is read, written and
//! documented from that list.

mod client;
mod components;
mod event;
mod exporter;
mod extension;
mod fields;
mod known;
mod pipelines;
mod probe;
mod processor;
mod receiver;
mod scalar;
mod telemetry;
mod ui;

pub(crate) use components::{ALIASES, default_exporter, default_extension};
pub(crate) use fields::{WriteContext, WrittenKey, write_fields};
pub(crate) use pipelines::{read_config, write_config};
pub(crate) use scalar::ValueShape;
