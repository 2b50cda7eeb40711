//! Debian's packages of suites other than this machine's ([`archive`]), and C libraries ([`libc`]) and Python ([`python`]) out of
//! them.
#![forbid(unsafe_code)]

pub mod archive;
pub mod libc;
pub mod python;
