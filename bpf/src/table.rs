//! The format of unwind tables that walks read: packing, and reading back what was packed.
//!
//! `c/intf.h` describes the bytes, `c/table.bpf.h` is the reader in the kernel. A file becomes one or more segments of
//! whole pages, each with its own distinct rules, so that a row is two bytes and a huge file is loaded, and evicted,
//! in pieces.

use std::collections::HashMap;
use std::ops::Range;

use sidewinder_address::{FileOffset, LoadSegment, Svma};
use sidewinder_unwind::{Cfa, EndReason, Entry, ReturnAddress, Row, Rule, SavedRegister, UnwindTable};

use crate::intf::{self, sw_rule, sw_segment_header};
use crate::outcome::Outcome;

const PAGE_BYTES: u64 = 1 << intf::SW_PAGE_SHIFT;
const BUCKET_BYTES: u64 = intf::SW_BUCKET_BYTES as u64;
const BUCKETS_PER_PAGE: usize = (PAGE_BYTES / BUCKET_BYTES) as usize;
const RULE_BITS: u32 = intf::SW_RULE_BITS;
const RULES_MAX: usize = intf::SW_RULES_MAX as usize;

/// A segment is ended when its table has grown to this: small enough that what is used and what isn't come apart under
/// a tight budget, and large enough that the frames of a stack share segments.
const SEGMENT_TARGET_BYTES: usize = 64 << 10;

/// Which ways of walking the table offers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Packing {
    /// Frame pointers where the rows prove them, rows elsewhere.
    #[default]
    Auto,
    /// Rows everywhere, also where they say the same as a frame pointer.
    Tables,
    /// Frame pointers where the rows prove them, and nothing elsewhere.
    FramePointers,
}

/// The unwind table of one page-aligned stretch of a file, as the programs read it.
#[derive(Clone, Debug)]
pub struct PackedSegment {
    /// The first byte covered; a multiple of the page size.
    pub file_offset: FileOffset,
    /// Bytes covered; a multiple of the page size.
    pub text_bytes: u64,
    /// Rows in the table.
    pub rows: usize,
    /// Distinct rules in the table.
    pub rules: usize,
    /// The table itself.
    pub bytes: Vec<u8>,
}

/// Packs what `table` says of one executable segment of its file.
#[must_use]
pub fn pack(table: &UnwindTable, load: &LoadSegment, packing: Packing) -> Vec<PackedSegment> {
    let start = load.file_offset.0 / PAGE_BYTES * PAGE_BYTES;
    let end = load.file_offset.0.saturating_add(load.size).next_multiple_of(PAGE_BYTES);
    let mut packed = Vec::new();
    let mut segment = Builder::new(start);
    for_each_page(table, load, start..end, |page_start, page| {
        if !segment.has_room_for(page, packing) {
            packed.push(std::mem::replace(&mut segment, Builder::new(page_start)).finish());
        }
        segment.push(page, packing);
    });
    packed.push(segment.finish());
    packed
}

/// Packs one of the segments that [`pack`] made of the same file once more. Of `table`, only what holds in that part of
/// the file is looked at.
#[must_use]
pub fn pack_again(
    table: &UnwindTable,
    load: &LoadSegment,
    packing: Packing,
    part: Range<FileOffset>,
) -> PackedSegment {
    let mut segment = Builder::new(part.start.0);
    for_each_page(table, load, part.start.0..part.end.0, |_, page| segment.push(page, packing));
    segment.finish()
}

/// Gives the rows of each page of a part of a file, in order, with the offset at which the page starts. The part
/// begins and ends with a page.
fn for_each_page(
    table: &UnwindTable,
    load: &LoadSegment,
    part: Range<u64>,
    mut sink: impl FnMut(u64, &Page),
) {
    let first = FileOffset(part.start.max(load.file_offset.0));
    let (Some(first_svma), Some(end_svma)) = (load.svma_of(first), load.svma.checked_add(load.size)) else {
        return;
    };
    let at_first = table.lookup(first_svma);
    let mut rows = without_padding(table.rows())
        .skip_while(|row| row.start <= first_svma)
        .take_while(|row| row.start < end_svma)
        .filter_map(|row| Some((load.file_offset_of(row.start)?.0, row.entry)))
        .peekable();

    let mut page = Page::default();
    if first.0 == part.start {
        page.entry_at_start = at_first;
    } else {
        page.rows.push((first.0 - part.start, at_first));
    }
    for page_start in part.step_by(PAGE_BYTES as usize) {
        while let Some((offset, entry)) = rows.next_if(|(offset, _)| *offset < page_start + PAGE_BYTES) {
            page.rows.push((offset - page_start, entry));
        }
        if let Some((0, entry)) = page.rows.first() {
            page.entry_at_start = *entry;
        }
        sink(page_start, &page);
        page.entry_at_start = page.rows.last().map_or(page.entry_at_start, |(_, last)| *last);
        page.rows.clear();
    }
}

