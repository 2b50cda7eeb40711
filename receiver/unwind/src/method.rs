//! Decides which ranges can be walked by the frame pointer alone, and why the others need their rows.
//!
//! The proof is the file's own unwind information: a range is proven if its rule equals the step of a frame-pointer
//! walk ([`Architecture::frame_pointer_rule`](sidewinder_unwind_table::Architecture::frame_pointer_rule)). So prologues, epilogues, leaves and everything between functions are never proven,
//! whatever options the compiler was given.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use sidewinder_address::Svma;
use sidewinder_unwind_table::{Cfa, EndReason, Entry, Rule, UnwindTable};

/// How a range can be walked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnwindMethod {
    /// By the frame pointer, as the rows prove; or by the rows, with the same result.
    FramePointer,
    /// By the rows only.
    Table(TableReason),
    /// Not at all.
    None(EndReason),
}

/// Why a range needs its rows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TableReason {
    /// The CFA is relative to the stack pointer: a prologue, an epilogue, a leaf, or a function without a frame
    /// pointer.
    StackPointer,
    /// The frame pointer is used, but not as in the standard frame.
    UnusualFrame,
    /// The CFA comes from another register, from memory, or from an entry of a procedure linkage table.
    Special,
    /// A signal frame.
    SignalFrame,
    /// The stack ends here.
    Root,
}

/// A range of addresses with one unwind method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodRange {
    /// The first address.
    pub start: Svma,
    /// The first address after it.
    pub end: Svma,
    /// How it can be walked.
    pub method: UnwindMethod,
}

impl UnwindMethod {
    /// How code with this entry can be walked.
    #[must_use]
    pub fn from_entry(entry: &Entry) -> Self {
        let rule = match entry {
            Entry::End(reason) => return Self::None(*reason),
            Entry::Rule(rule) if rule.is_frame_pointer() => return Self::FramePointer,
            Entry::Rule(rule) => rule,
        };
        Self::Table(match *rule {
            _ if rule.is_root() => TableReason::Root,
            Rule { signal_frame: true, .. } => TableReason::SignalFrame,
            Rule { cfa: Cfa::Register { register, .. }, .. } if register.is_stack_pointer() => {
                TableReason::StackPointer
            }
            Rule { cfa: Cfa::Register { register, .. }, .. } if register.is_frame_pointer() => {
                TableReason::UnusualFrame
            }
            _ => TableReason::Special,
        })
    }
}

/// The maximal ranges with one method, from the table's first row to its last.
pub fn method_ranges(table: &UnwindTable) -> impl Iterator<Item = MethodRange> + '_ {
    let mut rows = table.rows().peekable();
    std::iter::from_fn(move || {
        let first = rows.next()?;
        let mode = UnwindMethod::from_entry(&first.entry);
        while rows.next_if(|row| UnwindMethod::from_entry(&row.entry) == mode).is_some() {}
        // Nothing follows the last row, which is an end: it has no range.
        rows.peek().map(|next| MethodRange { start: first.start, end: next.start, method: mode })
    })
}

/// The number of bytes of code for each method. `code` is sorted, and each byte of it counts once.
#[must_use]
pub fn bytes_by_method(table: &UnwindTable, code: &[Range<Svma>]) -> BTreeMap<UnwindMethod, u64> {
    let mut bytes = BTreeMap::new();
    for range in code {
        let mut at = range.start;
        while at < range.end {
            let end = table.row_after(at).map_or(range.end, |next| next.start.min(range.end));
            *bytes.entry(UnwindMethod::from_entry(&table.lookup(at))).or_default() += end.0 - at.0;
            at = end;
        }
    }
    bytes
}

/// The method and, after a colon, the reason.
impl fmt::Display for UnwindMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FramePointer => f.write_str("frame pointer: proven by the rows"),
            Self::Table(reason) => write!(f, "table: {reason}"),
            Self::None(reason) => write!(f, "none: {reason}"),
        }
    }
}

impl fmt::Display for TableReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StackPointer => "prologue, epilogue or leaf, or no frame pointer",
            Self::UnusualFrame => "unusual frame",
            Self::Special => "special CFA",
            Self::SignalFrame => "signal frame",
            Self::Root => "stack ends here",
        })
    }
}

#[cfg(test)]
mod tests {
    use sidewinder_unwind_table::{ReturnAddress, SavedRegister};

    use super::*;

    #[test]
    fn each_kind_of_entry_has_its_mode() {
        let mode = |rule| UnwindMethod::from_entry(&Entry::Rule(rule));
        assert_eq!(mode(Rule::FRAME_POINTER), UnwindMethod::FramePointer);
        assert_eq!(mode(Rule::LEAF), UnwindMethod::Table(TableReason::StackPointer));
        assert_eq!(mode(Rule::ROOT), UnwindMethod::Table(TableReason::Root));
        assert_eq!(mode(Rule::KERNEL_SIGNAL_FRAME), UnwindMethod::Table(TableReason::SignalFrame));
        assert_eq!(
            mode(Rule { cfa: Cfa::Plt { threshold: 11 }, ..Rule::LEAF }),
            UnwindMethod::Table(TableReason::Special)
        );
        let realigned = Rule { frame_pointer: SavedRegister::AtCfa(-24), ..Rule::FRAME_POINTER };
        assert_eq!(mode(realigned), UnwindMethod::Table(TableReason::UnusualFrame));
        let root = Rule { return_address: ReturnAddress::Undefined, ..Rule::FRAME_POINTER };
        assert_eq!(mode(root), UnwindMethod::Table(TableReason::Root));
        assert_eq!(
            UnwindMethod::from_entry(&Entry::NO_INFORMATION),
            UnwindMethod::None(EndReason::NoInformation)
        );
    }
}
