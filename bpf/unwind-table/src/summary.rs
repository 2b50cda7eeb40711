//! The sources of a table, and what could not be used of them.

use std::collections::BTreeMap;
use std::fmt;

use crate::rule::{EndReason, Entry, UnsupportedReason};

/// The source of a row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RowSource {
    /// A function whose position on the stack is known from its name, or as the ELF entry point.
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
    /// The machine code, where no other source has information.
    MachineCode,
}

/// Why code got no rows ([`RowSource::MachineCode`]).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnresolvedReason {
    /// No known control flow leads there: no symbol and no call refers to the function, or it is behind a jump through a
    /// table.
    NotReached,
    /// The control flow paths that lead there disagree on the stack pointer, or it was set to an unknown value.
    StackPointer,
    /// The return address was overwritten or lost.
    ReturnAddress,
    /// The function returns with a stack pointer other than the one it was called with, so its derived rows are wrong.
    OtherReturn,
    /// Functions that share code disagree.
    Disagreement,
    /// The analysis of the function exceeded its limit of steps.
    TooManySteps,
    /// The section has too much code without unwind information for an analysis.
    TooMuchCode,
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
            Self::TooMuchCode => "too much code without unwind information to be analyzed",
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

/// The sources of a table, and what could not be used of them.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// The number of functions (DWARF: FDEs) with rows, by source.
    pub functions: BTreeMap<RowSource, u64>,
    /// Broken entries, by source: only the range of each loses its rows.
    pub malformed: BTreeMap<RowSource, u64>,
    /// Entries for addresses that the file doesn't execute, by source; linkers leave these behind for functions that they
    /// dropped.
    pub outside_code: BTreeMap<RowSource, u64>,
    /// Rows that [`Rule`](crate::Rule) can't express, by reason, before equal neighbours are merged.
    pub unsupported_rows: BTreeMap<UnsupportedReason, u64>,
    /// Bytes of code without information from any source, and without rows from the machine code, by reason.
    pub unresolved_bytes: BTreeMap<UnresolvedReason, u64>,
}

impl Summary {
    /// Counts one more for a source.
    pub fn count(counts: &mut BTreeMap<RowSource, u64>, source: RowSource) {
        *counts.entry(source).or_default() += 1;
    }

    /// Counts a row that can't be expressed; ignores other entries.
    pub fn count_unsupported(&mut self, entry: Entry) {
        if let Entry::End(EndReason::Unsupported(reason)) = entry {
            *self.unsupported_rows.entry(reason).or_default() += 1;
        }
    }

    /// Counts code without rows; `None` stands for code with a rule.
    pub fn count_unresolved(&mut self, reason: Option<UnresolvedReason>, bytes: u32) {
        if let Some(reason) = reason {
            *self.unresolved_bytes.entry(reason).or_default() += u64::from(bytes);
        }
    }

    /// The total of broken entries.
    #[must_use]
    pub fn malformed_total(&self) -> u64 {
        self.malformed.values().sum()
    }

    /// The total of rows that can't be expressed.
    #[must_use]
    pub fn unsupported_total(&self) -> u64 {
        self.unsupported_rows.values().sum()
    }
}
