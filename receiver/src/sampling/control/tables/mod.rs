//! The unwind tables of files: built beside sampling, loaded where walks find them.

pub(in crate::sampling) mod binaries;
pub(crate) mod build;
pub(crate) mod debug_file;
mod reader;
mod segments;
pub(in crate::sampling) mod table_builder;
