//! What differs between architectures: everything else in this crate is the same for all of them.
//!
//! The module of an architecture has
//!
//! - what a file of it says of itself: [`MACHINE`], [`SFRAME_ABI`];
//! - the expression that its linkers write for [linkage tables](linkage), and their code;
//! - [`call_before`]: the call after which code returns;
//! - [`known`]: the code of C libraries that is known by its bytes;
//! - [`go`]: what Go's prologues and its runtime do by instructions that are known by their bytes;
//! - [`Instruction`] and [`Stepper`]: the decoder, and what an instruction does to a frame, by which rows are made of
//!   machine code and validated; [`clone`] and [`haskell`] are code that it takes more to understand.
//!
//! Its registers, and the rules that its ABI fixes, are in `sidewinder-unwind-table`.
//!
//! There is one so far, and [`CodeRanges`](crate::segments::CodeRanges) refuses files of all others. A second one makes this the
//! place where a file's own says which holds: tables of one architecture can be made on another.

mod x86_64;

pub use self::x86_64::{CALL_BYTES, call_before};
pub(crate) use self::x86_64::{
    Instruction, MACHINE, SFRAME_ABI, Stepper, clone, go, haskell, known, linkage,
};
