//! OTLP profiles: the dictionary, the encoder, the conformance rules and the exporters.
//!
//! | Module          | Holds                                                                     |
//! |-----------------|---------------------------------------------------------------------------|
//! | [`builder`]     | [`ReportBuilder`]: events in any order become one [`Report`]              |
//! | [`decode`]      | Bytes of profiles, from a file or a request, as a small owned model       |
//! | [`conformance`] | The rules that an emitter of profiles must obey, checked on encoded bytes |
//! | [`send`]        | The exporters, and how each event ended                                   |
//!
//! The messages of OpenTelemetry stay inside this crate: the signal is Alpha and its form still
//! changes, so that callers see the small types below alone.
#![forbid(unsafe_code)]

mod attribute;
pub mod builder;
pub mod conformance;
pub mod decode;
mod encode;
mod report;
pub mod send;
mod table;
mod wire;

pub use attribute::{FrameType, Value, key};
pub use builder::{ReportBuilder, ReportOptions};
pub use report::{Report, Tally};
