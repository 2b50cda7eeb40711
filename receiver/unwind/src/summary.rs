//! What was read to make a table, and what of it could not be used.

use std::collections::BTreeMap;
use std::fmt;

use crate::rule::{EndReason, Entry, UnsupportedReason};

/// Where rows come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Source {
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
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KnownFunction => "known function",
            Self::EhFrame => ".eh_frame",
            Self::GoPclntab => ".gopclntab",
            Self::DebugFrame => ".debug_frame",
            Self::SFrame => ".sframe",
            Self::DebugFile => "debug file",
            Self::MiniDebugInfo => ".gnu_debugdata",
        })
    }
}

/// What was read to make a table, and what of it could not be used.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Summary {
    /// Functions (DWARF: FDEs) that each source describes and that rows were made of.
    pub functions: BTreeMap<Source, u64>,
    /// Entries of a source that are broken: each costs the rows of its own range and nothing else.
    pub malformed: BTreeMap<Source, u64>,
    /// Entries of a source for addresses that the file doesn't execute, as linkers leave them behind for
    /// functions that they dropped.
    pub outside_code: BTreeMap<Source, u64>,
    /// Rows that state something that a [`Rule`](crate::Rule) can't, by reason, before equal neighbours
    /// merge.
    pub unsupported_rows: BTreeMap<UnsupportedReason, u64>,
}

impl Summary {
    pub(crate) fn count(counts: &mut BTreeMap<Source, u64>, source: Source) {
        *counts.entry(source).or_default() += 1;
    }

    pub(crate) fn count_unsupported(&mut self, entry: Entry) {
        if let Entry::End(EndReason::Unsupported(reason)) = entry {
            *self.unsupported_rows.entry(reason).or_default() += 1;
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
