//! Makes rows from the machine code, for code that no source covers.
//!
//! Functions begin at symbols and at the targets of calls, and their frames are tracked from there. What isn't known
//! for certain gets no row, and is counted by reason.

mod calls;
mod entry;
mod imports;
mod layout;
mod unanalyzed;

use std::collections::{BTreeMap, BTreeSet};

use object::{File, Object as _, ObjectSection as _, ReadRef};
use sidewinder_unwind_table::{Entry, EntryInterner, RowBuffer, RowSource, Summary, UnresolvedReason};

use self::calls::CallSweep;
use self::imports::{Imports, never_returns};
use self::layout::emit_rows;
use crate::arch::{self, Instruction, Stepper, clone, haskell};
use crate::code::flow::{AfterCall, Flow, FlowPolicy, StepBudget};
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::span::{FUNCTION_ALIGNMENT_BYTES, MIN_GAP_BYTES, RuleSpan};
use crate::code::state::{AbstractState, UnknownPart};
use crate::known_functions::{KnownFunctions, is_never_called};
use crate::read::ReadFile;
use crate::segments::CodeRanges;
use crate::symbols::for_each_code_symbol;

/// How often functions are analyzed again because functions that they call were found not to return.
const MAX_ROUNDS: usize = 4;

/// The most frames of a function's jumps through tables with which unreached code is tried.
const MAX_FRAMES_OF_JUMPS: usize = 4;

/// The rows of the code that `rows` doesn't cover.
pub(crate) fn rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    known: &KnownFunctions,
    rows: &RowBuffer,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let undescribed = uncovered_code(file, code, known.have_clone(), rows, entries);
    if undescribed.is_empty() {
        return RowBuffer::default();
    }
    if !arch::is_analyzed(code.architecture()) {
        return unanalyzed::rows(file, code, &undescribed, entries, summary);
    }
    let (mut pieces, mut spans) = (Vec::new(), Vec::new());
    for piece in &undescribed {
        match clone::span(piece, entries) {
            Some(span) => spans.push(span),
            None => pieces.push(*piece),
        }
    }
    let sections = sections(file, code, &pieces);
    let mut linkage = AddressRanges::default();
    let mut understood = AddressRanges::default();
    let imports = Imports::from_file(file, code);
    let haskell = known.haskell_cfa_offset().or(imports.have_haskell.then_some(haskell::CFA_OFFSET));
    let haskell = haskell.map(|cfa_offset| haskell::Frames::new(cfa_offset, entries));
    let NamedFunctions { mut starts, never_return } =
        NamedFunctions::from_file(file, code, haskell.is_some());
    for section in &sections {
        match section.kind {
            SectionKind::Linkage => {
                linkage.ranges.push((section.piece.start, section.piece.end()));
                let of_entries = arch::linkage_spans(code.architecture(), &section.piece, entries);
                understood.ranges.extend(of_entries.last().map(|last| (section.piece.start, last.end)));
                spans.extend(of_entries);
            }
            SectionKind::OneFunction => {
                starts.insert(section.piece.start);
            }
        }
    }
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    let sweep = CallSweep::new(&pieces);
    starts.extend(sweep.functions());
    starts.retain(|start| !linkage.contains(*start) && piece_at(&pieces, *start).is_some());

    let root = entries.intern(Entry::Rule(code.architecture().root()));
    spans.extend(entry::spans(file, code, known, &pieces, &starts, root));

    let mut functions = FunctionAnalyzer {
        pieces: &pieces,
        regions: &regions(file, code, &pieces),
        starts: &starts,
        linkage: &linkage,
        sweep: &sweep,
        imports: &imports,
        do_not_return: never_return,
        stepper: Stepper::new(),
        budget: StepBudget::for_bytes(pieces.iter().map(|piece| piece.bytes.len() as u64).sum()),
    };
    let found = functions.analyze_all(haskell.is_none(), entries);
    for function in found.values().filter(|function| !function.spans.is_empty()) {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
        // A linkage entry that was also followed as a function has rows up to its jump, whose rule differs only in
        // form.
        spans.extend(function.spans.iter().filter(|span| !understood.contains(span.start)));
    }
    emit_rows(&undescribed, spans, root, haskell.as_ref(), summary)
}

