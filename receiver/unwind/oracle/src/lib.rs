//! Rows of real files against gimli's own.
//!
//! gimli evaluates each function; its rows become text here, by code that shares nothing with the crate's own
//! evaluation and conversion. Compared are all addresses at which a row of either side begins or ends, and
//! one byte before and after each.
#![forbid(unsafe_code)]

mod comparison;
mod gimli_rows;

pub use comparison::{Comparison, Difference, Error, compare};
