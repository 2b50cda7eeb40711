//! Processes, their mappings and their files, kept up to date from events.
#![forbid(unsafe_code)]