/// The rows of all linkage tables.
pub(crate) fn linkage_rows<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    entries: &mut EntryInterner,
    summary: &mut Summary,
) -> RowBuffer {
    let root = entries.intern(Entry::Rule(code.architecture().root()));
    let mut tables: Vec<CodeSlice<'_>> = file
        .sections()
        .filter(|section| {
            matches!(section.name_bytes().map(SectionKind::by_name), Ok(Some(SectionKind::Linkage)))
        })
        .filter_map(|section| {
            let end = section.address().saturating_add(section.size());
            let (start, end) = code.clip(section.address(), end)?;
            Some(CodeSlice { start, bytes: code.bytes(file, start, u64::from(end - start))? })
        })
        .collect();
    tables.sort_unstable_by_key(|table| table.start);
    if !arch::is_analyzed(code.architecture()) {
        return unanalyzed::rows(file, code, &tables, entries, summary);
    }
    let spans: Vec<RuleSpan> =
        tables.iter().flat_map(|table| arch::linkage_spans(code.architecture(), table, entries)).collect();
    if !spans.is_empty() {
        Summary::count(&mut summary.functions, RowSource::MachineCode);
    }
    emit_rows(&tables, spans, root, None, summary)
}

/// The executable code without rows, except for gaps that are only padding, or that are too short for a function and no
/// call of `clone`.
pub(crate) fn uncovered_code<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    has_clone: bool,
    rows: &RowBuffer,
    entries: &EntryInterner,
) -> Vec<CodeSlice<'data>> {
    let mut pieces = Vec::new();
    for (start, end) in code.instructions(file) {
        for (start, end) in rows.gaps(start, end, entries) {
            let is_short = end - start < MIN_GAP_BYTES;
            if is_short && !(has_clone && clone::is_call(file, code, start)) {
                continue;
            }
            let Some(bytes) = code.bytes(file, start, u64::from(end - start)) else { continue };
            let piece = CodeSlice { start, bytes };
            if !arch::is_padding(code.architecture(), &piece) {
                pieces.push(piece);
            }
        }
    }
    pieces
}

/// Ranges of addresses.
#[derive(Default)]
struct AddressRanges {
    ranges: Vec<(u32, u32)>,
}

impl AddressRanges {
    fn contains(&self, at: u32) -> bool {
        self.ranges.iter().any(|(start, end)| (*start..*end).contains(&at))
    }
}

/// A section without rows that isn't ordinary text.
struct SpecialSection<'data> {
    kind: SectionKind,
    piece: CodeSlice<'data>,
}

enum SectionKind {
    /// `.init` and `.fini`: one function, made of parts of several files.
    OneFunction,
    /// A procedure linkage table.
    Linkage,
}

impl SectionKind {
    fn by_name(name: &[u8]) -> Option<Self> {
        match name {
            b".init" | b".fini" => Some(Self::OneFunction),
            name if name.starts_with(b".plt") || name == b".iplt" => Some(Self::Linkage),
            _ => None,
        }
    }
}

fn sections<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    pieces: &[CodeSlice<'data>],
) -> Vec<SpecialSection<'data>> {
    let sections = file.sections().filter_map(|section| {
        let kind = SectionKind::by_name(section.name_bytes().ok()?)?;
        let (start, end) = code.clip(section.address(), section.address().saturating_add(section.size()))?;
        let piece = piece_at(pieces, start).filter(|piece| end <= piece.end())?;
        Some(SpecialSection { kind, piece: piece.part(start, end) })
    });
    sections.collect()
}

/// The code in which functions are followed. Where at least half of the code between the first and the last undescribed
/// piece of a section is undescribed, that is one region; otherwise each piece is its own.
fn regions<'data, R: ReadRef<'data>>(
    file: &File<'data, R>,
    code: &CodeRanges,
    pieces: &[CodeSlice<'data>],
) -> Vec<CodeSlice<'data>> {
    let mut regions = Vec::new();
    for (start, end) in code.instructions(file) {
        let within = |at: u32| pieces.partition_point(|piece| piece.start < at);
        let inside = pieces.get(within(start)..within(end)).unwrap_or_default();
        let (Some(first), Some(last)) = (inside.first(), inside.last()) else { continue };
        let (start, length) = (first.start, last.end() - first.start);
        let undescribed: usize = inside.iter().map(|piece| piece.bytes.len()).sum();
        let whole = (undescribed >= length as usize / 2)
            .then(|| code.bytes(file, start, u64::from(length)))
            .flatten();
        match whole {
            Some(bytes) => regions.push(CodeSlice { start, bytes }),
            None => regions.extend(inside),
        }
    }
    regions
}

/// What the file's symbols state about its functions.
#[derive(Default)]
struct NamedFunctions {
    /// The starts of functions. The cold part of a function has a symbol, but isn't called.
    starts: BTreeSet<u32>,
    /// The starts of functions that never return.
    never_return: BTreeSet<u32>,
}

