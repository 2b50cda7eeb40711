//! Follows the paths of functions, and keeps the rules that hold at their instructions.
//!
//! Input: pieces of code, and where functions begin. Output: a [`FunctionFlow`] for each function, with a reason where a rule is
//! not known.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use sidewinder_unwind_table::{Entry, EntryInterner, UnresolvedReason};

use super::calls::CallSweep;
use super::imports::Imports;
use super::sections::AddressRanges;
use crate::arch::{self, Instruction, Stepper};
use crate::code::flow::{AfterCall, AnalysisBudget, Flow, FlowPolicy};
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::rule::UnknownPart;
use crate::code::span::{FUNCTION_ALIGNMENT_BYTES, RuleSpan};
use crate::code::state::AbstractState;
use crate::memory::Reservation;

/// How often functions are analyzed because functions that they call were found not to return.
const MAX_ROUNDS: usize = 4;
/// The round that knows all that the others have found.
const LAST_ROUND: usize = MAX_ROUNDS + 1;

/// The most frames of a function's jumps through tables with which unreached code is tried.
const MAX_FRAMES_OF_JUMPS: usize = 4;

/// What a function takes in the collections here, in addition to its spans.
const FUNCTION_BYTES: usize = 256;
/// What a span takes: its own, the copies that are sorted and compared with others, and its rows.
const SPAN_BYTES: usize = 64;

/// The result of following a function.
pub(super) struct FunctionFlow<'memory> {
    pub(super) spans: Vec<RuleSpan>,
    calls: Vec<u32>,
    returns: bool,
    memory: Reservation<'memory>,
}

/// The code in which functions are followed.
pub(super) struct AnalyzedCode<'data> {
    pub(super) pieces: Vec<CodeSlice<'data>>,
    /// A function is followed within one of them.
    pub(super) regions: Vec<CodeSlice<'data>>,
    pub(super) starts: BTreeSet<u32>,
    pub(super) linkage: AddressRanges,
    pub(super) sweep: CallSweep<'data>,
    pub(super) imports: Imports<'data>,
    pub(super) _starts_memory: Reservation<'data>,
}

impl AnalyzedCode<'_> {
    /// Whether an instruction computes this address, as that of a function would be.
    fn is_pointed_to(&self, at: u32) -> bool {
        let alignment_bytes = |piece: &CodeSlice<'_>| arch::function_alignment_bytes(piece.architecture);
        self.sweep.is_pointed_to(at)
            && piece_at(&self.pieces, at).is_some_and(|piece| at.is_multiple_of(alignment_bytes(piece)))
    }
}

/// Follows functions as their rows are asked for, and those that they call before.
///
/// A function is followed again after one that it calls turned out not to return, for a bounded number of rounds. What a round
/// finds depends on the functions that are called, directly or not, and on no others: so all of these go through the rounds
/// together, and the result is the same in whatever order rows are asked for.
pub(super) struct FunctionAnalyzer<'data> {
    code: AnalyzedCode<'data>,
    /// Functions that don't return, and the round that found it: 0 for those that were known before.
    do_not_return: BTreeMap<u32, usize>,
    /// The functions that have gone through all rounds.
    settled: BTreeSet<u32>,
    /// Those of them that have not been taken.
    found: BTreeMap<u32, FunctionFlow<'data>>,
    stepper: Stepper,
    budget: AnalysisBudget<'data>,
}

/// Why a function is assumed to begin at an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Evidence {
    /// A symbol or a call refers to it.
    Named,
    /// One could begin there; it counts as a function if a return proves it.
    Possible,
    /// One could begin there, and an instruction computes its address: it counts as a function if no path leaves it, too.
    PointedTo,
}

impl<'data> FunctionAnalyzer<'data> {
    pub(super) fn new(
        code: AnalyzedCode<'data>,
        never_return: BTreeSet<u32>,
        budget: AnalysisBudget<'data>,
    ) -> Self {
        Self {
            code,
            do_not_return: never_return.into_iter().map(|start| (start, 0)).collect(),
            settled: BTreeSet::new(),
            found: BTreeMap::new(),
            stepper: Stepper::new(),
            budget,
        }
    }

