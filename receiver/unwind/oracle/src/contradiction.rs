//! Why rows of real files contradict their code.

use std::fmt;

use sidewinder_unwind::validate::{Mismatch, RuleComponent};
use sidewinder_unwind::{Cfa, Register, SavedRegister};

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
}

impl Explanation {
    /// The explanation of a contradiction; `None` if it isn't a known one.
    #[must_use]
    pub fn from_mismatch(mismatch: &Mismatch) -> Option<Self> {
        let rule = mismatch.row.entry.rule()?;
        let Some(code) = mismatch.code else {
            return (mismatch.statement == RuleComponent::Cfa).then_some(Self::OtherStack);
        };
        let from_stack = |cfa| matches!(cfa, Cfa::Register { register: Register::Rsp | Register::Rbp, .. });
        match mismatch.statement {
            RuleComponent::Cfa if from_stack(rule.cfa) => Some(Self::StackMoved),
            RuleComponent::FramePointer
                if rule.frame_pointer == SavedRegister::Same && code.frame_pointer != SavedRegister::Same =>
            {
                Some(Self::FramePointerOverwritten)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::StackMoved => "the stack pointer moves without a row",
            Self::OtherStack => "the code continues on another stack",
            Self::FramePointerOverwritten => "the frame pointer is overwritten without a row",
        })
    }
}