/// The alignment of functions, in bytes.
const FUNCTION_ALIGNMENT_BYTES: u64 = 16;

/// The rows but for the ends of functions behind which there is only padding, up to the next aligned function and with
/// no aligned address on the way: nobody executes it, so that it may as well have the rule before. A tenth of all rows.
/// A page can be packed alone, so what ends with it stays.
fn without_padding(rows: impl Iterator<Item = Row>) -> impl Iterator<Item = Row> {
    let mut rows = rows.peekable();
    std::iter::from_fn(move || {
        loop {
            let row = rows.next()?;
            if !rows.peek().is_some_and(|next| is_padding(&row, next.start)) {
                return Some(row);
            }
        }
    })
}

fn is_padding(row: &Row, end: Svma) -> bool {
    row.entry == Entry::NO_INFORMATION
        && end.0.is_multiple_of(FUNCTION_ALIGNMENT_BYTES)
        && !end.0.is_multiple_of(PAGE_BYTES)
        && end.0 - row.start.0 < FUNCTION_ALIGNMENT_BYTES
}

impl PackedSegment {
    /// The table of a file that says nothing: every address has no rule, which leaves frame pointers to be tried.
    #[must_use]
    pub fn blank() -> Self {
        let mut segment = Builder::new(0);
        segment.push(&Page::default(), Packing::Auto);
        segment.finish()
    }
}

/// The rows that start in one page, by their offset in it.
#[derive(Debug)]
struct Page {
    entry_at_start: Entry,
    rows: Vec<(u64, Entry)>,
}

impl Default for Page {
    fn default() -> Self {
        Self { entry_at_start: Entry::NO_INFORMATION, rows: Vec::new() }
    }
}

/// A segment that is being filled.
struct Builder {
    file_offset: u64,
    index: Vec<u32>,
    rows: Vec<u16>,
    rules: Vec<sw_rule>,
    numbers: HashMap<Encoded, u16>,
}

impl Builder {
    fn new(file_offset: u64) -> Self {
        let none = sw_rule::none(Outcome::NoRule);
        let frame_pointer = sw_rule::from(&Rule::FRAME_POINTER);
        Self {
            file_offset,
            index: Vec::new(),
            rows: Vec::new(),
            rules: vec![none, frame_pointer],
            numbers: HashMap::new(),
        }
    }

    fn has_room_for(&self, page: &Page, packing: Packing) -> bool {
        if self.index.is_empty() {
            return true;
        }
        if self.table_bytes() >= SEGMENT_TARGET_BYTES {
            return false;
        }
        if self.rules.len() + page.rows.len() < RULES_MAX {
            return true;
        }
        let entries = std::iter::once(page.entry_at_start).chain(page.rows.iter().map(|(_, entry)| *entry));
        let mut new: Vec<Encoded> = entries
            .map(|entry| Encoded::new(entry, packing))
            .filter(|e| self.number_of(e).is_none())
            .collect();
        new.sort_unstable();
        new.dedup();
        self.rules.len() + new.len() <= RULES_MAX
    }

    fn push(&mut self, page: &Page, packing: Packing) {
        let mut rule = self.intern(page.entry_at_start, packing);
        let mut rows = page.rows.iter().peekable();
        for bucket in 0..BUCKETS_PER_PAGE as u64 {
            let start = bucket * BUCKET_BYTES;
            while let Some((_, entry)) = rows.next_if(|(offset, _)| *offset == start) {
                rule = self.intern(*entry, packing);
            }
            self.index.push(index_entry(self.rows.len(), rule));
            while let Some((offset, entry)) = rows.next_if(|(offset, _)| *offset < start + BUCKET_BYTES) {
                let next = self.intern(*entry, packing);
                if next != rule {
                    rule = next;
                    self.rows.push(((offset - start) as u16) << RULE_BITS | rule);
                }
            }
        }
    }

