//! Compares the tables made from machine code alone with the unwind information of the same files.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use iced_x86::{Decoder, DecoderOptions, Mnemonic};
use object::{Architecture, Object as _, ObjectSegment as _};
use sidewinder_address::Svma;
use sidewinder_unwind::validate::Mismatch;
use sidewinder_unwind::{
    Cfa, Entry, Register, ReturnAddress, Rule, SavedRegister, UnresolvedReason, UnwindTable, unwind_table,
};

/// The sections with more information than a stripped file without unwind information has.
const STRIPPED_SECTIONS: [&str; 8] = [
    ".eh_frame",
    ".eh_frame_hdr",
    ".debug_frame",
    ".zdebug_frame",
    ".gopclntab",
    ".symtab",
    ".gnu_debugdata",
    ".sframe",
];

/// A copy of an ELF file without its unwind information and without `.symtab`: their headers are blanked. `None` if the
/// file's headers aren't where it states.
fn strip_unwind_information(file: &[u8]) -> Option<Vec<u8>> {
    const SECTION_HEADER_BYTES: usize = 64;
    const SEGMENT_HEADER_BYTES: usize = 56;
    let word = |at: usize| Some(u64::from_le_bytes(file.get(at..at + 8)?.try_into().ok()?) as usize);
    let long = |at: usize| Some(u32::from_le_bytes(file.get(at..at + 4)?.try_into().ok()?));
    let half = |at: usize| Some(usize::from(u16::from_le_bytes(file.get(at..at + 2)?.try_into().ok()?)));
    let mut copy = file.to_vec();
    let (sections, section_count, names) = (word(40)?, half(60)?, half(62)?);
    if section_count > 0 {
        let names_at = word(sections + names * SECTION_HEADER_BYTES + 24)?;
        for header in (0..section_count).map(|index| sections + index * SECTION_HEADER_BYTES) {
            let name = file.get(names_at + long(header)? as usize..)?;
            if STRIPPED_SECTIONS.iter().any(|telling| name.starts_with(&[telling.as_bytes(), b"\0"].concat()))
            {
                copy.get_mut(header..header + 16)?.fill(0); // sh_name, sh_type, sh_flags
            }
        }
    }
    let (segments, segment_count) = (word(32)?, half(56)?);
    for header in (0..segment_count).map(|index| segments + index * SEGMENT_HEADER_BYTES) {
        if long(header)? == object::elf::PT_GNU_EH_FRAME.0 {
            copy.get_mut(header..header + 4)?.fill(0); // p_type
        }
    }
    Some(copy)
}

/// How two rows for a byte of code compare.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum BlindOutcome {
    /// The file contradicts its own code, according to validation.
    StatedWrong,
    /// Only instructions that do nothing: never executed where one of the two has no row.
    Padding,
    /// The two are equal.
    Equal,
    /// They name the same locations in different ways: one register of the frame for another, or a saved word for a
    /// register that still holds the value (or the reverse), next to code where the file states the other way too.
    Equivalent,
    /// The code gave the CFA and the return address, but its rule has lost the frame pointer.
    FramePointerLost,
    /// The code gave no rule.
    GivenUp,
    /// The CFA or the return address differs.
    WrongCfa,
    /// The frame pointer differs.
    WrongFramePointer,
}

/// The result of comparing a file with its stripped copy.
#[derive(Clone, Default, Debug)]
pub struct BlindComparison {
    /// Bytes of code by outcome.
    pub bytes: BTreeMap<BlindOutcome, u64>,
    /// Where the rule from the code is wrong, up to [`MAX_EXAMPLES`].
    pub examples: Vec<Example>,
    /// Bytes of code without a rule, by reason.
    pub given_up_bytes: BTreeMap<UnresolvedReason, u64>,
}

/// The most examples that are kept.
const MAX_EXAMPLES: usize = 10;

/// A range that is wrong.
#[derive(Clone, Debug)]
pub struct Example {
    /// The outcome.
    pub outcome: BlindOutcome,
    /// Its first byte.
    pub start: Svma,
    /// Its length in bytes.
    pub bytes: u64,
    /// The entry in the file.
    pub stated: Entry,
    /// The entry from the code.
    pub synthesized: Entry,
}

impl fmt::Display for Example {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, bytes, stated, synthesized, .. } = self;
        let [stated, synthesized] = [stated, synthesized].map(|entry| entry.to_string().replace('\t', " "));
        write!(f, "{start} ({bytes} bytes): the file has {stated}, the code gives {synthesized}")
    }
}

