//! The unwind tables of files: built on threads of their own, loaded into the BPF maps by the sampling thread.
//!
//! | Module                              | Contents                                                                        |
//! |-------------------------------------|---------------------------------------------------------------------------------|
//! | `binaries`, `tracked_binary`        | the files that processes map, and the state of the table of each                 |
//! | `table_builder`                     | the threads that build                                                          |
//! | `build`, `segmented`, `built_table` | builds of a file: whole, in parts, single parts again; what they deliver        |
//! | `reader`                            | files as builds read them, in bounded memory                                    |
//! | `saved_tables`                      | tables on disk, so that a restart need not build them                           |
//! | `segments`, `table_room`            | the segments that mapped ranges refer to; the memory that is left for tables    |
//! | `incomplete_files`                  | the files whose table lacks something, for lack of memory                       |
//! | `packing_rules`                     | how each binary is unwound: by frame pointers, by tables, or by both            |
#![forbid(unsafe_code)]

mod binaries;
mod build;
mod built_table;
mod incomplete_files;
mod packing_rules;
mod reader;
mod saved_tables;
mod segmented;
mod segments;
mod table_builder;
mod table_room;
mod tracked_binary;

pub use binaries::{Binaries, ReadyFile};
pub use build::{BuildError, WholeTable, read_partial_table, read_table, read_validation};
pub use incomplete_files::{IncompleteTable, IncompleteTables};
pub use packing_rules::{PackingRules, packing_for_mode};
pub use saved_tables::{SavedTableCounts, SavedTables};
pub use table_builder::{BuildOptions, TableBuilder};