impl NamedFunctions {
    /// Haskell's symbols for code (`..._info`) are left out, because that code is jumped to.
    fn from_file<'data, R: ReadFile<'data>>(
        file: &File<'data, R>,
        code: &CodeRanges,
        has_haskell: bool,
    ) -> Self {
        let is_haskell = |name: &[u8]| has_haskell && name.ends_with(b"_info");
        let begins = |name: &[u8]| {
            !is_never_called(name) && !name.windows(5).any(|part| part == b".cold") && !is_haskell(name)
        };
        let mut named = Self::default();
        for_each_code_symbol(file, |symbol| {
            let Some(start) = code.offset(symbol.address) else { return };
            if symbol.is_function && begins(symbol.name) {
                named.starts.insert(start);
            }
            if never_returns(symbol.name) {
                named.never_return.insert(start);
            }
        });
        named
    }
}

/// The result of following a function.
struct FunctionFlow {
    spans: Vec<RuleSpan>,
    calls: Vec<u32>,
    returns: bool,
}

struct FunctionAnalyzer<'a, 'data> {
    pieces: &'a [CodeSlice<'data>],
    regions: &'a [CodeSlice<'data>],
    starts: &'a BTreeSet<u32>,
    linkage: &'a AddressRanges,
    sweep: &'a CallSweep,
    imports: &'a Imports,
    do_not_return: BTreeSet<u32>,
    stepper: Stepper,
    budget: StepBudget,
}

/// Why a function is assumed to begin at an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// A symbol or a call refers to it.
    Named,
    /// One could begin there; it counts as a function if a return proves it.
    Possible,
}

