//! What differs between architectures: everything else in this crate is the same for all of them.
//!
//! The module of an architecture has
//!
//! - [`Register`] with DWARF's numbers and its roles, and the pc's number;
//! - the rules that its ABI fixes ([`Rule::LEAF`](crate::Rule::LEAF) and others);
//! - [`PLT_ENTRY_BYTES`], the size of an entry of a procedure linkage table.

mod x86_64;

pub use self::x86_64::{PLT_ENTRY_BYTES, Register};