    /// The region that contains an address.
    pub(super) fn region_at(&self, at: u32) -> Option<&CodeSlice<'data>> {
        piece_at(&self.code.regions, at)
    }

    /// The functions that begin in a range, which no region leaves. `tries_others`: also code for which there is no evidence
    /// that a function begins there.
    pub(super) fn take(
        &mut self,
        range: Range<u32>,
        tries_others: bool,
        entries: &mut EntryInterner,
    ) -> Vec<FunctionFlow<'data>> {
        let named: Vec<u32> = self.code.starts.range(range.clone()).copied().collect();
        self.settle(named.clone(), entries);
        let others = if tries_others { self.find_others(&range, entries) } else { Vec::new() };
        let named = named.iter().filter_map(|start| self.found.remove(start));
        named.chain(others).collect()
    }

    /// Takes functions, and those that they call, through all rounds.
    fn settle(&mut self, mut left: Vec<u32>, entries: &mut EntryInterner) {
        let mut together = Vec::new();
        while let Some(start) = left.pop() {
            if self.code.starts.contains(&start)
                && self.settled.insert(start)
                && let Some(function) = self.analyze(start, Evidence::Named, 1, entries)
            {
                left.extend(&function.calls);
                together.push(start);
                self.found.insert(start, function);
            }
        }
        for round in 1..=MAX_ROUNDS {
            for start in &together {
                if self.found.get(start).is_some_and(|function| !function.returns) {
                    self.do_not_return.entry(*start).or_insert(round);
                }
            }
            if round == MAX_ROUNDS {
                break;
            }
            let is_new = |call: &u32| self.do_not_return.get(call) == Some(&round);
            let calls_new = |start: &&u32| {
                self.found.get(start).is_some_and(|function| function.calls.iter().any(is_new))
            };
            let again: Vec<u32> = together.iter().filter(calls_new).copied().collect();
            for start in again {
                if let Some(function) = self.analyze(start, Evidence::Named, round + 1, entries) {
                    self.found.insert(start, function);
                }
            }
        }
    }

    /// Follows code of a range that no function reaches, where one could begin.
    fn find_others(&mut self, range: &Range<u32>, entries: &mut EntryInterner) -> Vec<FunctionFlow<'data>> {
        let mut others = self.possible(range, entries);
        // What they call has to be settled first. That seldom makes them call others.
        for _ in 0..MAX_ROUNDS {
            let is_unsettled = |call: &u32| self.code.starts.contains(call) && !self.settled.contains(call);
            let calls = others.iter().flat_map(|function| &function.calls).copied();
            let unsettled: Vec<u32> = calls.filter(is_unsettled).collect();
            if unsettled.is_empty() {
                break;
            }
            self.settle(unsettled, entries);
            others = self.possible(range, entries);
        }
        others
    }

    fn possible(&mut self, range: &Range<u32>, entries: &mut EntryInterner) -> Vec<FunctionFlow<'data>> {
        let mut reached = ReachedCode::default();
        self.found.range(range.clone()).for_each(|(_, function)| reached.add(&function.spans));
        let mut functions = Vec::new();
        for at in self.code.sweep.beginnings_within(range.start, range.end).to_vec() {
            if reached.at(at).is_none()
                && self.region_at(at).is_some_and(|region| !region.has_padding_at(at))
                && let Some(function) = self.analyze(at, self.evidence_of(at), LAST_ROUND, entries)
                && !reached.contradicts(&function.spans)
            {
                reached.add(&function.spans);
                functions.push(function);
            }
        }
        functions
    }

    /// Of a place where no function is known to begin.
    fn evidence_of(&self, at: u32) -> Evidence {
        if self.code.is_pointed_to(at) { Evidence::PointedTo } else { Evidence::Possible }
    }

    fn analyze(
        &mut self,
        start: u32,
        evidence: Evidence,
        round: usize,
        entries: &mut EntryInterner,
    ) -> Option<FunctionFlow<'data>> {
        let piece = *self.region_at(start)?;
        let memory = self.budget.memory.reserve(FUNCTION_BYTES)?;
        let code = &self.code;
        let next = code.starts.range(start + 1..).next();
        let limit = next.map_or(piece.end(), |next| *next.min(&piece.end()));
        let guide = SynthesisPolicy {
            start,
            code,
            do_not_return: &self.do_not_return,
            round,
            calls: Vec::new(),
            piece,
            is_cautious: false,
        };
        let mut flow = Flow::new(piece, guide, &mut self.stepper, &mut self.budget);
        let entry = arch::at_entry(piece.architecture);
        let met = match evidence {
            Evidence::Possible => {
                flow.policy.is_cautious = true;
                flow.try_seed(start, &entry, false)?
            }
            Evidence::PointedTo => match flow.try_seed(start, &entry, true) {
                Some(met) => met,
                None => {
                    flow.policy.is_cautious = true;
                    flow.try_seed(start, &entry, true)?
                }
            },
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
            follow_tables(&mut flow, met.indirect_jumps, code.sweep.beginnings_within(start, limit));
        }
        let mut found = FunctionFlow { spans: Vec::new(), calls: Vec::new(), returns, memory };
        let mut is_complete = true;
        flow.for_each_instruction(|_, instruction, state| {
            is_complete = is_complete && found.add(instruction, state, entries);
        });
        found.calls = std::mem::take(&mut flow.policy.calls);
        if !is_complete || !found.memory.grow(size_of_val(&*found.calls)) {
            return None;
        }
        if let Some(reason) = distrusted {
            found.spans.iter_mut().for_each(|span| span.rule = Err(reason));
        }
        Some(found)
    }
}

