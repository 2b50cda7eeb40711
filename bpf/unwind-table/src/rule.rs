//! Unwind rules: how to find the caller of a frame.

use std::fmt;

use crate::arch::register::Register;

/// The canonical frame address: the value that the caller's stack pointer has after the return.
///
/// Registers are those of the frame that the rule is applied to. In frames other than the interrupted one, only the stack
/// pointer and the frame pointer are known, and [`Register::CALLEE_SAVED`] if all [rules](Rule::callee_saved) below say
/// where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cfa {
    /// `register + offset`.
    Register {
        /// The base register.
        register: Register,
        /// Bytes to add.
        offset: i32,
    },
    /// `*(register + offset) + addend`: the CFA was itself saved on the stack.
    Deref {
        /// The base register.
        register: Register,
        /// Bytes to add before the word is read.
        offset: i32,
        /// Bytes to add to the word.
        addend: i32,
    },
    /// `*(register + 8 * index + offset) + addend`: the CFA is saved above an array on the stack with `index` words.
    /// OpenSSL's Montgomery multiplication has such frames.
    DerefIndexed {
        /// The base register.
        register: Register,
        /// The register with the number of words.
        index: Register,
        /// Bytes to add before the word is read.
        offset: i32,
        /// Bytes to add to the word.
        addend: i32,
    },
    /// `stack pointer + 8`, plus 8 from byte `threshold` of an entry on: in a lazily bound procedure linkage table, whose
    /// entries push an index.
    Plt {
        /// The first byte of an entry at which the index is on the stack.
        threshold: u8,
    },
}

/// The location of the caller's frame pointer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SavedRegister {
    /// The register still holds it.
    Same,
    /// `*(cfa + offset)`.
    AtCfa(i32),
    /// `*(register + offset)`, with this frame's register.
    At {
        /// The base register.
        register: Register,
        /// Bytes to add before the word is read.
        offset: i32,
    },
    /// Another register holds it.
    InRegister(Register),
    /// It is lost.
    Undefined,
}

/// The location of the caller's value of the [third register](crate::Architecture::tracked) that walks track.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum CalleeSaved {
    /// Not recorded.
    #[default]
    Unknown,
    /// The register still holds it.
    Same,
    /// `*(cfa + offset)`.
    AtCfa(i32),
    /// The word above that of the frame pointer, whose location is a [`SavedRegister::At`]: in a signal frame.
    AfterFramePointer,
}

/// The location of the return address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReturnAddress {
    /// `*(cfa + offset)`.
    AtCfa(i32),
    /// `*(register + offset)`, with this frame's register.
    At {
        /// The base register.
        register: Register,
        /// Bytes to add before the word is read.
        offset: i32,
    },
    /// A register holds it.
    InRegister(Register),
    /// `*(cfa + offset)` in the caller of `clone`. The child returns from the same system call with 0 in
    /// [`Register::SYSCALL_RESULT`], on a new stack, which starts there.
    OfParent(i32),
    /// There is none: this frame is known to be the outermost of its stack.
    Undefined,
}

/// How to find the caller of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rule {
    /// The caller's stack pointer.
    pub cfa: Cfa,
    /// The caller's frame pointer.
    pub frame_pointer: SavedRegister,
    /// The return address into the caller.
    pub return_address: ReturnAddress,
    /// The caller's [`Register::CALLEE_SAVED`], where a caller may need it to find its own frame: in dynamic linkers and
    /// what they call. Not part of text forms.
    pub callee_saved: CalleeSaved,
    /// Whether the caller was interrupted instead of making a call: then `return_address` is exact (look it up as an
    /// instruction pointer, not one byte lower), and all of the caller's registers were saved.
    pub signal_frame: bool,
}

impl Rule {
    /// Whether the frame pointer alone leads to the caller: a frame-pointer step has the same result as this rule.
    #[must_use]
    pub fn is_frame_pointer(&self) -> bool {
        let Cfa::Register { register, .. } = self.cfa else { return false };
        let plain = Self { callee_saved: CalleeSaved::Unknown, ..*self };
        plain == register.architecture().frame_pointer_rule()
    }

    /// Whether this frame is known to be the outermost of its stack.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.return_address == ReturnAddress::Undefined
    }
}

/// Why an address has no rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndReason {
    /// No source has information for this address.
    NoInformation,
    /// A source covers this address, but its entry is broken.
    Malformed,
    /// A source has a rule that [`Rule`] can't express.
    Unsupported(UnsupportedReason),
    /// The table only covers some functions, and the address isn't in any of them.
    NotAsked,
}

