//! OTLP profiles: the dictionary, the encoder, the conformance rules, the exporters and the receiving end.
//!
//! | Module          | Holds                                                                     |
//! |-----------------|---------------------------------------------------------------------------|
//! | [`builder`]     | [`ReportBuilder`]: builds a [`Report`] from events in any order           |
//! | [`decode`]      | Decodes profiles into a small owned model, for tests                      |
//! | [`read`]        | Reads messages into a dictionary, and samples that refer to it            |
//! | [`conformance`] | Checks encoded profiles against the rules for emitters                    |
//! | [`send`]        | The exporters, and how each event ended                                   |
//! | [`receive`]     | Answers to requests of exporters                                          |
//!
//! The messages of OpenTelemetry are private to this crate: the signal is Alpha and still changes, so callers
//! only see the small types below.
#![forbid(unsafe_code)]

mod attribute;
pub mod builder;
pub mod conformance;
pub mod decode;
mod decoded;
mod encode;
mod message;
pub mod read;
pub mod receive;
mod report;
pub mod send;
mod wire;

pub use builder::{ReportBuilder, ReportOptions};
pub use report::{Report, Tally};
pub use sidewinder_profile::{FrameType, Value, key};
