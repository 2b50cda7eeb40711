//! Checks given rows against the effect of the code.
//!
//! Each function that call frame information describes is followed from its first instruction, and each row is checked
//! at every instruction that it covers. Where the code alone doesn't determine the frame (after a jump through a table,
//! at a landing pad of exceptions), the row is trusted, and the code from there on has to agree with the rows that
//! follow.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;

use object::File;
use sidewinder_address::Svma;
use sidewinder_unwind_table::{Entry, Rule, UnwindRow, UnwindTable};

use crate::arch::{Instruction, Stepper};
use crate::code::flow::{AfterCall, AnalysisBudget, Flow, FlowPolicy};
use crate::code::piece::CodeSlice;
use crate::code::rule::{RuleVerdict, StatementVerdict};
use crate::code::state::AbstractState;
use crate::elf::{described_functions, memory_of};
use crate::read::ReadFile;
use crate::segments::{CodeRanges, UnwindTableError};

/// A part of a rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RuleComponent {
    /// The location of the CFA.
    Cfa,
    /// The location of the caller's frame pointer.
    FramePointer,
    /// The location of the return address.
    ReturnAddress,
}

/// A row that contradicts the code, over a range in which the code does one thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// The first instruction at which the row contradicts the code.
    pub start: Svma,
    /// The end of the last one.
    pub end: Svma,
    /// The row.
    pub row: UnwindRow,
    /// The first wrong component of the row, in the order of [`RuleComponent`].
    pub statement: RuleComponent,
    /// The rule that the code follows, if there is one.
    pub code: Option<Rule>,
}

impl Mismatch {
    /// The rule that the code follows instead, and where, if there is one.
    #[must_use]
    pub fn correction(&self) -> Option<(Range<Svma>, Rule)> {
        self.code.map(|rule| (self.start..self.end, rule))
    }
}

/// Which side takes precedence where rows and code contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TrustedSide {
    /// The rows, as in every debugger.
    #[default]
    Rows,
    /// The code, where its effect can be expressed as a rule.
    Code,
}

/// The result of checking a file's rows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Validation {
    /// Where rows contradict the code, in order.
    pub mismatches: Vec<Mismatch>,
    /// Rows that contradict the code at one instruction or more.
    pub rows_wrong: u64,
    /// Functions that were checked.
    pub functions: u64,
    /// Functions that were abandoned because they took too many steps.
    pub functions_unresolved: u64,
    /// Rows that were checked at one instruction or more.
    pub rows: u64,
    /// Instructions at which every part of the row was right.
    pub instructions_right: u64,
    /// Instructions at which the row was trusted, at least in part, because the code doesn't determine the frame.
    pub instructions_open: u64,
    /// Instructions without a rule to check, or with one that states more than a frame: the beginnings of stacks, and
    /// the kernel's signal frames.
    pub instructions_without_claim: u64,
}

/// Checks the rows of a file against its code.
///
/// # Errors
///
/// If the file has no code, or code for another processor.
pub fn validate<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    table: &UnwindTable,
) -> Result<Validation, UnwindTableError> {
    let code = CodeRanges::from_file(file)?;
    let mut validation = Validation::default();
    let mut stepper = Stepper::new();
    for (start, end) in described_functions(file, &code) {
        let Some(bytes) = code.bytes(file, start, u64::from(end - start)) else { continue };
        let mut budget = AnalysisBudget::for_bytes(bytes.len() as u64, memory_of(file));
        let piece = CodeSlice { architecture: code.architecture(), start, bytes };
        let rows = ValidationPolicy { table, code: &code, piece, start, end, current: None };
        check_function(Flow::new(piece, rows, &mut stepper, &mut budget), &piece, &mut validation);
    }
    validation.mismatches.sort_unstable_by_key(|mismatch| (mismatch.start, mismatch.end));
    let wrong: BTreeSet<Svma> = validation.mismatches.iter().map(|mismatch| mismatch.row.start).collect();
    validation.rows_wrong = wrong.len() as u64;
    Ok(validation)
}

/// The table of a file, with conflicts resolved in favour of the trusted side.
///
/// # Errors
///
/// If the file has no code, or code for another processor.
pub fn resolve_conflicts<'data, R: ReadFile<'data>>(
    file: &File<'data, R>,
    table: UnwindTable,
    trust: TrustedSide,
) -> Result<UnwindTable, UnwindTableError> {
    Ok(match trust {
        TrustedSide::Rows => table,
        TrustedSide::Code => {
            table.with_corrections(validate(file, &table)?.mismatches.iter().filter_map(Mismatch::correction))
        }
    })
}

impl Validation {
    fn add(&mut self, mismatch: Mismatch) {
        let Mismatch { start, row, statement, code, .. } = mismatch;
        match self.mismatches.last_mut() {
            Some(last)
                if (last.end, last.row, last.statement, last.code) == (start, row, statement, code) =>
            {
                last.end = mismatch.end;
            }
            _ => self.mismatches.push(mismatch),
        }
    }
}