/// Why a rule can't be expressed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnsupportedReason {
    /// The CFA is an expression of an unknown form.
    CfaExpression,
    /// The CFA starts from something that isn't a general register.
    CfaRegister,
    /// The caller's stack pointer isn't the CFA.
    StackPointer,
    /// The frame pointer's rule is an expression of an unknown form.
    FramePointerExpression,
    /// The frame pointer's rule is neither a memory location nor a register.
    FramePointerRule,
    /// The return address's rule is an expression of an unknown form.
    ReturnAddressExpression,
    /// The return address's rule is neither a memory location nor a register, or is missing.
    ReturnAddressRule,
    /// An instruction of the call frame information isn't known, so neither are the rows from there on.
    Instruction,
    /// An offset doesn't fit 32 bits.
    OffsetTooLarge,
    /// The code switches to another stack here, in a way that the source doesn't describe.
    StackSwitch,
    /// The file has more distinct rules than a table can hold.
    TooManyRules,
}

/// The table's entry for an address: a rule, or the reason why there is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Entry {
    /// How to find the caller of the frame.
    Rule(Rule),
    /// Why that isn't known.
    End(EndReason),
}

impl Entry {
    /// The entry for addresses without information from any source.
    pub const NO_INFORMATION: Self = Self::End(EndReason::NoInformation);

    /// The entry for a rule that can't be expressed.
    #[must_use]
    pub const fn unsupported(reason: UnsupportedReason) -> Self {
        Self::End(EndReason::Unsupported(reason))
    }

    /// The rule, if there is one.
    #[must_use]
    pub const fn rule(&self) -> Option<&Rule> {
        match self {
            Self::Rule(rule) => Some(rule),
            Self::End(_) => None,
        }
    }
}

/// The sum of a register or the CFA and an offset in bytes: `cfa-8`.
struct Sum<T>(T, i32);

impl<T: fmt::Display> fmt::Display for Sum<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:+}", self.0, self.1)
    }
}

impl fmt::Display for Cfa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Register { register, offset } => Sum(register, offset).fmt(f),
            Self::Deref { register, offset, addend: 0 } => write!(f, "*({})", Sum(register, offset)),
            Self::Deref { register, offset, addend } => {
                write!(f, "*({}){addend:+}", Sum(register, offset))
            }
            Self::DerefIndexed { register, index, offset, addend } => {
                write!(f, "*({register}+8*{}){addend:+}", Sum(index, offset))
            }
            Self::Plt { .. } => f.write_str("plt"),
        }
    }
}

impl fmt::Display for SavedRegister {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Same => f.write_str("same"),
            Self::AtCfa(offset) => Sum("cfa", offset).fmt(f),
            Self::At { register, offset } => write!(f, "*({})", Sum(register, offset)),
            Self::InRegister(register) => register.fmt(f),
            Self::Undefined => f.write_str("undefined"),
        }
    }
}

impl fmt::Display for ReturnAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::AtCfa(offset) => Sum("cfa", offset).fmt(f),
            Self::At { register, offset } => write!(f, "*({})", Sum(register, offset)),
            Self::InRegister(register) => register.fmt(f),
            Self::OfParent(offset) => {
                write!(f, "{} unless {}=0", Sum("cfa", offset), Register::SYSCALL_RESULT)
            }
            Self::Undefined => f.write_str("undefined"),
        }
    }
}

/// The last three columns of a row's text form, separated by tabs: CFA, frame pointer, return address.
/// An entry without a rule is `end`, `-`, `-`, whatever the reason.
impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule(rule) => write!(f, "{}\t{}\t{}", rule.cfa, rule.frame_pointer, rule.return_address),
            Self::End(_) => f.write_str("end\t-\t-"),
        }
    }
}

impl fmt::Display for EndReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoInformation => f.write_str("no information"),
            Self::Malformed => f.write_str("malformed entry"),
            Self::NotAsked => f.write_str("not asked for"),
            Self::Unsupported(reason) => write!(f, "unsupported: {reason}"),
        }
    }
}

impl fmt::Display for UnsupportedReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CfaExpression => "CFA expression",
            Self::CfaRegister => "CFA from a special register",
            Self::StackPointer => "stack pointer other than the CFA",
            Self::FramePointerExpression => "frame pointer expression",
            Self::FramePointerRule => "frame pointer rule",
            Self::ReturnAddressExpression => "return address expression",
            Self::ReturnAddressRule => "return address rule",
            Self::Instruction => "call frame instruction",
            Self::OffsetTooLarge => "offset over 32 bits",
            Self::StackSwitch => "stack switch",
            Self::TooManyRules => "too many distinct rules",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_rule_of_a_pushed_frame_pointer_is_proof() {
        assert!(Rule::FRAME_POINTER.is_frame_pointer());
        assert!(!Rule::LEAF.is_frame_pointer());
        assert!(!Rule { signal_frame: true, ..Rule::FRAME_POINTER }.is_frame_pointer());
        assert!(!Rule { frame_pointer: SavedRegister::Same, ..Rule::FRAME_POINTER }.is_frame_pointer());
    }
}
