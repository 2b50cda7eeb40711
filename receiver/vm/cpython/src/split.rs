//! Functions that the compiler has split: their parts elsewhere, which have no symbols in stripped files.
//!
//! A part has its own entry in `.eh_frame`. It is not a function, because its frame is already there when it starts; and it
//! belongs to a function that jumps to it directly, because functions jump to other functions' starts only.

use std::io;

use gimli::{BaseAddresses, CfaRule, CieOrFde, EhFrame, LittleEndian, UnwindContext, UnwindSection as _};
use sidewinder_address::Svma;
use sidewinder_process::ReadAt;
use sidewinder_process::tls::{ElfFile, ElfSymbol};

use crate::arch;

/// The largest section of unwind information that is read. CPython's has less than 1 MiB.
const EH_FRAME_BYTES_MAX: usize = 8 << 20;
/// Parts of one function that are followed, its own symbols included.
const PARTS_MAX: usize = 256;
/// Bytes of code that are decoded. CPython's loop has up to 90 KiB.
const CODE_BYTES_MAX: u64 = 4 << 20;
/// The same of one part, of which all is in memory with the others.
const PART_BYTES_MAX: u64 = 1 << 20;

/// The section `.eh_frame` and its address; nothing if there is none, or it is too large.
pub(crate) fn eh_frame(file: &impl ReadAt, elf: &ElfFile) -> io::Result<(Svma, Vec<u8>)> {
    Ok(elf.section(file, b".eh_frame", EH_FRAME_BYTES_MAX)?.unwrap_or((Svma(0), Vec::new())))
}

/// The parts that belong to a function but are not among those `known`, found by following its jumps.
pub(crate) fn other_parts(
    file: &impl ReadAt,
    elf: &ElfFile,
    entries: &mut EhFrameEntries<'_>,
    known: &[ElfSymbol],
) -> io::Result<Vec<ElfSymbol>> {
    let mut parts: Vec<ElfSymbol> = known.iter().copied().take(PARTS_MAX).collect();
    let (mut next, mut code_bytes) = (0, 0);
    while let Some(part) = parts.get(next).copied() {
        next += 1;
        code_bytes += part.bytes;
        if code_bytes > CODE_BYTES_MAX {
            break;
        }
        let bytes = usize::try_from(part.bytes.min(CODE_BYTES_MAX)).unwrap_or(0);
        let targets = arch::jumps_out(&elf.content(file, part.address, bytes)?, part.address);
        let mut found: Vec<EhFrameEntry> =
            targets.iter().filter_map(|target| entries.find(*target)).collect();
        found.dedup();
        for entry in found {
            let code = ElfSymbol { address: Svma(entry.start), bytes: entry.bytes };
            let is_new = parts.iter().all(|part| !overlap(*part, code));
            if is_new && parts.len() < PARTS_MAX && entries.is_part(entry) {
                parts.push(code);
            }
        }
    }
    parts.drain(..known.len().min(parts.len()));
    Ok(parts)
}

/// The code of a function's parts, as much as is decoded.
pub(crate) fn code_of(
    file: &impl ReadAt,
    elf: &ElfFile,
    parts: &[ElfSymbol],
) -> io::Result<Vec<arch::CodePart>> {
    let code = parts.iter().map(|part| {
        let bytes = usize::try_from(part.bytes.min(PART_BYTES_MAX)).unwrap_or(0);
        Ok((part.address.0, elf.content(file, part.address, bytes)?))
    });
    code.collect()
}

fn overlap(a: ElfSymbol, b: ElfSymbol) -> bool {
    let end = |part: ElfSymbol| part.address.0.saturating_add(part.bytes);
    a.address.0 < end(b) && b.address.0 < end(a)
}

/// The entries of `.eh_frame`.
pub(crate) struct EhFrameEntries<'bytes> {
    section: EhFrame<Slice<'bytes>>,
    bases: BaseAddresses,
    context: UnwindContext<usize>,
    /// Sorted.
    entries: Vec<EhFrameEntry>,
}

/// An entry of `.eh_frame`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct EhFrameEntry {
    /// The start of its code.
    start: u64,
    /// The length of its code.
    bytes: u64,
    /// Its place in the section.
    offset: usize,
}

type Slice<'bytes> = gimli::EndianSlice<'bytes, LittleEndian>;

impl<'bytes> EhFrameEntries<'bytes> {
    pub(crate) fn new((address, bytes): &'bytes (Svma, Vec<u8>)) -> Self {
        let section = EhFrame::new(bytes, LittleEndian);
        let bases = BaseAddresses::default().set_eh_frame(address.0);
        let mut entries = Vec::new();
        let mut iterator = section.entries(&bases);
        while let Ok(Some(entry)) = iterator.next() {
            let CieOrFde::Fde(entry) = entry else { continue };
            if let Ok(entry) = entry.parse(EhFrame::cie_from_offset) {
                let (start, bytes) = (entry.initial_address(), entry.len());
                entries.push(EhFrameEntry { start, bytes, offset: entry.offset() });
            }
        }
        entries.sort_unstable();
        Self { section, bases, context: UnwindContext::new(), entries }
    }

    /// The code of the entry for an address: of a function, or of a part of one.
    pub(crate) fn code_around(&self, at: Svma) -> Option<ElfSymbol> {
        self.find(at).map(|entry| ElfSymbol { address: Svma(entry.start), bytes: entry.bytes })
    }

    /// The entry for an address.
    fn find(&self, at: Svma) -> Option<EhFrameEntry> {
        let after = self.entries.partition_point(|entry| entry.start <= at.0);
        let entry = self.entries.get(after.checked_sub(1)?)?;
        (at.0 - entry.start < entry.bytes).then_some(*entry)
    }

    /// Whether the code of an entry has a frame already when it starts.
    fn is_part(&mut self, entry: EhFrameEntry) -> bool {
        let entry = self.section.fde_from_offset(&self.bases, entry.offset.into(), EhFrame::cie_from_offset);
        let Ok(entry) = entry else { return false };
        let Ok(mut rows) = entry.rows(&self.section, &self.bases, &mut self.context) else { return false };
        let Ok(Some(row)) = rows.next_row() else { return false };
        match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => (register.0, *offset) != arch::ENTRY_CFA,
            CfaRule::Expression(_) => false,
        }
    }
}
