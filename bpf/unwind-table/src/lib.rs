//! The unwind table: how to find the caller of a frame, for every address of a file's code.
//!
//! `receiver/unwind` builds tables from files, and `bpf/` packs them for the programs that walk stacks. Nothing here
//! reads a file.
//!
//! - [`Rule`] says how to find the caller of a frame, [`Entry`] is a rule or the [reason](EndReason) why there is none,
//!   and [`Rule::step`] applies a rule to a frame.
//! - [`UnwindTable`] holds the [rows](UnwindRow), sorted by address, with a [`Summary`] of their sources.
//! - [`RowBuffer`] and [`EntryInterner`] are for building tables: rows of a part of the code, and interned entries.
//!
//! Architecture-dependent code is in `arch`.
#![forbid(unsafe_code)]

mod arch;
mod entries;
mod rows;
mod rule;
mod step;
mod summary;
mod table;

pub use arch::{Architecture, PLT_ENTRY_BYTES, Register};
pub use entries::{EntryId, EntryInterner};
pub use rows::{CompactRow, RowBuffer};
pub use rule::{CalleeSaved, Cfa, EndReason, Entry, ReturnAddress, Rule, SavedRegister, UnsupportedReason};
pub use step::{FrameRegisters, Memory, StepError};
pub use summary::{RowSource, Summary, UnresolvedReason};
pub use table::{UnwindRow, UnwindTable};