impl BlindComparison {
    /// Adds the counts of another file.
    pub fn add(&mut self, other: &Self) {
        for (outcome, bytes) in &other.bytes {
            *self.bytes.entry(*outcome).or_default() += bytes;
        }
        for (reason, bytes) in &other.given_up_bytes {
            *self.given_up_bytes.entry(*reason).or_default() += bytes;
        }
    }

    /// Bytes that could be compared: padding, and code that the file itself describes wrongly, are left out.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.bytes.range(BlindOutcome::Equal..).map(|(_, bytes)| bytes).sum()
    }

    /// The share of the bytes with an outcome, in percent.
    #[must_use]
    pub fn percent(&self, outcome: BlindOutcome) -> f64 {
        let bytes = self.bytes.get(&outcome).copied().unwrap_or(0);
        100.0 * bytes as f64 / self.total().max(1) as f64
    }

    /// The share of the bytes for which the code gave the same rule as the file, in percent.
    #[must_use]
    pub fn agreeing_percent(&self) -> f64 {
        self.percent(BlindOutcome::Equal) + self.percent(BlindOutcome::Equivalent)
    }

    /// The share of the bytes for which the code gave a wrong rule, in percent.
    #[must_use]
    pub fn wrong_percent(&self) -> f64 {
        self.percent(BlindOutcome::WrongCfa) + self.percent(BlindOutcome::WrongFramePointer)
    }
}

impl fmt::Display for BlindComparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes: {:.2}% equal, {:.2}% equivalent, {:.2}% frame pointer lost, {:.2}% given up, \
             {:.3}% wrong CFA, {:.3}% wrong frame pointer",
            self.total(),
            self.percent(BlindOutcome::Equal),
            self.percent(BlindOutcome::Equivalent),
            self.percent(BlindOutcome::FramePointerLost),
            self.percent(BlindOutcome::GivenUp),
            self.percent(BlindOutcome::WrongCfa),
            self.percent(BlindOutcome::WrongFramePointer),
        )?;
        self.given_up_bytes.iter().try_for_each(|(reason, bytes)| write!(f, "; {bytes} bytes: {reason}"))
    }
}

/// Compares the unwind information of a file with the rules from its code alone. Rows in `contradictions` are known to
/// be wrong and count as [`BlindOutcome::StatedWrong`]. `None` if one side has no table.
#[must_use]
pub fn compare(file: &[u8], stated: &UnwindTable, contradictions: &[Mismatch]) -> Option<BlindComparison> {
    let code = CodeSegments::from_file(file)?;
    let blind = strip_unwind_information(file)?;
    let synthesized = unwind_table(&object::File::parse(&*blind).ok()?).ok()?;
    let given_up_bytes = synthesized.summary().unresolved_bytes.clone();
    let mut comparison = BlindComparison { given_up_bytes, ..BlindComparison::default() };
    let wrong: BTreeSet<Svma> = contradictions.iter().map(|mismatch| mismatch.row.start).collect();
    let rows: Vec<_> = stated.rows().collect();
    for (index, row) in rows.iter().enumerate() {
        let Entry::Rule(rule) = row.entry else { continue };
        let Some(end) = rows.get(index + 1).map(|next| next.start) else { continue };
        if rule.is_root() || rule.signal_frame {
            continue;
        }
        let near = &rows[index.saturating_sub(6)..(index + 7).min(rows.len())];
        let nearby: Vec<Rule> = near.iter().filter_map(|row| row.entry.rule().copied()).collect();
        let mut at = row.start;
        while at < end {
            let entry = synthesized.lookup(at);
            let until = next_start(&synthesized, at).min(end);
            let at_padding = code.is_padding(at, until);
            let outcome = if at_padding {
                BlindOutcome::Padding
            } else if wrong.contains(&row.start) {
                BlindOutcome::StatedWrong
            } else {
                outcome(&rule, &nearby, &entry)
            };
            *comparison.bytes.entry(outcome).or_default() += until.0 - at.0;
            if outcome >= BlindOutcome::WrongCfa && comparison.examples.len() < MAX_EXAMPLES {
                let bytes = until.0 - at.0;
                let (stated, synthesized) = (row.entry, entry);
                comparison.examples.push(Example { outcome, start: at, bytes, stated, synthesized });
            }
            at = until;
        }
    }
    Some(comparison)
}

