//! Profiles for people: tables, folded stacks, pprof, flame graphs.
#![forbid(unsafe_code)]
