//! Tests of the crate's public API, on files built here and on real ones.
#![forbid(unsafe_code)]
#![expect(clippy::panic, clippy::unwrap_used, reason = "a test fails by panicking")]

mod aarch64;
mod arbitrary;
mod cfi;
mod go;
mod memory;
mod oracle;
mod sources;
mod support;
mod synthesis;
mod validation;
