//! Converts DWARF call frame information (`.eh_frame`, `.debug_frame`) to rows.

mod entry;
mod state;
mod window;

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::HashMap;

use gimli::{BaseAddresses, CfaRule, RegisterRule, UnwindExpression, UnwindSection};
use sidewinder_unwind_table::{
    Architecture, CalleeSaved, Cfa, EndReason, Entry, EntryInterner, Register, ReturnAddress, RowBuffer,
    RowSource, Rule, SavedRegister, Summary, UnsupportedReason,
};

pub(crate) use self::entry::SectionBytes;
use self::entry::{Cie, EntryLength, EntryOffsets, Fde, FdeLocation, MAX_CIE_BYTES};
use self::state::{CfiState, Evaluator};
pub(crate) use self::window::{EhFrameHdrIndex, FdeWindow, MAX_SMALL_BYTES};
use crate::arch;
use crate::expression;
use crate::known_functions::{CfiTraits, KnownFunctions};
use crate::layers::RangeStack;
use crate::memory::{Memory, Reservation};
use crate::segments::CodeRanges;

/// The most CIEs of one section that are kept; further ones are parsed again for each FDE. Linkers merge equal CIEs, so
/// files have few.
const MAX_KEPT_CIES: usize = 1024;

/// A section of call frame information and everything needed to read it.
pub(crate) struct Cfi<'data, 'memory, Section> {
    pub(crate) architecture: Architecture,
    pub(crate) section: Section,
    pub(crate) data: &'data [u8],
    pub(crate) bases: BaseAddresses,
    pub(crate) source: RowSource,
    /// Whether a zero length ends the data, because what follows is something else.
    pub(crate) ends_at_terminator: bool,
    pub(crate) memory: Memory<'memory>,
}

/// The range of an FDE within the code, and the location of the FDE in its section.
#[derive(Clone, Copy)]
pub(crate) struct LocatedFde {
    start: u32,
    end: u32,
    place: FdeLocation,
}

/// The FDEs of a section.
pub(crate) struct LocatedFdes<'memory> {
    pub(crate) fdes: Vec<LocatedFde>,
    _memory: Reservation<'memory>,
}

impl LocatedFde {
    pub(crate) fn range(&self) -> (u32, u32) {
        (self.start, self.end)
    }
}

/// The runtime system of Haskell reserves more of the C stack than this for compiled code (`RESERVED_C_STACK_BYTES`).
const MIN_HASKELL_RESERVED_BYTES: i32 = 4096;

