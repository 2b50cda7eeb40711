//! Programs of every sort under the profiler, one after the other, and the outcomes of their samples.
#![forbid(unsafe_code)]

mod programs;
pub mod pypi;
mod python;
mod run;
mod samples;
mod table;

pub use programs::{PROGRAMS, Subject};
pub use python::PythonFrames;
pub use run::Gated;
pub use run::profile;
pub use samples::{Ends, Samples};
pub use table::Table;
