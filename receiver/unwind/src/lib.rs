//! Unwind rows for every address of a binary, from bytes alone.
#![forbid(unsafe_code)]
