//! Programs of every sort under the profiler, one after the other, and the outcomes of their samples.
#![forbid(unsafe_code)]

mod managed;
mod outcome;
mod programs;
mod python;
mod registry;
mod run;
mod samples;
mod sidecar;
mod symbols;
mod table;

pub use managed::ManagedFrames;
pub use programs::{Language, PROGRAMS, Subject};
pub use python::PythonFrames;
pub use registry::Registry;
pub use run::Gated;
pub use run::profile;
pub use samples::{Ends, Samples};
pub use sidecar::{SidecarResult, SidecarRun, profile_beside};
pub use table::Table;
