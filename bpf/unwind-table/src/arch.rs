//! Architecture-dependent code: everything else in this crate is the same for all architectures.
//!
//! The module of an architecture defines
//!
//! - [`Register`], with DWARF numbers and roles, and the pc's DWARF number;
//! - the rules that the ABI defines ([`Rule::LEAF`](crate::Rule::LEAF) and others);
//! - [`PLT_ENTRY_BYTES`], the size of an entry of a procedure linkage table.

mod x86_64;

pub use self::x86_64::{PLT_ENTRY_BYTES, Register};