fn check_function(
    mut flow: Flow<'_, '_, '_, ValidationPolicy<'_>>,
    piece: &CodeSlice<'_>,
    validation: &mut Validation,
) {
    validation.functions += 1;
    let architecture = piece.architecture;
    let mut at = piece.start;
    while at < piece.end() && !flow.exhausted {
        match piece.decode(at) {
            None => at += 1,
            Some(instruction) if instruction.is_padding() => at += instruction.len(),
            Some(instruction) => {
                let state = flow.policy.rule_at(at).map_or(AbstractState::unknown(architecture), |rule| {
                    AbstractState::from_rule(architecture, &rule)
                });
                flow.seed(at, &state);
                at = flow.unreached_from(at).max(at + instruction.len());
                continue;
            }
        }
        at = flow.unreached_from(at);
    }
    if flow.exhausted {
        validation.functions_unresolved += 1;
        return;
    }
    let mut rows = BTreeSet::new();
    flow.for_each_instruction(|guide, instruction, state| {
        let row = guide.row_at(instruction.start());
        let Some(rule) = row.entry.rule().filter(|rule| !rule.signal_frame && !rule.is_root()) else {
            validation.instructions_without_claim += 1;
            return;
        };
        let verdict = state.check_rule(rule, guide.code.svma(instruction.start()).0);
        rows.insert(row.start);
        match first_wrong(&verdict) {
            Some(statement) => {
                let [start, end] = [instruction.start(), instruction.end()].map(|at| guide.code.svma(at));
                validation.add(Mismatch { start, end, row, statement, code: state.rule().ok() });
            }
            None if is_right(&verdict) => validation.instructions_right += 1,
            None => validation.instructions_open += 1,
        }
    });
    validation.rows += rows.len() as u64;
}

/// The first component that contradicts the code.
///
/// A rule whose CFA and return address both aren't of this frame describes another frame: `longjmp` describes the frame
/// that it is about to enter.
fn first_wrong(verdict: &RuleVerdict) -> Option<RuleComponent> {
    let RuleVerdict { cfa, frame_pointer, return_address } = *verdict;
    if cfa == StatementVerdict::Foreign && return_address != StatementVerdict::Right {
        return None;
    }
    let contradicts = |verdict| matches!(verdict, StatementVerdict::Wrong | StatementVerdict::Foreign);
    [
        (cfa, RuleComponent::Cfa),
        (frame_pointer, RuleComponent::FramePointer),
        (return_address, RuleComponent::ReturnAddress),
    ]
    .into_iter()
    .find_map(|(verdict, statement)| contradicts(verdict).then_some(statement))
}

fn is_right(verdict: &RuleVerdict) -> bool {
    [verdict.cfa, verdict.frame_pointer, verdict.return_address] == [StatementVerdict::Right; 3]
}

/// Guides the flow through one function by its rows.
struct ValidationPolicy<'a> {
    table: &'a UnwindTable,
    code: &'a CodeRanges,
    piece: CodeSlice<'a>,
    start: u32,
    end: u32,
    /// The row of the last lookup, and the start of the next one.
    current: Option<(UnwindRow, Svma)>,
}

impl ValidationPolicy<'_> {
    fn row_at(&mut self, at: u32) -> UnwindRow {
        let at = self.code.svma(at);
        match self.current {
            Some((row, next)) if row.start <= at && at < next => row,
            _ => {
                let none = UnwindRow { start: Svma(0), entry: Entry::NO_INFORMATION };
                let row = self.table.row_at(at).unwrap_or(none);
                let next = self.table.row_after(at).map_or(Svma(u64::MAX), |row| row.start);
                self.current = Some((row, next));
                row
            }
        }
    }

    fn rule_at(&mut self, at: u32) -> Option<Rule> {
        self.row_at(at).entry.rule().copied()
    }
}

impl FlowPolicy for ValidationPolicy<'_> {
    fn may_enter(&self, at: u32) -> bool {
        (self.start..self.end).contains(&at)
    }

    fn is_function(&self, at: u32) -> bool {
        !self.may_enter(at)
    }

    fn before_instruction(&mut self, at: u32, state: &mut AbstractState) {
        if let Entry::Rule(rule) = self.row_at(at).entry {
            state.assume(&rule);
        }
    }

    /// Where the rule changes after a call with at most padding in between, the call doesn't return, and what follows
    /// is reached by other paths.
    fn after_call(&mut self, instruction: &Instruction, _: Option<u32>) -> AfterCall {
        let before = instruction.start();
        let after = self.piece.after_padding(instruction.end());
        if self.rule_at(before) == self.rule_at(after) {
            AfterCall::ReturnsUnlessContradicted
        } else {
            AfterCall::DoesNotReturn
        }
    }
}

/// Start, end, component, the columns of the row, and the code's rule, separated by tabs.
impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t{}\t{}\t{}\t", self.start, self.end, self.statement, self.row)?;
        match self.code {
            Some(rule) => Entry::Rule(rule).fmt(f),
            None => f.write_str("unknown\t-\t-"),
        }
    }
}

impl fmt::Display for RuleComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cfa => "cfa",
            Self::FramePointer => "frame-pointer",
            Self::ReturnAddress => "return-address",
        })
    }
}
