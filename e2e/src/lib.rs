//! What the end-to-end tests and benchmarks stand on: real programs, a real Collector, and a judge of stacks
//! that knows nothing of how they were taken.
//!
//! - [`collector`] builds an OpenTelemetry Collector, starts it on free ports and reads what it wrote.
//! - [`workload`] compiles and runs programs whose call chains are known.
//! - [`sidewinder`] runs the profiler as a user does: by its command line and its configuration.
//! - [`received`] decodes profiles and holds them to every rule of conformance.
//! - [`observe`] asks the kernel about a running process; [`rate`] says how many events its CPU time makes.
//! - [`recording`] has the profiler start a program and write files.
//! - [`session`] joins the three: a workload, the profiler and a Collector.
//! - [`elf`] tells functions and the ends of stacks from a binary's own headers, symbols and unwind data.
//! - [`ranges`] reads what `sidewinder inspect` says of a binary; [`step`] runs a program one instruction at a time.
//! - [`judge`] puts them together: does this stack reach the start, by the known chain?
//! - [`contradiction`] tells stacks that cannot be, of programs whose chains nobody knows.
//! - [`corpus`] is a table of programs of every sort, and profiles them one after the other.
//! - [`perf`] asks `perf record --call-graph dwarf` about the same program.
//! - [`stops`] compares the stacks of stopped programs with those of gdb and framehop.
//! - [`pod`] runs pods without a cluster, and the profiler as a sidecar.
//! - [`verifier`] compares what verifying the programs takes with the baseline that is kept in `vm/`.
//! - [`archive`] has Debian's packages of other suites; [`libc`] has other C libraries to build with.
//! - [`examples`] builds and runs the examples for people who instrument.
//! - [`service`] runs the example service; [`spans`] knows which of its threads was in which span; [`documentation`] has what we tell people.
//! - [`ledger`] makes events by the thousand and tells what became of each on its way to a receiver.
//! - [`charts`] has what renders the Helm charts, and makes what is kept of them.
//! - [`cluster`] starts an API server of Kubernetes, and speaks to it by kubectl.
//! - [`conservation`] checks that every interrupt ended in one counted outcome.
#![forbid(unsafe_code)]

pub mod archive;
pub mod bench;
pub mod charts;
pub mod cluster;
pub mod collector;
pub mod conservation;
pub mod contradiction;
pub mod corpus;
pub mod documentation;
pub mod elf;
pub mod examples;
pub mod judge;
pub mod ledger;
pub mod libc;
pub mod load;
pub mod observe;
pub mod paths;
pub mod perf;
pub mod pod;
pub mod programs;
pub mod ranges;
pub mod rate;
pub mod received;
pub mod recording;
pub mod requirement;
pub mod service;
pub mod session;
pub mod sidewinder;
pub mod spans;
pub mod step;
pub mod stops;
pub mod verifier;
pub mod workload;
