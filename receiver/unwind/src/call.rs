//! Calls, seen from where they return to: a word of a stack is a return address only if a call lies before it
//! ([`call_before`](crate::call_before)). The same test as in `bpf/c/call.bpf.h`.

use sidewinder_address::Avma;

/// Functions are shorter: a call of an address lower by more is a call of another function. The same as
/// `SW_FUNCTION_BYTES_MAX`.
const FUNCTION_BYTES_MAX: u64 = 1 << 18;

/// A word of a stack that may be anything is a return address if it comes after a call of a function that starts no farther
/// before the instruction at hand. The same as `SW_NEAR_BYTES_MAX`.
const NEAR_BYTES_MAX: u64 = 1 << 14;

/// A call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Call {
    /// Of a stated address.
    Direct(Avma),
    /// By way of a register or of memory, or one whose code can be read in two ways.
    Indirect,
}

impl Call {
    /// Whether it may be a call of the function that executes an instruction.
    #[must_use]
    pub fn may_lead_to(self, instruction: Avma) -> bool {
        match self {
            Self::Direct(target) => instruction.0.wrapping_sub(target.0) < FUNCTION_BYTES_MAX,
            Self::Indirect => true,
        }
    }

    /// Whether it is one for certain, as far as a word of a stack that may be anything can tell.
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