    fn number_of(&self, encoded: &Encoded) -> Option<u16> {
        encoded.fixed().or_else(|| self.numbers.get(encoded).copied())
    }

    /// The number of an entry's rule. A page with more distinct rules than a segment can number, which no compiler
    /// makes, has the last of them refused rather than mistaken for another.
    fn intern(&mut self, entry: Entry, packing: Packing) -> u16 {
        let encoded = Encoded::new(entry, packing);
        if let Some(number) = self.number_of(&encoded) {
            return number;
        }
        let refused = Encoded::none(Outcome::UnsupportedRule);
        if self.rules.len() >= RULES_MAX - 1 && encoded != refused {
            return self.intern_encoded(refused);
        }
        self.intern_encoded(encoded)
    }

    fn intern_encoded(&mut self, encoded: Encoded) -> u16 {
        if let Some(number) = self.number_of(&encoded) {
            return number;
        }
        let number = self.rules.len() as u16;
        self.rules.push(encoded.rule());
        self.numbers.insert(encoded, number);
        number
    }

    fn rules_offset(&self) -> usize {
        (size_of::<sw_segment_header>() + (self.index.len() + 1) * 4).next_multiple_of(size_of::<sw_rule>())
    }

    fn rows_offset(&self) -> usize {
        self.rules_offset() + self.rules.len() * size_of::<sw_rule>()
    }

    fn table_bytes(&self) -> usize {
        self.rows_offset() + self.rows.len() * 2
    }

    fn finish(mut self) -> PackedSegment {
        let rules_offset = self.rules_offset();
        let rows_offset = self.rows_offset();
        let text_bytes = self.index.len() as u64 * BUCKET_BYTES;
        // The entry past the last bucket says where that bucket's rows end.
        self.index.push(index_entry(self.rows.len(), 0));

        let mut bytes = Vec::with_capacity(self.table_bytes());
        bytes.extend(self.file_offset.to_ne_bytes());
        bytes.extend((text_bytes as u32).to_ne_bytes());
        bytes.extend((rules_offset as u32).to_ne_bytes());
        bytes.extend((rows_offset as u32).to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        bytes.extend(self.index.iter().flat_map(|entry| entry.to_ne_bytes()));
        bytes.resize(rules_offset, 0);
        bytes.extend(self.rules.iter().flat_map(|rule| Encoded::from(*rule).0));
        bytes.extend(self.rows.iter().flat_map(|row| row.to_ne_bytes()));
        PackedSegment {
            file_offset: FileOffset(self.file_offset),
            text_bytes,
            rows: self.rows.len(),
            rules: self.rules.len(),
            bytes,
        }
    }
}

fn index_entry(first_row: usize, rule: u16) -> u32 {
    (first_row as u32) << RULE_BITS | u32::from(rule)
}

/// A rule as bytes: what rules are compared and interned by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Encoded([u8; size_of::<sw_rule>()]);

impl Encoded {
    fn new(entry: Entry, packing: Packing) -> Self {
        match entry {
            Entry::Rule(rule) if rule.is_root() => Self::from(sw_rule::from(&rule)),
            Entry::Rule(rule) => match packing {
                Packing::FramePointers if !rule.is_frame_pointer() => Self::none(Outcome::NoFramePointer),
                Packing::Tables if rule.is_frame_pointer() => {
                    // Equal to the fixed rule but for its number, which is what sends a walk to the rows.
                    let mut by_rows = sw_rule::from(&rule);
                    by_rows.set_addend_by_8(1);
                    Self::from(by_rows)
                }
                _ => Self::from(sw_rule::from(&rule)),
            },
            Entry::End(EndReason::NoInformation) => Self::none(match packing {
                Packing::FramePointers => Outcome::NoFramePointer,
                Packing::Auto | Packing::Tables => Outcome::NoRule,
            }),
            Entry::End(EndReason::Malformed | EndReason::Unsupported(_)) => {
                Self::none(Outcome::UnsupportedRule)
            }
        }
    }

