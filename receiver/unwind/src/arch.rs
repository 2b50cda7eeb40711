//! The architecture-specific parts of this crate; everything else is the same for all architectures.
//!
//! A file states its architecture ([`of_machine`]), and what is read of the file depends on that, not on the machine that
//! reads it: tables of one architecture can be made on another. The functions here tell the architectures apart. For all
//! of them, there are
//!
//! - the values by which ELF and `.sframe` files name the architecture, and its dialect of DWARF;
//! - the names of symbols that aren't functions;
//! - rules that are stated wrongly, and functions whose frames don't stay as their rules say;
//! - the rules of linkage tables, and the expression that linkers write for them;
//! - the bytes of `rt_sigreturn`, and how far code runs straight on;
//! - [`Instruction`] and [`Stepper`]: the decoder, and the effect of an instruction on a frame, by which rows are made
//!   from machine code and validated;
//! - code of C libraries, coroutines and other languages' runtimes that is recognised by its bytes: of x86-64 alone;
//! - [`call_before`]: the call after which code returns, for the stacks of this machine;
//! - [`go`] and [`link_register_go`]: Go's prologues and the instructions of its runtime that are recognised.
//!
//! Registers, and the rules that an ABI fixes, are in `sidewinder-unwind-table`.

mod aarch64;
mod instruction;
mod x86_64;

use std::ops::Range;

use gimli::{DwCfa, Vendor};
use sidewinder_address::Svma;
use sidewinder_unwind_table::{Architecture, EntryInterner, Rule};

#[cfg(target_arch = "aarch64")]
pub use self::aarch64::call::{CALL_BYTES, call_before};
pub(crate) use self::aarch64::go as link_register_go;
pub(crate) use self::instruction::{Instruction, StatedAddresses, Stepper};
#[cfg(target_arch = "x86_64")]
pub use self::x86_64::call::{CALL_BYTES, call_before};
pub(crate) use self::x86_64::known::CloneParts;
use self::x86_64::linkage;
pub(crate) use self::x86_64::{clone, go, haskell, known};
use crate::code::piece::CodeSlice;
use crate::code::span::{FUNCTION_ALIGNMENT_BYTES, RuleSpan};
use crate::code::state::AbstractState;

/// The architecture in the header of an ELF file, if there are tables for it.
pub(crate) fn of_machine(machine: object::Architecture) -> Option<Architecture> {
    match machine {
        object::Architecture::X86_64 => Some(Architecture::X86_64),
        object::Architecture::Aarch64 => Some(Architecture::Aarch64),
        _ => None,
    }
}

/// The dialect of DWARF.
pub(crate) fn vendor(architecture: Architecture) -> Vendor {
    match architecture {
        Architecture::X86_64 => Vendor::Default,
        Architecture::Aarch64 => Vendor::AArch64,
    }
}

/// Whether an instruction of call frame information is one of the architecture's that the parser doesn't know: what follows
/// it in its function isn't known.
pub(crate) fn is_unparsed(architecture: Architecture, instruction: DwCfa) -> bool {
    match architecture {
        Architecture::X86_64 => false,
        Architecture::Aarch64 => instruction == aarch64::NEGATE_RA_STATE_WITH_PC,
    }
}

/// A rule that call frame information states, or, where code of a C library is known to misstate it, what it means.
pub(crate) fn meant(architecture: Architecture, stated: Rule) -> Rule {
    match architecture {
        Architecture::X86_64 => stated,
        Architecture::Aarch64 => aarch64::linkage::with_pushed_words(stated),
    }
}

/// The parts of a function of GCC's unwinder, by offsets of bytes in it, in which it has overwritten its frame, and the rule there;
/// `None`: it doesn't do that, or only in its last instructions.
pub(crate) fn hand_over(architecture: Architecture, function: &[u8]) -> Option<(Vec<Range<u32>>, Rule)> {
    match architecture {
        // The return address is the last word to be overwritten.
        Architecture::X86_64 => None,
        Architecture::Aarch64 => aarch64::hand_over::hand_over(function),
    }
}

/// `SFRAME_ABI_AMD64_ENDIAN_LITTLE` and `SFRAME_ABI_AARCH64_ENDIAN_LITTLE`.
pub(crate) fn sframe_abi(architecture: Architecture) -> u8 {
    match architecture {
        Architecture::X86_64 => 3,
        Architecture::Aarch64 => 2,
    }
}

