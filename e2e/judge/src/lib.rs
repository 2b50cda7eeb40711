//! Tells right stacks from wrong ones by the binaries alone: nothing here knows how the profiler takes stacks.
//!
//! - [`elf`] finds functions, unwind rules and the ends of stacks in a binary's own headers, symbols and unwind data.
//! - [`Judge`] decides whether a stack reaches the start by the known chain, and finds impossible stacks of programs whose
//!   chains nobody knows ([`Contradiction`]).
//! - [`python`] compares stacks of Python programs with those that the programs wrote down of themselves.
//! - [`step`] runs a program one instruction at a time.
#![forbid(unsafe_code)]

mod contradiction;
pub mod elf;
mod judge;
pub mod python;
pub mod step;

pub use contradiction::{Contradiction, INJECTED, LANDING};
pub use judge::{Chain, Judge, Verdict};
