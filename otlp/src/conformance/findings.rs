//! Violations, and their collection.

use std::fmt;

/// At most this many violations are collected.
const MAX_VIOLATIONS: usize = 1000;

/// A rule that a message breaks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Its number in the table of [`conformance`](crate::conformance).
    pub rule: u8,
    /// The location, such as `dictionary.stack_table[3]`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}: {}: {}", self.rule, self.path, self.problem)
    }
}

/// The violations found so far.
#[derive(Default)]
pub(super) struct Violations(pub(super) Vec<Violation>);

impl Violations {
    /// Adds a violation of `rule` unless `holds`.
    pub(super) fn require(
        &mut self,
        rule: u8,
        holds: bool,
        path: impl fmt::Display,
        problem: impl fmt::Display,
    ) {
        if !holds && self.0.len() < MAX_VIOLATIONS {
            self.0.push(Violation { rule, path: path.to_string(), problem: problem.to_string() });
        }
    }
}