/// Whether a symbol without a type only says whether code or data begins at its address.
pub(crate) fn is_mapping_symbol(architecture: Architecture, name: &[u8]) -> bool {
    match architecture {
        Architecture::X86_64 => false,
        Architecture::Aarch64 => aarch64::is_mapping_symbol(name),
    }
}

/// The threshold of [`Cfa::Plt`](sidewinder_unwind_table::Cfa::Plt), if an expression is the one that linkers write for
/// entries of linkage tables.
pub(crate) fn linkage_threshold(architecture: Architecture, expression: &[u8]) -> Option<u8> {
    match architecture {
        Architecture::X86_64 => linkage::threshold(expression),
        Architecture::Aarch64 => None,
    }
}

/// The rules of a section of linkage code.
pub(crate) fn linkage_spans(
    architecture: Architecture,
    section: &CodeSlice<'_>,
    entries: &mut EntryInterner,
) -> Vec<RuleSpan> {
    match architecture {
        Architecture::X86_64 => linkage::spans(section, entries),
        Architecture::Aarch64 => aarch64::linkage::spans(section, entries),
    }
}

/// The least alignment that compilers give to functions.
pub(crate) fn function_alignment_bytes(architecture: Architecture) -> u32 {
    match architecture {
        Architecture::X86_64 => FUNCTION_ALIGNMENT_BYTES,
        Architecture::Aarch64 => aarch64::FUNCTION_ALIGNMENT_BYTES,
    }
}

/// The address of the word that an entry of a linkage table jumps through. `start` is the entry's, and both are in bytes from `base`,
/// the lowest code of the file.
pub(crate) fn word_jumped_through(table: &CodeSlice<'_>, start: u32, base: Svma) -> Option<u64> {
    match table.architecture {
        Architecture::X86_64 => linkage::word_jumped_through(table, start),
        Architecture::Aarch64 => aarch64::linkage::word_jumped_through(table, start, base),
    }
}

/// The parts of a function that calls `clone`.
pub(crate) fn clone_parts(architecture: Architecture, code: &[u8]) -> Option<CloneParts> {
    match architecture {
        Architecture::X86_64 => CloneParts::find(code),
        Architecture::Aarch64 => None,
    }
}

/// The addresses that the code of a function takes relative to its own location.
pub(crate) fn addresses_taken(
    architecture: Architecture,
    function: u64,
    code: &[u8],
) -> impl Iterator<Item = u64> {
    let code = match architecture {
        Architecture::X86_64 => code,
        Architecture::Aarch64 => &[],
    };
    known::addresses_taken(function, code)
}

/// The rules of Haskell code, if they are known.
pub(crate) fn haskell_frames(
    architecture: Architecture,
    cfa_offset: i32,
    entries: &mut EntryInterner,
) -> Option<haskell::Frames> {
    match architecture {
        Architecture::X86_64 => Some(haskell::Frames::new(cfa_offset, entries)),
        Architecture::Aarch64 => None,
    }
}

/// The code of `rt_sigreturn`, in each of its forms.
pub(crate) fn rt_sigreturn(architecture: Architecture) -> &'static [&'static [u8]] {
    match architecture {
        Architecture::X86_64 => &known::RT_SIGRETURN,
        Architecture::Aarch64 => &aarch64::RT_SIGRETURN,
    }
}

/// Bytes of a program's first instruction, if its return address is then in a register, as a function's is: the kernel has cleared it, or
/// it leads to the dynamic linker. On x86-64, the number of arguments is where a return address would be.
pub(crate) fn bytes_entered_by_register(architecture: Architecture) -> u32 {
    match architecture {
        Architecture::X86_64 => 0,
        Architecture::Aarch64 => aarch64::INSTRUCTION_BYTES,
    }
}

/// The state at a function's first instruction, right after the call.
pub(crate) fn at_entry(architecture: Architecture) -> AbstractState {
    match architecture {
        Architecture::X86_64 => x86_64::at_entry(),
        Architecture::Aarch64 => aarch64::at_entry(),
    }
}

/// Bytes up to the first instruction, inclusive, after which execution never continues.
pub(crate) fn straight_length(architecture: Architecture, code: &[u8]) -> Option<u32> {
    match architecture {
        Architecture::X86_64 => x86_64::straight_length(code),
        Architecture::Aarch64 => aarch64::straight_length(code),
    }
}

/// Whether code consists only of instructions that do nothing, or of zeros.
pub(crate) fn is_padding(architecture: Architecture, code: &CodeSlice<'_>) -> bool {
    match architecture {
        Architecture::X86_64 => code.is_padding(code.start, code.end()),
        Architecture::Aarch64 => aarch64::is_padding(code.bytes),
    }
}
