//! Compares the rows of real files with gimli's own.
//!
//! gimli evaluates each function; its rows are converted to text here, by code that shares nothing with the crate's own
//! evaluation and conversion. All addresses are compared at which a row of either side begins or ends, and one byte
//! before and after each.
//!
//! Where a file has no unwind information, rows are made from machine code, and given rows are checked against it:
//! [`strip_unwind_information`] copies measure the first, and [`contradiction`] explains why the findings of the second
//! are real.
#![forbid(unsafe_code)]

mod comparison;
pub mod contradiction;
mod gimli_rows;
pub mod stripped;

pub use comparison::{Comparison, ComparisonError, Difference, compare};
