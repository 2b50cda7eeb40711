//! What users are promised of rates, shares and memory, shown with real programs and a real Collector.
//!
//! These tests compare what the profiler counted with CPU time and memory, profile the whole node, or have deadlines: run them one at a time
//! (`make test` does), on a machine that is otherwise idle. Tests that tolerate other programs beside them are in
//! `end_to_end`.
#![forbid(unsafe_code)]

mod bombs;
mod budget;
mod conservation;
mod corpus;
mod java;
mod life;
mod memory;
mod neighbours;
mod rates;
mod scale;
mod sidecar;
mod young_processes;
