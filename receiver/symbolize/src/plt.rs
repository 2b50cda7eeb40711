//! The stubs of procedure linkage tables: code through which a binary calls what others define.
//!
//! Source: System V ABI for AMD64, "Procedure Linkage Table". No symbol names a stub; the word that it jumps through is
//! filled by the dynamic linker, and the relocation of that word names the function.

use std::ops::Range;

use object::elf::{EM_X86_64, R_X86_64_GLOB_DAT, R_X86_64_JUMP_SLOT};

use crate::elf::Layout;
use crate::image::Image;

/// The sections that linkers put stubs into.
const SECTIONS: [&str; 4] = [".plt", ".plt.sec", ".plt.got", ".plt.bnd"];
/// Bytes of a stub, where the section does not tell.
const STUB_BYTES: u64 = 16;
/// Bytes of stubs looked at in one section: half a million of them.
const STUBS_LIMIT_BYTES: u64 = 8 << 20;
/// Bytes of relocations looked at in one section; the largest libraries have a million.
const RELOCATIONS_LIMIT_BYTES: u64 = 32 << 20;
/// Bytes read at once: whole stubs and whole relocations.
const CHUNK_BYTES: usize = 48 << 10;
/// `r_offset`, `r_info`, `r_addend`.
const RELOCATION_BYTES: usize = 24;
/// `jmp *displacement(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];

/// A stub, and the function that it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stub {
    pub(crate) svma: u64,
    pub(crate) bytes: u32,
    /// Index in `.dynsym`.
    pub(crate) symbol: u32,
}

/// The stubs of a file, in no order; none where the machine is another than x86-64, or nothing can be read.
pub(crate) fn stubs(image: &Image, layout: &Layout) -> Vec<Stub> {
    if layout.machine != EM_X86_64.0 || !layout.is_little_endian_64() || layout.relocations.is_empty() {
        return Vec::new();
    }
    let mut jumps = Vec::new();
    for section in SECTIONS.iter().filter_map(|name| layout.section(name)) {
        let stub_bytes = if section.entry_bytes == 8 { 8 } else { STUB_BYTES };
        in_chunks(image, &section.bytes, STUBS_LIMIT_BYTES, |at, chunk| {
            for (index, stub) in chunk.chunks_exact(stub_bytes as usize).enumerate() {
                let svma = section.svma.wrapping_add(at - section.bytes.start) + index as u64 * stub_bytes;
                if let Some(word) = word_jumped_through(stub, svma) {
                    jumps.push((word, svma, stub_bytes as u32));
                }
            }
        });
    }
    jumps.sort_unstable();
    let mut stubs = Vec::with_capacity(jumps.len());
    if jumps.is_empty() {
        return stubs;
    }
    for_each_relocation(image, layout, |Relocation { offset: word, kind, symbol, .. }| {
        if symbol == 0 || ![R_X86_64_JUMP_SLOT.0, R_X86_64_GLOB_DAT.0].contains(&kind) {
            return;
        }
        let from = jumps.partition_point(|(other, ..)| *other < word);
        let through = jumps.iter().skip(from).take_while(|(other, ..)| *other == word);
        stubs.extend(through.map(|(_, svma, bytes)| Stub { svma: *svma, bytes: *bytes, symbol }));
    });
    stubs
}

/// What the dynamic linker does to a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// The word's stated address.
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    /// Index in `.dynsym`, 0 for none.
    pub(crate) symbol: u32,
    pub(crate) addend: u64,
}

/// Gives the relocations of a 64-bit little-endian file, as far as they can be read.
pub(crate) fn for_each_relocation(image: &Image, layout: &Layout, mut visit: impl FnMut(Relocation)) {
    for relocations in &layout.relocations {
        in_chunks(image, relocations, RELOCATIONS_LIMIT_BYTES, |_, chunk| {
            chunk.chunks_exact(RELOCATION_BYTES).filter_map(Relocation::parse).for_each(&mut visit);
        });
    }
}

impl Relocation {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes);
        let (offset, info, addend) = (word(0)?, word(8)?, word(16)?);
        Some(Self { offset, kind: info as u32, symbol: (info >> 32) as u32, addend })
    }
}

/// The stated address of the word that a stub jumps through.
fn word_jumped_through(stub: &[u8], svma: u64) -> Option<u64> {
    let jump = stub.windows(JUMP.len()).position(|bytes| bytes == JUMP)?;
    let end = jump + JUMP.len() + 4;
    let displacement = stub.get(end - 4..end)?.first_chunk().copied().map(i32::from_le_bytes)?;
    svma.checked_add(end as u64)?.checked_add_signed(displacement.into())
}

/// Shows a part of a file piece by piece, each with its place, as far as it can be read.
fn in_chunks(image: &Image, bytes: &Range<u64>, limit: u64, mut visit: impl FnMut(u64, &[u8])) {
    let end = bytes.end.min(bytes.start.saturating_add(limit));
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = bytes.start;
    while at < end {
        let length = (end - at).min(CHUNK_BYTES as u64) as usize;
        let Some(chunk) = buffer.get_mut(..length) else { return };
        if image.read_exact_at(at, chunk).is_err() {
            return;
        }
        visit(at, chunk);
        at += length as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_stub_tells_its_word() {
        let word = |stub: &[u8]| word_jumped_through(stub, 0x1000);
        assert_eq!(word(&[0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9]), Some(0x1016), "lazy");
        assert_eq!(word(&[0xf3, 0x0f, 0x1e, 0xfa, 0xff, 0x25, 0x10, 0, 0, 0]), Some(0x101a), "endbr64");
        assert_eq!(word(&[0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf0, 0xff, 0xff, 0xff]), Some(0xffb));
        assert_eq!(word(&[0xff, 0x25, 0x10, 0, 0]), None, "cut off");
        assert_eq!(word(&[0xff, 0x35, 0x10, 0, 0, 0]), None, "the resolver\'s push");
    }
}
