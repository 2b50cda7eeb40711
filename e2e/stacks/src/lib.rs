//! Programs are stopped at instructions that nobody chose, and each stack as the profiler's own eBPF walk has it is
//! compared, frame by frame, with what gdb and framehop make of the same registers and memory.
//!
//! - `session` stops a program of the corpus and collects the three stacks of each stop.
//! - `gdb` holds the program, runs it on, and steps it instruction by instruction.
//! - `trigger` has the running profiler take a sample at the very instruction.
//! - `framehop` unwinds over `space`, the memory of the stopped process.
//! - `compare` says who agrees and why not; [`Comparison`] adds that up.
//! - [`emulated`] does the same with programs for arm64, without the profiler's eBPF programs.
//! - [`perf`] asks `perf record --call-graph dwarf` about a program.
//! - [`Doctored`] plants an error, to see that it is found.
#![forbid(unsafe_code)]

mod compare;
mod comparison;
mod doctor;
pub mod emulated;
mod framehop;
mod gdb;
pub mod perf;
mod session;
mod space;
mod trigger;

pub use comparison::Comparison;
pub use doctor::Doctored;
pub use session::stop_and_compare;
