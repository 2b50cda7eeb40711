//! End-to-end tests: real programs, a real Collector.
#![forbid(unsafe_code)]
