//! Calls, seen from their return addresses: a word of a stack is a return address only if a call lies before it
//! ([`call_before`](crate::call_before)). The same test as in `bpf/c/call.bpf.h`.

use sidewinder_address::Avma;

/// Functions are shorter than this: a direct call whose target lies lower by more is a call of another function. The
/// same as `SW_FUNCTION_BYTES_MAX`.
const FUNCTION_BYTES_MAX: u64 = 1 << 18;

/// A word of a stack with unknown content is taken for a return address only if it follows a call of a function that
/// starts no farther than this before the current instruction. The same as `SW_NEAR_BYTES_MAX`.
const NEAR_BYTES_MAX: u64 = 1 << 14;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// To an address in the instruction.
    Direct(Avma),
    /// Through a register or memory, or a call whose code can be decoded in two ways.
    Indirect,
}

impl Call {
    /// Whether it may be a call of the function that contains the current instruction.
    #[must_use]
    pub fn may_lead_to(self, instruction: Avma) -> bool {
        match self {
            Self::Direct(target) => instruction.0.wrapping_sub(target.0) < FUNCTION_BYTES_MAX,
            Self::Indirect => true,
        }
    }

    /// Whether it certainly is one, as far as that can be decided for a stack word with unknown content.
    #[must_use]
    pub fn leads_near(self, instruction: Avma) -> bool {
        match self {
            Self::Direct(target) => instruction.0.wrapping_sub(target.0) < NEAR_BYTES_MAX,
            Self::Indirect => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_of_what_lies_above_or_far_below_is_of_another_function() {
        let call = Call::Direct(Avma(0x1000));
        assert!(call.may_lead_to(Avma(0x1000)) && call.may_lead_to(Avma(0x1fff)));
        assert!(!call.may_lead_to(Avma(0xfff)) && !call.may_lead_to(Avma(0x1000 + FUNCTION_BYTES_MAX)));
        assert!(Call::Indirect.may_lead_to(Avma(0)));
    }
}
