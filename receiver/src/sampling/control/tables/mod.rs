//! The unwind tables of files: built on their own threads, loaded into the BPF maps by the sampling thread.

pub(crate) mod binaries;
pub(crate) mod build;
mod incomplete_files;
mod reader;
mod saved_tables;
mod segmented;
mod segments;
pub(crate) mod table_builder;
mod table_room;
mod tracked_binary;

pub(crate) use self::incomplete_files::{IncompleteTable, IncompleteTables};
pub(crate) use self::saved_tables::{SavedTableCounts, SavedTables};
