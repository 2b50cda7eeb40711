//! Reads which crates and files of the workspace import which others: the tests of this crate state what is allowed.
//!
//! - [`Workspace`] is what `cargo metadata` says of the crates.
//! - [`Crate`] is the tree of one crate's modules, with the names that each defines, imports and mentions.
//! - [`imports`] resolves those names to the files that define them, and [`circles`] finds files that import each other.
//!
//! Only names in source text are followed. Calls of methods import nothing: the type of the receiver was imported where it
//! was named. Code that is compiled for tests alone is left out.
#![forbid(unsafe_code)]

mod circle;
mod import;
mod source;
mod workspace;

pub use circle::{Circle, circles};
pub use import::{Import, imports};
pub use source::Crate;
pub use workspace::{Package, Workspace};