/// Tries the possible targets of jumps through tables: code that no other path reaches, with the frame of the jump. A
/// target is accepted if a return proves it, or code where the frame is known.
fn follow_tables(
    flow: &mut Flow<'_, '_, '_, SynthesisPolicy<'_>>,
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
            if let Some(met) = flow.try_seed(*at, &frame, false) {
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

impl FunctionFlow<'_> {
    /// Adds an instruction. Returns false, and adds nothing, if there is no memory for it.
    fn add(&mut self, instruction: &Instruction, state: &AbstractState, entries: &mut EntryInterner) -> bool {
        let rule = match state.rule() {
            Ok(rule) => Ok(entries.intern(Entry::Rule(rule))),
            Err(UnknownPart::Cfa) => Err(UnresolvedReason::StackPointer),
            Err(UnknownPart::ReturnAddress) => Err(UnresolvedReason::ReturnAddress),
        };
        let (start, end) = (instruction.start(), instruction.end());
        match self.spans.last_mut() {
            Some(last) if last.end == start && last.rule == rule => last.end = end,
            _ if !self.memory.grow(SPAN_BYTES) => return false,
            _ => self.spans.push(RuleSpan { start, end, rule }),
        }
        true
    }
}

/// Follows the paths of one function among others.
struct SynthesisPolicy<'a> {
    start: u32,
    code: &'a AnalyzedCode<'a>,
    do_not_return: &'a BTreeMap<u32, usize>,
    /// It knows what earlier ones have found.
    round: usize,
    calls: Vec<u32>,
    piece: CodeSlice<'a>,
    /// Whether calls before aligned code are assumed not to return: another function may begin there.
    is_cautious: bool,
}

impl FlowPolicy for SynthesisPolicy<'_> {
    fn may_enter(&self, at: u32) -> bool {
        at == self.start || (!self.code.starts.contains(&at) && piece_at(&self.code.pieces, at).is_some())
    }

    fn is_function(&self, at: u32) -> bool {
        self.code.starts.contains(&at) || self.code.linkage.contains(at)
    }

    fn before_instruction(&mut self, _: u32, _: &mut AbstractState) {}

    fn after_call(&mut self, instruction: &Instruction, target: Option<u32>) -> AfterCall {
        let next = instruction.end();
        let is_before_another = || {
            self.code.is_pointed_to(next)
                || (self.is_cautious
                    && self.piece.is_padding(next, next.next_multiple_of(FUNCTION_ALIGNMENT_BYTES)))
        };
        if self.code.imports.never_return(instruction, target) || is_before_another() {
            return AfterCall::DoesNotReturn;
        }
        match target {
            Some(target) if self.do_not_return.get(&target).is_some_and(|round| *round < self.round) => {
                AfterCall::DoesNotReturn
            }
            Some(target) => {
                self.calls.push(target);
                AfterCall::ReturnsUnlessContradicted
            }
            None => AfterCall::ReturnsUnlessContradicted,
        }
    }
}
