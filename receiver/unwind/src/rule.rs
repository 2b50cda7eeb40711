//! What a row of the table says: how a frame leads to its caller.

use std::fmt;

/// A register that a rule may start from.
///
/// The set is what x86-64 rules use; another architecture's registers are further variants.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[expect(missing_docs, reason = "the names are the registers'")]
pub enum Register {
    Rax,
    Rdx,
    Rcx,
    Rbx,
    Rsi,
    Rdi,
    Rbp,
    Rsp,
    R8,
    R9,
    R10,
    R11,
    R12,
    R13,
    R14,
    R15,
}

/// The x86-64 registers by their DWARF number (System V ABI for AMD64, figure 3.36).
const X86_64_BY_DWARF_NUMBER: [Register; 16] = [
    Register::Rax,
    Register::Rdx,
    Register::Rcx,
    Register::Rbx,
    Register::Rsi,
    Register::Rdi,
    Register::Rbp,
    Register::Rsp,
    Register::R8,
    Register::R9,
    Register::R10,
    Register::R11,
    Register::R12,
    Register::R13,
    Register::R14,
    Register::R15,
];

impl Register {
    /// The general register with this DWARF number on x86-64, if there is one.
    #[must_use]
    pub fn from_dwarf_x86_64(number: u16) -> Option<Self> {
        X86_64_BY_DWARF_NUMBER.get(usize::from(number)).copied()
    }

    /// This register's DWARF number on x86-64.
    #[must_use]
    pub const fn dwarf_x86_64(self) -> u16 {
        self as u16
    }

    pub(crate) const COUNT: usize = X86_64_BY_DWARF_NUMBER.len();

    /// The registers that a called function needn't preserve (System V ABI for AMD64, figure 3.4).
    pub(crate) const CALL_CLOBBERED: [Self; 9] =
        [Self::Rax, Self::Rcx, Self::Rdx, Self::Rsi, Self::Rdi, Self::R8, Self::R9, Self::R10, Self::R11];

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        X86_64_BY_DWARF_NUMBER.into_iter()
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Rax => "rax",
            Self::Rdx => "rdx",
            Self::Rcx => "rcx",
            Self::Rbx => "rbx",
            Self::Rsi => "rsi",
            Self::Rdi => "rdi",
            Self::Rbp => "rbp",
            Self::Rsp => "rsp",
            Self::R8 => "r8",
            Self::R9 => "r9",
            Self::R10 => "r10",
            Self::R11 => "r11",
            Self::R12 => "r12",
            Self::R13 => "r13",
            Self::R14 => "r14",
            Self::R15 => "r15",
        }
    }
}

/// The canonical frame address: the value that the caller's stack pointer has after the return.
///
/// Registers are those of the frame that the rule is applied to. Of a frame that isn't the interrupted one
/// only the stack pointer and the frame pointer are known, and `rbx` where all [rules](Rule::rbx) below say where it is.
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
    /// `rsp + 8 + ((pc & 15) >= threshold) * 8`: an entry of a lazy procedure linkage table, which pushes its
    /// index on the way. 16 bytes each; the push ends at byte 11, or at byte 10 where `endbr64` comes first.
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
    /// `*(cfa + offset)` in the caller of `clone`. Its child comes out of the same system call with 0 in `rax` and on a
    /// stack of its own, which begins there.
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
    /// The caller's `rbx`, where a caller may need it to find its own frame: in dynamic linkers and what they call. Text
    /// forms leave it out.
    pub rbx: CalleeSaved,
    /// Whether the caller was interrupted rather than calling: then `return_address` is the exact place (look
    /// it up as an instruction pointer, not one byte before) and all of its registers were saved.
    pub signal_frame: bool,
}

impl Rule {
    /// The frame of a function that has pushed `rbp` and copied the stack pointer to it.
    pub const FRAME_POINTER: Self = Self {
        cfa: Cfa::Register { register: Register::Rbp, offset: 16 },
        frame_pointer: SavedRegister::AtCfa(-16),
        return_address: ReturnAddress::AtCfa(-8),
        rbx: CalleeSaved::Unknown,
        signal_frame: false,
    };

    /// The frame of a function that hasn't touched the stack yet.
    pub const LEAF: Self = Self::above_stack_pointer(8);

    /// The frame of a function that has called `clone` and hasn't touched the stack, in the parent and in the child.
    pub const AFTER_CLONE: Self = Self { return_address: ReturnAddress::OfParent(-8), ..Self::LEAF };

