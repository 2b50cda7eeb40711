//! What the end-to-end tests, the benchmarks and their tools share: real programs, the profiler, a real Collector.
//!
//! - [`workload`] compiles and runs programs whose call chains are known; [`programs`] copies large ones;
//!   [`python`] finds Pythons, and [`java`] JDKs.
//! - [`sidewinder`] runs the profiler as a user does: by its command line and its configuration; [`user`] runs it, and others, as
//!   users without privileges.
//! - [`collector`] builds an OpenTelemetry Collector, starts it on free ports and reads what it wrote.
//! - [`received`] decodes profiles and holds them to every rule of conformance.
//! - [`session`] profiles a workload in one of the two [forms](form) of what ships; [`counts`] is what either counts; [`log`] reads
//!   what the service logs.
//! - [`recording`] has the profiler write files.
//! - [`observe`] asks the kernel about a running process; [`rate`] says how many events its CPU time makes; [`sample_cost`]
//!   measures what a sample costs.
//! - [`conservation`] checks that every interrupt ended in one counted outcome.
//! - [`many_stacks`] makes a large profile.
//! - [`oci`] reads the container image.
//! - [`load`] keeps programs running beside the profiler; [`bench`] reads the command lines of benchmarks.
//! - [`never`] fails a test for what is no fault of a busy machine; [`requirement`] skips a test where the machine lacks what it
//!   needs; [`paths`] finds files; [`command`] runs commands; [`lock`] has one test at a time make a file that several need.
#![forbid(unsafe_code)]

pub mod bench;
pub mod cgroup;
pub mod collector;
pub mod command;
pub mod conservation;
pub mod counts;
pub mod elf_writer;
pub mod form;
pub mod http;
pub mod java;
pub mod load;
pub mod lock;
pub mod log;
pub mod many_stacks;
pub mod never;
pub mod observe;
pub mod oci;
pub mod paths;
pub mod programs;
pub mod promise;
pub mod python;
pub mod rate;
pub mod received;
pub mod recording;
pub mod requirement;
pub mod sample_cost;
pub mod session;
pub mod sidewinder;
pub mod user;
pub mod workload;

/// This machine's architecture, as Debian and container images call it.
pub const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
