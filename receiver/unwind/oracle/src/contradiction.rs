//! Why rows of real files contradict their code.

use std::fmt;

use sidewinder_unwind::validate::{Mismatch, RuleComponent};
use sidewinder_unwind::{Architecture, Cfa, Register, ReturnAddress, SavedRegister};

/// Why rows and code contradict each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Explanation {
    /// The stack pointer moves between two rows, without a row of its own: hand-written assembly (`mpn_mul`,
    /// `swapcontext`), and epilogues that LLVM splits.
    StackMoved,
    /// Hand-written assembly continues on another stack, where the code alone doesn't determine the frame: the
    /// sanitizers' `clone`, whose rows are those of the caller, and `ffi_call`, whose rows are right.
    OtherStack,
    /// Hand-written assembly uses `rbp` as a general register and doesn't state where the caller's value is; nor does
    /// Go's `.debug_frame`, which has no rules for it.
    FramePointerOverwritten,
    /// GCC for arm64 restores `x29` and `x30` before it frees a large frame, and still describes the frame from `x29` until it
    /// has.
    FramePointerRestored,
    /// GCC for arm64 touches each page of a large frame in a loop, and describes the frame from the loop's register meanwhile, without
    /// what was pushed before.
    FrameProbed,
    /// Hand-written assembly for arm64 describes the frame that it is about to enter, whose registers it reads one by one: `longjmp`,
    /// by its first argument.
    FrameToEnter,
    /// Hand-written assembly keeps the return address in another register across a call, or restores the whole state of another
    /// context, and has no row for it: `rawmemchr`, `swapcontext`.
    ReturnAddressMoved,
}

impl Explanation {
    /// The explanation of a contradiction; `None` if it isn't a known one.
    #[must_use]
    pub fn from_mismatch(mismatch: &Mismatch) -> Option<Self> {
        let rule = mismatch.row.entry.rule()?;
        let Some(code) = mismatch.code else {
            return match (mismatch.statement, rule.return_address) {
                (RuleComponent::Cfa, _) => Some(Self::OtherStack),
                (RuleComponent::ReturnAddress, ReturnAddress::InRegister(_)) => {
                    Some(Self::ReturnAddressMoved)
                }
                (RuleComponent::FramePointer, _)
                    if is_of_arm64(rule.cfa) && rule.frame_pointer == SavedRegister::Same =>
                {
                    Some(Self::FramePointerOverwritten)
                }
                _ => None,
            };
        };
        let from_stack = |cfa| {
            let Cfa::Register { register, .. } = cfa else { return false };
            matches!(register, Register::Rsp | Register::Rbp | Register::Sp | Register::X29)
        };
        match mismatch.statement {
            RuleComponent::Cfa
                if is_from_frame_pointer(rule.cfa) && code.frame_pointer == rule.frame_pointer =>
            {
                Some(Self::FramePointerRestored)
            }
            RuleComponent::Cfa if from_stack(rule.cfa) => Some(Self::StackMoved),
            RuleComponent::Cfa if is_from_probed_page(rule.cfa) => Some(Self::FrameProbed),
            RuleComponent::Cfa if is_from_argument(rule.cfa) => Some(Self::FrameToEnter),
            RuleComponent::ReturnAddress if is_moved(rule.return_address) => Some(Self::ReturnAddressMoved),
            RuleComponent::FramePointer
                if rule.frame_pointer == SavedRegister::Same && code.frame_pointer != SavedRegister::Same =>
            {
                Some(Self::FramePointerOverwritten)
            }
            _ => None,
        }
    }
}

fn is_of_arm64(cfa: Cfa) -> bool {
    matches!(cfa, Cfa::Register { register, .. } if register.architecture() == Architecture::Aarch64)
}

/// Whether a frame of arm64 is found by its frame pointer.
fn is_from_frame_pointer(cfa: Cfa) -> bool {
    matches!(cfa, Cfa::Register { register: Register::X29, .. })
}

/// Whether a frame of arm64 ends that many whole guards of 64 KiB above a register in which GCC counts pages.
fn is_from_probed_page(cfa: Cfa) -> bool {
    const GUARD_BYTES: i32 = 1 << 16;
    matches!(cfa, Cfa::Register { register: Register::X12 | Register::X13, offset }
        if offset > 0 && offset % GUARD_BYTES == 0)
}

/// Whether a frame of arm64 is found by a function's first argument.
fn is_from_argument(cfa: Cfa) -> bool {
    matches!(cfa, Cfa::Register { register: Register::X0, offset: 0 })
}

/// Whether a return address of arm64 is in another register than a call leaves it in.
fn is_moved(return_address: ReturnAddress) -> bool {
    matches!(return_address, ReturnAddress::InRegister(register)
        if register != Register::X30 && register.architecture() == Architecture::Aarch64)
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StackMoved => "the stack pointer moves without a row",
            Self::OtherStack => "the code continues on another stack",
            Self::FramePointerOverwritten => "the frame pointer is overwritten without a row",
            Self::FramePointerRestored => "the frame pointer is restored without a row",
            Self::FrameProbed => "the pages of the frame are touched",
            Self::FrameToEnter => "the row is that of a frame to enter",
            Self::ReturnAddressMoved => "the return address is moved without a row",
        })
    }
}
