//! Which keys configuration has: each group of keys is listed once, by its [`Group`], and read, written
//! and documented from that list.

mod exporter;
mod fields;
mod known;
mod pipelines;
mod receiver;
mod scalar;
mod telemetry;

pub(crate) use fields::Written;
pub(crate) use pipelines::{read_config, write_config};
