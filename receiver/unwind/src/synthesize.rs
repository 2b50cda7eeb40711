//! Rows from the machine code, for the code that no source speaks of.
//!
//! Functions begin where symbols and calls say so, and their frames are followed from there. What isn't known
//! for certain gets no row, and is counted by reason.

mod calls;
mod linkage;

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{FlowControl, Instruction};
use object::elf::SHF_EXECINSTR;
use object::{File, Object as _, ObjectSection as _, ObjectSymbol as _, ReadRef, SectionFlags, SymbolKind};

use self::calls::Sweep;
use self::linkage::Imports;
use crate::code::flow::{AfterCall, Budget, Flow, Guide, Piece};
use crate::code::state::{Address, Lost, State, Value};
use crate::code::step::{Stepper, calls_function, is_padding, target};
use crate::elf::CodeRanges;
use crate::entries::{Entries, EntryId};
use crate::layers::RowBuffer;
use crate::rule::{Entry, Register};
use crate::summary::{GivenUp, Source, Summary};

/// The shortest gap between described functions that is looked at: shorter ones are padding, since compilers
/// align functions to 16 bytes.
const MIN_GAP_BYTES: u32 = 16;

/// How often functions are looked at anew because functions that they call were found not to return.
const MAX_ROUNDS: usize = 4;

/// The rows of code that `rows` says nothing of.
pub(crate) fn rows<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    rows: &RowBuffer,
    entries: &mut Entries,
    summary: &mut Summary,
) -> RowBuffer {
    let pieces = undescribed(file, code, rows, entries);
    if pieces.is_empty() {
        return RowBuffer::default();
    }
    let mut spans = Vec::new();
    let mut starts = BTreeSet::new();
    for section in file.sections() {
        let Ok(name) = section.name_bytes() else { continue };
        let Some((start, end)) = code.clip(section.address(), section.address().saturating_add(section.size()))
        else {
            continue;
        };
        let Some(piece) = piece_at(&pieces, start).filter(|piece| end <= piece.end()) else { continue };
        match name {
            b".init" | b".fini" => {
                starts.insert(start);
            }
            name if name.starts_with(b".plt") => {
                spans.extend(linkage::spans(&piece.part(start, end), entries));
            }
            _ => {}
        }
    }
    let linkage_end = spans.len();
    starts.extend(symbols(file, code));
    let sweep = Sweep::over(&pieces);
    starts.extend(sweep.functions());
    let linkage_ends = spans.last().map_or(0, |span: &Span| span.end);
    let linkage_starts = spans.first().map_or(0, |span: &Span| span.start);
    starts.retain(|start| !(linkage_starts..linkage_ends).contains(start) && piece_at(&pieces, *start).is_some());

    let imports = Imports::of(file, code);
    let mut functions = Functions {
        pieces: &pieces,
        starts: &starts,
        imports: &imports,
        do_not_return: BTreeSet::new(),
        stepper: Stepper::new(),
        budget: Budget::for_bytes(pieces.iter().map(|piece| piece.bytes.len() as u64).sum()),
    };
    let found = functions.follow_all(entries);
    for function in found.values().filter(|function| !function.spans.is_empty()) {
        Summary::count(&mut summary.functions, Source::MachineCode);
        spans.extend(&function.spans);
    }
    if linkage_end > 0 {
        Summary::count(&mut summary.functions, Source::MachineCode);
    }
    lay_out(&pieces, spans, summary)
}

/// Code with one rule, or with a reason why it has none.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
    rule: Result<EntryId, GivenUp>,
}

/// The executable code without rows, but for what is padding throughout.
fn undescribed<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    rows: &RowBuffer,
    entries: &Entries,
) -> Vec<Piece<'data>> {
    let mut pieces = Vec::new();
    for (start, end) in executable(file, code) {
        for (start, end) in rows.gaps(start, end, entries) {
            if end - start < MIN_GAP_BYTES {
                continue;
            }
            let Some(bytes) = code.bytes(file, start, u64::from(end - start)) else { continue };
            let piece = Piece { start, bytes };
            if !piece.is_padding(start, end) {
                pieces.push(piece);
            }
        }
    }
    pieces
}

