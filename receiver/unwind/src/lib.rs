//! Unwind rows for every address of a binary, from bytes alone.
//!
//! [`unwind_table`] reads an ELF file that is already in memory (or behind a reader: anything that the `object` crate
//! can read, see [`ReadFile`]) and returns, for every address of its code, how a frame there leads to its caller: a
//! [`Rule`], or the [reason](EndReason) why there is none. Nothing here opens a file, and no input, however malformed,
//! makes it panic, hang or use memory out of proportion to the input's size.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let data = std::fs::read("/bin/true")?;
//! let table = sidewinder_unwind::unwind_table(&object::File::parse(&*data)?)?;
//! for row in table.rows() {
//!     println!("{row}");
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Sources
//!
//! Where several sources cover an address, the first one in this list takes precedence:
//!
//! 1. functions known to begin a stack ([`RowSource::KnownFunction`]): the ELF entry point and the functions by which
//!    the C libraries and Go start processes, threads and coroutines;
//! 2. `.eh_frame`, found by its section or, where section headers are missing, by `PT_GNU_EH_FRAME`;
//! 3. `.gopclntab`, Go's own table, which is exact at every instruction;
//! 4. `.debug_frame`, compressed or not;
//! 5. `.sframe`, versions 1 and 2;
//! 6. the `.eh_frame` and `.debug_frame` of separate debug files, if there are any ([`UnwindSources`]; [`debug_file`]
//!    finds their paths), and of the one in `.gnu_debugdata`;
//! 7. known functions that no source above covers;
//! 8. the machine code itself ([`RowSource::MachineCode`]), for the rest: all of it of one architecture, of others linkage
//!    tables. Code that jumps reach from the ELF entry point has the rule of the entry point; code of GHC has one rule
//!    throughout.
//!
//! # Modules
//!
//! The table itself, and the effect of its rules on a frame, is `sidewinder-unwind-table`. `call` distinguishes return
//! addresses from other words of a stack. `indexed` makes tables of parts of files, and of single functions, without
//! reading the rest; `parted` makes with it the tables of large files, machine code included. `cfi` turns DWARF into rules, with `expression` for the few DWARF expressions that occur; `go`
//! does the same for Go, whose table `paged` reads, `sframe` for `.sframe`; `companion` decompresses the file inside `.gnu_debugdata`;
//! `known_functions` holds the functions known by name, which `symbols` reads. Architecture-specific code is in `arch`;
//! a file's architecture is the one that it states, not the machine's.
//! `code` tracks what machine code does to its frame: `synthesize` makes rows from that, [`validate`](mod@validate)
//! checks given rows against it.
//! `layers` merges rows, over interned entries; `segments` finds where a file has code, `elf` finds the sources in a
//! file and `sources` orders them. [`method`] decides which ranges can be walked by the frame pointer.
#![forbid(unsafe_code)]

mod arch;
mod call;
mod cfi;
mod code;
mod companion;
pub mod debug_file;
mod elf;
mod expression;
mod go;
mod indexed;
mod known_functions;
mod layers;
mod memory;
pub mod method;
mod paged;
mod parted;
mod read;
mod segments;
mod sframe;
mod sources;
mod symbols;
mod synthesize;
pub mod validate;

pub use arch::{CALL_BYTES, call_before};
pub use call::Call;
pub use code::begins_instruction;
pub use companion::{UnpackError, unpack_mini_debug_info};
pub use go::pclntab::{GoTableHeader, PcValue, PcValues};
pub use indexed::{FileOutline, has_only_indexed_sources};
pub use memory::{Memory, MemoryBudget};
pub use parted::PartedSources;
pub use read::{LimitedFile, ReadFile};
pub use segments::{UnwindTableError, check_native, code_ranges, load_segments};
pub use sources::{UnwindSources, unwind_table};
// What the functions here return.
pub use sidewinder_unwind_table::{
    Architecture, CalleeSaved, Cfa, EndReason, Entry, Register, ReturnAddress, RowSource, Rule,
    SavedRegister, Summary, UnresolvedReason, UnsupportedReason, UnwindRow, UnwindTable,
};