impl<'data, 'memory, Section> Cfi<'data, 'memory, Section>
where
    Section: UnwindSection<SectionBytes<'data>>,
    Section::Offset: gimli::UnwindOffset<usize>,
{
    /// The rows of the requested FDEs.
    ///
    /// FDEs may come in any order. Where two overlap, the one with the later start holds; of two with the same start,
    /// the one that comes first in the section.
    pub(crate) fn rows(
        &self,
        located: &[LocatedFde],
        code: &CodeRanges,
        known: &mut KnownFunctions,
        entries: &mut EntryInterner,
        summary: &mut Summary,
    ) -> RowBuffer {
        let mut cies = CieCache::default();
        let mut evaluator = Evaluator::default();
        let mut ranges = RangeStack::new(self.memory);
        for &LocatedFde { start, end, place } in located {
            known.clip_to((start, end));
            if !code.wants((start, end)) {
                continue;
            }
            let mut range = ranges.range((start, end));
            let follows_callee_saved = known.follows_callee_saved(start);
            let bases = self.bases_at(place);
            let evaluated = cies.fde(self, place).and_then(|fde| {
                let cie = fde.cie();
                evaluator.states(&fde, &self.section, &bases, self.architecture, |at, state| {
                    let rule = self.rule(state, cie).map(|rule| match follows_callee_saved {
                        true => Rule { callee_saved: self.callee_saved(state.callee_saved.as_ref()), ..rule },
                        false => rule,
                    });
                    let entry = rule.map_or_else(Entry::unsupported, Entry::Rule);
                    summary.count_unsupported(entry);
                    if let Some(at) = code.offset(at) {
                        range.push(at, entries.intern(entry));
                    }
                })
            });
            match evaluated {
                Ok(()) => Summary::count(&mut summary.functions, self.source),
                Err(_) => {
                    Summary::count(&mut summary.malformed, self.source);
                    range.set_only(entries.intern(Entry::End(EndReason::Malformed)));
                }
            }
            ranges.open(range);
        }
        ranges.finish()
    }

    /// Properties of these functions that other functions of the file, or of files of its kind, depend on.
    pub(crate) fn traits(&self, located: &[LocatedFde]) -> CfiTraits {
        let mut cies = CieCache::default();
        let mut evaluator = Evaluator::default();
        let mut found = CfiTraits::default();
        let callee_saved = self.architecture.callee_saved();
        for fde in located {
            // Malformed entries are counted where their rows are made.
            let _ = cies.fde(self, fde.place).and_then(|fde| {
                evaluator.states(&fde, &self.section, &self.bases, self.architecture, |_, state| {
                    let CfaRule::RegisterAndOffset { register, .. } = state.cfa() else { return };
                    found.has_callee_saved_frames |=
                        callee_saved.is_some_and(|callee_saved| register.0 == callee_saved.dwarf());
                    if let Some(RegisterRule::ValExpression(sum)) = &state.stack_pointer
                        && let Some((from, offset)) = self.place(sum)
                        && from.is_stack_pointer()
                        && offset >= MIN_HASKELL_RESERVED_BYTES
                    {
                        found.haskell_cfa_offset = Some(offset);
                    }
                })
            });
        }
        found
    }

    /// The ranges of all FDEs for addresses in `code`, sorted by their starts.
    pub(crate) fn ranges(&self, code: &CodeRanges) -> Vec<(u32, u32)> {
        let located = self.locate(code, &mut Summary::default());
        located.fdes.iter().map(LocatedFde::range).collect()
    }

    /// All FDEs for addresses in `code`, in the order that [`RangeStack`] requires.
    pub(crate) fn locate(&self, code: &CodeRanges, summary: &mut Summary) -> LocatedFdes<'memory> {
        let offsets = || EntryOffsets::new(self.data, self.ends_at_terminator);
        let places = offsets().map(|offset| offset.and_then(FdeLocation::in_section));
        self.locate_at(places, offsets().count(), code, summary)
    }

    /// The FDEs at some locations, `count` of them at most, in the same order; `None` stands for one that can't be read. There are
    /// none if they don't fit the memory.
    pub(crate) fn locate_at(
        &self,
        places: impl Iterator<Item = Option<FdeLocation>>,
        count: usize,
        code: &CodeRanges,
        summary: &mut Summary,
    ) -> LocatedFdes<'memory> {
        let mut memory = self.memory.nothing();
        if !memory.grow(count.saturating_mul(size_of::<LocatedFde>())) {
            return LocatedFdes { fdes: Vec::new(), _memory: memory };
        }
        let mut located = Vec::with_capacity(count);
        let mut cies = CieCache::default();
        for place in places {
            let (place, fde) = match place.map(|place| (place, cies.fde(self, place))) {
                Some((place, Ok(fde))) => (place, fde),
                Some((_, Err(gimli::Error::NotCiePointer(_)))) => continue,
                Some((_, Err(_))) | None => {
                    Summary::count(&mut summary.malformed, self.source);
                    continue;
                }
            };
            match code.clip(fde.initial_address(), fde.end_address()) {
                Some((start, end)) => located.push(LocatedFde { start, end, place }),
                None => Summary::count(&mut summary.outside_code, self.source),
            }
        }
        located.sort_unstable_by_key(|fde| (fde.start, Reverse(fde.place.origin)));
        LocatedFdes { fdes: located, _memory: memory }
    }

    /// The addresses that pointers of an FDE may be relative to.
    fn bases_at(&self, place: FdeLocation) -> Cow<'_, BaseAddresses> {
        let FdeLocation { offset, origin } = place;
        if offset == origin {
            return Cow::Borrowed(&self.bases);
        }
        let section = self.bases.eh_frame.section.unwrap_or_default();
        let moved = section.wrapping_add(u64::from(origin)).wrapping_sub(u64::from(offset));
        Cow::Owned(self.bases.clone().set_eh_frame(moved))
    }

    fn rule(&self, state: &CfiState, cie: &Cie<'data>) -> Result<Rule, UnsupportedReason> {
        if state.is_unknown {
            return Err(UnsupportedReason::Instruction);
        }
        let return_address = self.return_address(state.return_address.as_ref())?;
        let signal_frame = cie.is_signal_trampoline();
        let cfa = self.cfa(&state.cfa());
        let frame_pointer = self.frame_pointer(state.frame_pointer.as_ref());
        if return_address == ReturnAddress::Undefined {
            // Nothing follows, so the other rules need not be known.
            return Ok(Rule {
                cfa: cfa.unwrap_or(self.architecture.root().cfa),
                frame_pointer: frame_pointer.unwrap_or(SavedRegister::Undefined),
                return_address,
                callee_saved: CalleeSaved::Unknown,
                signal_frame,
            });
        }
        let rule = Rule {
            cfa: cfa?,
            frame_pointer: frame_pointer?,
            return_address,
            callee_saved: CalleeSaved::Unknown,
            signal_frame,
        };
        let rule = self.with_stack_pointer(rule, state.stack_pointer.as_ref())?;
        Ok(arch::meant(self.architecture, rule))
    }

    fn cfa(&self, rule: &CfaRule<usize>) -> Result<Cfa, UnsupportedReason> {
        match rule {
            CfaRule::RegisterAndOffset { register, offset } => Ok(Cfa::Register {
                register: self.architecture.register(register.0).ok_or(UnsupportedReason::CfaRegister)?,
                offset: offset_bytes(*offset)?,
            }),
            CfaRule::Expression(expression) => {
                let bytes = self.bytes(expression);
                bytes
                    .and_then(|bytes| expression::cfa(bytes, self.architecture))
                    .ok_or(UnsupportedReason::CfaExpression)
            }
        }
    }

    /// The frame pointer is callee-saved: a function without a rule for it has left it unchanged.
    fn frame_pointer(&self, rule: Option<&RegisterRule<usize>>) -> Result<SavedRegister, UnsupportedReason> {
        match rule {
            None | Some(RegisterRule::SameValue) => Ok(SavedRegister::Same),
            Some(RegisterRule::Undefined) => Ok(SavedRegister::Undefined),
            Some(RegisterRule::Offset(offset)) => Ok(SavedRegister::AtCfa(offset_bytes(*offset)?)),
            Some(RegisterRule::Register(register)) => self
                .architecture
                .register(register.0)
                .map(SavedRegister::InRegister)
                .ok_or(UnsupportedReason::FramePointerRule),
            Some(RegisterRule::Expression(expression)) => {
                let place = self.place(expression);
                let (register, offset) = place.ok_or(UnsupportedReason::FramePointerExpression)?;
                Ok(SavedRegister::At { register, offset })
            }
            Some(_) => Err(UnsupportedReason::FramePointerRule),
        }
    }

    /// Like [`frame_pointer`](Self::frame_pointer), but an unsupported rule is not an error.
    fn callee_saved(&self, rule: Option<&RegisterRule<usize>>) -> CalleeSaved {
        match rule {
            None | Some(RegisterRule::SameValue) => CalleeSaved::Same,
            Some(RegisterRule::Offset(offset)) => {
                i32::try_from(*offset).map_or(CalleeSaved::Unknown, CalleeSaved::AtCfa)
            }
            Some(_) => CalleeSaved::Unknown,
        }
    }

    /// A function without a rule for the link register has left the return address there.
    fn return_address(&self, rule: Option<&RegisterRule<usize>>) -> Result<ReturnAddress, UnsupportedReason> {
        match rule {
            None | Some(RegisterRule::SameValue) => self
                .architecture
                .link()
                .map(ReturnAddress::InRegister)
                .ok_or(UnsupportedReason::ReturnAddressRule),
            Some(RegisterRule::Undefined) => Ok(ReturnAddress::Undefined),
            Some(RegisterRule::Offset(offset)) => Ok(ReturnAddress::AtCfa(offset_bytes(*offset)?)),
            Some(RegisterRule::Register(register)) => self
                .architecture
                .register(register.0)
                .map(ReturnAddress::InRegister)
                .ok_or(UnsupportedReason::ReturnAddressRule),
            Some(RegisterRule::Expression(expression)) => {
                let place = self.place(expression);
                let (register, offset) = place.ok_or(UnsupportedReason::ReturnAddressExpression)?;
                Ok(ReturnAddress::At { register, offset })
            }
            Some(RegisterRule::ValExpression(_)) => Err(UnsupportedReason::ReturnAddressExpression),
            _ => Err(UnsupportedReason::ReturnAddressRule),
        }
    }

    /// The caller's stack pointer is the CFA, unless it has its own rule: signal frames repeat the location from which
    /// the CFA is read, `longjmp` has it in a register, `setcontext` in a structure at the CFA, and where GHC's runtime
    /// system enters Haskell it is a sum. That location becomes [`Rule::cfa`], and what is relative to the CFA becomes
    /// relative to the base of the CFA.
    fn with_stack_pointer(
        &self,
        rule: Rule,
        stack_pointer: Option<&RegisterRule<usize>>,
    ) -> Result<Rule, UnsupportedReason> {
        let refused = UnsupportedReason::StackPointer;
        let from_cfa = |by: i64| match rule.cfa {
            Cfa::Register { register, offset } => {
                Ok((register, offset_bytes(i64::from(offset).saturating_add(by))?))
            }
            Cfa::Deref { .. } | Cfa::DerefIndexed { .. } | Cfa::Plt { .. } => Err(refused),
        };
        let deref = |(register, offset)| Cfa::Deref { register, offset, addend: 0 };
        let cfa = match stack_pointer {
            None | Some(RegisterRule::SameValue | RegisterRule::Undefined | RegisterRule::ValOffset(0)) => {
                rule.cfa
            }
            Some(RegisterRule::Register(register)) => {
                let register = self.architecture.register(register.0).ok_or(refused)?;
                Cfa::Register { register, offset: 0 }
            }
            Some(RegisterRule::Expression(expression)) => deref(self.place(expression).ok_or(refused)?),
            Some(RegisterRule::ValExpression(expression)) => {
                let (register, offset) = self.place(expression).ok_or(refused)?;
                Cfa::Register { register, offset }
            }
            Some(RegisterRule::Offset(by)) => deref(from_cfa(*by)?),
            Some(_) => return Err(refused),
        };
        if cfa == rule.cfa {
            return Ok(rule);
        }
        let frame_pointer = match rule.frame_pointer {
            SavedRegister::AtCfa(by) => {
                let (register, offset) = from_cfa(i64::from(by))?;
                SavedRegister::At { register, offset }
            }
            elsewhere => elsewhere,
        };
        let return_address = match rule.return_address {
            ReturnAddress::AtCfa(by) => {
                let (register, offset) = from_cfa(i64::from(by))?;
                ReturnAddress::At { register, offset }
            }
            elsewhere => elsewhere,
        };
        Ok(Rule { cfa, frame_pointer, return_address, ..rule })
    }

    /// The register and offset whose sum an expression computes, if it has that form.
    fn place(&self, expression: &UnwindExpression<usize>) -> Option<(Register, i32)> {
        self.bytes(expression).and_then(|bytes| expression::place(bytes, self.architecture))
    }

    fn bytes(&self, expression: &UnwindExpression<usize>) -> Option<SectionBytes<'data>> {
        expression.get(&self.section).ok().map(|expression| expression.0)
    }
}

