//! The `sidewinder` command.
#![forbid(unsafe_code)]
fn main() {}
