//! The evaluation loop in builds with tail calls (`--with-tail-call-interp`).
//!
//! The code of each instruction is a function (`_TAIL_CALL_*`) that ends with a jump to the next one's. The function of the loop
//! calls the first of them, and keeps its frame until the last one returns: this call is the activation. Where link-time
//! optimization, or BOLT, has put that function into its callers, each copy has the call, and the activation is between it and
//! the place where the activation's frame became the thread's current one. The rest of the caller is not the loop's.

use std::collections::BTreeSet;
use std::io;

use sidewinder_address::Svma;
use sidewinder_process::ReadAt;
use sidewinder_process::tls::{ElfFile, ElfSymbol};

use crate::{arch, split};

/// The first minor version that can be built so.
pub(super) const TAIL_CALLS_SINCE: u8 = 14;
/// Bytes of code that are searched for calls. CPython has 20 MiB, with what BOLT keeps of the code before.
const SEARCHED_BYTES_MAX: u64 = 64 << 20;
/// Bytes that are in memory at once.
const PIECE_BYTES: usize = 1 << 20;
/// Functions with copies of the loop that are looked at. There are three.
const COPIES_MAX: usize = 16;

/// The code of copies of the loop's function in other functions, given the parts of that function: what is executed most first.
/// Empty if it does not call through a table at a fixed address, as in a library or a position-independent program: in these it
/// is exported, and callers go through the procedure linkage table.
pub(super) fn inlined_loops(
    file: &impl ReadAt,
    elf: &ElfFile,
    entries: &mut split::EhFrameEntries<'_>,
    parts: &[ElfSymbol],
    current_frame: u16,
) -> io::Result<Vec<ElfSymbol>> {
    let own = split::code_of(file, elf, parts.get(..1).unwrap_or_default())?;
    let Some((start, own)) = own.first() else { return Ok(Vec::new()) };
    let Some(table) = arch::dispatch_table(own, Svma(*start)) else { return Ok(Vec::new()) };
    // BOLT leaves the code that it has moved where it was: that of the moved loop is of no use any more.
    let home = elf.code_sections().find(|section| contains(*section, Svma(*start)));
    let is_at_home = |at: Svma| home.is_some_and(|home| contains(home, at));
    let callers: BTreeSet<(Svma, u64)> = calls_through(file, elf, table)?
        .into_iter()
        .filter(|at| !parts.iter().any(|part| contains(*part, *at)))
        .filter_map(|at| entries.code_around(at))
        .map(|code| (code.address, code.bytes))
        .collect();
    let mut copies: Vec<(bool, arch::Activation)> = Vec::new();
    for (address, bytes) in callers.into_iter().take(COPIES_MAX) {
        let mut caller = vec![ElfSymbol { address, bytes }];
        caller.extend(split::other_parts(file, elf, entries, &caller)?);
        let code = split::code_of(file, elf, &caller)?;
        let found = arch::activations(&code, table, current_frame).into_iter();
        copies.extend(found.map(|activation| (is_at_home(address), activation)));
    }
    copies.sort_by_key(|(is_at_home, activation)| (!is_at_home, !activation.has_call));
    let symbol = |(_, arch::Activation { code, .. }): (bool, arch::Activation)| ElfSymbol {
        address: Svma(code.start),
        bytes: code.end - code.start,
    };
    Ok(copies.into_iter().map(symbol).collect())
}

fn contains(code: ElfSymbol, at: Svma) -> bool {
    at.0.wrapping_sub(code.address.0) < code.bytes
}

/// Where the file's code calls through a table.
fn calls_through(file: &impl ReadAt, elf: &ElfFile, table: Svma) -> io::Result<Vec<Svma>> {
    let (mut found, mut searched) = (Vec::new(), 0);
    for section in elf.code_sections() {
        let mut start = 0;
        while start < section.bytes && searched < SEARCHED_BYTES_MAX {
            let address = Svma(section.address.0.wrapping_add(start));
            let wanted = usize::try_from(section.bytes - start).unwrap_or(usize::MAX).min(PIECE_BYTES);
            let code = elf.content(file, address, wanted)?;
            found.extend(arch::calls_through(&code, address, table));
            if code.len() < wanted || wanted < PIECE_BYTES {
                break;
            }
            // A call may begin in one piece and end in the next.
            start += (PIECE_BYTES - (arch::TABLE_CALL_BYTES - 1)) as u64;
            searched += PIECE_BYTES as u64;
        }
    }
    Ok(found)
}