/// Where instructions are: executable sections or, in a file without any, executable segments.
fn executable<'data, R: ReadRef<'data>>(file: &File<'data, R>, code: &CodeRanges) -> Vec<(u32, u32)> {
    let mut sections: Vec<_> = file
        .sections()
        .filter(|section| {
            matches!(section.flags(), SectionFlags::Elf { sh_flags, .. } if sh_flags.contains(SHF_EXECINSTR))
        })
        .filter_map(|section| {
            code.clip(section.address(), section.address().saturating_add(section.size()))
        })
        .collect();
    if sections.is_empty() {
        sections.extend(code.ranges());
    }
    sections.sort_unstable();
    let mut last_end = 0;
    sections.retain_mut(|(start, end)| {
        *start = (*start).max(last_end);
        last_end = last_end.max(*end);
        start < end
    });
    sections
}

fn piece_at<'a, 'data>(pieces: &'a [Piece<'data>], at: u32) -> Option<&'a Piece<'data>> {
    let after = pieces.partition_point(|piece| piece.start <= at);
    pieces.get(after.checked_sub(1)?).filter(|piece| piece.contains(at))
}

/// The functions of `.symtab` and `.dynsym`. The cold part of a function has a symbol, but isn't called.
fn symbols<'data, R: ReadRef<'data>>(file: &File<'data, R>, code: &CodeRanges) -> Vec<u32> {
    file.symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == SymbolKind::Text)
        .filter(|symbol| {
            symbol.name_bytes().is_ok_and(|name| !name.windows(5).any(|part| part == b".cold"))
        })
        .filter_map(|symbol| code.offset(symbol.address()))
        .collect()
}

/// What following a function gave.
struct Found {
    spans: Vec<Span>,
    calls: Vec<u32>,
    returns: bool,
}

struct Functions<'a, 'data> {
    pieces: &'a [Piece<'data>],
    starts: &'a BTreeSet<u32>,
    imports: &'a Imports,
    do_not_return: BTreeSet<u32>,
    stepper: Stepper,
    budget: Budget,
}

impl Functions<'_, '_> {
    fn follow_all(&mut self, entries: &mut Entries) -> BTreeMap<u32, Found> {
        let mut found = BTreeMap::new();
        let mut left: Vec<u32> = self.starts.iter().copied().collect();
        for _ in 0..MAX_ROUNDS {
            for start in left {
                if let Some(function) = self.follow(start, entries) {
                    found.insert(start, function);
                }
            }
            let is_new = |start: &u32, function: &Found| {
                !function.returns && !self.do_not_return.contains(start)
            };
            let new: BTreeSet<u32> = found
                .iter()
                .filter(|(start, function)| is_new(start, function))
                .map(|(start, _)| *start)
                .collect();
            left = found
                .iter()
                .filter(|(_, function)| function.calls.iter().any(|call| new.contains(call)))
                .map(|(start, _)| *start)
                .collect();
            self.do_not_return.extend(new);
        }
        found
    }

    fn follow(&mut self, start: u32, entries: &mut Entries) -> Option<Found> {
        let piece = *piece_at(self.pieces, start)?;
        let guide = Ways {
            start,
            starts: self.starts,
            imports: self.imports,
            do_not_return: &self.do_not_return,
            calls: Vec::new(),
        };
        let mut flow = Flow::new(piece, guide, &mut self.stepper, &mut self.budget);
        flow.seed(start, &State::at_entry());
        let exhausted = flow.exhausted;
        let mut found = Found { spans: Vec::new(), calls: Vec::new(), returns: exhausted };
        let mut contradicted = false;
        flow.for_each(|guide, instruction, state| {
            found.add(instruction, state, entries);
            let at_entry = Address::cfa(-8);
            let top = state.get(Register::Rsp);
            match instruction.flow_control() {
                FlowControl::Return => {
                    found.returns = true;
                    contradicted |= top != Value::Unknown && top.address() != Some(at_entry);
                }
                FlowControl::IndirectBranch => found.returns = true,
                FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
                    let to = target(instruction).and_then(|to| u32::try_from(to).ok());
                    found.returns |= to.is_none_or(|to| {
                        !piece.contains(to)
                            || (!guide.may_enter(to) && !guide.do_not_return.contains(&to))
                    });
                }
                _ => {}
            }
        });
        found.calls = std::mem::take(&mut flow.guide.calls);
        let distrusted = if exhausted {
            Some(GivenUp::TooManySteps)
        } else {
            contradicted.then_some(GivenUp::OtherReturn)
        };
        if let Some(reason) = distrusted {
            found.spans.iter_mut().for_each(|span| span.rule = Err(reason));
        }
        Some(found)
    }
}