/// arm64's `nop`.
const NOP: [u8; 4] = 0xd503_201f_u32.to_le_bytes();

/// The code of a file.
struct CodeSegments<'data> {
    architecture: Architecture,
    segments: Vec<(u64, &'data [u8])>,
}

impl<'data> CodeSegments<'data> {
    fn from_file(file: &'data [u8]) -> Option<Self> {
        let file = object::File::parse(file).ok()?;
        let executable = file.segments().filter(|segment| segment.permissions().executable());
        let segments = executable.filter_map(|segment| Some((segment.address(), segment.data().ok()?)));
        Some(Self { architecture: file.architecture(), segments: segments.collect() })
    }

    fn is_padding(&self, start: Svma, end: Svma) -> bool {
        let bytes = self.segments.iter().find_map(|(base, bytes)| {
            let within = |at: Svma| usize::try_from(at.0.checked_sub(*base)?).ok();
            bytes.get(within(start)?..within(end)?)
        });
        let bytes = bytes.unwrap_or_default();
        if self.architecture == Architecture::Aarch64 {
            return bytes.chunks(4).all(|word| word == NOP);
        }
        let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
        decoder.iter().all(|instruction| match instruction.mnemonic() {
            Mnemonic::Nop => true,
            Mnemonic::Xchg => instruction.op0_register() == instruction.op1_register(),
            _ => false,
        })
    }
}

fn next_start(table: &UnwindTable, at: Svma) -> Svma {
    table.row_after(at).map_or(Svma(u64::MAX), |row| row.start)
}

fn outcome(stated: &Rule, nearby: &[Rule], synthesized: &Entry) -> BlindOutcome {
    let Entry::Rule(rule) = synthesized else { return BlindOutcome::GivenUp };
    let (rule, stated) = (&from_cfa(*rule), &from_cfa(*stated));
    if rule == stated {
        return BlindOutcome::Equal;
    }
    let same_register = |one: Cfa, other: Cfa| match (one, other) {
        (Cfa::Register { register: a, .. }, Cfa::Register { register: b, .. }) => a == b,
        _ => false,
    };
    let equal_cfa = rule.cfa == stated.cfa;
    // Each is relative to a register that the other doesn't track: they can't be compared here.
    let other_way = !same_register(rule.cfa, stated.cfa)
        && nearby.iter().any(|near| near.cfa == rule.cfa || !same_register(near.cfa, stated.cfa));
    // In a register and in the word that it was saved to, until one of the two is overwritten.
    let is_also_there = equal_cfa
        && matches!(
            (rule.return_address, stated.return_address),
            (ReturnAddress::InRegister(_), ReturnAddress::AtCfa(_))
                | (ReturnAddress::AtCfa(_), ReturnAddress::InRegister(_))
        )
        && nearby.iter().any(|near| near.return_address == rule.return_address);
    let equal_return = rule.return_address == stated.return_address || is_also_there;
    if !equal_return || !(equal_cfa || other_way) {
        return BlindOutcome::WrongCfa;
    }
    match (rule.frame_pointer, stated.frame_pointer) {
        (one, other) if one == other => BlindOutcome::Equivalent,
        (SavedRegister::Undefined, _) => BlindOutcome::FramePointerLost,
        (one, _) if nearby.iter().any(|near| near.frame_pointer == one) => BlindOutcome::Equivalent,
        (SavedRegister::Same, SavedRegister::AtCfa(place)) if is_below_stack(stated.cfa, place) => {
            BlindOutcome::Equivalent
        }
        _ => BlindOutcome::WrongFramePointer,
    }
}

/// A rule with the places that are relative to the register that leads to the CFA relative to that.
fn from_cfa(rule: Rule) -> Rule {
    let Cfa::Register { register: base, offset: above } = rule.cfa else { return rule };
    let frame_pointer = match rule.frame_pointer {
        SavedRegister::At { register, offset } if register == base => SavedRegister::AtCfa(offset - above),
        other => other,
    };
    let return_address = match rule.return_address {
        ReturnAddress::At { register, offset } if register == base => ReturnAddress::AtCfa(offset - above),
        other => other,
    };
    Rule { frame_pointer, return_address, ..rule }
}

/// Whether a word was popped, that is, lies below the stack pointer.
fn is_below_stack(cfa: Cfa, place: i32) -> bool {
    matches!(cfa, Cfa::Register { register: Register::Rsp, offset } if place < -offset)
}