    fn none(why: Outcome) -> Self {
        Self::from(sw_rule::none(why))
    }

    /// The number, where it is the same in every segment.
    fn fixed(&self) -> Option<u16> {
        if *self == Self::none(Outcome::NoRule) {
            return Some(intf::SW_RULE_NONE as u16);
        }
        (*self == Self::from(sw_rule::from(&Rule::FRAME_POINTER)))
            .then_some(intf::SW_RULE_FRAME_POINTER as u16)
    }

    fn rule(self) -> sw_rule {
        let word =
            |at: usize| i32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]]);
        let mut rule =
            sw_rule { cfa_offset: word(0), fp_offset: word(4), ra_offset: word(8), ..sw_rule::default() };
        rule.set_cfa_base(self.0[12] & 15);
        rule.set_cfa_register(self.0[12] >> 4);
        rule.set_fp(self.0[13] & 15);
        rule.set_fp_register(self.0[13] >> 4);
        rule.set_ra(self.0[14] & 15);
        rule.set_ra_register(self.0[14] >> 4);
        rule.set_flags(self.0[15] & 15);
        rule.set_addend_by_8(self.0[15] >> 4);
        rule
    }
}

impl From<sw_rule> for Encoded {
    fn from(rule: sw_rule) -> Self {
        let mut bytes = [0; size_of::<sw_rule>()];
        bytes[0..4].copy_from_slice(&rule.cfa_offset.to_ne_bytes());
        bytes[4..8].copy_from_slice(&rule.fp_offset.to_ne_bytes());
        bytes[8..12].copy_from_slice(&rule.ra_offset.to_ne_bytes());
        bytes[12] = rule.cfa_base() | rule.cfa_register() << 4;
        bytes[13] = rule.fp() | rule.fp_register() << 4;
        bytes[14] = rule.ra() | rule.ra_register() << 4;
        bytes[15] = rule.flags() | rule.addend_by_8() << 4;
        Self(bytes)
    }
}

impl sw_rule {
    /// No rule, and the outcome of a walk that gets here.
    fn none(why: Outcome) -> Self {
        Self { cfa_offset: why as i32, ..Self::default() }
    }
}

