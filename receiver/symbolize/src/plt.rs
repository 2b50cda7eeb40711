//! The stubs of procedure linkage tables: code through which a binary calls functions of other binaries.
//!
//! No symbol names a stub; the word that it jumps through is filled by the dynamic linker, and the relocation of that
//! word names the function.

use std::ops::Range;

use crate::arch::{GLOB_DAT, JUMP_SLOT, MACHINE, Stub, stubs};
use crate::elf::ElfLayout;
use crate::image::Image;

/// The sections that linkers put stubs into.
const SECTIONS: [&str; 4] = [".plt", ".plt.sec", ".plt.got", ".plt.bnd"];
/// Bytes of stubs read in one section: half a million of them.
const STUBS_LIMIT_BYTES: u64 = 8 << 20;
/// Bytes of relocations read in one section; the largest libraries have a million.
const RELOCATIONS_LIMIT_BYTES: u64 = 32 << 20;
/// Bytes read at once: whole stubs and whole relocations.
const CHUNK_BYTES: usize = 48 << 10;
/// `r_offset`, `r_info`, `r_addend`.
const RELOCATION_BYTES: usize = 24;

/// A stub, and the function that it jumps to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PltStub {
    pub(crate) svma: u64,
    pub(crate) bytes: u32,
    /// Index in `.dynsym`.
    pub(crate) symbol: u32,
}

/// The stubs of a file, in no order; none if the architecture is another one, or nothing can be read.
pub(crate) fn plt_stubs(image: &Image, layout: &ElfLayout) -> Vec<PltStub> {
    if layout.machine != MACHINE.0 || !layout.is_little_endian_64() || layout.relocations.is_empty() {
        return Vec::new();
    }
    let mut jumps: Vec<Stub> = Vec::new();
    for section in SECTIONS.iter().filter_map(|name| layout.section(name)) {
        in_chunks(image, &section.bytes, STUBS_LIMIT_BYTES, |at, chunk| {
            let svma = section.svma.wrapping_add(at - section.bytes.start);
            jumps.extend(stubs(chunk, svma, section.entry_bytes));
        });
    }
    jumps.sort_unstable();
    let mut named = Vec::with_capacity(jumps.len());
    if jumps.is_empty() {
        return named;
    }
    for_each_relocation(image, layout, |Relocation { offset: word, kind, symbol, .. }| {
        if symbol == 0 || ![JUMP_SLOT.0, GLOB_DAT.0].contains(&kind) {
            return;
        }
        let from = jumps.partition_point(|stub| stub.word < word);
        let through = jumps.iter().skip(from).take_while(|stub| stub.word == word);
        named.extend(through.map(|Stub { svma, bytes, .. }| PltStub { svma: *svma, bytes: *bytes, symbol }));
    });
    named
}

/// The operation of the dynamic linker on a word.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// The word's stated address.
    pub(crate) offset: u64,
    pub(crate) kind: u32,
    /// Index in `.dynsym`, 0 for none.
    pub(crate) symbol: u32,
    pub(crate) addend: u64,
}

/// Calls `visit` with the relocations of a 64-bit little-endian file, as far as they can be read.
pub(crate) fn for_each_relocation(image: &Image, layout: &ElfLayout, mut visit: impl FnMut(Relocation)) {
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

/// Calls `visit` with a part of a file piece by piece, each with its offset, as far as it can be read.
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