impl Found {
    fn add(&mut self, instruction: &Instruction, state: &State, entries: &mut Entries) {
        let rule = match state.rule() {
            Ok(rule) => Ok(entries.intern(Entry::Rule(rule))),
            Err(Lost::Cfa) => Err(GivenUp::StackPointer),
            Err(Lost::ReturnAddress) => Err(GivenUp::ReturnAddress),
        };
        let (start, end) = (instruction.ip() as u32, instruction.next_ip() as u32);
        match self.spans.last_mut() {
            Some(last) if last.end == start && last.rule == rule => last.end = end,
            _ => self.spans.push(Span { start, end, rule }),
        }
    }
}

/// The ways through one function among others.
struct Ways<'a> {
    start: u32,
    starts: &'a BTreeSet<u32>,
    imports: &'a Imports,
    do_not_return: &'a BTreeSet<u32>,
    calls: Vec<u32>,
}

impl Guide for Ways<'_> {
    fn may_enter(&self, at: u32) -> bool {
        at == self.start || !self.starts.contains(&at)
    }

    fn arrive(&mut self, _: u32, _: &mut State) {}

    fn after_call(&mut self, instruction: &Instruction, target: Option<u32>) -> AfterCall {
        if self.imports.never_return(instruction, target) {
            return AfterCall::DoesNotReturn;
        }
        match target {
            Some(target) if self.do_not_return.contains(&target) => AfterCall::DoesNotReturn,
            Some(target) => {
                self.calls.push(target);
                AfterCall::ReturnsUnlessContradicted
            }
            None => AfterCall::ReturnsUnlessContradicted,
        }
    }
}

/// One row where the rule changes. Where two functions share code and disagree, neither is believed; padding
/// belongs to what comes before it.
fn lay_out(pieces: &[Piece<'_>], mut spans: Vec<Span>, summary: &mut Summary) -> RowBuffer {
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut out = RowBuffer::default();
    let mut spans = spans.into_iter().peekable();
    for piece in pieces {
        let mut at = piece.start;
        while let Some(span) = spans.next_if(|span| span.start < piece.end()) {
            if span.start > at {
                put_gap(piece, at, span.start, &mut out, summary);
            }
            let mut span = Span { start: span.start.max(at), ..span };
            while let Some(other) = spans.next_if(|other| other.start < span.end) {
                if other.rule != span.rule {
                    span.rule = Err(GivenUp::Disagreement);
                }
                span.end = span.end.max(other.end);
            }
            if span.start >= span.end {
                continue;
            }
            summary.count_given_up(span.rule.err(), span.end - span.start);
            out.push((span.start, span.rule.unwrap_or(Entries::NO_INFORMATION)));
            at = span.end;
        }
        if at < piece.end() {
            put_gap(piece, at, piece.end(), &mut out, summary);
        }
        out.push((piece.end(), Entries::NO_INFORMATION));
    }
    out
}

fn put_gap(piece: &Piece<'_>, start: u32, end: u32, out: &mut RowBuffer, summary: &mut Summary) {
    if !piece.is_padding(start, end) {
        summary.count_given_up(Some(GivenUp::NotReached), end - start);
        out.push((start, Entries::NO_INFORMATION));
    }
}

/// Whether an instruction is a call of a stated place.
fn called(instruction: &Instruction) -> Option<u32> {
    u32::try_from(target(instruction).filter(|_| calls_function(instruction))?).ok()
}

impl Piece<'_> {
    fn contains(&self, at: u32) -> bool {
        (self.start..self.end()).contains(&at)
    }

    fn part(&self, start: u32, end: u32) -> Self {
        let within = |at: u32| at.saturating_sub(self.start) as usize;
        let bytes = self.bytes.get(within(start)..within(end)).unwrap_or_default();
        Piece { start, bytes }
    }

    /// Whether a part holds nothing but instructions that do nothing, or zeros.
    fn is_padding(&self, start: u32, end: u32) -> bool {
        let part = self.part(start, end);
        let mut at = start;
        while at < end {
            match part.decode(at) {
                Some(instruction) if is_padding(&instruction) => at += instruction.len() as u32,
                _ => return part.part(at, end).bytes.iter().all(|byte| *byte == 0),
            }
        }
        true
    }
}
