//! What users are promised, shown with real programs and a real Collector.
//!
//! These tests run beside each other. Those that need the machine for themselves are in `measured`.
#![forbid(unsafe_code)]

mod backends;
mod bad_input;
mod bombs;
mod change;
mod charts;
mod check;
mod clock;
mod cluster;
mod completeness;
mod configurations;
mod containers;
mod counters;
mod debuginfod;
mod delivery;
mod ends;
mod forms;
mod guesses;
mod help;
mod hostile_names;
mod hybrid;
mod image;
mod interrupts;
mod java;
mod listen;
mod locks;
mod names;
mod node;
mod off_cpu;
mod output;
mod packages;
mod page;
mod perf_files;
mod pods;
mod privileges;
mod probes;
mod python;
mod questions;
mod receiver_keys;
mod reload;
mod schema;
mod silent;
mod small_documents;
mod stacks;
mod supervision;
mod switches;
mod tables;
mod telemetry;
mod top;
mod trace;
mod two_runtimes;
mod unnamed;
mod verifier;
mod wall;
