//! The programs that publish spans: [`examples`] builds and runs those in `e2e/examples`, [`service`] runs the one in
//! `e2e/service`, and [`spans`] reads its log of which thread was in which span.
#![forbid(unsafe_code)]

pub mod examples;
pub mod service;
pub mod spans;
