//! The unwind tables of files: built beside sampling, loaded where walks find them.

pub(crate) mod binaries;
pub(crate) mod build;
pub(crate) mod debug_files;
mod reader;
mod segments;
pub(crate) mod table_builder;
