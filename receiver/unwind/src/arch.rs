//! The architecture-specific parts of this crate; everything else is the same for all architectures.
//!
//! The module of an architecture has
//!
//! - the values by which ELF and `.sframe` files name the architecture: [`MACHINE`], [`SFRAME_ABI`];
//! - the expression that its linkers write for [linkage tables](linkage), and their code;
//! - [`call_before`]: the call after which code returns;
//! - [`known`]: code of C libraries that is recognised by its bytes;
//! - [`go`]: Go's prologues and the instructions of its runtime that are recognised by their bytes;
//! - [`Instruction`] and [`Stepper`]: the decoder, and the effect of an instruction on a frame, by which rows are made
//!   from machine code and validated; [`clone`] and [`haskell`] handle code that these alone don't explain.
//!
//! Its registers, and the rules that its ABI fixes, are in `sidewinder-unwind-table`.
//!
//! There is one architecture so far, and [`CodeRanges`](crate::segments::CodeRanges) rejects files of all others. To
//! add a second one, select its module here by the file's architecture rather than the host's: tables of one
//! architecture can be made on another.

mod x86_64;

pub use self::x86_64::{CALL_BYTES, call_before};
pub(crate) use self::x86_64::{
    Instruction, MACHINE, SFRAME_ABI, Stepper, clone, go, haskell, known, linkage,
};
