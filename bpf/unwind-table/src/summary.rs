//! What was read to make a table, and what of it could not be used.

use std::collections::BTreeMap;
use std::fmt;

use crate::rule::{EndReason, Entry, UnsupportedReason};

/// Where rows come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RowSource {
    /// A function whose place on a stack is known by its name or as the ELF entry point.
    KnownFunction,
    /// `.eh_frame`.
    EhFrame,
    /// `.gopclntab`.
    GoPclntab,
    /// `.debug_frame`.
    DebugFrame,
    /// `.sframe`.
    SFrame,
    /// A separate debug file.
    DebugFile,
    /// The small debug file inside `.gnu_debugdata`.
    MiniDebugInfo,
    /// The machine code itself, where no other source says anything.
    MachineCode,
}

/// Why code got no rows of its own ([`RowSource::MachineCode`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnresolvedReason {
    /// No way that could be followed leads there: no symbol and no call names the function, or a jump through
    /// a table comes before.
    NotReached,
    /// The ways that lead there disagree on the stack pointer, or it was set by other means than constants.
    StackPointer,
    /// The return address was overwritten or lost.
    ReturnAddress,
    /// The function returns with another stack pointer than it was called with, so that what was made of it
    /// is wrong.
    OtherReturn,
    /// Functions that share code disagree.
    Disagreement,
    /// The function took too many steps.
    TooManySteps,
}

impl fmt::Display for UnresolvedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReached => "no known way leads there",
            Self::StackPointer => "stack pointer unknown",
            Self::ReturnAddress => "return address lost",
            Self::OtherReturn => "returns with another stack pointer",
            Self::Disagreement => "functions disagree",
            Self::TooManySteps => "too many steps",
        })
    }
}

impl fmt::Display for RowSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KnownFunction => "known function",
            Self::EhFrame => ".eh_frame",
            Self::GoPclntab => ".gopclntab",
            Self::DebugFrame => ".debug_frame",
            Self::SFrame => ".sframe",
            Self::DebugFile => "debug file",
            Self::MiniDebugInfo => ".gnu_debugdata",
            Self::MachineCode => "machine code",
        })
    }
}

/// What was read to make a table, and what of it could not be used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Functions (DWARF: FDEs) that each source describes and that rows were made of.
    pub functions: BTreeMap<RowSource, u64>,
    /// Entries of a source that are broken: each costs the rows of its own range and nothing else.
    pub malformed: BTreeMap<RowSource, u64>,
    /// Entries of a source for addresses that the file doesn't execute, as linkers leave them behind for
    /// functions that they dropped.
    pub outside_code: BTreeMap<RowSource, u64>,
    /// Rows that state something that a [`Rule`](crate::Rule) can't, by reason, before equal neighbours
    /// merge.
    pub unsupported_rows: BTreeMap<UnsupportedReason, u64>,
    /// Bytes of code that no source speaks of and that got no rows from the machine code either, by reason.
    pub unresolved_bytes: BTreeMap<UnresolvedReason, u64>,
}

impl Summary {
    /// Count one more of a source.
    pub fn count(counts: &mut BTreeMap<RowSource, u64>, source: RowSource) {
        *counts.entry(source).or_default() += 1;
    }

    /// Count a row that can't be stated; any other entry counts nothing.
    pub fn count_unsupported(&mut self, entry: Entry) {
        if let Entry::End(EndReason::Unsupported(reason)) = entry {
            *self.unsupported_rows.entry(reason).or_default() += 1;
        }
    }

    /// Count code without rows, if it has none: `None` stands for code with a rule.
    pub fn count_unresolved(&mut self, reason: Option<UnresolvedReason>, bytes: u32) {
        if let Some(reason) = reason {
            *self.unresolved_bytes.entry(reason).or_default() += u64::from(bytes);
        }
    }

    /// All broken entries.
    #[must_use]
    pub fn malformed_total(&self) -> u64 {
        self.malformed.values().sum()
    }

    /// All rows that can't be stated.
    #[must_use]
    pub fn unsupported_total(&self) -> u64 {
        self.unsupported_rows.values().sum()
    }
}