impl From<&Rule> for sw_rule {
    /// A rule that the programs have no form for becomes one that ends the walk and says so.
    fn from(rule: &Rule) -> Self {
        let mut to = Self::default();
        match rule.cfa {
            Cfa::Register { register, offset } => {
                to.set_cfa_base(intf::SW_CFA_REGISTER as u8);
                to.set_cfa_register(register.dwarf_x86_64() as u8);
                to.cfa_offset = offset;
            }
            Cfa::Plt { threshold } => {
                to.set_cfa_base(intf::SW_CFA_PLT as u8);
                to.cfa_offset = i32::from(threshold);
            }
            Cfa::Deref { register, offset, addend } => {
                let Ok(addend_by_8 @ 0..=15) = u8::try_from(addend / 8) else {
                    return Self::none(Outcome::UnsupportedRule);
                };
                if addend % 8 != 0 {
                    return Self::none(Outcome::UnsupportedRule);
                }
                to.set_cfa_base(intf::SW_CFA_DEREF as u8);
                to.set_cfa_register(register.dwarf_x86_64() as u8);
                to.cfa_offset = offset;
                to.set_addend_by_8(addend_by_8);
            }
        }
        let (place, register, offset) = match rule.frame_pointer {
            SavedRegister::Same => (intf::SW_PLACE_SAME, 0, 0),
            SavedRegister::AtCfa(offset) => (intf::SW_PLACE_CFA, 0, offset),
            SavedRegister::At { register, offset } => {
                (intf::SW_PLACE_MEMORY, register.dwarf_x86_64(), offset)
            }
            SavedRegister::InRegister(register) => (intf::SW_PLACE_REGISTER, register.dwarf_x86_64(), 0),
            SavedRegister::Undefined => (intf::SW_PLACE_UNDEFINED, 0, 0),
        };
        to.set_fp(place as u8);
        to.set_fp_register(register as u8);
        to.fp_offset = offset;
        let (place, register, offset) = match rule.return_address {
            ReturnAddress::AtCfa(offset) => (intf::SW_PLACE_CFA, 0, offset),
            ReturnAddress::At { register, offset } => {
                (intf::SW_PLACE_MEMORY, register.dwarf_x86_64(), offset)
            }
            ReturnAddress::InRegister(register) => (intf::SW_PLACE_REGISTER, register.dwarf_x86_64(), 0),
            ReturnAddress::Undefined => (intf::SW_PLACE_UNDEFINED, 0, 0),
        };
        to.set_ra(place as u8);
        to.set_ra_register(register as u8);
        to.ra_offset = offset;
        if rule.signal_frame {
            to.set_flags(intf::SW_RULE_SIGNAL_FRAME as u8);
        }
        to
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Reads a segment as `c/table.bpf.h` does.
    fn rule_at(segment: &PackedSegment, offset: u64) -> Encoded {
        let half = |at: usize| u16::from_ne_bytes(segment.bytes[at..at + 2].try_into().unwrap());
        let word = |at: usize| u32::from_ne_bytes(segment.bytes[at..at + 4].try_into().unwrap());
        let text = (offset - segment.file_offset.0) as u32;
        let bucket = size_of::<sw_segment_header>() + (text >> intf::SW_BUCKET_SHIFT) as usize * 4;
        let (entry, next) = (word(bucket), word(bucket + 4));
        let mut rule = entry & (intf::SW_RULES_MAX - 1);
        for row in entry >> RULE_BITS..next >> RULE_BITS {
            let packed = u32::from(half(word(16) as usize + row as usize * 2));
            if packed >> RULE_BITS > text & (intf::SW_BUCKET_BYTES - 1) {
                break;
            }
            rule = packed & (intf::SW_RULES_MAX - 1);
        }
        let at = word(12) as usize + rule as usize * size_of::<sw_rule>();
        Encoded(segment.bytes[at..at + size_of::<sw_rule>()].try_into().unwrap())
    }

    type Packed = Vec<(LoadSegment, Vec<PackedSegment>)>;

    fn packed_file(path: &str, packing: Packing) -> Option<(UnwindTable, Packed)> {
        let Ok(bytes) = std::fs::read(path) else {
            eprintln!("SKIPPED: no {path} here");
            return None;
        };
        let file = object::File::parse(&*bytes).unwrap();
        let table = sidewinder_unwind::unwind_table(&file).unwrap();
        let loads = sidewinder_unwind::load_segments(&file);
        let packed = loads
            .into_iter()
            .filter(|load| load.executable)
            .map(|load| (load, pack(&table, &load, packing)))
            .collect();
        Some((table, packed))
    }

    #[test]
    fn at_each_row_and_beside_it_a_packed_table_says_what_the_rows_say() {
        for path in
            ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3", "/bin/bash"]
        {
            let Some((table, loads)) = packed_file(path, Packing::Auto) else { continue };
            let mut compared = 0;
            let starts: HashSet<u64> = table.rows().map(|row| row.start.0).collect();
            for (load, segments) in &loads {
                for row in table.rows() {
                    for svma in [row.start.0 - 1, row.start.0, row.start.0 + 1] {
                        let Some(offset) = load.file_offset_of(Svma(svma)) else { continue };
                        let segment = segments
                            .iter()
                            .find(|s| {
                                offset.0 >= s.file_offset.0 && offset.0 < s.file_offset.0 + s.text_bytes
                            })
                            .unwrap();
                        let row = table.row_at(Svma(svma));
                        let aligned = svma.next_multiple_of(FUNCTION_ALIGNMENT_BYTES);
                        if row.is_some_and(|row| is_padding(&row, Svma(aligned)) && starts.contains(&aligned))
                        {
                            continue;
                        }
                        let expected = Encoded::new(table.lookup(Svma(svma)), Packing::Auto);
                        assert!(rule_at(segment, offset.0) == expected, "{path} at {svma:#x}");
                        compared += 1;
                    }
                }
            }
            assert!(compared > 10_000, "{path}: only {compared} places compared");
        }
    }

    #[test]
    fn a_segment_packed_again_from_its_part_of_the_file_is_the_same() {
        for packing in [Packing::Auto, Packing::Tables, Packing::FramePointers] {
            let path = "/usr/lib/x86_64-linux-gnu/libcrypto.so.3";
            let Some((whole, loads)) = packed_file(path, packing) else { return };
            let bytes = std::fs::read(path).unwrap();
            let file = object::File::parse(&*bytes).unwrap();
            let mut compared = 0;
            for (load, segments) in &loads {
                for segment in segments {
                    let end = segment.file_offset.checked_add(segment.text_bytes).unwrap();
                    let first = segment.file_offset.max(load.file_offset);
                    let last = FileOffset(end.0.min(load.file_offset.0 + load.size) - 1);
                    let part = load.svma_of(first).unwrap()..Svma(load.svma_of(last).unwrap().0 + 1);
                    // Machine code is understood as a whole or not at all.
                    if whole.by_machine_code().any(|code| code.start < part.end && part.start < code.end) {
                        continue;
                    }
                    compared += 1;
                    let table =
                        sidewinder_unwind::unwind_table_with::<_, &[u8]>(&file, &[], Some(&[part])).unwrap();
                    let again = pack_again(&table, load, packing, segment.file_offset..end);
                    let first_difference = again.bytes.iter().zip(&segment.bytes).position(|(a, b)| a != b);
                    let sizes = (again.bytes.len(), segment.bytes.len());
                    assert!(
                        first_difference.is_none() && sizes.0 == sizes.1,
                        "{first_difference:?} {sizes:?}, rows at {:?}",
                        &segment.bytes[16..20]
                    );
                }
            }
            assert!(compared > 0, "no segment could be compared");
        }
    }

    #[test]
    fn only_a_gap_too_small_for_an_aligned_function_is_padding() {
        let rows = |gap: u64, next: u64| {
            let row = |start, entry| Row { start: Svma(start), entry };
            let (leaf, end) = (Entry::Rule(Rule::LEAF), Entry::NO_INFORMATION);
            without_padding([row(0x1000, leaf), row(gap, end), row(next, leaf)].into_iter()).count()
        };
        assert_eq!(rows(0x1021, 0x1030), 2, "padding");
        assert_eq!(rows(0x1020, 0x1030), 3, "an aligned function fits");
        assert_eq!(rows(0x1021, 0x1028), 3, "the next function isn't aligned");
        assert_eq!(rows(0x101f, 0x1030), 3, "an aligned function lies between");
        assert_eq!(rows(0x1ff1, 0x2000), 3, "the next function is on another page");
    }

    #[test]
    fn a_table_is_a_small_part_of_its_text() {
        for path in ["/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib/x86_64-linux-gnu/libcrypto.so.3"] {
            let Some((_, loads)) = packed_file(path, Packing::Auto) else { continue };
            let text: u64 = loads.iter().map(|(load, _)| load.size).sum();
            let bytes: usize = loads.iter().flat_map(|(_, segments)| segments).map(|s| s.bytes.len()).sum();
            assert!((bytes as f64) < 0.13 * text as f64, "{path}: {bytes} bytes for {text} of text");
        }
    }

    #[test]
    fn with_tables_switched_off_only_proven_ranges_walk() {
        let Some((table, loads)) = packed_file("/lib/x86_64-linux-gnu/libc.so.6", Packing::FramePointers)
        else {
            return;
        };
        let frame_pointer = Encoded::from(sw_rule::from(&Rule::FRAME_POINTER));
        for (load, segments) in &loads {
            for row in without_padding(table.rows()) {
                let Some(offset) = load.file_offset_of(row.start) else { continue };
                let segment = segments
                    .iter()
                    .find(|s| offset.0 >= s.file_offset.0 && offset.0 < s.file_offset.0 + s.text_bytes)
                    .unwrap();
                let rule = rule_at(segment, offset.0).rule();
                let is_root = matches!(row.entry, Entry::Rule(rule) if rule.is_root());
                let proven = matches!(row.entry, Entry::Rule(rule) if rule.is_frame_pointer());
                if proven {
                    assert!(rule_at(segment, offset.0) == frame_pointer);
                } else if !is_root {
                    assert_eq!(rule.cfa_base(), intf::SW_CFA_NONE as u8);
                }
            }
        }
    }
}
