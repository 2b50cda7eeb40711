//! Where the debug files of binaries are.
//!
//! | Module           | Contents                                                                                         |
//! |------------------|--------------------------------------------------------------------------------------------------|
//! | `search`         | the search for a binary's debug files on this machine, [`DebugRoots`] and what they hold         |
//! | [`debuginfod`]   | debug files and sources from servers, if that is asked for                                       |
//! | `seekable_content` | files as `object` reads them, piece by piece                                                   |
#![forbid(unsafe_code)]

pub mod debuginfod;
mod search;
mod seekable_content;

pub use search::{BinaryLocation, Companions, DebugFile, DebugFiles, DebugRoots, has_debug_info};
pub use seekable_content::{SeekableContent, SizedReadAt};