    /// The outermost frame of a stack, where no more is known of it than that.
    pub const ROOT: Self = Self { return_address: ReturnAddress::Undefined, ..Self::LEAF };

    /// The kernel's signal frame, seen from the code that the handler returns to (`rt_sigreturn`): the stack
    /// pointer is at a `struct ucontext`, whose saved registers are these.
    pub const KERNEL_SIGNAL_FRAME: Self = Self {
        cfa: Cfa::Deref { register: Register::Rsp, offset: 160, addend: 0 },
        frame_pointer: SavedRegister::At { register: Register::Rsp, offset: 120 },
        return_address: ReturnAddress::At { register: Register::Rsp, offset: 168 },
        rbx: CalleeSaved::Unknown,
        signal_frame: true,
    };

    /// The frame of a function that has moved the stack pointer and left the frame pointer alone.
    #[must_use]
    pub const fn above_stack_pointer(offset: i32) -> Self {
        Self {
            cfa: Cfa::Register { register: Register::Rsp, offset },
            frame_pointer: SavedRegister::Same,
            return_address: ReturnAddress::AtCfa(-8),
            rbx: CalleeSaved::Unknown,
            signal_frame: false,
        }
    }

    /// Whether the frame pointer alone leads to the caller: a step of a frame-pointer walk then equals this
    /// rule's.
    #[must_use]
    pub fn is_frame_pointer(&self) -> bool {
        Self { rbx: CalleeSaved::Unknown, ..*self } == Self::FRAME_POINTER
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

    pub(crate) const fn unsupported(reason: UnsupportedReason) -> Self {
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

impl fmt::Display for Register {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A sum as in `rsp+16`, `rbp-8` or `r10+0`.
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
            Self::OfParent(offset) => write!(f, "{} unless rax=0", Sum("cfa", offset)),
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

    fn text(rule: Rule) -> String {
        Entry::Rule(rule).to_string()
    }

    #[test]
    fn entries_read_as_the_documented_columns() {
        assert_eq!(text(Rule::FRAME_POINTER), "rbp+16\tcfa-16\tcfa-8");
        assert_eq!(text(Rule::LEAF), "rsp+8\tsame\tcfa-8");
        assert_eq!(text(Rule::ROOT), "rsp+8\tsame\tundefined");
        assert_eq!(text(Rule::KERNEL_SIGNAL_FRAME), "*(rsp+160)\t*(rsp+120)\t*(rsp+168)");
        assert_eq!(text(Rule { cfa: Cfa::Plt { threshold: 11 }, ..Rule::LEAF }), "plt\tsame\tcfa-8");
        let vfork = Rule { return_address: ReturnAddress::InRegister(Register::Rdi), ..Rule::LEAF };
        assert_eq!(text(vfork), "rsp+8\tsame\trdi");
        assert_eq!(text(Rule::AFTER_CLONE), "rsp+8\tsame\tcfa-8 unless rax=0");
        let assembly = Cfa::Deref { register: Register::Rsp, offset: 56, addend: 8 };
        assert_eq!(assembly.to_string(), "*(rsp+56)+8");
        let indexed =
            Cfa::DerefIndexed { register: Register::Rsp, index: Register::R9, offset: 8, addend: 8 };
        assert_eq!(indexed.to_string(), "*(rsp+8*r9+8)+8");
        assert_eq!(Cfa::Register { register: Register::R10, offset: 0 }.to_string(), "r10+0");
        assert_eq!(Entry::NO_INFORMATION.to_string(), "end\t-\t-");
    }

    #[test]
    fn a_dwarf_number_leads_to_its_register_and_back() {
        for number in 0..16 {
            assert_eq!(Register::from_dwarf_x86_64(number).map(Register::dwarf_x86_64), Some(number));
        }
        assert_eq!(Register::from_dwarf_x86_64(16), None, "the return address is no register");
    }

    #[test]
    fn only_the_whole_rule_of_a_pushed_frame_pointer_is_proof() {
        assert!(Rule::FRAME_POINTER.is_frame_pointer());
        assert!(!Rule::LEAF.is_frame_pointer());
        assert!(!Rule { signal_frame: true, ..Rule::FRAME_POINTER }.is_frame_pointer());
        assert!(!Rule { frame_pointer: SavedRegister::Same, ..Rule::FRAME_POINTER }.is_frame_pointer());
    }
}
