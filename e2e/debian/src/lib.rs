//! Debian's packages of suites other than this machine's ([`archive`]), and C libraries ([`libc`]), Python ([`python`]) and Java
//! ([`java`]) out of them.
#![forbid(unsafe_code)]

pub mod archive;
pub mod java;
pub mod libc;
pub mod python;
