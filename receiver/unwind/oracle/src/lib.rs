//! Rows of real files against gimli's own.
//!
//! gimli evaluates each function; its rows become text here, by code that shares nothing with the crate's own
//! evaluation and conversion. Compared are all addresses at which a row of either side begins or ends, and
//! one byte before and after each.
//!
//! Where no table speaks, rows are made of machine code, and given rows are checked against it: [`strip_unwind_information`] copies
//! measure the first, and [`contradiction`] says why what the second finds is real.
#![forbid(unsafe_code)]

mod comparison;
pub mod contradiction;
mod gimli_rows;
pub mod stripped;

pub use comparison::{Comparison, ComparisonError, Difference, compare};
