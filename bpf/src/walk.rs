//! How programs repeat themselves along a stack, and how far that takes them.

use libbpf_rs::ProgramType;

use crate::intf;

/// Numbers of `enum bpf_func_id`: both helpers take a function of the program, and came with Linux 5.17.
pub(crate) const BPF_FIND_VMA: u32 = 180;
pub(crate) const BPF_LOOP: u32 = 181;

/// How often a stack may go on below where it was: on another stack, or in memory that was made to loop.
pub const STACK_SWITCHES_MAX: u32 = intf::SW_STACK_SWITCHES_MAX;
/// The largest frame that a frame pointer with no table behind it may claim.
pub const UNPROVEN_FRAME_BYTES_MAX: u64 = intf::SW_UNPROVEN_FRAME_BYTES_MAX as u64;

/// What calls have the stack pointer on a multiple of.
pub const STACK_ALIGNMENT_BYTES: u64 = intf::SW_STACK_ALIGNMENT_BYTES as u64;

/// Words above the stack pointer of generated code among which a return address is searched.
pub const SEARCH_WORDS: u64 = intf::SW_SEARCH_WORDS as u64;

/// How programs repeat themselves along a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkMode {
    /// In a loop of the kernel's (`bpf_loop`, Linux 5.17 and later): as deep as configured.
    Loop,
    /// In a loop that the verifier can count to the end of, from which a program calls itself, which kernels allow
    /// [33 times](intf::SW_CALLS_MAX).
    TailCalls,
}

impl WalkMode {
    /// The ways that this kernel has, the best one first. Where it does not say, loading will.
    #[must_use]
    pub fn supported() -> &'static [Self] {
        let lacks = |helper| matches!(ProgramType::PerfEvent.is_helper_supported(helper), Ok(false));
        let has_loops = ![BPF_LOOP, BPF_FIND_VMA].into_iter().any(lacks);
        if has_loops { &[Self::Loop, Self::TailCalls] } else { &[Self::TailCalls] }
    }

    /// The best that this kernel has.
    pub(crate) fn best_supported() -> Self {
        Self::supported().first().copied().unwrap_or(Self::TailCalls)
    }

    /// A stack of more frames than this is cut, whatever is configured.
    #[must_use]
    pub const fn frames_max(self) -> u32 {
        match self {
            // As many as a chain of chunks holds.
            Self::Loop => intf::SW_CHAIN_CHUNKS * intf::SW_CHUNK_FRAMES - 1,
            Self::TailCalls => intf::SW_CALLS_MAX * intf::SW_FRAMES_PER_CALL,
        }
    }

    /// A word for tables and logs.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::TailCalls => "tail-calls",
        }
    }
}
