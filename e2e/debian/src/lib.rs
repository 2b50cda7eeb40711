//! Debian's packages of suites other than this machine's or architecture ([`archive`]), and C libraries ([`libc`]),
//! Python ([`python`]), Java ([`java`]) and files of arm64 ([`arm64`]) out of them.
#![forbid(unsafe_code)]

pub mod archive;
pub mod arm64;
pub mod java;
pub mod libc;
pub mod python;
