//! Follows the paths of functions, and keeps the rules that hold at their instructions.
//!
//! Input: pieces of code, and where functions begin. Output: a [`FunctionFlow`] for each function, with a reason where a rule is
//! not known. Functions are followed again when functions that they call turn out not to return.

use std::collections::{BTreeMap, BTreeSet};

use sidewinder_unwind_table::{Entry, EntryInterner, UnresolvedReason};

use super::calls::CallSweep;
use super::imports::Imports;
use super::sections::AddressRanges;
use crate::arch::{Instruction, Stepper};
use crate::code::flow::{AfterCall, Flow, FlowPolicy, StepBudget};
use crate::code::piece::{CodeSlice, piece_at};
use crate::code::rule::UnknownPart;
use crate::code::span::{FUNCTION_ALIGNMENT_BYTES, RuleSpan};
use crate::code::state::AbstractState;

/// How often functions are analyzed again because functions that they call were found not to return.
const MAX_ROUNDS: usize = 4;

/// The most frames of a function's jumps through tables with which unreached code is tried.
const MAX_FRAMES_OF_JUMPS: usize = 4;

/// The result of following a function.
pub(super) struct FunctionFlow {
    pub(super) spans: Vec<RuleSpan>,
    calls: Vec<u32>,
    returns: bool,
}

pub(super) struct FunctionAnalyzer<'a, 'data> {
    pub(super) pieces: &'a [CodeSlice<'data>],
    pub(super) regions: &'a [CodeSlice<'data>],
    pub(super) starts: &'a BTreeSet<u32>,
    pub(super) linkage: &'a AddressRanges,
    pub(super) sweep: &'a CallSweep,
    pub(super) imports: &'a Imports,
    pub(super) do_not_return: BTreeSet<u32>,
    pub(super) stepper: Stepper,
    pub(super) budget: StepBudget,
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
    pub(super) fn analyze_all(
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
