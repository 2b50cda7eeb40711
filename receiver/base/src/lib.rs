//! What every thread of the receiver needs, whatever its work.
//!
//! | Module                            | Contents                                                                        |
//! |-----------------------------------|---------------------------------------------------------------------------------|
//! | [`privilege`]                     | the capabilities of each thread                                                 |
//! | [`supervise`]                     | supervision of threads: which are working, and which hang                       |
//! | [`foreign`]                       | reads of other processes' memory, which may never return                        |
//! | [`memory`], [`time_budget`]       | budgets of memory and of time                                                   |
//! | [`interval_timer`], [`lock`]      | periodic work in a loop; mutexes that may be poisoned                           |
//! | [`exit`], [`causes`]              | failures, their exit codes, and errors with their causes                        |
//! | [`terminal`]                      | colours, and notices to the user                                                |
//! | [`refusals`]                      | the files that are not read, by reason                                          |
//! | [`file_version`], [`disk_cache`]  | whether a file has changed; what caches on disk have in common                  |
#![forbid(unsafe_code)]

pub mod causes;
pub mod disk_cache;
pub mod exit;
pub mod file_version;
pub mod foreign;
pub mod interval_timer;
pub mod lock;
pub mod memory;
pub mod privilege;
pub mod refusals;
pub mod supervise;
pub mod terminal;
pub mod time_budget;
