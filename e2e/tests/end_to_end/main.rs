//! What users are promised, shown with real programs and a real Collector.
//!
//! These tests measure rates and times: run them one at a time (`make test` does), on a machine that is
//! otherwise idle.
#![forbid(unsafe_code)]

mod bad_input;
mod budget;
mod change;
mod charts;
mod check;
mod clock;
mod cluster;
mod completeness;
mod configurations;
mod conservation;
mod corpus;
mod delivery;
mod ends;
mod forms;
mod guesses;
mod help;
mod hybrid;
mod image;
mod interrupts;
mod memory;
mod names;
mod output;
mod page;
mod pods;
mod privileges;
mod rates;
mod reload;
mod scale;
mod silent;
mod stacks;
mod supervision;
mod telemetry;
mod top;
mod trace;
mod verifier;
mod young_processes;
