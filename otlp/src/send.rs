//! The exporters, and what became of each event that they were given.

mod counts;
pub mod file;

pub use counts::{Counts, State};