fn offset_bytes(offset: i64) -> Result<i32, UnsupportedReason> {
    i32::try_from(offset).map_err(|_| UnsupportedReason::OffsetTooLarge)
}

/// The CIEs of a section.
#[derive(Default)]
struct CieCache<'data> {
    by_offset: HashMap<usize, gimli::Result<Cie<'data>>>,
}

impl<'data> CieCache<'data> {
    fn fde<Section>(&mut self, cfi: &Cfi<'data, '_, Section>, place: FdeLocation) -> gimli::Result<Fde<'data>>
    where
        Section: UnwindSection<SectionBytes<'data>>,
    {
        let offset = Section::Offset::from(place.offset as usize);
        cfi.section.fde_from_offset(&cfi.bases_at(place), offset, |section, bases, at| {
            let cie_offset = gimli::UnwindOffset::into(at);
            if let Some(known) = self.by_offset.get(&cie_offset) {
                return known.clone();
            }
            let length = EntryLength::read(cfi.data, cie_offset).map_or(0, |length| length.total);
            if length > MAX_CIE_BYTES {
                return Err(gimli::Error::NotCieId(cie_offset as u64));
            }
            let cie = section.cie_from_offset(bases, at);
            if self.by_offset.len() < MAX_KEPT_CIES {
                self.by_offset.insert(cie_offset, cie.clone());
            }
            cie
        })
    }
}
