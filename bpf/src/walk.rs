//! How programs repeat steps along a stack, and the limits of walks.

use libbpf_rs::ProgramType;

use crate::{arch, intf};

/// Values of `enum bpf_func_id`: both helpers take a function of the program, and exist since Linux 5.17.
pub(crate) const BPF_FIND_VMA: u32 = 180;
pub(crate) const BPF_LOOP: u32 = 181;

/// What to do where [`WalkMode::Loop`] is missing.
pub(crate) const LOOPS_REMEDY: &str = "use Linux 5.17 or later";

/// How often a walk may go to a lower address: on another stack, or in stack memory that forms a loop.
pub const STACK_SWITCHES_MAX: u32 = intf::SW_STACK_SWITCHES_MAX;
/// The largest frame that is accepted from a frame pointer without an unwind rule.
pub const UNPROVEN_FRAME_BYTES_MAX: u64 = intf::SW_UNPROVEN_FRAME_BYTES_MAX as u64;

/// The alignment of the stack pointer before calls.
pub const STACK_ALIGNMENT_BYTES: u64 = intf::SW_STACK_ALIGNMENT_BYTES as u64;

/// How many words above the stack pointer of generated code are searched for a return address.
pub const SEARCH_WORDS: u64 = intf::SW_SEARCH_WORDS as u64;

/// How programs repeat steps along a stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WalkMode {
    /// In a kernel loop (`bpf_loop`, Linux 5.17 and later): up to the configured depth.
    Loop,
    /// In a loop with a bound that the verifier can follow, after which a program tail-calls itself, which kernels allow
    /// [33 times](intf::SW_CALLS_MAX).
    TailCalls,
}

impl WalkMode {
    /// Whether this kernel can sample the threads that end waits of others: only programs with loops do.
    #[must_use]
    pub fn any_samples_wakers() -> bool {
        Self::supported().contains(&Self::Loop)
    }

    /// The modes that this kernel supports, the best one first. If the kernel doesn't say, loading will show. Empty before Linux
    /// 5.17 where kernels [allow no tail calls](arch::ALLOWS_TAIL_CALLS).
    #[must_use]
    pub fn supported() -> &'static [Self] {
        let lacks = |helper| matches!(ProgramType::PerfEvent.is_helper_supported(helper), Ok(false));
        let has_loops = ![BPF_LOOP, BPF_FIND_VMA].into_iter().any(lacks);
        match (has_loops, arch::ALLOWS_TAIL_CALLS) {
            (true, true) => &[Self::Loop, Self::TailCalls],
            (true, false) => &[Self::Loop],
            (false, true) => &[Self::TailCalls],
            (false, false) => &[],
        }
    }

    /// The best mode that this kernel supports.
    pub(crate) fn best_supported() -> Option<Self> {
        Self::supported().first().copied()
    }

    /// The maximum number of frames: longer stacks are truncated, whatever is configured.
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
