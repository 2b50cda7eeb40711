//! What a row of the table says: how a frame leads to its caller.

use std::fmt;

use crate::arch::Register;

/// The canonical frame address: the value that the caller's stack pointer has after the return.
///
/// Registers are those of the frame that the rule is applied to. Of a frame that isn't the interrupted one
/// only the stack pointer and the frame pointer are known, and [`Register::CALLEE_SAVED`] where all
/// [rules](Rule::callee_saved) below say where it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Cfa {
    /// `register + offset`.
    Register {
        /// Where to start.
        register: Register,
        /// Bytes to add.
        offset: i32,
    },
    /// `*(register + offset) + addend`: the CFA was itself saved on the stack.
    Deref {
        /// Where to start.
        register: Register,
        /// Bytes to add before the word is read.
        offset: i32,
        /// Bytes to add to the word.
        addend: i32,
    },
    /// `*(register + 8 * index + offset) + addend`: above an array on the stack, of as many words as `index` says.
    /// OpenSSL's Montgomery multiplication has such frames.
    DerefIndexed {
        /// Where to start.
        register: Register,
        /// How many words to go on.
        index: Register,
        /// Bytes to add before the word is read.
        offset: i32,
        /// Bytes to add to the word.
        addend: i32,
    },
    /// `stack pointer + 8`, and 8 more from byte `threshold` of an entry on: an entry of a procedure linkage table that is
    /// bound lazily, which leaves its index on the stack on the way.
    Plt {
        /// The first byte of an entry at which the index is on the stack.
        threshold: u8,
    },
}

/// Where the caller's value of the frame pointer is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SavedRegister {
    /// The register still holds it.
    Same,
    /// `*(cfa + offset)`.
    AtCfa(i32),
    /// `*(register + offset)`, the register being this frame's own.
    At {
        /// Where to start.
        register: Register,
        /// Bytes to add before the word is read.
        offset: i32,
    },
    /// Another register holds it.
    InRegister(Register),
    /// It is lost.
    Undefined,
}

/// Where the caller's value of a register is that called functions preserve, and that few rules need.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum CalleeSaved {
    /// Nobody asked.
    #[default]
    Unknown,
    /// The register still holds it.
    Same,
    /// `*(cfa + offset)`.
    AtCfa(i32),
}

/// Where the return address is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReturnAddress {
    /// `*(cfa + offset)`.
    AtCfa(i32),
    /// `*(register + offset)`, the register being this frame's own.
    At {
        /// Where to start.
        register: Register,
        /// Bytes to add before the word is read.
        offset: i32,
    },
    /// A register holds it.
    InRegister(Register),
    /// `*(cfa + offset)` in the caller of `clone`. Its child comes out of the same system call with 0 in
    /// [`Register::SYSCALL_RESULT`] and on a stack of its own, which begins there.
    OfParent(i32),
    /// There is none: this frame is proven to be the outermost of its stack.
    Undefined,
}

/// How a frame leads to its caller.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Rule {
    /// The caller's stack pointer.
    pub cfa: Cfa,
    /// The caller's frame pointer.
    pub frame_pointer: SavedRegister,
    /// The place in the caller.
    pub return_address: ReturnAddress,
    /// The caller's [`Register::CALLEE_SAVED`], where a caller may need it to find its own frame: in dynamic linkers and
    /// what they call. Text forms leave it out.
    pub callee_saved: CalleeSaved,
    /// Whether the caller was interrupted rather than calling: then `return_address` is the exact place (look
    /// it up as an instruction pointer, not one byte before) and all of its registers were saved.
    pub signal_frame: bool,
}

impl Rule {
    /// The frame of a function whose frame pointer leads to a frame record: the caller's frame pointer, and above it the
    /// return address.
    pub const FRAME_POINTER: Self = Self {
        cfa: Cfa::Register { register: Register::FRAME_POINTER, offset: 16 },
        frame_pointer: SavedRegister::AtCfa(-16),
        return_address: ReturnAddress::AtCfa(-8),
        callee_saved: CalleeSaved::Unknown,
        signal_frame: false,
    };

    /// Whether the frame pointer alone leads to the caller: a step of a frame-pointer walk then equals this
    /// rule's.
    #[must_use]
    pub fn is_frame_pointer(&self) -> bool {
        Self { callee_saved: CalleeSaved::Unknown, ..*self } == Self::FRAME_POINTER
    }

    /// Whether this is the proven outermost frame of a stack.
    #[must_use]
    pub fn is_root(&self) -> bool {
        self.return_address == ReturnAddress::Undefined
    }
}

/// Why an address has no rule.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EndReason {
    /// No source says anything of this address.
    NoInformation,
    /// A source speaks of this address, but its entry is broken.
    Malformed,
    /// A source gives a rule that [`Rule`] can't state.
    Unsupported(UnsupportedReason),
    /// The table is one of some functions, of which this address is in none.
    NotAsked,
}

/// What about a rule can't be stated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum UnsupportedReason {
    /// The CFA is an expression of no known form.
    CfaExpression,
    /// The CFA starts from something that isn't a general register.
    CfaRegister,
    /// The caller's stack pointer isn't the CFA.
    StackPointer,
    /// The frame pointer's rule is an expression of no known form.
    FramePointerExpression,
    /// The frame pointer's rule is of a kind that isn't a place in memory nor a register.
    FramePointerRule,
    /// The return address's rule is an expression of no known form.
    ReturnAddressExpression,
    /// The return address's rule is of a kind that isn't a place in memory nor a register, or is missing.
    ReturnAddressRule,
    /// An offset doesn't fit 32 bits.
    OffsetTooLarge,
    /// The code switches to another stack here, by steps that the source doesn't describe.
    StackSwitch,
    /// The file has more distinct rules than a table can hold.
    TooManyRules,
}

/// What the table says of an address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Entry {
    /// How the frame leads to its caller.
    Rule(Rule),
    /// Why that isn't known.
    End(EndReason),
}

impl Entry {
    /// What holds where no source says anything.
    pub const NO_INFORMATION: Self = Self::End(EndReason::NoInformation);

    /// What holds where a rule can't be stated.
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

/// A sum of a register, or of the CFA, and bytes: `cfa-8`.
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
