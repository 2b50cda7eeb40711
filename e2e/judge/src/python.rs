//! Compares the Python frames of a profile with what the profiled program wrote down of itself (`e2e/workloads/python`).
//!
//! - [`Expected`] is that: chains of frames, and all functions with their lines.
//! - [`Stack`] is a sample with its frames, read from pprof or from OTLP.
//! - [`Verdict`] says how many stacks are equal to a chain, and what is wrong with the others.

mod expected;
mod native;
mod stack;
mod verdict;

pub use expected::{Chain, ChainFrame, Expected};
pub use native::{Activations, NativeFrames};
pub use stack::{Frame, FrameKind, Stack, from_otlp, from_otlp_since, from_pprof};
pub use verdict::Verdict;
