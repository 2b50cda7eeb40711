//! Debian's packages of suites other than this machine's ([`archive`]), and C libraries out of them ([`libc`]).
#![forbid(unsafe_code)]

pub mod archive;
pub mod libc;
