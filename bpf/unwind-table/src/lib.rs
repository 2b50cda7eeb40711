//! The unwind table: for every address of a file's code, how a frame there leads to its caller.
//!
//! A table is what both sides have in common: `receiver/unwind` makes it from a file, `bpf/` packs it for the programs that walk
//! stacks. Nothing here reads a file.
//!
//! - [`Rule`] says how a frame leads to its caller, [`Entry`] is a rule or the [reason](EndReason) why there is none, and
//!   [`Rule::step`] applies a rule to a frame.
//! - [`UnwindTable`] holds the [rows](UnwindRow), sorted by address, with a [`Summary`] of what they were made of.
//! - [`RowBuffer`] and [`EntryInterner`] are for who makes a table: rows of a part of the code, and interned entries.
//!
//! What differs between architectures is in `arch`.
#![forbid(unsafe_code)]

mod arch;
mod entries;
mod rows;
mod rule;
mod step;
mod summary;
mod table;

pub use arch::{PLT_ENTRY_BYTES, Register};
pub use entries::{EntryId, EntryInterner};
pub use rows::{CompactRow, RowBuffer};
pub use rule::{CalleeSaved, Cfa, EndReason, Entry, ReturnAddress, Rule, SavedRegister, UnsupportedReason};
pub use step::{FrameRegisters, Memory, StepError};
pub use summary::{RowSource, Summary, UnresolvedReason};
pub use table::{UnwindRow, UnwindTable};