impl FunctionAnalyzer<'_, '_> {
    /// `tries_others`: also analyze code for which there is no evidence that a function begins there.
    fn analyze_all(
        &mut self,
        tries_others: bool,
        entries: &mut EntryInterner,
    ) -> BTreeMap<u32, FunctionFlow> {
        let mut found = BTreeMap::new();
        let mut left: Vec<u32> = self.starts.iter().copied().collect();
        for _ in 0..MAX_ROUNDS {
            for start in left {
                if let Some(function) = self.analyze(start, Evidence::Named, entries) {
                    found.insert(start, function);
                }
            }
            let is_new = |start: &u32, function: &FunctionFlow| {
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
        if tries_others {
            self.analyze_possible(&mut found, entries);
        }
        found
    }

    /// Analyzes code that was not reached, where a function could begin.
    fn analyze_possible(&mut self, found: &mut BTreeMap<u32, FunctionFlow>, entries: &mut EntryInterner) {
        let mut reached = ReachedCode::default();
        found.values().for_each(|function| reached.add(&function.spans));
        for at in self.sweep.beginnings() {
            if reached.at(*at).is_none()
                && piece_at(self.regions, *at).is_some_and(|piece| !piece.has_padding_at(*at))
                && let Some(function) = self.analyze(*at, Evidence::Possible, entries)
                && !reached.contradicts(&function.spans)
            {
                reached.add(&function.spans);
                found.insert(*at, function);
            }
        }
    }

    fn analyze(
        &mut self,
        start: u32,
        evidence: Evidence,
        entries: &mut EntryInterner,
    ) -> Option<FunctionFlow> {
        let piece = *piece_at(self.regions, start)?;
        let limit = self.starts.range(start + 1..).next().map_or(piece.end(), |next| *next.min(&piece.end()));
        let guide = SynthesisPolicy {
            start,
            pieces: self.pieces,
            starts: self.starts,
            linkage: self.linkage,
            imports: self.imports,
            do_not_return: &self.do_not_return,
            calls: Vec::new(),
            piece,
            is_cautious: false,
        };
        let mut flow = Flow::new(piece, guide, &mut self.stepper, &mut self.budget);
        let entry = AbstractState::at_entry();
        let met = match evidence {
            Evidence::Possible => {
                flow.policy.is_cautious = true;
                flow.try_seed(start, &entry)?
            }
            Evidence::Named => {
                let met = flow.seed(start, &entry);
                if met.inconsistent_exit {
                    flow.retract();
                    flow.policy.is_cautious = true;
                    flow.seed(start, &entry)
                } else {
                    met
                }
            }
        };
        let returns = met.returns || flow.exhausted;
        let distrusted = if flow.exhausted {
            Some(UnresolvedReason::TooManySteps)
        } else {
            met.refutes_seed().then_some(UnresolvedReason::OtherReturn)
        };
        if distrusted.is_none() {
            follow_tables(&mut flow, met.indirect_jumps, self.sweep.beginnings_within(start, limit));
        }
        let mut found = FunctionFlow { spans: Vec::new(), calls: Vec::new(), returns };
        flow.for_each_instruction(|_, instruction, state| found.add(instruction, state, entries));
        found.calls = std::mem::take(&mut flow.policy.calls);
        if let Some(reason) = distrusted {
            found.spans.iter_mut().for_each(|span| span.rule = Err(reason));
        }
        Some(found)
    }
}

/// Tries the possible targets of jumps through tables: code that no other path reaches, with the frame of the jump. A
/// target is accepted if a return proves it, or code where the frame is known.
fn follow_tables(
    flow: &mut Flow<'_, '_, SynthesisPolicy<'_>>,
    mut frames: Vec<AbstractState>,
    places: &[u32],
) {
    frames.dedup();
    flow.policy.is_cautious = true;
    let mut tried = 0;
    while let Some(frame) = frames.pop()
        && tried < MAX_FRAMES_OF_JUMPS
    {
        tried += 1;
        for at in places {
            if flow.has_reached(*at) || flow.exhausted || flow.policy.piece.has_padding_at(*at) {
                continue;
            }
            if let Some(met) = flow.try_seed(*at, &frame) {
                frames.extend(met.indirect_jumps.into_iter().filter(|jump| !jump.has_frame_of(&frame)));
            }
        }
    }
}

/// The spans of code that was reached, by their starts.
#[derive(Default)]
struct ReachedCode {
    spans: BTreeMap<u32, RuleSpan>,
}

impl ReachedCode {
    fn add(&mut self, spans: &[RuleSpan]) {
        self.spans.extend(spans.iter().map(|span| (span.start, *span)));
    }

    /// The span that contains an address, if any.
    fn at(&self, at: u32) -> Option<&RuleSpan> {
        self.spans.range(..=at).next_back().map(|(_, span)| span).filter(|span| span.end > at)
    }

    /// Whether code reached earlier contradicts one of `spans`.
    fn contradicts(&self, spans: &[RuleSpan]) -> bool {
        let contradict = |one: &RuleSpan, other: &RuleSpan| one.rule.is_ok() && one.rule != other.rule;
        spans.iter().any(|span| {
            self.at(span.start).is_some_and(|held| contradict(held, span))
                || self.spans.range(span.start..span.end).any(|(_, held)| contradict(held, span))
        })
    }
}

impl FunctionFlow {
    fn add(&mut self, instruction: &Instruction, state: &AbstractState, entries: &mut EntryInterner) {
        let rule = match state.rule() {
            Ok(rule) => Ok(entries.intern(Entry::Rule(rule))),
            Err(UnknownPart::Cfa) => Err(UnresolvedReason::StackPointer),
            Err(UnknownPart::ReturnAddress) => Err(UnresolvedReason::ReturnAddress),
        };
        let (start, end) = (instruction.start(), instruction.end());
        match self.spans.last_mut() {
            Some(last) if last.end == start && last.rule == rule => last.end = end,
            _ => self.spans.push(RuleSpan { start, end, rule }),
        }
    }
}

/// Follows the paths of one function among others.
struct SynthesisPolicy<'a> {
    start: u32,
    pieces: &'a [CodeSlice<'a>],
    starts: &'a BTreeSet<u32>,
    linkage: &'a AddressRanges,
    imports: &'a Imports,
    do_not_return: &'a BTreeSet<u32>,
    calls: Vec<u32>,
    piece: CodeSlice<'a>,
    /// Whether calls before aligned code are assumed not to return: another function may begin there.
    is_cautious: bool,
}

impl FlowPolicy for SynthesisPolicy<'_> {
    fn may_enter(&self, at: u32) -> bool {
        at == self.start || (!self.starts.contains(&at) && piece_at(self.pieces, at).is_some())
    }

    fn is_function(&self, at: u32) -> bool {
        self.starts.contains(&at) || self.linkage.contains(at)
    }

    fn before_instruction(&mut self, _: u32, _: &mut AbstractState) {}

    fn after_call(&mut self, instruction: &Instruction, target: Option<u32>) -> AfterCall {
        let next = instruction.end();
        if self.imports.never_return(instruction, target)
            || (self.is_cautious
                && self.piece.is_padding(next, next.next_multiple_of(FUNCTION_ALIGNMENT_BYTES)))
        {
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
